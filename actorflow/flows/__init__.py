"""Flows: the flow language and its executions, which are a kind of execution on the engine."""
