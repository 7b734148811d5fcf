"""Timers in virtual time, and the clock that runs them in real time."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from actorflow.engine.clock import WALL, EngineClock, StoreClock, WallClock
from actorflow.engine.kind import Outcome, SetTimer
from actorflow.engine.stores.protocol import Change, NewExecution, TimerRow
from tests.engine.kinds import PATIENCE, Script, quiet, rows, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine
    from actorflow.testing import VirtualClock


def setting(state: Any, message: Any) -> Any:
    """Set and cancel timers as the message says; keep what fires."""
    if isinstance(message, dict):
        return Outcome(
            state=state,
            timers=[SetTimer(name, at, name) for name, at in message.get("set", {}).items()],
            cancelled_timers=message.get("cancel", []),
        )
    return [*state, message]


def test_timers_fire_in_order_each_once(engine: BareEngine, clock: VirtualClock) -> None:
    script = Script(setting)
    engine.register(script)
    engine.send("x", {"set": {"c": 1_003.0, "a": 1_001.0, "b": 1_002.0005}}, kind="script")
    script.wait(1)
    quiet(engine)
    clock.advance(1.0)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["a"]
    clock.advance(1.0005)
    script.wait(3)
    clock.advance(100.0)
    script.wait(4)
    quiet(engine)
    assert state_of(engine, "x") == ["a", "b", "c"]
    assert rows(engine, "timers") == []
    assert engine.statistics().timers_fired == 3


def test_a_timer_whose_time_has_passed_when_it_is_stored_fires_at_once(engine: BareEngine) -> None:
    script = Script(setting)
    engine.register(script)
    engine.send("x", {"set": {"late": 999.0, "now": 1_000.0, "later": 1_001.0}}, kind="script")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["late", "now"]


def test_a_timer_is_cancelled_or_set_anew(engine: BareEngine, clock: VirtualClock) -> None:
    script = Script(setting)
    engine.register(script)
    engine.send("x", {"set": {"gone": 1_001.0, "moved": 1_001.0}}, kind="script")
    engine.send("x", {"cancel": ["gone", "moved"], "set": {"moved": 1_005.0}})
    script.wait(2)
    quiet(engine)
    clock.advance(3.0)
    quiet(engine)
    engine.send("x", "look")
    script.wait(3)
    quiet(engine)
    assert state_of(engine, "x") == ["look"]
    clock.advance(3.0)
    script.wait(4)
    quiet(engine)
    assert state_of(engine, "x") == ["look", "moved"]


def test_timers_outlive_the_engine(reopen: Callable[..., BareEngine], clock: VirtualClock) -> None:
    engine = reopen()
    script = Script(setting)
    engine.register(script)
    engine.send("x", {"set": {"soon": 1_001.0, "later": 1_900.0, "never": 1e12}}, kind="script")
    script.wait(1)
    quiet(engine)
    engine.close()
    clock.advance(500.0)
    engine = reopen()
    script = Script(setting)
    engine.register(script)
    engine.resume()
    clock.advance(0.0)
    script.wait(1)
    clock.advance(500.0)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["soon", "later"]


def test_thousands_that_are_due_at_once_fire_in_few_commits(
    engine: BareEngine, clock: VirtualClock
) -> None:
    script = Script()
    engine.register(script)
    engine.resume()
    timers = [TimerRow("x", str(number), 1_001.0, b"\x01") for number in range(5_000)]
    change = Change("x", creates=[NewExecution("x", "script")], timers=timers)
    done = threading.Event()

    def committed(change: Change, _error: Exception | None) -> None:
        engine.parts.timers.added(change.timers)
        done.set()

    engine.parts.writer.submit(change, committed)
    assert done.wait(PATIENCE)
    clock.advance(1.0)
    script.wait(5_000)
    quiet(engine)
    assert state_of(engine, "x") == [1] * 5_000
    assert engine.statistics().commits < 100


def test_a_timer_fires_in_real_time_and_one_far_away_does_no_harm() -> None:
    fired = threading.Event()
    far = WALL.call_at(time.time() + 1e11, fired.clear)
    WALL.call_at(time.time() + 0.01, fired.set)
    assert fired.wait(PATIENCE)
    far.cancel()


class Machine:
    """The two clocks of a machine; something happens when the wall clock is looked at."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000.0, 10.0
        self.then: Callable[[], object] = lambda: None
        self.clock = WallClock(self.look, lambda: self.steady)

    def look(self) -> float:
        then, self.then = self.then, lambda: None
        then()
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_a_process_that_is_stopped_between_two_looks_at_clocks_sees_no_step() -> None:
    machine = Machine()
    machine.then = lambda: machine.sleep(3_600.0)
    machine.clock.now()
    assert machine.clock.now() == machine.wall == 4_600.0


def test_a_step_that_two_threads_see_at_the_same_time_counts_once() -> None:
    machine = Machine()
    machine.wall += 3_600.0
    found: list[float] = []
    machine.then = lambda: found.append(machine.clock.now())
    found.append(machine.clock.now())
    assert found == [machine.wall] * 2
    machine.sleep(1.0)
    assert machine.clock.now() == machine.wall


def test_the_clock_of_a_closed_engine_does_not_keep_its_store_in_memory() -> None:
    """A call that is far away would read the time of the store again and again."""

    class Shared:
        def time(self) -> float:
            return 1_000.0

    store = Shared()
    clock = EngineClock(StoreClock(store.time))
    timer = clock.call_at(1e9, lambda: None)
    clock.close()
    gone = weakref.ref(store)
    del store, clock, timer
    gc.collect()
    assert gone() is None
