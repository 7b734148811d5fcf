"""Where executions are kept: one protocol, two stores, others by entry point."""
