"""The kind on the page docs/kinds.md, which uses every field of an outcome and every envelope."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from actorflow.engine.errors import TaskCrashed
from actorflow.engine.kind import Envelope, Outcome
from actorflow.engine.tasks.task import HOLD
from tests.engine.kinds import PATIENCE, quiet, rows, until
from tests.snippets import snippets

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine
    from actorflow.testing import VirtualClock

PAGE = Path(__file__).parent.parent.parent / "docs" / "kinds.md"
SOURCE = next(snippets(PAGE))


@pytest.fixture(scope="module")
def errand() -> Any:
    """Return the class that the page defines."""
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(SOURCE.compile(), namespace)  # noqa: S102 - our own page
    return namespace["Errand"]


def test_it_is_short_and_uses_everything() -> None:
    text = SOURCE.source
    text = text[text.index("class Errand") : text.index("with af.Engine")]
    assert len(text.strip().splitlines()) <= 60
    for field in Outcome.__struct_fields__:
        assert field in text
    for envelope in get_args(Envelope):
        assert f"{envelope.__name__}(" in text
    assert inspect.getdoc(Outcome)


def test_tasks_that_fail_and_crash_are_told_apart(engine: BareEngine, errand: Any) -> None:
    def clerk(task: Any) -> Any:
        if task.body.endswith(":fail"):
            raise ValueError("no")
        if task.body.endswith(":crash"):
            raise TaskCrashed("gone")
        return task.body

    engine.register(errand())
    engine.tasker("clerk", clerk)
    engine.start("errand", {"do": ["fail", "crash", "work"], "helpers": ["anna"]}, id="x")
    assert engine.result("x", PATIENCE) == {
        "x:fail": None,
        "x:crash": None,
        "x:work": "x:work",
        "x/anna": {"x/anna:it": "x/anna:it"},
    }
    history = list(engine.execution("x").history())
    assert "x:fail: attempt 1" in history
    assert "x:fail: ValueError: no" in history
    assert "x:crash: TaskCrashed: gone" in history
    assert engine.execution("x/anna").parent == "x"
    assert [each.id for each in engine.executions(parent="x")] == ["x/anna"]
    assert [rows(engine, table) for table in ("timers", "tasks", "watches", "messages")] == [[]] * 4


def test_the_deadline_ends_what_is_out(
    engine: BareEngine, errand: Any, clock: VirtualClock
) -> None:
    cancelled = threading.Semaphore(0)
    begun = threading.Semaphore(0)

    def hold(_task: Any) -> Any:
        begun.release()
        return HOLD

    engine.register(errand())
    engine.tasker("clerk", hold, concurrency=2, on_cancel=lambda _task: cancelled.release())
    engine.start("errand", {"do": ["a"], "helpers": ["anna"]}, id="x")
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE)
    quiet(engine)
    clock.advance(61.0)
    found = engine.wait("x", PATIENCE)
    assert found.status == "failed"
    assert str(found.failure) == "TooLate: at 1060.0"
    for _ in range(2):
        assert cancelled.acquire(timeout=PATIENCE)
    assert engine.wait("x/anna", PATIENCE).status in ("cancelled", "failed")
    until(engine, lambda: not rows(engine, "tasks"))


def test_watches_are_seen_by_all_of_the_kind(engine: BareEngine, errand: Any) -> None:
    engine.register(errand())
    engine.tasker("clerk", lambda task: HOLD)
    for name in ("bread", "milk"):
        engine.start("errand", {"do": ["a"]}, id=name)
    quiet(engine)
    assert len(rows(engine, "watches")) == 2
    engine.send("milk", {"talk": "the price of bread"})
    until(engine, lambda: "heard of the price of bread" in engine.execution("bread").history())
    quiet(engine)
    assert [row.execution for row in rows(engine, "watches")] == ["milk"]
    assert not [each for each in engine.execution("milk").history() if "heard" in each]


def test_a_child_that_is_cancelled_is_told_to_its_parent(engine: BareEngine, errand: Any) -> None:
    engine.register(errand())
    engine.tasker("clerk", lambda task: HOLD)
    engine.start("errand", {"do": [], "helpers": ["anna"]}, id="x")
    quiet(engine)
    assert engine.cancel("x/anna")
    assert engine.result("x", PATIENCE) == {"x/anna": None}
