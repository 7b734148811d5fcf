"""Kept events, rules E1 to E13: an event that comes before its wait is not lost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

import actorflow as af
from actorflow.testing import WorkflowHarness
from actorflow.workflows.errors import InvalidWorkflow


@af.task
def charge(order: str) -> str:
    """Return a receipt."""
    return f"receipt of {order}"


class Order(af.Workflow[str]):
    """README's order: charges, then waits for the payment."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self) -> str:
        """Charge, wait, ship."""
        self.execute(charge("o-1"))
        return "cancelled" if self.wait("paid", days=3) is None else "shipped"

    def on_event(self, event: af.Event) -> None:
        """Note the event."""
        self.seen.append(event.name)


class Reads(af.Workflow[list[Any]]):
    """Waits several times; what it is to wait for is given."""

    waits: list[tuple[str, float | None]]

    def __init__(self, *waits: tuple[str, float | None]) -> None:
        self.waits = list(waits)

    def handle(self) -> list[Any]:
        """Wait for each in turn."""
        found: list[Any] = []
        for name, seconds in self.waits:
            event = self.wait(name) if seconds is None else self.wait(name, seconds=seconds)
            found.append(event and event.data["n"])
        return found


def test_e03_an_event_that_no_wait_expects_is_kept_for_the_next() -> None:
    with WorkflowHarness(Order()) as order:
        order.send("paid")
        assert order.kept == [af.Event("paid", {})]
        order.succeed("charge", "ok")
        assert order.result == "shipped"
        assert order.kept == []


def test_e02_on_event_sees_every_event_on_arrival() -> None:
    with WorkflowHarness(Order()) as order:
        order.send("paid")
        order.send("other")
        assert order.properties["seen"] == ["paid", "other"]
        order.succeed("charge", "ok")


def test_e03_an_event_completes_all_waits_that_are_pending() -> None:
    class Both(af.Workflow[int]):
        def handle(self) -> int:
            self.execute(af.Wait("go"), af.Wait("go"))
            return 0 if self.wait("go", seconds=0) is None else 1

    with WorkflowHarness(Both()) as both:
        both.send("go")
        assert both.result == 0


def test_e04_a_kept_event_completes_exactly_one_wait() -> None:
    with WorkflowHarness(Reads(("stop", None), ("go", None), ("go", 0), ("go", 0))) as reads:
        reads.send("go", n=1)
        reads.send("stop", n=0)
        assert reads.result == [0, 1, None, None]


def test_e04_the_oldest_kept_event_is_taken_first() -> None:
    with WorkflowHarness(Reads(("stop", None), ("go", None), ("go", None))) as reads:
        for number in (1, 2):
            reads.send("go", n=number)
        reads.send("stop", n=0)
        assert reads.result == [0, 1, 2]


def test_e05_of_two_events_the_second_is_kept() -> None:
    with WorkflowHarness(Reads(("go", None), ("go", None))) as reads:
        with reads.together():
            reads.send("go", n=1)
            reads.send("go", n=2)
        assert reads.result == [1, 2]


def test_e06_an_event_after_the_deadline_is_kept_for_the_next_wait() -> None:
    with WorkflowHarness(Reads(("go", 5), ("go", None))) as reads:
        with reads.together():
            reads.advance(seconds=6)
            reads.send("go", n=1)
        assert reads.result == [None, 1]


def test_e07_a_wait_of_no_time_takes_a_kept_event_or_returns_at_once() -> None:
    with WorkflowHarness(Reads(("go", 0), ("stop", None), ("go", 0), ("go", -1))) as reads:
        reads.send("go", n=1)
        reads.send("stop", n=0)
        assert reads.result == [None, 0, 1, None]


def test_e08_a_wait_that_lost_leaves_the_event_kept() -> None:
    class Race(af.Workflow[Any]):
        def handle(self) -> Any:
            first = self.first(charge("o-1"), af.Wait("x"))
            event = self.wait("x", seconds=0)
            return first.index, event and event.data

    with WorkflowHarness(Race()) as race:
        with race.together():
            race.succeed("charge", "ok")
            race.send("x", n=1)
        assert race.result == [0, {"n": 1}]
    with WorkflowHarness(Race()) as race:
        race.succeed("charge", "ok")  # the wait that lost is over, and takes nothing later
        assert race.result == [0, None]


def test_e08_a_wait_that_nobody_awaits_takes_nothing() -> None:
    class Race(af.Workflow[Any]):
        def handle(self) -> Any:
            self.first(charge("o-1"), af.Wait("x"))
            self.wait("go")
            event = self.wait("x", seconds=0)
            return event and event.data

    with WorkflowHarness(Race()) as race:
        race.succeed("charge", "ok")
        race.send("x", n=1)
        race.send("go")
        assert race.result == {"n": 1}


def test_e13_kept_events_survive_a_restart() -> None:
    with WorkflowHarness(Order()) as order:
        order.send("paid")
        order.restart()
        assert [each.name for each in order.kept] == ["paid"]
        order.succeed("charge", "ok")
        assert order.result == "shipped"


