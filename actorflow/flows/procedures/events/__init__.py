"""Procedures that react to events or cause them: tasks, timers, signals, handlers, traces."""
