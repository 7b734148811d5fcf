"""Worker processes: a crew that calls functions in processes which come, go and crash."""
