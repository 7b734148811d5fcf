"""The serial lane: one thread of the pool at a time runs many actors that wake each other.

Problem
    An execution wakes its tasker, the tasker wakes the execution, and both wake the writer. If each
    ran in its own thread of the pool, every hand-over would switch threads, and the threads would
    compete for the interpreter lock, although only one of them can compute.

Approach
    One thread has the *baton*. It runs the submitted actors one after another, and no other thread
    is woken. The baton is a right to run, not a lock: a thread gives it up before it calls code
    that is known to be slow (`SlowCallDetector`, `pass_on`), and the watcher of the pool takes it
    away from a thread that blocks. Another thread then runs the waiting actors, while the first
    one finishes its own.

Invariants
    1. The baton is in exactly one place: in `_baton` (free), in `_held` (with a thread), or on its
       way to a thread, as a submission of the lane to the pool or as `next` of a thread.
    2. It moves by single list operations, which are atomic: the thread that pops it owns it. If the
       baton was taken from a thread in between, that thread stops after its present run.
    3. A thread that puts the baton down checks `ready` once more afterwards. So an actor submitted
       in between is run by one side or the other.
    4. Work of the pool that is not in this lane goes first: the holder looks after each run.

Threads
    `submit` may be called by any thread. The main thread submits to the pool instead: an interrupt
    could strike between queueing the work and handing the baton over. `_look` runs in the thread
    of the pool's watcher, everything else in threads of the pool.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.pool import HERE, POOL
from actorflow.runtime.lanes.uninterruptible import in_main_thread

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable, Waiter
    from actorflow.runtime.lanes.pool import PoolThread

__all__ = ["SERIAL_LANE", "SerialLane", "SlowCallDetector"]

_STUCK = 0.01  # seconds that a run may take if it may be the processor that it waits for


class SlowCallDetector:
    """Predicts whether the next call of some code is slow: it is if the last two calls were.

    A single slow call may just have waited for a processor.

    Args:
        limit: seconds from which on a call is slow.

    """

    __slots__ = ("_limit", "_long", "slow")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._long = False
        self.slow = False

    def begin(self) -> float:
        """Declare that this thread is about to call the code; return the time, for `end`."""
        pool_thread = HERE.thread
        if pool_thread is not None:
            pool_thread.free = False
            if self.slow or pool_thread.next is not None:
                SERIAL_LANE.pass_on()
            elif SERIAL_LANE.ready:
                POOL.rouse()
        return perf_counter()

    def end(self, begin: float) -> None:
        """Declare that the call is over, and that this thread is done soon."""
        long = perf_counter() - begin > self._limit  # `note`, inlined
        self.slow, self._long = long and self._long, long
        pool_thread = HERE.thread
        if pool_thread is not None:
            pool_thread.free = True

    def expect(self) -> float:
        """Like `begin`, for code of our own, which others may call in the midst of theirs."""
        if SERIAL_LANE.ready:
            if self.slow:
                SERIAL_LANE.pass_on()
            else:
                POOL.rouse()
        return perf_counter()

    def note(self, begin: float) -> None:
        """Record that a call is over."""
        long = perf_counter() - begin > self._limit
        self.slow, self._long = long and self._long, long


class SerialLane:
    """A lane in the pool; the header of the module explains it.

    A thread that takes the baton out of `_held` just when another one has put it there runs in the
    other's place.
    """

    can_help = True

    def __init__(self) -> None:
        self._reset()
        after_fork(self._reset)
        POOL.oversee(self._look)

    def _reset(self) -> None:
        self.ready: deque[Runnable] = deque()
        """Submitted work that does not run yet."""
        self._baton: list[None] = [None]
        self._held: list[PoolThread] = []
        self._seen = (0, 0)  # at the last look: the id of the holder, and its number of runs
        self._since = 0.0  # when that was first seen

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()`, after earlier submissions."""
        pool_thread = HERE.thread
        if pool_thread is None and in_main_thread():
            POOL.submit(runnable)  # an interrupt must not strike before the baton is handed over
            return
        self.ready.append(runnable)
        if self._baton:
            self._hand_out(pool_thread)
        elif pool_thread is None or not pool_thread.free or self._held[:1] != [pool_thread]:
            POOL.rouse()  # the holder may be in slow code

    def claim(self, idle: list[Any]) -> bool:
        """Like `submit`, for the token in `idle`; return whether there was one."""
        if HERE.thread is None and in_main_thread():
            return POOL.claim(idle)
        require_headroom()
        try:
            runnable = idle.pop()  # not the main thread: no interrupt separates the two
        except IndexError:
            return False
        self.submit(runnable)
        return True

    def _hand_out(self, pool_thread: PoolThread | None) -> None:
        """Hand the free baton to a thread: to this one, if it is done soon."""
        if not self._take():
            return
        if (
            pool_thread is not None
            and pool_thread.free
            and pool_thread.next is None
            and not POOL.has_waiting
        ):
            pool_thread.next = self
        else:
            POOL.submit(self)

    def _take(self) -> bool:
        """Take the baton if it is free; return whether it was."""
        try:
            self._baton.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Run submitted work as long as this thread has the baton. Only the pool calls this."""
        pool_thread = HERE.thread
        assert pool_thread is not None  # noqa: S101 - the pool's threads have one
        ready, held = self.ready, self._held
        held.append(pool_thread)
        while held and held[0] is pool_thread:
            try:
                runnable = ready.popleft()
            except IndexError:
                if not self._give_back(pool_thread):
                    return
                continue
            pool_thread.perform(runnable)
            if POOL.has_waiting:  # others come first
                self.pass_on()
                return

    def _give_back(self, pool_thread: PoolThread) -> bool:
        """Put the baton down, as nothing is left to run; return whether it was taken up again."""
        try:
            self._held.pop()
        except IndexError:
            return False  # another thread has taken it
        self._baton.append(None)
        if not self.ready or not self._take():
            return False
        self._held.append(pool_thread)  # something came in between
        return True

    @property
    def is_here(self) -> bool:
        """Whether this thread has the baton."""
        pool_thread = HERE.thread
        return pool_thread is not None and self._held[:1] == [pool_thread]

    def pass_on(self) -> None:
        """Pass the baton that this thread has, or is about to get, to another thread."""
        pool_thread = HERE.thread
        if pool_thread is None:
            return
        if pool_thread.next is not None:
            runnable, pool_thread.next = pool_thread.next, None
            POOL.submit(runnable)
        if self._held[:1] != [pool_thread]:
            return
        try:
            self._held.pop()
        except IndexError:
            return  # another thread has taken it
        if self.ready:
            POOL.submit(self)
            return
        self._baton.append(None)
        if self.ready and self._take():  # something came in between
            POOL.submit(self)

    def free(self) -> None:
        """Declare that what this thread runs now ends soon, and calls no more code of users."""
        pool_thread = HERE.thread
        if pool_thread is not None:
            pool_thread.free = True

    def _look(self, now: float, *, computing: bool) -> bool:
        """Take the baton away from a thread that has been in one run since an earlier look.

        Returns whether something waits for it. In the thread of the pool's watcher.
        """
        for pool_thread in self._held[: bool(self.ready)]:
            seen = id(pool_thread), pool_thread.runs
            if seen != self._seen:
                self._seen, self._since = seen, now
            elif now - self._since > _STUCK or not computing:
                try:
                    self._held.pop()
                except IndexError:
                    break
                POOL.submit(self)
        return bool(self.ready)

    def release(self) -> None:
        """Do nothing: the pool serves other actors too."""

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for an actor; return whether it was in time."""
        return POOL.wait(ticket, timeout)


SERIAL_LANE = SerialLane()
"""The lane of executions and of taskers."""
