"""A bell: what one thread waits for, and any other thread can ring.

Not a `queue.SimpleQueue`: in CPython up to 3.12, `get(timeout=...)` of one that is empty can wait
for ever if its time is up before it has looked, which happens with timeouts below a microsecond.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock

__all__ = ["Bell"]


class Bell:
    """Wakes the waiting thread; rung while none waits, it makes the next `wait` return at once.

    Ringing is one C call, so that an interrupt of the main thread leaves it rung or not.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread. Thread-safe; rings that nobody has heard yet count as one."""
        try:
            self._lock.release()
        except RuntimeError:  # it was rung before
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is rung; return whether it was. For one thread."""
        if timeout is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=max(0.0, min(timeout, TIMEOUT_MAX)))
