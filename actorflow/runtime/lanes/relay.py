"""One thread of the pool for many actors that wake each other, and are done soon.

Threads that compute at the same time only wait for each other, for the interpreter lock. So one of
them has the *baton* and runs what is submitted, one after the other; nobody else is woken. It is a
right to run, not a lock: when the holder is about to call code that is known to take long, or turns
out to be in one and the same run for a millisecond, another thread gets the baton and goes on with
the rest. The first one finishes its run all the same.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.pool import HERE, POOL
from actorflow.runtime.lanes.shelter import in_main_thread

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.lanes.pool import Seat
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["RELAY", "Pace", "Relay"]

_STUCK = 0.01  # seconds that a run may take if it may be the processor that it waits for


class Pace:
    """Whether the last two calls of some code took long: then the next one is expected to.

    A single one may have waited for a processor.

    Args:
        limit: seconds that are long.

    """

    __slots__ = ("_limit", "_long", "slow")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._long = False
        self.slow = False

    def begin(self) -> float:
        """Declare that this thread is about to call the code; return the time, for `end`."""
        seat = HERE.seat
        if seat is not None:
            seat.free = False
            if self.slow or seat.next is not None:
                RELAY.pass_on()
            elif RELAY.ready:
                POOL.rouse()
        return perf_counter()

    def end(self, begin: float) -> None:
        """Declare that the call is over, and that this thread is done soon."""
        long = perf_counter() - begin > self._limit  # `note`, inlined
        self.slow, self._long = long and self._long, long
        seat = HERE.seat
        if seat is not None:
            seat.free = True

    def expect(self) -> float:
        """Like `begin`, for code of our own, which others may call in the midst of theirs."""
        if RELAY.ready:
            if self.slow:
                RELAY.pass_on()
            else:
                POOL.rouse()
        return perf_counter()

    def note(self, begin: float) -> None:
        """Note that a call is over."""
        long = perf_counter() - begin > self._limit
        self.slow, self._long = long and self._long, long


class Relay:
    """A lane in the pool.

    The baton is in `_baton` while nobody has it, in `_held` while a thread of the pool does, and in
    neither while it waits for a thread. It moves by single operations on these lists. A thread that
    takes it out of `_held` just when another one has put it there runs in the other's place.
    """

    can_help = True

    def __init__(self) -> None:
        self._reset()
        after_fork(self._reset)
        POOL.oversee(self._look)

    def _reset(self) -> None:
        self.ready: deque[Runnable] = deque()
        """What is submitted and does not run yet."""
        self._baton: list[None] = [None]
        self._held: list[Seat] = []
        self._seen = (0, 0)  # the seat of the holder at the last look, and how many runs it had
        self._since = 0.0  # when that was first seen

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()`, after what was submitted before."""
        seat = HERE.seat
        if seat is None and in_main_thread():
            POOL.submit(runnable)  # an interrupt must not strike before the baton is handed over
            return
        self.ready.append(runnable)
        if self._baton:
            self._hand_out(seat)
        elif seat is None or not seat.free or self._held[:1] != [seat]:
            POOL.rouse()  # the holder may be in code that takes long

    def claim(self, idle: list[Any]) -> bool:
        """Like `submit`, for the token in `idle`; return whether there was one."""
        if HERE.seat is None and in_main_thread():
            return POOL.claim(idle)
        try:
            runnable = idle.pop()  # not the main thread: no interrupt separates the two
        except IndexError:
            return False
        self.submit(runnable)
        return True

    def _hand_out(self, seat: Seat | None) -> None:
        """Hand the baton that nobody has to a thread: to this one, if it is done soon."""
        if not self._take():
            return
        if seat is not None and seat.free and seat.next is None and not POOL.has_waiting:
            seat.next = self
        else:
            POOL.submit(self)

    def _take(self) -> bool:
        """Take the baton if nobody has it; return whether that was so."""
        try:
            self._baton.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Run what is submitted, as long as this thread has the baton. Only the pool calls this."""
        seat = HERE.seat
        assert seat is not None  # noqa: S101 - the pool's threads have one
        ready, held = self.ready, self._held
        held.append(seat)
        while held and held[0] is seat:
            try:
                runnable = ready.popleft()
            except IndexError:
                if not self._give_back(seat):
                    return
                continue
            seat.perform(runnable)
            if POOL.has_waiting:  # others come first
                self.pass_on()
                return

    def _give_back(self, seat: Seat) -> bool:
        """Put the baton down, as nothing is left to run; return whether it was taken up again."""
        try:
            self._held.pop()
        except IndexError:
            return False  # somebody has taken it away
        self._baton.append(None)
        if not self.ready or not self._take():
            return False
        self._held.append(seat)  # something came in between
        return True

    @property
    def is_here(self) -> bool:
        """Whether this thread has the baton."""
        seat = HERE.seat
        return seat is not None and self._held[:1] == [seat]

    def pass_on(self) -> None:
        """Let another thread run what this one has the baton for, or is about to get it for."""
        seat = HERE.seat
        if seat is None:
            return
        if seat.next is not None:
            runnable, seat.next = seat.next, None
            POOL.submit(runnable)
        if self._held[:1] != [seat]:
            return
        try:
            self._held.pop()
        except IndexError:
            return  # somebody has taken it away
        if self.ready:
            POOL.submit(self)
            return
        self._baton.append(None)
        if self.ready and self._take():  # something came in between
            POOL.submit(self)

    def free(self) -> None:
        """Declare that what this thread runs now ends soon, and calls no more code of users."""
        seat = HERE.seat
        if seat is not None:
            seat.free = True

    def _look(self, now: float, *, computing: bool) -> bool:
        """Take the baton away from a thread that has been in one run since an earlier look.

        Returns whether something waits for it. In the thread of the pool's watcher.
        """
        for seat in self._held[: bool(self.ready)]:
            seen = id(seat), seat.runs
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

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for an actor; return whether it was in time."""
        return POOL.wait(ticket, timeout)


RELAY = Relay()
"""The lane of executions and of taskers."""
