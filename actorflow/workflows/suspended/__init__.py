"""Code of the user while it is in memory: where it runs, what it holds and what it can ask."""
