"""The outside: HTTP in, HTTP out. Parses heads, renders errors; decides nothing."""
