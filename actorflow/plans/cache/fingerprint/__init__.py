"""What a job's result depends on: its code, the helpers and globals it uses, its arguments."""
