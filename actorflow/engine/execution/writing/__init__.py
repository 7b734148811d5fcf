"""Group commit: what is given to the writer, who may be sent a message, who is woken."""
