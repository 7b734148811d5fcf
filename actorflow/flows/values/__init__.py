"""The values of flows, paths into them, and values as text and as times."""
