"""The world of a simulation: virtual time, and one thing at a time in an order drawn from the seed.

Problem
    Engines use lanes, threads and clocks, and block where they wait. A history can only be repeated
    if nothing of this depends on the machine.

Approach
    One thread has the *turn*. It takes one of the things that can happen now, chosen by the dice,
    and lets it happen: a task runs, or a thread whose wait is over goes on. When
    nothing can happen, time moves to the next timer. A task that waits gives the turn to another
    thread, which goes on with the rest, and gets it back like any other thing that can happen.

Invariants
    1. Exactly one thread has the turn; only that one runs.
    2. What happens in a process that was killed or is stopped is dropped or kept back.
    3. Time moves only when nothing else can happen.

Cost
    A task that does not wait costs no switch of threads; one that waits costs about two.
"""

from __future__ import annotations

import heapq
import threading
from contextlib import suppress
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from actorflow.runtime.clock import Timer
from actorflow.runtime.lanes.pool import HERE, PoolThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.lanes.lane import Waiter

__all__ = ["START", "HistoryLine", "InvariantBroken", "ProcessKilled", "ProcessLife", "World"]

START = 1_700_000_000.0
"""What the store's clock says at the beginning."""

_RUNAWAY = 200_000  # things that may happen without time moving on


class InvariantBroken(AssertionError):
    """Something that must hold does not.

    `about` names the execution, partition or engine, to find the lines that matter.
    """

    def __init__(self, rule: str, what: str, *about: object) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.about = about


class ProcessKilled(BaseException):
    """The process in which this thread runs was killed."""


class HistoryLine(NamedTuple):
    """Something that has happened."""

    at: float
    who: str
    what: str
    about: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who:8} {self.what} {' '.join(map(str, self.about))}".rstrip()