def test_e09_a_rewind_returns_the_event_to_its_place() -> None:
    class Two(af.Workflow[Any]):
        def handle(self) -> Any:
            self.execute(charge("o-1"))
            first = self.wait("x")
            second = self.wait("x")
            return (first and first.data["n"], second and second.data["n"])

    with WorkflowHarness(Two()) as two:
        two.send("x", n=1)
        two.send("x", n=2)
        two.send("y")
        two.rewind("0/0.0")
        assert [each.name for each in two.kept] == ["x", "x", "y"]
        two.succeed("charge", "ok")
        assert two.result == [1, 2]
    with WorkflowHarness(Reads(("x", None), ("x", None), ("end", None))) as reads:
        reads.send("x", n=1)
        reads.send("x", n=2)
        reads.rewind("0/1.0")
        assert [each.data["n"] for each in reads.kept] == []  # the second wait has it again
        reads.send("end", n=3)
        assert reads.result == [1, 2, 3]


def test_e04_the_rule_of_the_seed_can_be_chosen() -> None:
    class Seed(af.Workflow[str], keep_events=False):
        def handle(self) -> str:
            self.execute(charge("o-1"))
            return "late" if self.wait("paid", seconds=1) is None else "paid"

    with WorkflowHarness(Seed()) as seed:
        seed.send("paid")
        seed.succeed("charge", "ok")
        seed.advance(seconds=2)
        assert seed.result == "late"


class Thermostat(af.Workflow[str], keep_events=["stop"]):
    """Handles all events at once; waits take only one of them."""

    def __init__(self, degrees: int = 20) -> None:
        self.degrees = degrees

    def handle(self) -> str:
        """Begin anew, until it is stopped."""
        self.wait("again")
        if self.wait("stop", seconds=0) is None:
            return self.again(Thermostat(self.degrees))
        return f"{self.degrees} degrees"

    def on_event(self, event: af.Event) -> int:
        """Set the temperature."""
        if event.name == "set":
            if event.data["degrees"] > 30:
                raise af.Refused("too hot")
            self.degrees = event.data["degrees"]
        return self.degrees


def test_events_that_on_event_handles_need_not_be_kept() -> None:
    with WorkflowHarness(Thermostat()) as thermostat:
        for degrees in (21, 22, 40):
            thermostat.send("set", degrees=degrees)
        assert thermostat.kept == []
        assert thermostat.refused == [("set", "too hot")]
        thermostat.send("again")
        assert thermostat.state.carried_events == []
        thermostat.send("set", degrees=23)
        thermostat.send("stop")
        thermostat.restart()
        assert thermostat.kept == [af.Event("stop", {})]
        thermostat.send("again")
        assert thermostat.result == "23 degrees"


def test_a_wait_that_is_pending_gets_an_event_that_is_not_kept() -> None:
    class Pending(af.Workflow[Any], keep_events=()):
        def handle(self) -> Any:
            first = self.wait("m")
            self.execute(charge("o-1"))
            return [first and first.data["n"], self.wait("m", seconds=1)]

    with WorkflowHarness(Pending()) as pending:
        pending.send("m", n=1)
        pending.send("m", n=2)
        pending.succeed("charge", "ok")
        pending.advance(seconds=1)
        assert pending.result == [1, None]


@pytest.mark.parametrize("names", ["paid", [3], 1, [""], None])
def test_the_names_of_kept_events_are_checked(names: Any) -> None:
    def define() -> Any:
        class Keeps(af.Workflow[None], abstract=True, keep_events=names): ...

        return Keeps

    if names is None:
        assert define()._actorflow_kept_names is None  # as its base says
        return
    with pytest.raises(InvalidWorkflow, match="keep_events="):
        define()


def test_only_declared_events_can_be_kept() -> None:
    with pytest.raises(InvalidWorkflow, match=r"no event 'piad'.*paid"):

        class Typo(af.Workflow[None], events={"paid": None}, keep_events=["piad"]):
            def handle(self) -> None: ...

    class Fine(af.Workflow[None], events=[Paid], keep_events=[Paid]):
        def handle(self) -> None: ...

    assert Fine._actorflow_kept_names == ["Paid"]


def test_receive_is_a_wait() -> None:
    class Reads(af.Workflow[Any]):
        def handle(self) -> Any:
            event = self.receive("m", seconds=30)
            return event and event.data

    with WorkflowHarness(Reads()) as reads:
        reads.send("m", n=1)
        assert reads.result == {"n": 1}


class Paid(Struct):
    """A declared event."""

    amount: int


def test_events_are_declared_with_their_types() -> None:
    class Bad(af.Workflow[None], abstract=True): ...

    with pytest.raises(InvalidWorkflow, match="events="):

        class Wrong(Bad, events={"paid": 3}):
            def handle(self) -> None: ...

    with pytest.raises(InvalidWorkflow, match="max_kept=0"):

        class Full(Bad, max_kept=0):
            def handle(self) -> None: ...
