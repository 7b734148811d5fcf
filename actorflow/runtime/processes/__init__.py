"""Worker processes: a pool that calls functions in processes which come, go and crash."""
