"""Where it is kept: the journal, one method a fact, on SQLite. No business rule lives here."""
