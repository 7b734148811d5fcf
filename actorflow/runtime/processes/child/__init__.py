"""What runs in the worker processes, and in the process that forks them."""
