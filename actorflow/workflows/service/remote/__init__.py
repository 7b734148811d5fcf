"""Workflows of other languages on an engine: their kind, and the agent that hands out jobs."""
