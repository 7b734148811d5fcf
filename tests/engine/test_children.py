"""Children: their parents start them, cancel them, and learn of their end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.envelopes import ChildEnded
from actorflow.engine.errors import ExecutionEnded, ExecutionFailed, StoreFull, UnknownExecution
from actorflow.engine.kind import Failure, NewChild, Outcome, Status
from tests.engine.kinds import PATIENCE, Kept, Script, state_of, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.testing import VirtualClock


def parent(state: list[Any], message: Any) -> Any:
    if message == "begin":
        return Outcome(state=state, children=[NewChild("child", "child", "hello")])
    if message == "stop it":
        return Outcome(state=state, cancelled_children=["child"])
    assert isinstance(message, ChildEnded)
    return Outcome(state=[*state, message.child, message.status], status=Status.DONE)


class Polite(Script):
    """A kind that is asked to end, and does."""

    def cancel(self, target: Any) -> Any:
        return "please end"


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BareEngine]:
    where = ":memory:" if request.param == "memory" else tmp_path / "s.db"
    with BareEngine(where) as made:
        made.register(Script(parent, "parent"))
        yield made


@pytest.mark.parametrize("kind", ["ended at once", "asked"])
def test_a_cancelled_child_ends_and_leaves_nothing(engine: BareEngine, kind: str) -> None:
    def step(state: list[Any], message: Any) -> Any:
        if message == "please end":
            return Outcome(state=state, status=Status.CANCELLED)
        return [*state, message]

    engine.register((Script if kind == "ended at once" else Polite)(step, "child"))
    engine.start("parent", "begin", id="parent")
    until(
        engine, lambda: any(row.revision for row in engine.parts.store.listing(kind="child").rows)
    )
    assert state_of(engine, "child") == ["hello"]
    engine.send("parent", "stop it")
    assert engine.wait("parent", PATIENCE).view == ["child", "cancelled"]
    assert engine.wait("child", PATIENCE).status == Status.CANCELLED
    assert engine.execution("child").parent == "parent"
    assert engine.parts.store.counts(["child"])["child"].messages == 0
    assert not list(engine.dead_letters())


def test_a_child_that_has_failed_is_over(engine: BareEngine) -> None:
    def step(state: list[Any], message: Any) -> Any:
        return Outcome(
            state=[*state, message],
            status=Status.FAILED,
            result={"code": 51},
            error=Failure("Declined", "too much"),
        )

    engine.register(Script(step, "child"))
    engine.start("parent", "begin", id="parent")
    assert engine.wait("parent", PATIENCE).view == ["child", "failed"]
    assert engine.wait("child", PATIENCE).status == Status.FAILED
    assert [each.id for each in engine.executions(status="failed")] == ["child"]
    assert not list(engine.executions(status="stuck"))
    with pytest.raises(ExecutionFailed, match=r"child.*has failed: Declined: too much") as caught:
        engine.result("child", PATIENCE)
    assert caught.value.ended
    assert caught.value.data == {"code": 51}
    with pytest.raises(ExecutionEnded):
        engine.send("child", "more")
    assert not engine.cancel("child")
    assert engine.upkeep.purge(before=time.time() + 60) == 2
    with pytest.raises(UnknownExecution):
        engine.execution("child")


def test_a_stuck_execution_is_not_over_and_goes_on(engine: BareEngine) -> None:
    def step(state: list[Any], message: Any) -> Any:
        if message == "hello":
            failure = Failure("NoInk", "fill it")
            return Outcome(state=[*state, message], status=Status.STUCK, error=failure)
        return Outcome(state=[*state, message], status=Status.DONE, result=message)

    engine.register(Script(step, "child"))
    engine.start("child", "hello", id="child")
    assert engine.wait("child", PATIENCE).status == Status.STUCK
    with pytest.raises(ExecutionFailed, match=r"child.*is stuck: NoInk: fill it") as caught:
        engine.result("child", PATIENCE)
    assert not caught.value.ended
    assert engine.upkeep.purge(before=time.time() + 60) == 0
    engine.send("child", "filled")
    until(engine, lambda: engine.execution("child").status == Status.DONE)
    assert engine.result("child", PATIENCE) == "filled"


class Refusing(Kept):
    """A store that refuses to look at the child, or to end it, while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = ""
        self.refused = threading.Event()

    def _refuse(self, what: str, *, concerns: bool) -> None:
        if what == self.refuses and concerns:
            self.refused.set()
            raise StoreFull("not now")

    def execution(self, execution: str) -> Any:
        self._refuse("look", concerns=execution == "child")
        return super().execution(execution)

    def commit(self, changes: Any) -> Any:
        ends = any(change.status == Status.CANCELLED for change in changes)
        self._refuse("commit", concerns=ends)
        return super().commit(changes)


@pytest.mark.parametrize("refuses", ["look", "commit"])
def test_a_child_is_cancelled_although_the_store_refuses_that_for_a_while(
    clock: VirtualClock, refuses: str
) -> None:
    store = Refusing()
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(parent, "parent"))
        engine.register(Script(name="child"))
        engine.start("parent", "begin", id="parent")
        until(engine, lambda: any(row.revision for row in store.listing(kind="child").rows))
        store.refuses = refuses
        engine.send("parent", "stop it")
        assert store.refused.wait(PATIENCE)
        store.refuses = ""

        def has_ended() -> bool:
            clock.advance(1.0)
            return engine.execution("parent").status == Status.DONE

        until(engine, has_ended)
        assert engine.execution("child").status == Status.CANCELLED
