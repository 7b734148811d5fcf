"""Running a plan on worker processes."""
