"""Workflows as code: plain Python that survives restarts, waits for days, and is never polled."""
