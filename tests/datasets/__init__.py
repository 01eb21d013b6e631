"""Exports in the hands of the libraries that they are for; ``made`` writes them, the tests read them elsewhere."""
