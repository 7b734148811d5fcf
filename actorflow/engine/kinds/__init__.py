"""The kinds of execution that the engine brings along: durable workers and schedules."""