class ProcessLife:
    """One life of a process. After a kill, another one with another name takes its place."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.missed: list[_Thing] = []
        """Things to happen after a pause."""


class _Waiting:
    """A thread that waits."""

    __slots__ = ("come", "go", "in_time", "life")

    def __init__(self, life: ProcessLife, come: Callable[[], bool] | None) -> None:
        self.life = life
        self.come = come
        self.go = threading.Lock()
        self.go.acquire()
        self.in_time: bool | None = None


class _Thing(NamedTuple):
    """Something that can happen now: a task, or a thread that goes on."""

    life: ProcessLife
    run: Callable[[], object] | None
    waiting: _Waiting | None = None


class World:
    """Everything that the parts of one simulation share.

    Args:
        seed: the same seed leads to the same history.

    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        """Seconds since the beginning."""
        self.lines: list[HistoryLine] = []
        self.broken: InvariantBroken | None = None
        """The first thing that does not hold."""
        self.outside = ProcessLife()
        """Whatever is in no process: clients, the network, the store."""
        self.life = self.outside
        """Where what runs now belongs."""
        self._order = self.dice("order")
        self._things: list[_Thing] = []
        self._waiting: list[_Waiting] = []
        self._timers: list[tuple[float, int, ProcessLife, Timer]] = []
        self._numbers = count()
        self._idle: list[threading.Lock] = []
        self._first: _Thing | None = None  # what the thread that gets the turn begins with
        self._closed = self._over = False
        self._calm = 0  # things that have happened since time moved
        self._thread = PoolThread()
        self._thread.waits = self.wait

    def dice(self, purpose: str) -> Random:
        """Return random numbers of their own, so that one part does not disturb another."""
        return Random(f"{self.seed} {purpose}")  # noqa: S311 - no secret

    def note(self, who: str, what: str, *about: object) -> None:
        """Record something. Texts are only made when they are read."""
        self.lines.append(HistoryLine(self.now, who, what, about))

    def fail(self, broken: InvariantBroken) -> InvariantBroken:
        """Record that an invariant is broken; return the error to raise."""
        if not self._closed:
            self.broken = self.broken or broken
        return broken

    # What happens.

    def submit(self, life: ProcessLife, run: Callable[[], object]) -> None:
        """Let something happen, soon."""
        if life.alive:
            self._things.append(_Thing(life, run))

    def after(
        self, seconds: float, call: Callable[[], object], life: ProcessLife | None = None
    ) -> Timer:
        """Schedule a call."""
        timer = Timer(self.now + max(seconds, 0.0), call)
        self.schedule(timer.when, timer, life or self.outside)
        return timer

    def schedule(self, at: float, timer: Timer, life: ProcessLife) -> None:
        """Make the call of a timer at a moment of the world's time."""
        if at < inf:
            heapq.heappush(self._timers, (max(at, self.now), next(self._numbers), life, timer))

    def kill(self, life: ProcessLife) -> None:
        """End a process: nothing of it happens any more, and its threads are unwound."""
        life.alive = life.paused = False
        life.missed.clear()

    def resume(self, life: ProcessLife) -> None:
        """Let a process go on after a pause."""
        life.paused = False
        self._things += life.missed
        life.missed.clear()

    # Waiting. In any thread that has the turn.

    def sleep(self, seconds: float) -> None:
        """Wait for some time.

        Raises:
            Killed: the process was killed meanwhile.

        """
        self.until(None, seconds)

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for a ticket; return whether it was in time."""
        return self.until(lambda: ticket.resolved, timeout)

    def until(self, come: Callable[[], bool] | None, timeout: float | None) -> bool:
        """Wait until `come()` returns true; return whether it did in time."""
        life = self.life
        self._require_alive(life)
        if come is not None and come():
            return True
        waiting = _Waiting(life, come)
        self._waiting.append(waiting)
        if timeout is not None:
            self.after(timeout, lambda: self._expire(waiting))
        thing = self._next()
        if thing.waiting is not waiting:
            self._pass_on(thing)
            waiting.go.acquire()
        self.life = life
        self._require_alive(life)
        if self.broken is not None and life is self.outside:
            raise self.broken
        return bool(waiting.in_time)

    def _require_alive(self, life: ProcessLife) -> None:
        if not life.alive or (self._closed and life is not self.outside):
            raise ProcessKilled

    def _expire(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.in_time = False
            self._things.append(_Thing(waiting.life, None, waiting))

    def run(self, seconds: float) -> None:
        """Let time pass. In the thread that created the world."""
        HERE.thread = self._thread
        try:
            self.sleep(seconds)
        finally:
            HERE.thread = None

    def close(self) -> None:
        """End all threads, also the ones that wait."""
        self._closed, self.broken = True, None
        self._things.clear()
        self._timers.clear()
        while self._waiting:
            waiting = self._waiting.pop()
            self._things.append(_Thing(self.outside, None, waiting))
        HERE.thread = self._thread
        with suppress(ProcessKilled):
            self.until(lambda: not self._things, 1.0)
        HERE.thread = None
        self._over = True
        for lock in self._idle:
            lock.release()

    # The turn.

    def _pass_on(self, thing: _Thing) -> None:
        """Give the turn to another thread, which begins with `thing`."""
        if thing.waiting is not None:
            thing.waiting.go.release()
            return
        self._first = thing
        if self._idle:
            self._idle.pop().release()
        else:
            threading.Thread(target=self._drive, name="simulation", daemon=True).start()

    def _drive(self) -> None:
        HERE.thread = self._thread
        mine = threading.Lock()
        mine.acquire()
        while True:
            thing, self._first = self._first or self._next(), None
            if thing.waiting is not None:
                self._idle.append(mine)
                thing.waiting.go.release()
                mine.acquire()
                if self._over:
                    return
                continue
            self.life = thing.life
            self._perform(thing)

    def _perform(self, thing: _Thing) -> None:
        assert thing.run is not None  # noqa: S101 - a failed check
        try:
            thing.run()
        except ProcessKilled:
            return
        except BaseException as error:  # noqa: BLE001 - nothing that runs in a lane may raise
            if thing.life.alive and not isinstance(error, InvariantBroken):
                name = thing.life.name
                self.fail(InvariantBroken("raises", f"{name}: {error!r}", name))

    def _next(self) -> _Thing:
        """Return what happens next; time moves on if nothing can happen now."""
        while True:
            self._look_at_waiting()
            while self._things:
                things = self._things
                at = self._order.randrange(len(things)) if len(things) > 1 else 0
                thing, things[at] = things[at], things[-1]
                things.pop()
                if thing.life.paused:
                    thing.life.missed.append(thing)
                elif thing.life.alive or thing.waiting is not None:
                    self._count()
                    return thing
            self._move_on()

    def _look_at_waiting(self) -> None:
        """Find the threads whose wait is over."""
        for waiting in self._waiting[:]:
            life = waiting.life
            if life.paused:
                continue
            over = not life.alive or (self.broken is not None and life is self.outside)
            if over or (waiting.come is not None and waiting.come()):
                self._waiting.remove(waiting)
                waiting.in_time = not over
                self._things.append(_Thing(life, None, waiting))

    def _count(self) -> None:
        self._calm += 1
        if self._calm > _RUNAWAY:
            self.fail(InvariantBroken("settles", f"{_RUNAWAY} steps have run without time passing"))

    def _move_on(self) -> None:
        """Move time to the next timer, whose call can happen then."""
        when = inf
        while self._timers and (not self._things or self._timers[0][0] <= when):
            when, _, life, timer = heapq.heappop(self._timers)
            call, timer.callback = timer.callback, None
            if call is not None:
                self._things.append(_Thing(life, call))
        if not self._things:
            msg = "no task, timer or message is left, so the time cannot go on"
            raise AssertionError(msg)
        if when > self.now:
            self.now, self._calm = when, 0
