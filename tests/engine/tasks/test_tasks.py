"""Tasks: handed out, done, held, tried again, cancelled, and found again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import TaskWithdrawn
from actorflow.engine.kind import NewTask, Outcome, TaskEnded
from actorflow.engine.tasks.task import HOLD, TaskAttempt
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.runtime.restarts import Backoff
from tests.engine.kinds import PATIENCE, Script, quiet, rows, state_of, until
from tests.engine.tasks.asking import ask, asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing import VirtualClock


def test_a_task_is_done_and_its_result_is_a_message(engine: BareEngine, script: Script) -> None:
    seen: list[TaskAttempt] = []

    def do(task: TaskAttempt) -> Any:
        seen.append(task)
        return f"did {task.body}"

    engine.tasker("t", do)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["did a"]
    assert [(task.id, task.execution, task.attempt) for task in seen] == [("a", "x", 1)]
    assert rows(engine, "tasks") == []
    assert engine.statistics().tasks_done == 1


def test_a_held_task_is_answered_later_and_only_once(engine: BareEngine, script: Script) -> None:
    held = threading.Event()

    def do(task: TaskAttempt) -> Any:
        held.set()
        return HOLD

    engine.tasker("t", do)
    ask(engine, "a", "b")
    assert held.wait(PATIENCE)
    assert engine.return_task("a", 1)
    assert not engine.return_task("a", 2)
    assert engine.fail_task("b", ValueError("no"))
    assert not engine.fail_task("b", ValueError("no"))
    assert not engine.return_task("unknown", 2)
    script.wait(3)
    quiet(engine)
    assert state_of(engine, "x") == [
        1,
        {"kind": "ValueError", "message": "no", "outcome": "failed"},
    ]


def test_a_task_that_fails_is_tried_again_with_longer_waits(
    engine: BareEngine, script: Script, clock: VirtualClock
) -> None:
    attempts: list[tuple[float, int]] = []
    tried = threading.Semaphore(0)

    def do(task: TaskAttempt) -> Any:
        attempts.append((clock.now(), task.attempt))
        tried.release()
        if task.attempt < 4:
            raise ValueError(str(task.attempt))
        return "done"

    engine.tasker("t", do, retries=3, backoff=Backoff(initial=1.0, factor=2.0, maximum=60.0))
    ask(engine, "a")
    for delay in (1.0, 2.0, 4.0):
        assert tried.acquire(timeout=PATIENCE)
        until(engine, lambda: clock.next_time() is not None)
        assert rows(engine, "tasks")[0].due == clock.now() + delay
        clock.advance(delay)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["done"]
    assert attempts == [(1_000.0, 1), (1_001.0, 2), (1_003.0, 3), (1_007.0, 4)]
    assert engine.statistics().tasks_retried == 3


def test_jitter_takes_a_part_off_the_wait(
    engine: BareEngine, script: Script, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.parts.environment, "random", lambda: 0.5)

    def do(task: TaskAttempt) -> Any:
        raise ValueError

    engine.tasker("t", do, retries=1, backoff=Backoff(initial=10.0, maximum=10.0, jitter=0.2))
    ask(engine, "a")
    until(engine, lambda: clock.next_time() is not None)
    assert clock.next_time() == 1_009.0


def test_the_last_failure_is_told_to_the_execution(engine: BareEngine, script: Script) -> None:
    def do(task: TaskAttempt) -> Any:
        raise ValueError("never")

    engine.tasker("t", do)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == [
        {"kind": "ValueError", "message": "never", "outcome": "failed"}
    ]


def test_a_result_that_cannot_be_stored_is_a_failure(engine: BareEngine, script: Script) -> None:
    engine.tasker("t", lambda task: object(), retries=5)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x")[0]["kind"] == "NotStorable"


def test_tasks_wait_for_a_tasker_that_is_not_there(engine: BareEngine, script: Script) -> None:
    ask(engine, "a", "b", of="later")
    script.wait(1)
    quiet(engine)
    assert len(rows(engine, "tasks")) == 2
    engine.tasker("later", lambda task: task.id)
    script.wait(3)
    quiet(engine)
    assert sorted(state_of(engine, "x")) == ["a", "b"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def test_m22_an_error_without_a_text_is_a_failure_like_any_other(
    engine: BareEngine, script: Script
) -> None:
    def do(task: TaskAttempt) -> Any:
        if task.id == "a":
            raise Unspeakable
        return task.id

    engine.tasker("t", do)
    ask(engine, "a", "b")
    script.wait(3)
    quiet(engine)
    found = state_of(engine, "x")
    assert found[0]["kind"] == "Unspeakable"
    assert found[1] == "b"


def test_a_task_that_has_not_begun_when_the_engine_is_closed_begins_with_the_next(
    reopen: Callable[..., BareEngine], caplog: pytest.LogCaptureFixture
) -> None:
    engine = reopen()
    engine.register(Script(asking))
    begun, go = threading.Event(), threading.Event()
    done: list[str] = []

    def hang(task: TaskAttempt) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        done.append(task.id)

    engine.tasker("t", hang)
    ask(engine, "a", "b", "c")
    assert begun.wait(PATIENCE)
    engine.close(timeout=0.05)
    assert "tasks were left running" in caplog.text
    assert "['a']" in caplog.text
    assert "discarded" not in caplog.text, "the others are in the store"
    engine = reopen()
    script = Script(asking)
    engine.register(script)
    engine.tasker("t", lambda task: f"again {task.id}")
    engine.resume()
    script.wait(3)
    go.set()
    quiet(engine)
    assert sorted(state_of(engine, "x")) == ["again a", "again b", "again c"]
    assert done in (["a"], [])


def test_a_cancelled_task_is_told_and_its_answer_refused(
    engine: BareEngine, script: Script
) -> None:
    held, cancelled = threading.Event(), threading.Event()
    told: list[str] = []

    def do(task: TaskAttempt) -> Any:
        held.set()
        return HOLD

    def on_cancel(task: TaskAttempt) -> None:
        told.append(task.id)
        cancelled.set()

    engine.tasker("t", do, on_cancel=on_cancel)
    ask(engine, "a")
    assert held.wait(PATIENCE)
    engine.send("x", ["a"])
    assert cancelled.wait(PATIENCE)
    assert told == ["a"]
    assert not engine.return_task("a", 1)
    assert rows(engine, "tasks") == []


def test_tasks_go_on_with_the_next_engine(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    engine.register(Script(asking))
    held = threading.Event()

    def hold(task: TaskAttempt) -> Any:
        held.set()
        return HOLD

    engine.tasker("t", hold)
    ask(engine, "a")
    assert held.wait(PATIENCE)
    engine = reopen()
    script = Script(asking)
    engine.register(script)
    engine.tasker("t", lambda task: f"again {task.id}")
    engine.resume()
    script.wait(1)
    quiet(engine)
    assert state_of(engine, "x") == ["again a"]


def double(task: TaskAttempt) -> Any:
    return task.body * 2


def test_bad_taskers_are_refused(engine: BareEngine) -> None:
    engine.tasker("t", double)
    calls: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: engine.tasker("t", double), BadOption),
        (lambda: engine.tasker("a", 7), BadJob),  # type: ignore[arg-type]
        (lambda: engine.tasker("a", "ftp://x"), BadOption),
        (lambda: engine.tasker("a", double, concurrency=0), BadOption),
        (lambda: engine.tasker("a", double, timeout=-1.0), BadOption),
        (lambda: engine.tasker("a", double, executor="moon"), BadOption),
    ]
    for call, error in calls:
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("known", [True, False], ids=["queued", "without a tasker"])
def test_tasks_that_have_not_begun_can_be_taken_back(known: bool) -> None:  # noqa: FBT001
    entered, go = threading.Event(), threading.Event()
    done: list[str] = []

    def do(task: TaskAttempt) -> str:
        entered.set()
        assert go.wait(PATIENCE)
        done.append(task.id)
        return task.id

    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            return [*state, message.error.type if message.error else message.value]
        if message == "withdraw":
            return Outcome(state=state, withdrawn_tasks=["a", "b", "c", "gone"])
        return asking(state, message)

    script = Script(step)
    with BareEngine() as engine:
        engine.register(script)
        if known:
            engine.tasker("t", do)
        ask(engine, "a", "b", "c")
        assert not known or entered.wait(PATIENCE)
        engine.send("x", "withdraw")
        script.wait(4 if known else 5)
        go.set()
        script.wait(5)
        quiet(engine)
        gone = TaskWithdrawn.__name__
        assert state_of(engine, "x") == ([gone, gone, "a"] if known else [gone] * 3)
        assert done == (["a"] if known else [])
        assert rows(engine, "tasks") == []


def test_a_task_that_is_taken_back_with_its_own_commit_never_begins() -> None:
    done: list[str] = []

    def step(state: Any, message: Any) -> Any:
        if message == "both":
            tasks = [NewTask(name, "t", name) for name in ("a", "b")]
            return Outcome(state=state, tasks=tasks, withdrawn_tasks=["a"])
        return asking(state, message)

    script = Script(step)
    with BareEngine() as engine:
        engine.register(script)
        engine.tasker("t", lambda task: done.append(task.id))
        engine.send("x", "both", kind="script")
        script.wait(3)
        quiet(engine)
        assert done == ["b"]
        assert rows(engine, "tasks") == []


def test_a_cancelled_task_that_is_due_in_years_is_not_kept_in_memory(
    engine: BareEngine, script: Script, clock: VirtualClock
) -> None:
    """Neither one that was never tried, nor one that waits for its next attempt."""
    failed = threading.Event()

    def do(task: TaskAttempt) -> Any:
        failed.set()
        raise ValueError(task.id)

    far = clock.now() + 1e9
    plan = Outcome(state=[], tasks=[NewTask("b", "t", None, due=far)])
    engine.register(Script(lambda _state, _message: plan, "late"))
    engine.tasker("t", do, retries=1, backoff=Backoff(initial=1e9, maximum=1e9))
    ask(engine, "a")
    engine.send("y", "go", kind="late")
    assert failed.wait(PATIENCE)
    until(engine, lambda: [row.due for row in rows(engine, "tasks")] == [far, far])
    quiet(engine)
    assert engine.cancel("x")
    assert engine.cancel("y")
    quiet(engine)
    clock.advance(1e6)  # let temporary entries expire; they do not count
    until(engine, lambda: clock.next_time() is None)
