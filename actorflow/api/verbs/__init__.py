"""The verbs on an engine: one table, from which routes, client and commands are made."""
