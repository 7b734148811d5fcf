"""The pool: many actors on few threads.

Problem
    Jobs of users may block (sleep, sockets, locks) or compute, and nobody says which. A pool of a
    fixed size stands still if all its threads block. A pool that starts a thread for everything
    that waits makes computing jobs slower, because threads compete for the interpreter lock.

Approach
    `ThreadPool` starts without threads and grows for two reasons only: work waits and there are
    fewer than `core` threads, or work waits while the existing threads sit inside handlers without
    using the processor. A watcher thread measures that, by the CPU clock of each thread, once per
    millisecond while work waits; otherwise it sleeps. Only if every thread has been in one and the
    same handler for 0.1 s does a computing pool get one more (the next after 0.2 s, and so on), so
    that a few long computations do not hold up the other actors.

Invariants
    1. Work that waits has a thread that will take it, a watcher that decides about one, or a start
       that is pending (`retry_later`). `_attend` establishes that; a submit calls it unless a
       thread is idle or the watcher is awake.
    2. An idle thread announces itself in `_idle` before it waits for the queue, and a submit puts
       its work into the queue before it looks at `_idle`. One of the two sees the other.
    3. A thread is listed before it runs work, so the watcher knows every thread that may block.

Threads
    `submit` and `claim` may be called by any thread. In the main thread they are one C call, or go
    through the helper thread, because an interrupt could separate the steps. If the system refuses
    to start a thread, work waits for the existing ones, and the start is repeated: by the watcher,
    by threads between two runs, by waiting callers, and by the next submit.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.thread_start import (
    AGENTS,
    PENDING,
    RETRY_EVERY,
    retry,
    retry_later,
    start_thread,
)
from actorflow.runtime.lanes.uninterruptible import (
    UNINTERRUPTIBLE,
    attend,
    exhaust,
    hand_over_to_helper,
    in_main_thread,
)
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.lanes.lane import Runnable, Waiter

__all__ = ["HERE", "POOL", "PoolStatistics", "PoolThread", "ThreadPool"]

_TICK = 0.001  # seconds between two looks at a stalled pool
_QUIET_TICKS = 20  # the watcher sleeps after so many looks without waiting work
_BUSY_SHARE = 0.5  # of one processor: above it the process computes, and a wait may be for the GIL
_pop = list.pop  # looking it up is slow
_STUCK = 0.1  # seconds in one run each, after which a pool that computes gets another thread


class PoolCheck(Protocol):
    """Looks after threads of the pool."""

    def __call__(self, now: float, *, computing: bool) -> bool:
        """Look, now that the process computes, or does not; return whether anything waits."""


class PoolThread:
    """One thread of the pool, as the watcher sees it."""

    __slots__ = ("clock", "cpu", "free", "next", "runs", "seen_runs", "since", "stays", "waits")

    def __init__(self) -> None:
        self.stays = False
        """Whether it never ends."""
        self.waits: Callable[[Waiter, float | None], bool] | None = None
        """How a thread of a simulation waits for a ticket."""
        self.free = False
        """Whether it soon ends what it runs. See `SerialLane`."""
        self.next: Runnable | None = None
        """What it runs then."""
        self.runs = 0  # runs begun
        self.seen_runs = -1
        self.cpu = 0.0
        self.since = 0.0  # when the current run was first seen
        self.clock: int | None = None

    def perform(self, runnable: Runnable) -> None:
        """Run something. In this thread."""
        self.runs += 1
        self.free = False
        try:
            runnable.run()
        except BaseException:  # noqa: BLE001 - a run must not raise: this is a bug of ours
            log.critical("an actor's run raised", actor=brief(runnable), exc_info=True)

    def look(self, now: float) -> bool:
        """Return whether the thread has stood still since the last look."""
        try:
            cpu = 0.0 if self.clock is None else time.clock_gettime(self.clock)
        except OSError:  # the thread has ended since its pool_thread was found
            return False
        same = self.runs == self.seen_runs
        still = same and cpu - self.cpu < 0.1 * _TICK
        self.seen_runs, self.cpu = self.runs, cpu
        if not same:
            self.since = now
        return still


class _PoolThreadLocal(threading.local):
    thread: PoolThread | None = None


HERE = _PoolThreadLocal()
"""Its `thread` is the `PoolThread` of the current thread, or `None` outside a pool."""


class _Effort:
    """Whether the process computes, or would if the machine let it."""

    __slots__ = ("_at", "_cpu", "_usual")

    def __init__(self) -> None:
        self._usual = 2 * _TICK
        self._at = time.monotonic()
        self._cpu = time.process_time()

    def nap(self) -> bool:
        """Sleep for a tick; return whether the process computed meanwhile.

        A thread that wakes late has waited for the interpreter lock, or for a processor: then the
        threads that stand still may have done so too.
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
    """Threads that run."""
    idle: int
    """Threads that wait for work."""
    waiting: int
    """Actors that wait for a thread."""
    runs: int
    """Runs begun since the pool was made."""
    grown: int
    """Threads started since the pool was made."""


