"""The life of an execution on an engine: woken, run, committed, dispatched, retired."""
