"""The figures of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from actorflow.engine.parts import EngineParts

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
    events_left: int = 0
    """Events that no wait had taken when their workflows ended."""

    @classmethod
    def of(cls, parts: EngineParts) -> Self:
        """Return the figures of an engine as they are now. O(1)."""
        writer, tasks = parts.writer, parts.tasks
        return cls(
            live=len(parts.table),
            commits=writer.commits,
            changes=writer.changes,
            messages=writer.messages,
            refused=writer.refused,
            lost=writer.lost,
            waiting=writer.waiting,
            timers_fired=parts.timers.fired,
            tasks=len(tasks),
            tasks_done=tasks.done,
            tasks_failed=tasks.failed,
            tasks_retried=tasks.retried,
            events_left=sum(getattr(each, "events_left", 0) for each in [*parts.kinds.values()]),
        )
