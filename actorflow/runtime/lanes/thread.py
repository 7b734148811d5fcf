"""A thread of its own for one actor."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.thread_start import (
    PENDING,
    RETRY_EVERY,
    retry,
    retry_later,
    start_thread,
)
from actorflow.runtime.lanes.uninterruptible import (
    UNINTERRUPTIBLE,
    hand_over,
    hand_over_to_helper,
    in_main_thread,
)
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable, Waiter

__all__ = ["ThreadLane"]


class ThreadLane:
    """A thread of its own for one actor (`executor="thread"`), started with its first run.

    In a forked child the lane is as new: without a thread, and without earlier submissions.
    """

    can_help = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()
        after_fork(self._reset)

    def _reset(self) -> None:
        self._ready: queue.SimpleQueue[Runnable | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule `runnable.run()` in this lane's thread; the first call starts it."""
        if self._started:
            self._ready.put(runnable)
        elif in_main_thread():  # one C call: an interrupt cannot separate the two steps
            UNINTERRUPTIBLE.post(partial(self._submit_first, runnable))
        else:
            self._submit_first(runnable)

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to this lane; return whether there was one."""
        if self._started:
            return hand_over(idle, self._ready.put)
        return hand_over_to_helper(idle, self._submit_first)

    def _submit_first(self, runnable: Runnable) -> None:
        self._ready.put(runnable)
        self._start()

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = start_thread(
                    self._work, self._ready, name=f"actorflow-{self._name}"
                )
            if not self._started:
                retry_later(self._start)

    def release(self) -> None:
        """End the thread once it has run all earlier submissions."""
        self._ready.put(None)

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for the actor of this lane; return whether it was in time."""
        return ticket.wait(timeout)

    def _work(self, ready: queue.SimpleQueue[Runnable | None]) -> None:
        while True:
            try:
                runnable = ready.get(timeout=RETRY_EVERY if PENDING else None)
            except queue.Empty:
                retry()
                continue
            if runnable is None:
                return
            try:
                runnable.run()
            except BaseException:  # noqa: BLE001 - a run must not raise: this is a bug of ours
                log.critical("an actor's run raised", actor=brief(runnable), exc_info=True)
            del runnable  # it may refer to much, and the next one may come late
