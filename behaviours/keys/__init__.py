"""Messages that belong together by a key."""
