"""Many engines on one shared store: which worker runs which executions, and who takes over."""