class ThreadPool:
    """An elastic pool of daemon threads. In a forked child it is as new.

    Args:
        core: threads that work may always have; they stay for good.
        limit: the largest number of threads, reached only while handlers block.
        linger: seconds after which a thread beyond `core` without work ends.
        name: how the threads are named: `name-1`, `name-2`, ...

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
        self._looks: list[PoolCheck] = []
        self._reset()
        after_fork(self._after_fork)

    def _reset(self) -> None:
        self._ready: queue.SimpleQueue[Runnable | None] = queue.SimpleQueue()
        self._idle: list[None] = []  # one entry for each thread that waits for work
        self._threads: dict[int, PoolThread] = {}  # of threads that have started
        self._growing = threading.Lock()
        self._asleep: list[None] = [None]  # token: the watcher sleeps
        self._wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watched = False  # the watcher has been started
        self._finished_runs = 0
        self._grown = 0

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()`. O(1), thread-safe."""
        if not self._idle and self._asleep and in_main_thread():
            # One C call: an interrupt cannot strike between the put and the look at the threads,
            # which would leave the runnable in a pool without threads.
            UNINTERRUPTIBLE.post(partial(self._submit, runnable))
            return
        try:
            self._ready.put(runnable)
            if not self._idle and self._asleep:
                attend(self._attend)
        except BaseException:  # the thread that was idle may be busy by now
            UNINTERRUPTIBLE.post(self._attend)
            raise

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to the pool; return whether there was one. O(1), thread-safe."""
        if not self._idle and self._asleep:
            if in_main_thread():
                return hand_over_to_helper(idle, self._submit)
            require_headroom()
        try:  # `hand_over`, inlined: every wake-up comes this way
            exhaust(map(self._ready.put, map(_pop, (idle,))))
            if not self._idle and self._asleep:
                attend(self._attend)
        except IndexError:
            return False
        except BaseException:  # the thread that was idle may be busy by now
            UNINTERRUPTIBLE.post(self._attend)
            raise
        return True

    def _submit(self, runnable: Runnable) -> None:
        self._ready.put(runnable)
        self._attend()

    def release(self) -> None:
        """Do nothing: the pool serves other actors too."""

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for an actor of the pool; return whether it was in time."""
        return ticket.wait(timeout)

    def statistics(self) -> PoolStatistics:
        """Return the numbers of threads and of runs. Thread-safe."""
        pool_threads = list(self._threads.values())
        return PoolStatistics(
            threads=len(pool_threads),
            idle=len(self._idle),
            waiting=self._ready.qsize(),
            runs=self._finished_runs + sum(pool_thread.runs for pool_thread in pool_threads),
            grown=self._grown,
        )

    def close(self) -> None:
        """End all threads once they have run all waiting work. For tests and short-lived pools."""
        for _ in range(len(self._threads)):
            self._ready.put(None)

    @property
    def has_waiting(self) -> bool:
        """Whether something waits for a thread. Thread-safe."""
        return not self._ready.empty()

    def poke(self) -> None:
        """Make an idle thread look for attempts that are pending. Thread-safe."""
        if self._idle:
            self._ready.put(_NOTHING)

    # Growing.

    def _attend(self) -> None:
        """Make sure that waiting work gets a thread, or a watcher that decides about one.

        The first threads are started here, so that work does not wait for a tick.
        """
        with self._growing:
            if self._idle or self._ready.empty():
                return  # an idle thread looks at the queue again once it has taken something
            if len(self._threads) < self.core:
                self._add_thread()
                return
            if not self._start_watcher():
                return
        self._wake_watcher()

    def _start_watcher(self) -> bool:
        """Start the watcher, unless it runs; return whether it does. Under the lock."""
        if not self._watched:
            self._watched = start_thread(self._watch, name=f"{self.name}-watcher")
        if not self._watched:
            retry_later(self._attend)
        return self._watched

    def _wake_watcher(self) -> None:
        try:
            self._asleep.pop()
        except IndexError:
            return
        self._wakeup.put(None)

    def oversee(self, look: PoolCheck) -> None:
        """Let the watcher call `look` at each tick; it sleeps once none returns true."""
        self._looks.append(look)

    def rouse(self) -> None:
        """Make the watcher look, for a while. Thread-safe; not for the main thread."""
        if self._asleep:
            with self._growing:
                watched = self._start_watcher()
            if watched:
                self._wake_watcher()

    def _grow(self, count: int) -> None:
        with self._growing:
            for _ in range(count):
                if len(self._threads) >= self.limit or not self._add_thread():
                    return

    def _add_thread(self) -> bool:
        """Start a thread and list it; return whether the system let it start. Under the lock."""
        number, pool_thread = self._grown + 1, PoolThread()
        if not start_thread(self._work, number, pool_thread, name=f"{self.name}-{number}"):
            retry_later(self._attend)
            return False
        self._grown = number
        self._threads[number] = pool_thread
        return True

    def _work(self, number: int, pool_thread: PoolThread) -> None:
        with self._growing:  # it is listed by now, so that nothing runs in a thread that is not
            pass
        if hasattr(time, "pthread_getcpuclockid"):
            pool_thread.clock = time.pthread_getcpuclockid(threading.get_ident())
        HERE.thread = pool_thread
        ready, idle = self._ready, self._idle
        get = ready.get
        pool_thread.stays = number <= self.core
        patience = None if pool_thread.stays else self.linger
        while True:
            idle.append(None)
            try:
                runnable = get(timeout=RETRY_EVERY if PENDING else patience)
            except queue.Empty:
                idle.pop()
                if PENDING:
                    retry()
                elif patience is not None and ready.empty():
                    break
                continue  # a submit has seen this thread idle, and relies on it
            idle.pop()
            if runnable is None:
                break
            if self._asleep and not idle and not ready.empty():
                self._attend()
            while runnable is not None:
                pool_thread.perform(runnable)
                runnable, pool_thread.next = pool_thread.next, None  # what it has kept meanwhile
        HERE.thread = None
        with self._growing:
            if self._threads.pop(number, None) is not None:  # else the thread was left by a fork
                self._finished_runs += pool_thread.runs

    def _watch(self) -> None:
        while True:
            self._wakeup.get()
            quiet = 0
            effort = _Effort()
            while quiet < _QUIET_TICKS:
                computing = effort.nap()
                now = time.monotonic()
                for look in self._looks:
                    if look(now, computing=computing):
                        quiet = 0
                waiting = self._ready.qsize()
                if not waiting or self._idle:
                    quiet += 1
                    continue
                quiet = 0
                self._consider(waiting, now, computing=computing)
            self._asleep.append(None)
            # Work submitted since the last look found the watcher awake, and woke no thread.
            now = time.monotonic()
            if any(look(now, computing=True) for look in self._looks):
                self._wake_watcher()
            if self._ready.qsize() and not self._idle:
                self._attend()

    def _consider(self, waiting: int, now: float, *, computing: bool) -> None:
        pool_threads = list(self._threads.values())
        still = [pool_thread for pool_thread in pool_threads if pool_thread.look(now)]
        if len(pool_threads) < self.core:
            self._grow(1)
        elif len(still) == len(pool_threads) and not computing:
            self._grow(min(waiting, len(pool_threads)))
        elif all(
            now - pool_thread.since > _STUCK * (len(pool_threads) - self.core + 1)
            for pool_thread in pool_threads
        ):
            # All threads are CPU-bound; start one more so that other work is not starved. More
            # threads make each of them slower, so wait longer each time.
            self._grow(1)

    def _after_fork(self) -> None:
        """Start afresh: the threads do not exist in the child, and the parent runs its actors."""
        old = self._ready
        self._reset()
        while not old.empty():
            old.get()
        old.put(None)  # if it was a thread of the pool that forked, it ends after its run


class _Nothing:
    def run(self) -> None:
        pass


_NOTHING = _Nothing()

POOL = ThreadPool()
"""The pool that actors run on unless told otherwise."""

AGENTS.append(POOL.poke)
