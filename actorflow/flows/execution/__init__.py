"""One run of an execution: a pure function from state and messages to state and messages."""
