"""Changes that nobody waits for: they go with a commit of others, or by themselves a little later.

Where callers wait for one commit after the other, a commit of its own would only delay them.
"""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from actorflow.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.execution.writing.entries import Request

__all__ = ["Unawaited"]

_MERGE = 0.002  # seconds after which they go with the next commit of messages
_BUSY = 0.006  # seconds between two looks while others commit


class Unawaited:
    """Keeps changes until it is time for them.

    Args:
        is_busy: whether a commit is under way; the next one takes what is old enough.
        commit: makes the writer take everything. Called in the clock's thread.

    """

    def __init__(self, is_busy: Callable[[], bool], commit: Callable[[], object]) -> None:
        self._is_busy = is_busy
        self._commit = commit
        self._kept: list[Request] = []
        self._since = 0.0
        self._due = inf
        self._alarm_at = inf

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request: Request, patience: float) -> None:
        """Keep a change, for so many seconds at most while nobody commits. Thread-safe."""
        now = perf_counter()
        due = now + patience
        if not self._kept:
            self._since, self._due = now, due
        elif due < self._due:
            self._due = due
        self._kept.append(request)
        if due < self._alarm_at:
            self._set_alarm(patience)

    def take(self, *, all_of_them: bool) -> list[Request]:
        """Return what goes with the next commit: what is old enough, or all. The writer's."""
        if not all_of_them and perf_counter() - self._since < _MERGE:
            return []
        kept = self._kept[:]
        del self._kept[: len(kept)]
        return kept

    def _set_alarm(self, seconds: float) -> None:
        self._alarm_at = perf_counter() + seconds
        SYSTEM.call_at(SYSTEM.now() + seconds, self._on_alarm)

    def _on_alarm(self) -> None:
        """Commit what no commit of others has taken. In the clock's thread."""
        self._alarm_at = inf
        if not self._kept:
            return
        left = self._due - perf_counter()
        if left > 0:
            self._set_alarm(left)
        elif self._is_busy():
            self._set_alarm(_BUSY)
        else:
            self._commit()
