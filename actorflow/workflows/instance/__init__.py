"""What is recorded of an instance, and what follows from it: no clock, thread, I/O or user code."""
