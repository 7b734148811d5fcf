"""`Wakeup` wakes one waiting thread; any other thread can use it.

Not a `queue.SimpleQueue`: in CPython up to 3.12, `get(timeout=...)` of one that is empty can wait
forever if its time is up before it has looked, which happens with timeouts below a microsecond.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock

__all__ = ["Wakeup"]


class Wakeup:
    """Wakes the waiting thread. If none waits, the next `wait` returns at once.

    `wake` is one C call: an interrupt of the main thread comes before or after it.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread. Thread-safe; several calls before the next `wait` count as one."""
        try:
            self._lock.release()
        except RuntimeError:  # a call before has done it
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is rung; return whether it was. For one thread."""
        if timeout is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=max(0.0, min(timeout, TIMEOUT_MAX)))
