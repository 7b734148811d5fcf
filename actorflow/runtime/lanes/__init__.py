"""Where actors run: the pool, a thread, an event loop."""
