"""Many engines on one shared store: the ring of workers, and the stores that carry it."""
