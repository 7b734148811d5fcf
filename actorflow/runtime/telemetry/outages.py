"""Outages of a store: one log line at the start, one a minute, one at the end.

Many parts of an engine notice that a store does not answer, each again and again. They all report
to the same `Outage`, and none of them logs anything of its own.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outage", "outage_of"]

_EVERY = 60.0  # seconds between two lines


class Outage:
    """The log lines about one store. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._logged: float | None = None
        self._announced = False

    def failed(self, error: BaseException, what: str) -> None:
        """Report that the store has failed; log it at the start of an outage, and once a minute.

        An error of any other class than `ActorflowError` and `OSError` is a defect: it is logged at
        once, with its traceback, as `what`.
        """
        if not isinstance(error, (ActorflowError, OSError)):
            log.error(what, exc_info=error)
            return
        with self._lock:
            now = self._clock()
            if self._since is None:
                self._since = now
            # Also if it has answered meanwhile: it may fail and answer many times a second.
            if self._logged is not None and now - self._logged < _EVERY:
                return
            self._logged, self._announced = now, True
            seconds = now - self._since
        log.warning("the store fails; trying again", for_s=round(seconds), error=str(error))

    def ended(self) -> None:
        """Report that the store has answered. Cheap while nothing is wrong."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
            announced, self._announced = self._announced, False
        if announced and since is not None:
            seconds = round(self._clock() - since, 1)
            log.warning("the store works again", after_s=seconds)


_OUTAGES: WeakKeyDictionary[object, Outage] = WeakKeyDictionary()
_LOCK = threading.Lock()


def outage_of(store: object) -> Outage:
    """Return the outage of a store: the same one each time."""
    with _LOCK:
        return _OUTAGES.setdefault(store, Outage())
