"""Tasks: work that executions hand out, and the taskers that do it."""
