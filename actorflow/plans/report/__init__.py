"""Seeing a plan: progress, what a run has cost, pictures of the time and of the graph."""
