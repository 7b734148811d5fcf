"""What each kind of message does to an execution."""
