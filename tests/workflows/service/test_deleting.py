"""Instances that are deleted: nothing of them is left, and their ids can be used again."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Queue
from actorflow.engine.errors import KindMismatch, UnknownExecution
from actorflow.engine.executions.run import Runner
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.executions.loaded import LoadedExecution


@af.task
def part(n: int) -> int:
    """Return the number."""
    return n


class Child(af.Workflow[int]):
    """Does a step."""

    def __init__(self, n: int) -> None:
        self.n = n

    def handle(self) -> int:
        """Do it."""
        return self.execute(part(self.n))


class Parent(af.Workflow[int]):
    """Waits for a child and an event."""

    def __init__(self, n: int) -> None:
        self.n = n

    def handle(self) -> int:
        """Return the sum of both."""
        found = self.execute(Child(self.n))
        event = self.wait("more")
        return found + (event.data["n"] if event else 0)


def run(engine: af.Engine, n: int) -> int:
    parent = engine.start(Parent(n), id="p")
    parent.send("more", id="once", n=10)
    return parent.result(PATIENCE)


def test_an_instance_is_deleted_with_its_children_and_its_id_is_free(engine: af.Engine) -> None:
    assert run(engine, 1) == 11
    assert run(engine, 2) == 11, "the same instance"
    parent = engine.workflows.get(Parent, "p")
    until(engine, lambda: rows(engine, "messages") == [])
    assert parent.delete()
    assert [*engine.executions()] == []
    assert engine.parts.store.history("p").rows == []
    with pytest.raises(UnknownExecution):
        parent.query()
    assert not parent.delete()
    assert run(engine, 2) == 12, "another one, with steps and events of its own"
    assert asyncio.run(parent.adelete())


def test_one_that_has_not_ended_is_not_deleted(engine: af.Engine) -> None:
    parent = engine.start(Parent(1), id="p")
    with pytest.raises(af.BadOption, match=r"execution 'p' has not ended \(active\): cancel"):
        parent.delete()
    parent.kill()
    until(engine, lambda: all(each.status != "active" for each in engine.executions()))
    assert parent.delete()


def test_one_that_was_killed_is_deleted_and_started_again(engine: af.Engine) -> None:
    for n in range(5):
        parent = engine.start(Parent(n), id="p", on_conflict="refuse")
        parent.send("more", id="once", n=10)
        if n % 2:
            assert parent.result(PATIENCE) == n + 10
        else:
            engine.bulk("kill", ids=engine.upkeep.family("p"))
        until(engine, lambda: all(each.status != "active" for each in engine.executions()))
        assert parent.delete()
    assert rows(engine, "messages") == rows(engine, "tasks") == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_that_is_there_is_replaced(engine: af.Engine, *, asynchronous: bool) -> None:
    def replaced(n: int) -> af.WorkflowHandle[int]:
        if asynchronous:
            return asyncio.run(engine.astart(Parent(n), id="p", on_conflict="replace"))
        return engine.start(Parent(n), id="p", on_conflict="replace")

    for n in range(4):
        parent = replaced(n)
        assert parent.ask("early", timeout=PATIENCE) is None
        assert len(parent.query().kept) == 1
        parent.send("more", id="once", n=10)
        if n % 2:
            assert parent.result(PATIENCE) == n + 10
    assert engine.start(Parent(7), id="p").result(PATIENCE) == 13
    parent = replaced(5)
    assert parent.status == "active"
    parent.send("more", id="once", n=10)
    assert parent.result(PATIENCE) == 15
    with pytest.raises(KindMismatch):
        engine.start(Child(1), id="p", on_conflict="replace")


def test_a_task_of_one_that_was_replaced_does_not_answer_for_the_next() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @af.task
    def name(n: int) -> int:
        if n == 1:
            begun.set()
            go_on.wait(PATIENCE)
        return n

    class Names(af.Workflow[int]):
        def __init__(self, n: int) -> None:
            self.n = n

        def handle(self) -> int:
            found = self.execute(name(self.n))
            self.wait("end")
            return found

    with af.Engine(":memory:") as engine:
        engine.start(Names(1), id="n")
        assert begun.wait(PATIENCE)
        names = engine.start(Names(2), id="n", on_conflict="replace")
        go_on.set()
        names.send("end")
        assert names.result(PATIENCE) == 2


def test_one_that_is_replaced_gives_its_inbox_to_nobody() -> None:
    made: list[int] = []

    def inbox(n: int) -> Callable[[], Any]:
        def make() -> Any:
            made.append(n)
            return Queue()

        return make

    with af.Engine(":memory:") as engine:
        for n in range(4):
            parent = engine.start(Parent(n), id="p", inbox=inbox(n), on_conflict="replace")
            made.clear()  # whatever validated it
            assert parent.ask("early", timeout=PATIENCE) is None
            assert set(made) <= {n}
            assert engine.parts.kinds["workflow:Parent"].options("p").behaviour is not None
            if n % 2:
                parent.send("more", n=10)
                assert parent.result(PATIENCE) == n + 10
        plain = engine.start(Parent(1), id="p", on_conflict="replace")
        assert engine.parts.kinds["workflow:Parent"].options("p").behaviour is None
        plain.send("more", n=1)
        assert plain.result(PATIENCE) == 2


class Leaves(af.Workflow[None]):
    """Ends before its child does."""

    def handle(self) -> None:
        """Begin it."""
        self.dispatch(Parent(1))


def test_a_child_that_has_not_ended_is_named(engine: af.Engine) -> None:
    leaves = engine.start(Leaves(), id="l")
    leaves.result(PATIENCE)
    with pytest.raises(af.BadOption, match=r"'l/0/0\.0', which 'l' has started, has not ended"):
        leaves.delete()
    engine.send("l/0/0.0", {"event": "more", "data": {"n": 1}})
    engine.result("l/0/0.0", PATIENCE)
    assert leaves.delete()


def test_one_whose_first_run_began_before_it_was_killed_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading, killed, running, go_on = (threading.Event() for _ in range(4))
    load = Runner.load

    def load_late(runner: Runner, live: LoadedExecution) -> None:
        """Load what was stored before the kill."""
        if not loading.is_set():
            loading.set()
            assert killed.wait(PATIENCE)
        load(runner, live)

    class Slow(af.Workflow[int]):
        def __init__(self, n: int) -> None:
            self.n = n

        def handle(self) -> int:
            if self.n == 1:
                running.set()
                go_on.wait(PATIENCE)
            return self.execute(part(self.n))

    monkeypatch.setattr(Runner, "load", load_late)
    with af.Engine(":memory:") as engine:
        slow = engine.start(Slow(1), id="s")
        assert loading.is_set()
        slow.kill()
        killed.set()
        assert running.wait(PATIENCE)
        evict = partial(engine.parts.table.evict_ended, ["s"])
        assert not engine.parts.writer.call_and_wait(evict), "its run is not over"
        go_on.set()
        assert slow.delete()
        assert [*engine.executions()] == []
        assert engine.start(Slow(2), id="s", on_conflict="refuse").result(PATIENCE) == 2
