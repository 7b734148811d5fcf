"""Which message leaves first."""
