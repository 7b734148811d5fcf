"""Group commit: the writer, the admission of messages, and waking the callers."""
