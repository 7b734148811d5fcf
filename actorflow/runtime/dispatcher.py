"""Many actors on few threads: an elastic pool, a thread of one's own, an asyncio loop.

A *lane* runs actors that have something to do. An actor is submitted by whoever takes its idle
token, so it is in a lane at most once at a time, and never runs in two threads at once.

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
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, WouldDeadlock
from actorflow.runtime.events import log
from behaviours.errors import brief

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from actorflow.runtime.waiting import ThreadTicket

__all__ = ["POOL", "Lane", "LoopLane", "Pool", "PoolStatistics", "Runnable", "ThreadLane"]

_TICK = 0.001  # how often a stalled pool is looked at
_QUIET_TICKS = 20  # after so many looks without waiting work the watcher sleeps
_BUSY_SHARE = 0.5  # of one processor: above it the process computes, and a wait may be for the GIL
_STUCK = 0.1  # seconds that all threads are in one run each, after which there is another thread


class Runnable(Protocol):
    """An actor as a lane sees it."""

    def run(self) -> None:
        """Do what there is to do, for a short while. Must not raise."""


class Lane(Protocol):
    """Where actors run."""

    can_help: bool
    """Whether a caller may run an actor of this lane in its own thread instead."""

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called soon, in one of the lane's threads. Never blocks."""

    def release(self) -> None:
        """Tell the lane that the actor it was made for has ended."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait in the calling thread for an actor of the lane; tell whether it was in time."""


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


class LoopLane:
    """One asyncio loop in a daemon thread, for jobs that are coroutine functions."""

    can_help = False

    def __init__(self, name: str = "actorflow-loop") -> None:
        self.name = name
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ident: int | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; it is started when first asked for."""
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    self._loop = self._start()
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        import asyncio  # noqa: PLC0415 - most programs never need it

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name=self.name, daemon=True)
        thread.start()
        self._ident = thread.ident
        return loop

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called on the loop."""
        self.loop.call_soon_threadsafe(runnable.run)

    def release(self) -> None:
        """Do nothing: the loop serves other actors too."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for an actor of the loop.

        Raises:
            WouldDeadlock: called on the loop itself, which could then do nothing any more.

        """
        if threading.get_ident() == self._ident:
            msg = "a coroutine job must not block its event loop: await instead of waiting"
            raise WouldDeadlock(msg)
        return ticket.wait(timeout)

    def spawn(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine from within the loop's thread, and keep it until it ends."""
        task = self.loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


POOL = Pool()
"""The pool that actors run on unless told otherwise."""

LOOP = LoopLane()
"""The loop that coroutine jobs run on."""


def _after_fork() -> None:
    POOL._reset()  # noqa: SLF001 - the threads do not exist in the child
    LOOP.__init__()  # type: ignore[misc]
    SYSTEM._after_fork()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
