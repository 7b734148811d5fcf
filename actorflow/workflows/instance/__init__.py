"""The recorded state of an instance and its transitions: no clock, thread, I/O or user code."""
