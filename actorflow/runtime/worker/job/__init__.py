"""What a worker runs: the user's job, what it may return, and what happens to its failures."""
