"""Jobs in worker processes."""
