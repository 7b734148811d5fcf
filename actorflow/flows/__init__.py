"""Flows: the flow language and its executions, one kind of execution on the engine."""
