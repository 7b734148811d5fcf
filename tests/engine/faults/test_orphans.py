"""Ended executions leave nothing behind, and every message has a receiver."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Bounded, Queue
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import ExecutionEnded, UnknownExecution
from actorflow.engine.executions.stored_backlog import CRASHES
from actorflow.engine.kind import NewChild, NewTask, NewWatch, Outcome, Outgoing, SetTimer, Status
from actorflow.engine.stores.protocol import Change
from actorflow.engine.tasks.task import HOLD
from actorflow.runtime.errors import Rejected
from tests.engine.kinds import (
    PATIENCE,
    Kept,
    Script,
    collect,
    flush,
    inbox,
    quiet,
    rows,
    state_of,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.kinds.worker_handle import DurableWorker
    from actorflow.testing import VirtualClock


def test_a_message_to_nobody_is_refused(engine: BareEngine) -> None:
    engine.worker("order-1", collect, state=[]).push_block(1)
    with pytest.raises(UnknownExecution, match="order-1"):
        engine.send("order-2", 1)
    assert rows(engine, "messages") == []


def test_the_writer_does_not_look_for_names_like_it(
    engine: BareEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among thousands of executions that takes tens of milliseconds, in which nobody commits."""
    store: Any = engine.parts.store
    listing, threads = store.listing, []

    def noting(**options: Any) -> Any:
        threads.append(threading.current_thread())
        return listing(**options)

    monkeypatch.setattr(store, "listing", noting)
    for _ in range(3):
        with pytest.raises(UnknownExecution):
            engine.send("nobody", 1)
    assert set(threads) == {threading.main_thread()}


