"""The figures of an engine."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EngineStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """An engine at one moment."""

    live: int
    """Executions in memory."""
    commits: int
    changes: int
    """Changes in these commits; many messages from outside are one."""
    messages: int
    """Messages from outside that were stored."""
    refused: int
    """Commits that the store refused."""
    lost: int
    """Messages of a plain `push` that were lost with them."""
    waiting: int
    """Entries that wait for the next commit."""
    timers_fired: int
    tasks: int
    """Tasks that wait for their result."""
    tasks_done: int
    tasks_failed: int
    tasks_retried: int
