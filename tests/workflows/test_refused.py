"""Refused events, rules F1 to F3: a bad message fails alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from actorflow.testing import WorkflowHarness

if TYPE_CHECKING:
    from pathlib import Path


@af.task
def note(text: str) -> str:
    """Return the text."""
    return text


class Account(af.Workflow[int]):
    """Counts deposits; refuses bad ones after it has done something."""

    def __init__(self) -> None:
        self.balance = 0
        self.got: list[int] = []

    def handle(self) -> int:
        """Wait for two deposits, then for the end."""
        for _ in range(2):
            event = self.wait("deposit")
            self.got = [*self.got, event.data["amount"] if event else 0]
        self.wait("close")
        return self.balance

    def on_event(self, event: af.Event) -> int:
        """Add a deposit."""
        if event.name == "deposit":
            self.balance += event.data["amount"]
            self.publish(self.balance)
            self.dispatch(note("deposit"))
            if event.data["amount"] == 13:
                raise ValueError("unlucky")
            if event.data["amount"] <= 0:
                raise af.Refused("must be positive")
        return self.balance


def test_f01_a_refused_event_changes_nothing() -> None:
    with WorkflowHarness(Account()) as account:
        account.send("deposit", amount=5)
        account.send("deposit", amount=-1)
        assert account.properties == {"balance": 5, "got": [5]}
        assert account.published == [5]
        assert [name for name, _ in account.steps] == ["Wait", "note", "Wait"]
        assert account.kept == []
        assert account.refused == [("deposit", "must be positive")]
        account.send("deposit", amount=7)
        account.send("close")
        assert account.result == 12
        assert account.properties["got"] == [5, 7]


def test_f01_later_events_of_the_batch_see_no_trace_of_it() -> None:
    with WorkflowHarness(Account()) as account:
        with account.together():
            account.send("deposit", amount=-1)
            account.send("deposit", amount=2)
            account.send("deposit", amount=-3)
            account.send("deposit", amount=4)
            account.send("close")
        assert account.result == 6
        assert account.properties["got"] == [2, 4]
        assert [reason for _, reason in account.refused] == ["must be positive"] * 2


def test_f01_a_wait_goes_on_until_its_deadline() -> None:
    class Limited(af.Workflow[Any]):
        def handle(self) -> Any:
            event = self.wait("deposit", seconds=10)
            return event and event.data["amount"]

        def on_event(self, event: af.Event) -> None:
            raise af.Refused("closed")

    with WorkflowHarness(Limited()) as limited:
        limited.send("deposit", amount=1)
        limited.advance(seconds=9)
        assert limited.open == []
        limited.advance(seconds=1)
        assert limited.result is None


def test_f03_any_other_exception_refuses_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with WorkflowHarness(Account()) as account:
        account.send("deposit", amount=13)
        assert account.properties == {"balance": 0, "got": []}
        assert account.refused == [("deposit", "ValueError: unlucky")]
        account.send("deposit", amount=1)
        account.send("deposit", amount=2)
        account.send("close")
        assert account.result == 3


def test_f03_a_class_may_choose_to_stop_instead() -> None:
    class Strict(Account, on_error="stick"):
        pass

    with WorkflowHarness(Strict()) as account:
        account.send("deposit", amount=13)
        with pytest.raises(ExecutionFailed, match="unlucky"):
            _ = account.result


def test_f02_ask_raises_and_the_instance_goes_on(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "a.db") as engine:
        account = engine.start(Account(), id="a-1")
        assert account.ask("deposit", amount=5, timeout=10) == 5
        with pytest.raises(af.Refused, match="must be positive"):
            account.ask("deposit", amount=-1, id="bad", timeout=10)
        with pytest.raises(af.Refused, match="must be positive"):
            account.ask("deposit", amount=-1, id="bad", timeout=10)  # the same answer
        with pytest.raises(af.Refused, match="ValueError: unlucky"):
            account.ask("deposit", amount=13, timeout=10)
    with af.Engine(tmp_path / "a.db") as engine:
        account = engine.workflows.get(Account, "a-1")
        assert account.status == "active"
        assert account.ask("deposit", amount=2, timeout=10) == 7
        refused = [entry for entry in account.history() if entry.get("type") == "refused"]
        assert [(each["event"], each["data"]) for each in refused] == [
            ("deposit", {"amount": -1}),
            ("deposit", {"amount": 13}),
        ]
        account.send("close")
        assert account.result(timeout=10) == 7


def test_f02_a_send_that_is_refused_becomes_a_dead_letter(tmp_path: Path) -> None:
    class Opens(Account):
        def on_event(self, event: af.Event) -> int:
            if event.name == "deposit" and not self.got and event.data["amount"] > 1:
                raise af.Refused("begin with 1")
            return super().on_event(event)

    with af.Engine(tmp_path / "a.db") as engine:
        account = engine.start(Opens(), id="a-1")
        account.send("deposit", id="d-5", amount=5)
        account.send("deposit", amount=1)
        account.send("deposit", amount=13)
        with pytest.raises(af.Refused):
            account.ask("deposit", id="d-0", amount=0, timeout=10)  # its caller has heard of it
    with af.Engine(tmp_path / "a.db") as engine:
        account = engine.workflows.get(Opens, "a-1")
        letters = engine.dead_letters("a-1")
        assert [(each.message, each.error) for each in letters] == [
            (
                {"event": "deposit", "data": {"amount": 5}, "id": "d-5"},
                "Refused: begin with 1",
            ),
            ({"event": "deposit", "data": {"amount": 13}}, "ValueError: unlucky"),
        ]
        assert letters.retry(next(iter(letters))) == 1
        assert account.ask("balance", timeout=10) == 6
        assert account.ask("deposit", id="d-5", amount=5, timeout=10) == 6
        assert len(letters) == 1
        account.send("close")
        assert account.result(timeout=10) == 6


@dataclass
class Amount:
    """The data of an event."""

    amount: int


class Typed(af.Workflow[int]):
    """Waits for events of a type, which it does not declare."""

    def __init__(self) -> None:
        self.seen = 0

    def handle(self) -> int:
        """Return the sum of an amount that waits for another event, and of one that is kept."""
        amount, _ = self.execute(af.Wait(Amount), af.Wait("go"))
        later = self.wait(Amount, seconds=60)
        return amount.amount + (later.amount if later else 0)

    def on_event(self, event: af.Event) -> int:
        """Count."""
        self.seen += 1
        return self.seen


def test_f03_a_wait_refuses_an_event_that_is_not_of_its_type() -> None:
    with WorkflowHarness(Typed()) as typed:
        typed.send("Amount", amount="many")
        assert typed.properties == {"seen": 0}
        typed.send("Amount", amount=3)
        typed.restart()
        typed.send("Amount", amount="some")  # no wait expects it yet: `on_event` sees it
        typed.send("Amount", amount=4)
        typed.send("go")
        assert typed.result == 7
        assert [name for name, _ in typed.refused] == ["Amount", "Amount"]
        assert all("is not Amount" in reason for _, reason in typed.refused)
        assert typed.kept == [af.Event("go", {})] or typed.kept == []


def test_f03_a_wait_that_has_refused_an_event_ends_at_its_deadline() -> None:
    class Late(Typed):
        async def handle(self) -> int:  # type: ignore[override]
            amount = await af.Wait(Amount, seconds=10)
            return amount.amount if amount else 0

    with WorkflowHarness(Late()) as late:
        late.advance(seconds=4)
        late.send("Amount")
        late.advance(seconds=6)
        assert late.result == 0


def test_f03_on_an_engine_it_is_a_dead_letter() -> None:
    with af.Engine(":memory:") as engine:
        typed = engine.start(Typed())
        typed.send("Amount", amount="many")
        with pytest.raises(af.Refused, match="is not Amount"):
            typed.ask("Amount", amount="more", timeout=10)
        for amount in (1, 2):
            typed.send(Amount(amount))
        typed.send("go")
        assert typed.result(timeout=10) == 3
        (letter,) = engine.dead_letters(typed.id)
        assert letter.message == {"event": "Amount", "data": {"amount": "many"}}


def test_f03_a_class_that_sticks_stops_at_such_an_event() -> None:
    class Strict(Typed, on_error="stick"):
        pass

    with WorkflowHarness(Strict()) as strict:
        strict.send("Amount", amount="many")
        strict.send("go")
        with pytest.raises(ExecutionFailed, match="is not Amount"):
            _ = strict.result


def test_f01_waits_that_go_on_keep_their_order() -> None:
    class Race(af.Workflow[int]):
        def handle(self) -> int:
            return self.first(af.Wait("a", seconds=3), af.Wait("b", seconds=3)).index

        def on_event(self, event: af.Event) -> None:
            raise af.Refused("no")

    with WorkflowHarness(Race()) as race:
        race.send("a")
        race.advance(seconds=3)
        assert race.result == 0
