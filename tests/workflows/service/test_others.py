"""Workflows that know their id, send events to others and start them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.testing import WorkflowHarness
from tests.engine.kinds import rows
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Mutex(af.Workflow[int]):
    """Gives a lock to one after the other: events name who wants it."""

    def handle(self) -> int:
        """Serve three."""
        for _ in range(3):
            wants = self.wait("want")
            assert wants is not None
            self.send(wants.data["by"], "yours")
            self.wait("release")
        return 3


class User(af.Workflow[str]):
    """Takes the lock."""

    def handle(self) -> str:
        """Ask for the lock by its own id."""
        self.send("mutex", "want", by=self.id)
        self.wait("yours")
        self.send("mutex", "release")
        return f"{self.id} had it"


def test_workflows_signal_each_other_by_their_ids(engine: af.Engine) -> None:
    mutex = engine.start(Mutex(), id="mutex")
    users = [engine.start(User(), id=f"u-{number}") for number in range(3)]
    assert [user.result(PATIENCE) for user in users] == [f"u-{n} had it" for n in range(3)]
    assert mutex.result(PATIENCE) == 3
    assert [each["to"] for each in users[0].history() if each.get("type") == "sent"] == [
        "mutex"
    ] * 2
    assert rows(engine, "dead") == []


class Starts(af.Workflow[list[str]]):
    """Starts others, which go on alone."""

    async def handle(self) -> list[str]:
        """Start two, one with an id."""
        ids = [self.start(User()), self.start(User(), id="named"), self.start(User(), id="named")]
        await af.Wait("end")
        return ids


def test_workflows_start_others_that_are_not_their_children(engine: af.Engine) -> None:
    starts = engine.start(Starts(), id="s")
    starts.send("end")
    assert starts.result(PATIENCE) == ["s/0/start.0", "named", "named"]
    for id_ in ("s/0/start.0", "named"):
        user = engine.workflows.get(User, id_)
        user.send("yours")
        assert user.result(PATIENCE) == f"{id_} had it"


def test_replays_send_nothing_again(tmp_path: Path, opens: Callable[..., af.Engine]) -> None:
    class Collects(af.Workflow[int]):
        def __init__(self) -> None:
            self.seen = 0

        def handle(self) -> int:
            self.wait("end")
            return self.seen

        def on_event(self, event: af.Event) -> None:
            self.seen += 1

    with opens(tmp_path / "a.db") as engine:
        engine.workflows.register(User)
        collects = engine.start(Collects(), id="mutex")
        engine.start(User(), id="u").query()
    with opens(tmp_path / "a.db") as engine:
        collects = engine.workflows.get(Collects, "mutex")
        user = engine.workflows.get(User, "u")
        user.send("yours")
        assert user.result(PATIENCE) == "u had it"
        collects.send("end")
        assert collects.result(PATIENCE) == 3  # want, release, end


def test_a_property_may_be_called_id() -> None:
    class Order(af.Workflow[str]):
        def __init__(self, id: str) -> None:  # noqa: A002 - as in README
            self.id = id

        def handle(self) -> str:
            return str(self.id)

    with WorkflowHarness(Order("o-1")) as order:
        assert order.result == "o-1"


def test_code_that_sends_something_else_is_refused() -> None:
    names = ["paid", "late"]

    class Sends(af.Workflow[None]):
        def handle(self) -> None:
            self.send("o", names[0])
            self.wait("end")

    sends = WorkflowHarness(Sends())
    assert sends.sent == [("o", "paid", {})]
    names.reverse()
    with pytest.raises(AssertionError, match=r"send .*paid.*send .*late"):
        sends.check()
    sends.close()


def test_wrong_uses_are_explained(engine: af.Engine) -> None:
    class Wrong(af.Workflow[Any]):
        def __init__(self, how: str) -> None:
            self.how = how

        def handle(self) -> None:
            if self.how == "start":
                self.start("Order")  # type: ignore[arg-type]
            self.send(7, "paid")  # type: ignore[arg-type]

    for how, said in {"start": "is not a workflow", "send": "must be text"}.items():
        wrong = engine.start(Wrong(how))
        with pytest.raises(af.ActorflowError, match=said):
            wrong.result(PATIENCE)
