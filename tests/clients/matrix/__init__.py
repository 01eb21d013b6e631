"""The client matrix: agents on real packages are killed at every point of a task and lose nothing."""
