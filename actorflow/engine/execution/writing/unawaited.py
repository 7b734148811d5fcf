"""Changes that nobody waits for: they go with a commit of others, or by themselves a little later.

Where callers wait for one commit after the other, a commit of its own would only delay them.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from actorflow.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.execution.writing.entries import Request

__all__ = ["Unawaited"]

_MERGE = 0.002  # seconds after which they go with the next commit of others
_ALONE = 0.006  # seconds after which they have a commit of their own


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
        self._alarm_set = False

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request: Request) -> None:
        """Keep a change. Thread-safe."""
        if not self._kept:
            self._since = perf_counter()
        self._kept.append(request)
        if not self._alarm_set:
            self._set_alarm(_ALONE)

    def take(self, *, all_of_them: bool) -> list[Request]:
        """Return what goes with the next commit: what is old enough, or all. The writer's."""
        if not all_of_them and perf_counter() - self._since < _MERGE:
            return []
        kept = self._kept[:]
        del self._kept[: len(kept)]
        return kept

    def _set_alarm(self, seconds: float) -> None:
        self._alarm_set = True
        SYSTEM.call_at(SYSTEM.now() + seconds, self._on_alarm)

    def _on_alarm(self) -> None:
        """Commit what no commit of others has taken. In the clock's thread."""
        self._alarm_set = False
        if not self._kept:
            return
        left = _ALONE - (perf_counter() - self._since)
        if left > 0:
            self._set_alarm(left)
        elif self._is_busy():
            self._set_alarm(_ALONE)
        else:
            self._commit()
