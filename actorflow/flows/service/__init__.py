"""Flows on an engine: what users call, and what is stored and shown."""
