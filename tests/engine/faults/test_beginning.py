"""Nothing runs before `resume`, and everything does after it, even a very large backlog."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.clock import WallClock
from actorflow.engine.engine import BareEngine
from actorflow.engine.executions.loaded import WINDOW
from actorflow.engine.kind import NewTask, Outcome, SetTimer, Status
from actorflow.engine.stores.protocol import Change, NewExecution
from tests.engine.kinds import PATIENCE, Script, collect, flush, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock


def _leave_work(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        return Outcome(
            state=[*state, message],
            timers=[SetTimer("t", 1_001.0, "tick")],
            tasks=[NewTask("a", "t", 1)],
        )

    script = Script(step)
    engine.register(script)
    engine.send("x", 1, kind="script")
    script.wait(1)
    engine.send("y", 1, kind="unknown")
    quiet(engine)


def test_an_engine_that_never_begins_warns_of_what_waits_and_ran_nothing(
    reopen: Callable[..., BareEngine], clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    _leave_work(reopen())
    engine = reopen()
    script, done = Script(), threading.Event()
    engine.register(script)
    engine.register(Script(name="unknown"))
    engine.tasker("t", lambda task: done.set())
    engine.worker("w", collect, state=[])
    clock.advance(100.0)
    assert engine.upkeep.purge(before=0.0) == 0
    assert list(engine.dead_letters()) == []
    assert [each.id for each in engine.executions()] == ["x", "y"]
    assert engine.execution("x").status == "active"
    flush(engine)
    caplog.clear()
    engine.close()
    assert script.count == 0
    assert not done.is_set()
    (record,) = [each for each in caplog.records if "unfinished" in each.getMessage()]
    assert record.levelname == "WARNING"
    for text in ("resume()", "messages=1", "timers=1", "tasks=1", "executions='y, x'"):
        assert text in record.getMessage()


def test_an_engine_with_nothing_to_do_does_not_warn(
    reopen: Callable[..., BareEngine], caplog: pytest.LogCaptureFixture
) -> None:
    engine = reopen()
    engine.worker("w", collect, state=[]).push_block(1)
    reopen().close()
    assert "unfinished" not in caplog.text


@pytest.mark.parametrize("how", ["resume", "send", "start", "push", "wait", "return_task"])
def test_the_first_verb_begins_what_is_stored(
    reopen: Callable[..., BareEngine], clock: VirtualClock, how: str
) -> None:
    _leave_work(reopen())
    engine = reopen()
    script = Script()
    engine.register(script)
    done = threading.Event()
    engine.tasker("t", lambda task: done.set())
    clock.advance(100.0)
    verbs: dict[str, Callable[[], Any]] = {
        "resume": engine.resume,
        "send": lambda: engine.send("z", 1, kind="script"),
        "start": lambda: engine.start("script", 1),
        "push": lambda: engine.worker("w", collect, state=[]).push(1),
        "wait": lambda: engine.wait("x", 0.0),
        "return_task": lambda: engine.return_task("nobody", 1),
    }
    with suppress(TimeoutError):
        verbs[how]()
    assert done.wait(PATIENCE)
    clock.advance(0.0)
    script.wait(2)


def test_a_cancel_begins_nothing(reopen: Callable[..., BareEngine], clock: VirtualClock) -> None:
    _leave_work(reopen())
    engine = reopen()
    script = Script()
    engine.register(script)
    clock.advance(100.0)
    assert engine.cancel("x")
    flush(engine)
    assert script.count == 0
    assert engine.execution("x").status == "cancelled"
    assert rows(engine, "timers") == rows(engine, "tasks") == []


def test_all_durable_workers_are_of_one_kind(engine: BareEngine) -> None:
    for number in range(3):
        engine.worker(f"w{number}", collect, state=[]).push_block(number)
    assert {each.kind for each in engine.executions()} == {"worker"}
    assert [each.view for each in engine.executions(kind="worker")] == [[0], [1], [2]]


def test_a_worker_that_is_registered_late_gets_what_is_stored(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    go = threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        assert go.wait(PATIENCE)
        return [*state, *batch]

    worker = engine.worker("late", job, state=[])
    for number in range(5):
        worker.push_ack(number)
    go.set()
    engine.close()
    engine = reopen()
    engine.worker("other", collect, state=[]).push_block(1)  # the engine has begun
    engine.send("late", 5)  # nobody knows its job yet
    late = engine.worker("late", collect, state=[])
    late.push_block(6)
    assert late.state() == list(range(7))


def test_a_backlog_of_fifty_thousand_is_a_window_in_memory(
    reopen: Callable[..., BareEngine],
) -> None:
    count = 50_000
    engine = reopen()
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[int]) -> list[int]:
        entered.set()
        assert go.wait(PATIENCE)
        return [state[0] + len(batch), *_check(batch, state[1])]

    def _check(batch: list[Any], last: int) -> list[int]:
        assert batch == list(range(last + 1, last + 1 + len(batch))), "in order"
        return [batch[-1]]

    worker = engine.worker("w", job, state=[0, -1])
    most = 0
    for first in range(0, count, 1_000):
        worker.push_many(range(first, first + 1_000))
        flush(engine)
        most = max(most, engine.parts.table._live["w"].unconsumed)
    assert entered.wait(PATIENCE)
    assert len(rows(engine, "messages")) == count
    assert most <= 2 * WINDOW
    go.set()
    engine.close()

    engine = reopen()
    worker = engine.worker("w", job, state=[0, -1])
    engine.resume()
    held = []

    def done() -> bool:
        live = engine.parts.table.find("w")
        held.append(0 if live is None else live.unconsumed)
        return not worker.depth()

    until(engine, done)
    quiet(engine)
    assert max(held) <= 2 * WINDOW
    assert worker.state() == [count, count - 1]
    assert len(worker.dead_letters) == 0


# Forgetting.


def _ended(engine: BareEngine, count: int, at: float) -> None:
    for first in range(0, count, 1_000):
        done = threading.Event()
        changes = [
            Change(
                f"x{number:05}",
                kind="k",
                expected=0,
                status=Status.DONE,
                at=at,
                creates=[NewExecution(f"x{number:05}", "k")],
                history=[b"\x01"],
            )
            for number in range(first, min(first + 1_000, count))
        ]

        def commit(changes: list[Change] = changes, done: threading.Event = done) -> None:
            assert engine.parts.writer.commit(changes) is None
            done.set()

        engine.parts.writer.call(commit)
        assert done.wait(PATIENCE)


class Passes:
    """Notes how much each pass of a purge takes."""

    def __init__(self, engine: BareEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        store: Any = engine.parts.store
        purge = store.purge
        self.limits: list[int] = []

        def noting(**options: Any) -> int:
            self.limits.append(options["limit"])
            gone: int = purge(**options)
            return gone

        monkeypatch.setattr(store, "purge", noting)


def test_a_purge_forgets_in_bounded_passes(
    engine: BareEngine, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ended(engine, 2_300, clock.now())
    passes = Passes(engine, monkeypatch)
    assert engine.upkeep.purge(before=clock.now() + 1.0) == 2_300
    assert len(passes.limits) >= 5
    assert max(passes.limits) <= 500
    assert list(engine.executions()) == []


def test_retention_forgets_in_bounded_passes_and_others_have_their_turn(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BareEngine(tmp_path / "s.db", clock=clock, durability="off", retention=100.0) as engine:
        _ended(engine, 2_300, clock.now())
        passes = Passes(engine, monkeypatch)
        clock.advance(200.0)
        worker = engine.worker("w", collect, state=[])
        worker.push_block(1)
        until(engine, lambda: [each.id for each in engine.executions()] == ["w"])
        assert len(passes.limits) >= 5
        assert max(passes.limits) <= 500


def test_a_purge_fires_no_timers(
    reopen: Callable[..., BareEngine], clock: VirtualClock, tmp_path: Path
) -> None:
    _leave_work(reopen())
    reopen().close()
    clock.advance(1_000.0)
    engine = reopen()
    engine.upkeep.purge(before=clock.now())
    engine.dead_letters().purge()
    engine.close()
    engine = reopen()
    assert len(rows(engine, "timers")) == 1
    assert state_of(engine, "x") == [1]


# Clocks.


def test_a_clock_that_is_set_back_delays_no_timer(tmp_path: Path) -> None:
    """A timer of 0.2 s takes 0.2 s although the machine's clock goes back 5 s meanwhile."""
    wall, steady = 1_000.0, 50.0
    clock = WallClock(lambda: wall, lambda: steady)
    begin = clock.now()
    wall -= 5.0
    assert clock.now() == begin
    steady, wall = steady + 0.2, wall + 0.2
    assert clock.now() == pytest.approx(begin + 0.2)
    wall += 3_600.0  # the machine was asleep: that counts
    assert clock.now() == pytest.approx(begin + 0.2 + 3_595.0, abs=0.01)


def test_a_timer_takes_its_time_although_the_clock_is_set_back() -> None:
    import time  # noqa: PLC0415 - of this test only

    back = 0.0
    clock = WallClock(lambda: time.time() - back, time.monotonic)
    fired = threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "tick":
            fired.set()
            return state
        return Outcome(state=state, timers=[SetTimer("t", clock.now() + 0.2, "tick")])

    with BareEngine(clock=clock) as engine:
        engine.register(Script(step))
        begin = time.monotonic()
        engine.send("x", "begin", kind="script")
        quiet(engine)
        back = 5.0
        assert fired.wait(4.0), "the timer waits for the clock that was set back"
        assert time.monotonic() - begin >= 0.2
