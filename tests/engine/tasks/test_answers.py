"""Answers of tasks, and what becomes of them in the store."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import Unique
from actorflow.engine import bodies
from actorflow.engine.engine import BareEngine
from actorflow.engine.kind import TaskEnded
from actorflow.engine.tasks.task import HOLD
from tests.engine.kinds import PATIENCE, Kept, Script, quiet, rows, state_of, until
from tests.engine.tasks.asking import ask, asking

if TYPE_CHECKING:
    from collections.abc import Callable


class Noting(Kept):
    """Notes the messages that are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Any] = []

    def commit(self, changes: Any) -> None:
        self.stored += [row for each in changes for row in each.messages]
        self.stored += [answer.message for each in changes for answer in each.task_results]
        super().commit(changes)


def test_an_answer_to_a_live_execution_is_committed_with_what_it_leads_to() -> None:
    store, script = Noting(), Script(asking)
    with BareEngine(store) as engine:
        engine.register(script)
        engine.tasker("t", lambda task: task.body)
        ask(engine, "a")
        script.wait(2)
        quiet(engine)
        assert state_of(engine, "x") == ["a"]
    assert [row for row in store.stored if row.type != "message"] == []
    assert rows(store, "tasks") == []


def test_an_answer_to_an_execution_that_is_not_in_memory_is_stored() -> None:
    store, script = Noting(), Script(asking)
    with BareEngine(store, max_live=0) as engine:
        engine.register(script)
        engine.tasker("t", lambda _task: HOLD)
        ask(engine, "a")
        script.wait(1)
        until(engine, lambda: not len(engine.parts.table))
        assert engine.return_task("a", 1)
        script.wait(2)
        quiet(engine)
        assert state_of(engine, "x") == [1]
    (row,) = [row for row in store.stored if row.type != "message"]
    assert bodies.decode(row.body)["value"] == 1
    assert rows(store, "tasks") == []


def test_an_answer_that_cannot_be_processed_is_a_dead_letter_and_its_task_is_over(
    reopen: Callable[..., BareEngine],
) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            raise ValueError("no")  # noqa: TRY004 - any error
        return asking(state, message)

    engine = reopen()
    script = Script(step, on_failure="isolate")
    engine.register(script)
    engine.tasker("t", lambda task: task.body)
    ask(engine, "a")
    until(engine, lambda: len(engine.dead_letters()))
    assert [letter.message["value"] for letter in engine.dead_letters()] == ["a"]
    assert rows(engine, "tasks") == []
    assert rows(reopen(), "tasks") == []


def test_an_answer_that_is_displaced_ends_its_task() -> None:
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "wait":
            entered.set()
            assert go.wait(PATIENCE)
            return state
        return asking(state, message)

    script = Script(
        step,
        behaviour=lambda: Unique(
            key=lambda each: "same" if isinstance(each, TaskEnded) else id(each)
        ),
    )
    with BareEngine() as engine:
        engine.register(script)
        engine.tasker("t", lambda _task: HOLD)
        ask(engine, "a", "b")
        script.wait(1)
        quiet(engine)
        engine.send("x", "wait")
        assert entered.wait(PATIENCE)
        assert engine.return_task("a", 1)
        assert engine.return_task("b", 2)
        until(engine, lambda: engine.parts.table._live["x"].displaced)
        go.set()
        script.wait(3)
        quiet(engine)
        assert state_of(engine, "x") == [2]
        assert rows(engine, "tasks") == []
