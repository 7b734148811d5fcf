"""Instances that are deleted: nothing of them is left, and their ids can be used again."""

from __future__ import annotations

import asyncio

import pytest

import actorflow as af
from actorflow.engine.errors import UnknownExecution
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE


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
