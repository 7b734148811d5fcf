"""When a batch leaves, and when a message is too old for one."""
