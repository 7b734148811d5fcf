"""Many actors on few threads: an elastic pool.

`Pool` starts with no thread at all and grows for two reasons only: work waits and there are
fewer than `core` threads, or work waits while the threads that there are sit inside handlers
without using the processor (they block: sleep, sockets, locks). A pool that computes does not
grow, because threads that compete for the interpreter lock make each other slower; only where
every thread has been in one and the same handler for 0.1 s does it get one more (the next after
0.2 s, and so on), so that a few long computations do not hold up everybody else.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["POOL", "Pool", "PoolStatistics"]

_TICK = 0.001  # how often a stalled pool is looked at
_QUIET_TICKS = 20  # after so many looks without waiting work the watcher sleeps
_BUSY_SHARE = 0.5  # of one processor: above it the process computes, and a wait may be for the GIL
_STUCK = 0.1  # seconds that all threads are in one run each, after which there is another thread


class _Seat:
    """One thread of the pool, as its watcher sees it."""

    __slots__ = ("clock", "cpu", "runs", "seen_runs", "since")

    def __init__(self) -> None:
        self.runs = 0  # how many runs it has begun
        self.seen_runs = -1
        self.cpu = 0.0
        self.since = 0.0  # when it was first seen in the run that it is in
        self.clock: int | None = None

    def look(self, now: float) -> bool:
        """Tell whether the thread has stood still since the last look."""
        try:
            cpu = 0.0 if self.clock is None else time.clock_gettime(self.clock)
        except OSError:  # the thread has ended since its seat was found
            return False
        same = self.runs == self.seen_runs
        still = same and cpu - self.cpu < 0.1 * _TICK
        self.seen_runs, self.cpu = self.runs, cpu
        if not same:
            self.since = now
        return still


class _Effort:
    """Whether the process computes, or would if the machine let it."""

    __slots__ = ("_at", "_cpu", "_usual")

    def __init__(self) -> None:
        self._usual = 2 * _TICK
        self._at = time.monotonic()
        self._cpu = time.process_time()

    def nap(self) -> bool:
        """Sleep for a tick; tell what the process did meanwhile.

        Who wakes late has waited for the interpreter lock, or for a processor to run on: then the
        threads that stand still may do so too.
        """
        begin = time.monotonic()
        time.sleep(_TICK)
        now, cpu = time.monotonic(), time.process_time()
        slept = now - begin
        self._usual = min(self._usual, slept)
        computing = slept > 2 * self._usual or cpu - self._cpu > _BUSY_SHARE * (now - self._at)
        self._at, self._cpu = now, cpu
        return computing


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A pool at one moment."""

    threads: int
    idle: int
    waiting: int
    runs: int
    grown: int


class Pool:
    """An elastic pool of daemon threads.

    Args:
        core: threads that work may always have; they stay for good.
        limit: threads that there may be at the most, when handlers block.
        linger: seconds after which a thread beyond `core` with nothing to do ends.

    """

    can_help = True

    def __init__(
        self, *, core: int = 2, limit: int = 1_000, linger: float = 5.0, name: str = "actorflow"
    ) -> None:
        if not 1 <= core <= limit:
            msg = f"a pool needs 1 <= core <= limit, not core={core!r}, limit={limit!r}"
            raise BadOption(msg)
        self.core = core
        self.limit = limit
        self.linger = linger
        self.name = name
        self._reset()

    def _reset(self) -> None:
        self._ready: queue.SimpleQueue[Runnable | None] = queue.SimpleQueue()
        self._idle: list[None] = []  # one entry for each thread that waits for work
        self._seats: dict[int, _Seat] = {}
        self._number = itertools.count(1)
        self._growing = threading.Lock()
        self._asleep: list[None] = [None]  # token: the watcher sleeps
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None
        self._finished_runs = 0
        self._grown = 0

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called soon. O(1)."""
        self._ready.put(runnable)
        if not self._idle and self._asleep:
            self._ring()

    def release(self) -> None:
        """Do nothing: the pool serves other actors too."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for an actor of the pool."""
        return ticket.wait(timeout)

    def statistics(self) -> PoolStatistics:
        """Count threads and work."""
        seats = list(self._seats.values())
        return PoolStatistics(
            threads=len(seats),
            idle=len(self._idle),
            waiting=self._ready.qsize(),
            runs=self._finished_runs + sum(seat.runs for seat in seats),
            grown=self._grown,
        )

    def _ring(self) -> None:
        """Wake the watcher; the first threads are started here, so that nobody waits a tick."""
        if len(self._seats) < self.core:
            self._grow(1)
            return
        try:
            self._asleep.pop()
        except IndexError:
            return
        if self._watcher is None:
            with self._growing:
                if self._watcher is None:
                    self._watcher = threading.Thread(
                        target=self._watch, name=f"{self.name}-watcher", daemon=True
                    )
                    self._watcher.start()
        self._bell.put(None)

    def _grow(self, count: int) -> None:
        for _ in range(count):
            with self._growing:
                if len(self._seats) >= self.limit:
                    return
                number = next(self._number)
                self._seats[number] = _Seat()
                self._grown += 1
            threading.Thread(
                target=self._work, args=(number,), name=f"{self.name}-{number}", daemon=True
            ).start()

    def _work(self, number: int) -> None:
        seat = self._seats[number]
        if hasattr(time, "pthread_getcpuclockid"):
            seat.clock = time.pthread_getcpuclockid(threading.get_ident())
        ready, idle = self._ready, self._idle
        get = ready.get
        patience = None if number <= self.core else self.linger
        while True:
            idle.append(None)
            try:
                runnable = get(timeout=patience)
            except queue.Empty:
                idle.pop()
                if ready.empty():
                    break
                continue  # somebody saw this thread idle, and relies on it
            idle.pop()
            if runnable is None:
                break
            if self._asleep and not idle and not ready.empty():
                self._ring()
            seat.runs += 1
            try:
                runnable.run()
            except BaseException:  # noqa: BLE001 - a run must not raise: this is a bug of ours
                log.critical("an actor's run raised", actor=brief(runnable), exc_info=True)
            del runnable
        with self._growing:
            del self._seats[number]
            self._finished_runs += seat.runs

    def _watch(self) -> None:
        while True:
            self._bell.get()
            quiet = 0
            effort = _Effort()
            while quiet < _QUIET_TICKS:
                computing = effort.nap()
                waiting = self._ready.qsize()
                if not waiting or self._idle:
                    quiet += 1
                    continue
                quiet = 0
                self._consider(waiting, time.monotonic(), computing=computing)
            self._asleep.append(None)
            if self._ready.qsize() and not self._idle:
                self._ring()

    def _consider(self, waiting: int, now: float, *, computing: bool) -> None:
        seats = list(self._seats.values())
        still = [seat for seat in seats if seat.look(now)]
        if len(seats) < self.core:
            self._grow(1)
        elif len(still) == len(seats) and not computing:
            self._grow(min(waiting, len(seats)))
        elif all(now - seat.since > _STUCK * (len(seats) - self.core + 1) for seat in seats):
            # They compute, or wait for the interpreter lock, and each for long: others must not
            # wait for the end of that. But more threads make each of them slower, so each time
            # it takes longer.
            self._grow(1)

    def close(self) -> None:
        """End all threads once they have done what is waiting. For tests and short-lived pools."""
        for _ in range(len(self._seats)):
            self._ready.put(None)


POOL = Pool()
"""The pool that actors run on unless told otherwise."""

if hasattr(os, "register_at_fork"):  # the threads do not exist in the child
    os.register_at_fork(after_in_child=POOL._reset)  # noqa: SLF001