def test_a_message_of_a_kind_to_nobody_is_dropped(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        return Outcome(state=[*state, message], messages=[Outgoing("nobody", 1)])

    engine.register(Script(step))
    engine.send("x", 1, kind="script")
    quiet(engine)
    assert state_of(engine, "x") == [1]
    assert rows(engine, "messages") == []


@pytest.mark.parametrize("how", ["done", "cancelled", "cancel"])
def test_timers_tasks_and_watches_go_with_their_execution(
    engine: BareEngine, clock: VirtualClock, how: str
) -> None:
    cancelled = threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "end":
            return Outcome(state=state, status=Status(how))
        return Outcome(
            state=[*state, message],
            timers=[SetTimer("t", 1_100.0, "tick")],
            tasks=[NewTask("a", "tasker", 1), NewTask("b", "nobody", 1)],
            watches=[NewWatch("w", {"tag": 1})],
        )

    script = Script(step)
    engine.register(script)
    engine.tasker("tasker", lambda task: HOLD, on_cancel=lambda task: cancelled.set())
    engine.send("x", 1, kind="script")
    script.wait(1)
    quiet(engine)
    assert [len(rows(engine, table)) for table in ("timers", "tasks", "watches")] == [1, 2, 1]
    if how == "cancel":
        assert engine.cancel("x")
    else:
        engine.send("x", "end")
    engine.wait("x", timeout=PATIENCE)
    assert cancelled.wait(PATIENCE)
    quiet(engine)
    assert [rows(engine, table) for table in ("timers", "tasks", "watches")] == [[], [], []]
    clock.advance(200.0)
    quiet(engine)
    assert state_of(engine, "x") == [1]
    assert not engine.return_task("a", 1)


def test_an_execution_that_ends_sets_nothing(engine: BareEngine) -> None:
    """What it asks for in its last run would never come back."""

    def step(state: Any, message: Any) -> Any:
        return Outcome(
            state=["end"],
            status=Status.DONE,
            result=7,
            timers=[SetTimer("t", 1_100.0)],
            tasks=[NewTask("a", "tasker")],
            watches=[NewWatch("w", 1)],
        )

    engine.register(Script(step))
    engine.send("x", 1, kind="script")
    assert engine.result("x", PATIENCE) == 7
    assert [rows(engine, table) for table in ("timers", "tasks", "watches")] == [[], [], []]


def _ends_with(worker: DurableWorker, message: Any) -> bool:
    return bool(worker.state()[-1:] == [message])


def test_a_schedule_ticks_again_after_it_was_cancelled_and_set(
    engine: BareEngine, clock: VirtualClock
) -> None:
    worker = engine.worker("w", collect, state=[])
    for times in (1, 2):
        engine.every("minutely", "* * * * *", worker, times)
        until(engine, lambda: rows(engine, "timers"))
        quiet(engine)
        clock.advance(60.0)
        until(engine, partial(_ends_with, worker, times))
        quiet(engine)
        assert engine.cancel("cron:minutely")
        assert rows(engine, "timers") == []
        clock.advance(600.0)
    quiet(engine)
    assert worker.state() == [1, 2]


def test_a_push_to_a_cancelled_worker(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    engine.send("w", 2, key="two")
    until(engine, lambda: worker.state() == [1, 2])
    assert engine.cancel("w")
    engine.send("w", 2, key="two")  # it was counted
    with pytest.raises(ExecutionEnded, match="'w' has ended"):
        engine.send("w", 3, key="three")
    with pytest.raises(ExecutionEnded, match="'w' has ended"):
        worker.push_ack(2)
    with pytest.raises(ExecutionEnded, match="'w' has ended"):
        worker.push_block(3)
    worker.push(4)
    worker.push_many([5, 6])
    until(engine, lambda: len(worker.dead_letters) == 3)
    assert [letter.message for letter in worker.dead_letters] == [4, 5, 6]
    assert all("ExecutionEnded" in letter.error for letter in worker.dead_letters)
    assert worker.state() == [1, 2]


def test_what_was_stored_before_a_cancel_is_a_dead_letter(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, *batch]

    worker = engine.worker("w", job, state=[])
    worker.push_ack(1)
    assert entered.wait(PATIENCE)
    worker.push_ack(2)
    blocked: list[BaseException] = []

    def block() -> None:
        try:
            worker.push_block(3, timeout=PATIENCE)
        except ExecutionEnded as error:
            blocked.append(error)

    thread = threading.Thread(target=block)
    thread.start()
    until(engine, lambda: len(inbox(engine, "w")) == 2)
    assert engine.cancel("w")
    go.set()
    thread.join(PATIENCE)
    assert len(blocked) == 1
    until(engine, lambda: not rows(engine, "messages"))
    assert [letter.message for letter in engine.dead_letters("w")] == [1, 2]
    engine = reopen()
    engine.worker("w", collect, state=[])
    engine.resume()
    quiet(engine)
    assert [letter.message for letter in engine.dead_letters("w")] == [1, 2]
    assert engine.execution("w").status == "cancelled"


def test_an_execution_whose_first_message_is_given_up_has_failed(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        raise ValueError("no")

    engine.register(Script(step))
    engine.send("x", 1, kind="script")
    found = engine.wait("x", timeout=PATIENCE)
    assert found.status == "stuck"
    assert found.failure is not None
    assert (found.failure.type, found.failure.message) == ("ValueError", "no")
    assert "test_orphans" in found.failure.traceback
    assert [letter.message for letter in engine.dead_letters("x")] == [1]


@pytest.mark.parametrize("how", ["start", "send"])
def test_an_execution_whose_second_message_is_rejected_in_its_first_run_goes_on(
    engine: BareEngine, how: str
) -> None:
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "begin":
            entered.set()
            assert go.wait(PATIENCE)
        return [*state, message]

    engine.register(Script(step, behaviour=lambda: Bounded(Queue(), 1)))
    if how == "start":
        engine.start("script", "begin", id="x")
    else:
        engine.send("x", "begin", kind="script")
    assert entered.wait(PATIENCE)
    engine.send("x", "kept", kind="script")
    with pytest.raises(Rejected):
        engine.send("x", "rejected", kind="script")
    flush(engine)
    assert engine.execution("x").status == "active"
    go.set()
    quiet(engine)
    assert state_of(engine, "x") == ["begin", "kept"]
    assert engine.execution("x").status == "active"
    assert [letter.message for letter in engine.dead_letters("x")] == ["rejected"]


def test_an_execution_whose_second_message_has_ended_processes_goes_on(clock: VirtualClock) -> None:
    store = Kept()
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.send("x", "begin", kind="script")
        engine.send("x", "poison")
        poison = rows(engine, "messages")[1].id
        for _ in range(CRASHES + 1):
            engine.parts.writer.call_and_wait(
                lambda: store.commit([Change("x", attempted=[poison])])
            )
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script())
        engine.resume()
        quiet(engine)
        assert state_of(engine, "x") == ["begin"]
        assert engine.execution("x").status == "active"
        assert [letter.message for letter in engine.dead_letters("x")] == ["poison"]


def test_an_execution_that_has_failed_is_not_waited_for(engine: BareEngine) -> None:
    """A later waiter gets the failure at once, although the execution is still in memory."""

    def step(state: Any, message: Any) -> Any:
        raise ValueError("no")

    engine.register(Script(step))
    engine.send("x", 1, kind="script")
    until(engine, lambda: engine.parts.row("x").status == "stuck")
    flush(engine)
    assert engine.parts.table.find("x") is not None
    assert engine.wait("x", timeout=PATIENCE).status == "stuck"


def test_a_child_whose_first_message_is_given_up_is_told_to_its_parent(engine: BareEngine) -> None:
    def fail(state: Any, message: Any) -> Any:
        raise ValueError("no")

    def step(state: Any, message: Any) -> Any:
        if message == "begin":
            return Outcome(state=state, children=[NewChild("child", "failing", 1)])
        return Outcome(state=[message.child, message.status], status=Status.DONE)

    engine.register(Script(fail, "failing"))
    engine.register(Script(step))
    engine.send("x", "begin", kind="script")
    engine.wait("x", timeout=PATIENCE)
    assert state_of(engine, "x") == ["child", "stuck"]
