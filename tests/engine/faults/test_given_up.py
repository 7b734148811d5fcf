"""An execution that has lost what it waits for is stuck, until it is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.executions.stored_backlog import CRASHES
from actorflow.engine.kind import (
    ChildEnded,
    ChildResumed,
    NewChild,
    NewTask,
    Outcome,
    SetTimer,
    Status,
    TaskEnded,
)
from actorflow.engine.stores.protocol import Change, NewMessage, TaskResult
from actorflow.engine.tasks.task import HOLD
from tests.engine.kinds import PATIENCE, Kept, Script, quiet, rows, state_of, until

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock

AWAITED = {
    "task": Outcome(state=["begun"], tasks=[NewTask("t", "tasker")]),
    "timer": Outcome(state=["begun"], timers=[SetTimer("t", 0.0, "tick")]),
    "child": Outcome(state=["begun"], children=[NewChild("child", "other", "begin")]),
}


class Waiting:
    """An execution that waits for one thing, and cannot take it at first."""

    def __init__(self, engine: BareEngine, what: str) -> None:
        self.faulty = True
        self._what = what
        engine.register(Script(self._step))
        engine.register(Script(lambda state, _: Outcome(state=state, status=Status.DONE), "other"))
        engine.tasker("tasker", lambda _task: "done")

    def _step(self, state: Any, message: Any) -> Any:
        if message == "begin":
            return AWAITED[self._what]
        if message == "hello":
            return [*state, "hello"]
        if self.faulty:
            raise ValueError("no")
        return Outcome(state=[*state, "went on"], status=Status.DONE, result="result")


@pytest.mark.parametrize("what", AWAITED)
def test_an_execution_that_cannot_take_what_it_waits_for_has_failed(
    engine: BareEngine, clock: VirtualClock, what: str
) -> None:
    waiting = Waiting(engine, what)
    engine.start("script", "begin", id="x")
    until(engine, lambda: state_of(engine, "x") == ["begun"])
    clock.advance(1.0)
    found = engine.wait("x", timeout=PATIENCE)
    assert found.status == "stuck"
    assert found.failure is not None
    assert (found.failure.type, found.failure.message) == ("ValueError", "no")
    assert len(engine.dead_letters("x")) == 1
    assert state_of(engine, "x") == ["begun"], "it keeps what it has"
    waiting.faulty = False
    assert engine.dead_letters("x").retry() == 1
    until(engine, lambda: engine.parts.row("x").status == "done")
    assert engine.result("x", timeout=PATIENCE) == "result"


def test_it_has_failed_until_that_is_sent_again(engine: BareEngine) -> None:
    """Whatever else arrives: otherwise it and its waiters would wait forever."""
    waiting = Waiting(engine, "task")
    engine.start("script", "begin", id="x")
    engine.wait("x", timeout=PATIENCE)
    engine.send("x", "hello")
    quiet(engine)
    assert state_of(engine, "x") == ["begun", "hello"]
    found = engine.wait("x", timeout=PATIENCE)
    assert found.status == "stuck"
    assert found.failure is not None
    assert found.failure.message == "no"
    waiting.faulty = False
    engine.dead_letters("x").retry()
    until(engine, lambda: engine.parts.row("x").status == "done")
    assert state_of(engine, "x") == ["begun", "hello", "went on"]


def test_it_is_active_again_once_the_letter_is_thrown_away(engine: BareEngine) -> None:
    Waiting(engine, "task")
    engine.start("script", "begin", id="x")
    engine.wait("x", timeout=PATIENCE)
    engine.dead_letters("x").purge()
    engine.send("x", "hello")
    quiet(engine)
    assert engine.execution("x").status == "active"


def test_its_parent_is_told_that_it_has_failed_and_that_it_goes_on(engine: BareEngine) -> None:
    faulty = True

    def child(state: Any, message: Any) -> Any:
        if message == "begin":
            return Outcome(state=state, tasks=[NewTask("t", "tasker")])
        if message == "hello":
            return state
        if faulty:
            raise ValueError("no")
        return Outcome(state=state, tasks=[NewTask("next", "holds")])

    def parent(state: Any, message: Any) -> Any:
        if message == "begin":
            return Outcome(state=state, children=[NewChild("child", "child", "begin")])
        told = message.status if isinstance(message, ChildEnded) else type(message).__name__
        return [*state, told]

    engine.register(Script(child, "child"))
    engine.register(Script(parent))
    engine.tasker("tasker", lambda _task: "done")
    engine.tasker("holds", lambda _task: HOLD)
    engine.start("script", "begin", id="x")
    until(engine, lambda: state_of(engine, "x") == ["stuck"])
    engine.send("child", "hello")
    quiet(engine)
    assert state_of(engine, "x") == ["stuck"], "nothing has changed"
    faulty = False
    engine.dead_letters("child").retry()
    until(engine, lambda: state_of(engine, "x") == ["stuck", ChildResumed.__name__])


def crashed_over(store: Kept, clock: VirtualClock, times: int) -> None:
    """Store the answer of a task whose run ended the process so often."""
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(
            Script(lambda state, _: Outcome(state=state, tasks=[NewTask("t", "later")]))
        )
        engine.start("script", "begin", id="x")
        until(engine, lambda: rows(engine, "tasks"))
        message = NewMessage("x", "ended", b"\x82\xa4task\xa1t\xa7outcome\xa2ok")
        engine.parts.writer.call_and_wait(
            lambda: store.commit([Change("x", task_results=[TaskResult("t", message)])])
        )
        (answer,) = rows(engine, "messages")
        for _ in range(times):
            engine.parts.writer.call_and_wait(
                lambda: store.commit([Change("x", attempted=[answer.id])])
            )


def end(state: Any, message: Any) -> Any:
    assert isinstance(message, TaskEnded)
    return Outcome(state=state, status=Status.DONE, result=message.outcome)


def test_the_answer_of_a_task_is_tried_again_after_fewer_crashes(clock: VirtualClock) -> None:
    store = Kept()
    crashed_over(store, clock, CRASHES)
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(end))
        assert engine.result("x", timeout=PATIENCE) == "ok"
        assert rows(engine, "dead") == []


def test_an_execution_whose_answer_has_ended_processes_has_failed(clock: VirtualClock) -> None:
    store = Kept()
    crashed_over(store, clock, CRASHES + 1)
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(end))
        found = engine.wait("x", timeout=PATIENCE)
        assert found.status == "stuck"
        assert found.failure is not None
        assert found.failure.type == "ProcessEnded"
        engine.dead_letters("x").retry()
        until(engine, lambda: engine.parts.row("x").status == "done")
