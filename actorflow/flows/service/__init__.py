"""Flows on an engine: the interface for users, storage and views."""
