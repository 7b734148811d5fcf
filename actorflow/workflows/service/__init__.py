"""Workflows on an engine: instances are executions, tasks are done by its taskers."""
