"""How long executions that have ended are kept, with all that is stored of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actorflow.runtime.log import log

if TYPE_CHECKING:
    from actorflow.engine.core import Core

__all__ = ["Retention"]

_PURGED = 500  # executions that are forgotten in one pass
_PURGE_EVERY = 3_600.0  # seconds between looking for what has been kept long enough


class Retention:
    """Forgets what ended long ago, in bounded passes.

    Args:
        core: the store, its writer and the clock.
        seconds: how long executions are kept; `None`: until somebody purges them.
        keys_for: seconds that idempotency keys are kept, however much is purged.

    """

    def __init__(self, core: Core, seconds: float | None, keys_for: float) -> None:
        self._core = core
        self._seconds = seconds
        self._keys_for = keys_for

    def begin(self) -> None:
        """Forget what has been kept long enough, now and from time to time. Thread-safe."""
        if self._seconds is not None:
            self._core.writer.call(partial(self._purge_old, self._seconds))

    def purge(self, before: float) -> int:
        """Forget what ended before a moment, some at a time; return how many executions."""
        count = 0
        while True:
            gone: int = self._core.in_writer(lambda: self._purge_pass(before))
            count += gone
            if gone < _PURGED:
                return count

    def _purge_pass(self, before: float) -> int:
        keys_before = min(before, self._core.clock.now() - self._keys_for)
        return self._core.store.purge(before=before, keys_before=keys_before, limit=_PURGED)

    def _purge_old(self, seconds: float) -> None:
        """Forget what has been kept long enough. In the writer's thread."""
        core = self._core
        if core.closed:
            return
        now = core.clock.now()
        try:
            gone = self._purge_pass(now - seconds)
        except Exception as error:  # noqa: BLE001 - it is tried again
            log.error("purge failed; trying again", exc_info=error)
            gone = 0
        if gone == _PURGED:  # others have their turn first
            self.begin()
        else:
            core.clock.call_at(now + _PURGE_EVERY, self.begin)
