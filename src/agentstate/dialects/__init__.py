"""How it is spelled: bytes to core data and back, one wire format a file. Pure; what passes through keeps its bytes."""
