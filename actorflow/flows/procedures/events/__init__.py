"""Procedures that wait for, or tell, the world: tasks, timers, signals, handlers, traces."""
