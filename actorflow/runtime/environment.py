"""What an engine takes from the process that it runs in: time, lanes, threads and chance.

All of it is in one object, so that a simulation can put another one in its place.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.serial_lane import SERIAL_LANE
from actorflow.runtime.lanes.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import RuntimeLane

__all__ = ["PROCESS", "Environment", "RepeatedCall", "RepeatingThread"]


class RepeatedCall(Protocol):
    """Calls a function again and again, each time after the seconds that it returned."""

    def start(self) -> None:
        """Make the first call, soon."""

    def wake(self) -> None:
        """Make the next call now. Thread-safe."""

    def stop(self) -> None:
        """Make no more calls; return when the last one has returned, unless it is that one."""


class RepeatingThread:
    """A `RepeatedCall` in a thread of its own."""

    def __init__(self, name: str, turn: Callable[[], float]) -> None:
        self._turn = turn
        self._wakeup = Wakeup()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and make the first call."""
        self._thread.start()

    def wake(self) -> None:
        """Make the next call now. Thread-safe."""
        self._wakeup.wake()

    def stop(self) -> None:
        """End the thread, and wait for it unless it is the calling one."""
        self._stopped = True
        self._wakeup.wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        wait = 0.0
        while not self._stopped:
            wait = self._turn()
            if not self._stopped:
                self._wakeup.wait(wait)


class Environment:
    """The process as it is. A subclass may be another world, where nothing happens by itself."""

    clock: Clock = SYSTEM
    """Monotonic time, and calls at a moment of it."""
    pool: RuntimeLane = POOL
    """The lane of code that may block."""
    serial_lane: Any = SERIAL_LANE
    """The lane of executions and taskers."""
    own: Any = "thread"
    """The option `executor` of a worker that has a thread of its own."""
    wall: Callable[[], float] = staticmethod(time.time)
    """Returns what the clock of the machine says, in seconds since the epoch."""
    random: Callable[[], float] = staticmethod(random.random)
    """Returns random numbers from 0 to 1."""

    def acquire(self, lock: Any, timeout: float) -> bool:
        """Acquire a lock that another thread releases soon; return whether it was in time.

        A timeout of -1 waits for as long as it takes.
        """
        return bool(lock.acquire(timeout=timeout))

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""
        time.sleep(seconds)

    def background(self, name: str, call: Callable[[], object]) -> None:
        """Call a function that may block for a long time, without waiting for it."""
        threading.Thread(target=call, name=name, daemon=True).start()

    def loop(self, name: str, turn: Callable[[], float]) -> RepeatedCall:
        """Return what calls `turn()` now, and again after the seconds that it returns."""
        return RepeatingThread(name, turn)


PROCESS = Environment()
"""The process that we are in."""
