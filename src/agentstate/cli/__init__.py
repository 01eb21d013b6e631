"""The command line: commands, tables, the supervisor. Each command calls one function; none holds a rule."""
