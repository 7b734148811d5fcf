"""The runtime: actors on lanes, workers, servers, supervisors."""
