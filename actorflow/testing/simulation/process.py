"""A simulated process: an engine with lanes, clocks and a store of the simulation's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.application import Engine
from actorflow.cluster.membership import Membership
from actorflow.engine.closer import OPEN
from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from actorflow.runtime.clock import Timer
from actorflow.runtime.environment import Environment
from actorflow.runtime.lanes.uninterruptible import hand_over
from actorflow.runtime.registry import ACTORS
from actorflow.testing.simulation.world import START, ProcessLife

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import Runnable, Waiter
    from actorflow.testing.simulation.faults import Faults, Skew
    from actorflow.testing.simulation.store import SimulatedStore
    from actorflow.testing.simulation.world import World

__all__ = ["Process"]


class _Clock:
    """The clock of one process: ahead of the others or behind, and faster or slower."""

    def __init__(self, world: World, life: ProcessLife, skew: Skew) -> None:
        self._world = world
        self._life = life
        self._skew = skew

    def now(self) -> float:
        """Return its time."""
        return 1e5 + self._skew.offset + self._world.now * self._skew.rate

    def call_at(self, when: float, callback: Callable[[], Any]) -> Timer:
        """Call `callback` at that time."""
        timer = Timer(when, callback)
        at = self._world.now + (when - self.now()) / self._skew.rate
        self._world.schedule(at, timer, self._life)
        return timer


class _Lane:
    """All lanes of one process: submitted calls run in any order."""

    ready = ()
    is_here = False

    def __init__(self, world: World, life: ProcessLife, *, can_help: bool) -> None:
        self.can_help = can_help
        self._world = world
        self._life = life

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()`."""
        self._world.submit(self._life, runnable.run)

    def claim(self, idle: list[Any]) -> bool:
        """Like `submit`, for the token in `idle`; return whether there was one."""
        return hand_over(idle, self.submit)

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for an actor; return whether it was in time."""
        return self._world.wait(ticket, timeout)

    def free(self) -> None:
        """Do nothing: there is no baton, and the lane serves other actors too."""

    pass_on = release = free


class _Loop:
    """What a process does again and again."""

    def __init__(
        self, world: World, life: ProcessLife, clock: Clock, turn: Callable[[], float]
    ) -> None:
        self._world = world
        self._life = life
        self._clock = clock
        self._turn = turn
        self._timer: Timer | None = None
        self._running = False
        self._rung = False
        self._stopped = False

    def start(self) -> None:
        """Make the first call."""
        self.wake()

    def wake(self) -> None:
        """Make the next call now."""
        if self._stopped or self._rung:
            return
        self._rung = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._running:
            self._world.submit(self._life, self._run)

    def stop(self) -> None:
        """Make no more calls; return when the last one has returned."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._world.until(lambda: not self._running, None)

    def _run(self) -> None:
        if self._running or self._stopped:
            return
        self._rung, self._running = False, True
        try:
            wait = self._turn()
        finally:
            self._running = False
        if self._rung:
            self._world.submit(self._life, self._run)
        elif not self._stopped:
            self._timer = self._clock.call_at(self._clock.now() + wait, self._run)


class _Environment(Environment):
    """The lanes, the clock and the chance of one process."""

    def __init__(self, world: World, life: ProcessLife, skew: Skew) -> None:
        self._world = world
        self._life = life
        self.clock = _Clock(world, life, skew)
        self.pool = self.serial_lane = _Lane(world, life, can_help=True)
        self.own = _Lane(world, life, can_help=False)
        self.wall = lambda: START + skew.offset + world.now * skew.rate
        self.random = world.dice(life.name).random

    def acquire(self, lock: Any, timeout: float) -> bool:
        """Acquire a lock that another thread releases soon; return whether it was in time."""
        wait = None if timeout < 0 else timeout
        return self._world.until(lambda: lock.acquire(blocking=False), wait)

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""
        self._world.sleep(seconds)

    def background(self, name: str, call: Callable[[], object]) -> None:
        """Call a function that may block for a long time, without waiting for it."""
        self._world.submit(self._life, call)

    def loop(self, name: str, turn: Callable[[], float]) -> Any:
        """Return what calls `turn()` now, and again after the seconds that it returns."""
        return _Loop(self._world, self._life, self.clock, turn)


class Process(ProcessLife):
    """An engine, and what it runs in.

    Args:
        world: around it.
        place: where it runs: what the network and the faults know it by.
        name: unique for this life.
        faults: how its clock differs, and what its tasks are like.
        store: makes its store, from a name and a way to make its membership.
        set_up: registers what the engine runs, and returns when that is done.

    """

    def __init__(  # noqa: PLR0917 - all of them are needed
        self,
        world: World,
        place: str,
        name: str,
        faults: Faults,
        store: Callable[..., SimulatedStore],
        set_up: Callable[[Engine, Process], None],
    ) -> None:
        super().__init__(name)
        self.place = place
        self.leaving = False
        self.version = 0
        """How often newer code was deployed here before it started."""
        self.engine: Engine | None = None
        """`None` until it has begun."""
        self._world = world
        self._environment = _Environment(world, self, faults.skew_of(place))
        self._code = faults.code
        self._dice = world.dice(f"{name} code")
        self.has_taskers = place not in faults.unskilled
        self._set_up = set_up
        membership = partial(Membership, environment=self._environment)
        self._make_store = partial(store, self, membership)
        world.submit(self, self._begin)

    def _begin(self) -> None:
        while self.engine is None:
            store = self._make_store()
            try:
                self.engine = self._opened(store)
            except (StoreRefused, OutcomeUnknown) as error:
                self._world.note(self.name, "cannot begin:", error)
                store.forget()
                self.name += "'"  # a member of the ring has a new name for each life
                self._world.sleep(0.5)
        self._world.note(self.name, "has begun")

    def _opened(self, store: SimulatedStore) -> Engine:
        engine = Engine(store, environment=self._environment)
        OPEN.discard(engine._closing)  # noqa: SLF001 - it is not closed when the interpreter ends
        self._set_up(engine, self)
        engine.resume()
        return engine

    def call(self, do: Callable[[Engine], Any], then: Callable[[Any], None]) -> None:
        """Call `do(engine)` in this process; `then` gets what it returns, or raises."""

        def run() -> None:
            assert self.engine is not None  # noqa: S101 - a failed check
            try:
                result = do(self.engine)
            except Exception as error:  # noqa: BLE001 - the caller's
                result = error
            self._world.submit(self._world.outside, lambda: then(result))

        self._world.submit(self, run)

    def leave(self) -> None:
        """Close the engine: hand everything over, then end."""
        if self.leaving or self.engine is None:
            return
        self.leaving = True

        def close() -> None:
            assert self.engine is not None  # noqa: S101 - a failed check
            self.engine.close(timeout=2.0)
            self._world.note(self.name, "has left")
            self._world.kill(self)

        self._world.submit(self, close)

    def work(self) -> None:
        """Take some time, as a task may."""
        if self._code:
            self._world.sleep(self._dice.uniform(0.0, self._code))

    def dispose(self) -> None:
        """Forget the engine and its workers, when the simulation is over."""
        for member in ACTORS.members():
            if member.settings.clock is self._environment.clock:
                ACTORS.discard(member)
        if self.engine is not None:
            self.engine.workflows.close()
