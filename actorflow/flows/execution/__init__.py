"""One run of one execution: pure, from messages and a state to a new state and messages."""
