"""Durable executions: fetch, run, commit, dispatch; stores, timers and tasks."""
