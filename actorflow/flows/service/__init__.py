"""Flows on an engine: what users call, what is stored, and what can be seen."""
