"""A thread of its own for one actor."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["ThreadLane"]


class ThreadLane:
    """A thread of its own for one actor (`executor="thread"`)."""

    can_help = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready: queue.SimpleQueue[Runnable | None] = queue.SimpleQueue()
        self._unstarted: list[None] = [None]  # who pops this starts the thread

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called in this lane's thread; the first time starts it."""
        self._ready.put(runnable)
        if self._unstarted:
            self._start()

    def _start(self) -> None:
        try:
            self._unstarted.pop()
        except IndexError:
            return
        threading.Thread(target=self._work, name=f"actorflow-{self._name}", daemon=True).start()

    def release(self) -> None:
        """End the thread."""
        self._ready.put(None)

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for the actor of this lane."""
        return ticket.wait(timeout)

    def _work(self) -> None:
        while (runnable := self._ready.get()) is not None:
            try:
                runnable.run()
            except BaseException:  # noqa: BLE001 - a run must not raise: this is a bug of ours
                log.critical("an actor's run raised", actor=brief(runnable), exc_info=True)
