"""Kept events on an engine."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections import Counter as Counts
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

import actorflow as af
from actorflow.behaviours import Debounce, Rejected, Unique
from actorflow.engine.errors import ExecutionEnded
from actorflow.workflows.errors import MessageRefused
from tests.engine.kinds import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@af.task
def reserve(order: int) -> int:
    """Return the order."""
    return order


class PaidAtOnce(af.Workflow[str]):
    """README's order, paid by a customer who does not wait."""

    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> str:
        """Reserve, wait for the payment."""
        self.execute(reserve(self.number))
        return "cancelled" if self.wait("paid", days=3) is None else "shipped"


class Holds(af.Workflow[str], max_kept=3):
    """Keeps at most three events."""

    def handle(self) -> str:
        """Wait for an event that is sent later."""
        self.wait("stop")
        return "stopped"


class Amount(Struct):
    """The data of a declared event."""

    amount: int


class Declares(af.Workflow[int], events={"paid": Amount, "stop": None}):
    """Declares its events."""

    def handle(self) -> int:
        """Return the amount of the payment."""
        event = self.wait("paid")
        return int(event.data["amount"])


class Approval(af.Workflow[int]):
    """The loop of docs/workflows/events.md: reminds somebody until there is an approval."""

    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        """Return who has approved."""
        while (approved := self.wait("approved", seconds=0.001)) is None:
            self.execute(reserve(self.number))
        return int(approved.data["by"])


def pay_at_once(store: Path, count: int) -> None:
    """Start orders that are paid before they can wait, from several threads."""

    def pay(number: int) -> str:
        order = engine.start(PaidAtOnce(number), id=f"o-{number}")
        order.send("paid")
        return order.result(timeout=100)

    with af.Engine(store) as engine, ThreadPoolExecutor(8) as customers:
        assert Counts(customers.map(pay, range(count))) == {"shipped": count}


def approve_during_reminders(store: Path, count: int) -> None:
    """Send each approval at another moment of the loop."""
    dice = random.Random(count)

    def approve(number: int) -> int:
        approval = engine.start(Approval(number), id=f"a-{number}")
        pause = dice.uniform(0.0, 0.03)
        threading.Event().wait(pause)  # the test is about the moments
        approval.send("approved", by=number)
        return approval.result(timeout=100)

    with af.Engine(store) as engine, ThreadPoolExecutor(8) as bosses:
        assert list(bosses.map(approve, range(count))) == list(range(count))


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Keep all processors at work with other processes."""
    code = "while True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_e04_no_order_that_is_paid_at_once_is_cancelled(tmp_path: Path) -> None:
    pay_at_once(tmp_path / "orders.db", 200)


def test_e06_the_loop_with_reminders_loses_no_approval(tmp_path: Path) -> None:
    approve_during_reminders(tmp_path / "approvals.db", 60)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("busy_machine")
@pytest.mark.parametrize("acceptance", [pay_at_once, approve_during_reminders])
def test_a_thousand_on_a_busy_machine(
    acceptance: Callable[[Path, int], None], tmp_path: Path
) -> None:
    acceptance(tmp_path / "store.db", 1_000)


def test_e13_kept_events_survive_a_restart_of_the_engine(tmp_path: Path) -> None:
    class Late(af.Workflow[Any]):
        def handle(self) -> Any:
            self.wait("go")
            event = self.wait("paid", seconds=0)
            return event and event.data

    with af.Engine(tmp_path / "late.db") as engine:
        late = engine.start(Late(), id="late")
        late.send("paid", amount=3)
    with af.Engine(tmp_path / "late.db") as engine:
        late = engine.workflows.get(Late, "late")
        assert late.query().kept == [af.Event("paid", {"amount": 3})]
        late.send("go")
        assert late.result(timeout=10) == {"amount": 3}


def test_e10_a_send_beyond_max_kept_is_refused_and_nothing_is_lost() -> None:
    with af.Engine(":memory:") as engine:
        holds = engine.start(Holds(), id="holds")
        for number in range(3):
            holds.ask("ping", number=number)
        with pytest.raises(Rejected, match="keeps 3 events"):
            holds.send("ping", number=3)
        with pytest.raises(Rejected, match="max_kept"):
            holds.ask("ping", number=4)
        assert [event.data["number"] for event in holds.query().kept] == [0, 1, 2]


def test_e10_the_limit_holds_although_nothing_was_processed_between_two_sends(
    engine: af.Engine,
) -> None:
    holds = engine.start(Holds(), id="holds")
    for number in range(3):
        holds.send("ping", number=number)
    with pytest.raises(Rejected, match="keeps 3 events"):
        holds.send("ping", number=3)
    with pytest.raises(Rejected, match="keeps 3 events"):
        holds.ask("ping", number=4, timeout=20)
    with pytest.raises(Rejected, match="keeps 3 events"):
        asyncio.run(holds.asend("ping", number=5))
    with pytest.raises(Rejected, match="keeps 3 events"):
        asyncio.run(holds.aask("ping", number=6, timeout=20))
    assert [event.data["number"] for event in holds.query().kept] == [0, 1, 2]
    assert list(engine.dead_letters("holds")) == []
    holds.send("stop")  # a wait expects it
    assert holds.result(timeout=20) == "stopped"


def test_e10_the_limit_holds_for_several_senders() -> None:
    def send(number: int) -> bool:
        try:
            holds.send("ping", number=number)
        except Rejected:
            return False
        return True

    with af.Engine(":memory:") as engine, ThreadPoolExecutor(8) as pool:
        holds = engine.start(Holds(), id="holds")
        assert sum(pool.map(send, range(40))) == len(holds.query().kept) == 3


def test_e10_the_limit_holds_after_a_restart(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "holds.db") as engine:
        holds = engine.start(Holds(), id="holds")
        for number in range(3):
            holds.send("ping", number=number)
    with af.Engine(tmp_path / "holds.db") as engine:
        holds = engine.workflows.get(Holds, "holds")
        with pytest.raises(Rejected, match="keeps 3 events"):
            holds.send("ping", number=3)
        holds.discard(holds.query().kept_events[0].number)
        holds.send("ping", number=4)
        assert [event.data["number"] for event in holds.query().kept] == [1, 2, 4]


def test_e10_a_sender_that_was_killed_leaves_a_dead_letter() -> None:
    with af.Engine(":memory:") as engine:
        holds = engine.start(Holds(), id="holds")
        for number in range(3):
            holds.ask("ping", number=number)
        # As if the sender had gone after this was stored.
        engine.parts.sender.append("holds", None, [{"event": "ping", "data": {}, "room": 3}])
        until(engine, lambda: len(engine.dead_letters("holds")) == 1)
        (letter,) = engine.dead_letters("holds")
        assert "keeps 3 events" in letter.error
        assert len(holds.query().kept) == 3


class Counter(af.Workflow[int], max_kept=3):
    """Handles events in `on_event`; nothing waits for them."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self) -> int:
        """Return how many there were."""
        self.wait("stop")
        return self.count

    def on_event(self, event: af.Event) -> int:
        """Count the event."""
        self.count += 1
        return self.count


def test_an_instance_that_is_full_goes_on_with_code_that_keeps_less(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "counter.db") as engine:
        counter = engine.start(Counter(), id="counter")
        assert [counter.ask("up", timeout=10) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(Rejected, match="keep_events="):
            counter.send("up")

    class Fixed(Counter, keep_events=["stop"]):
        pass

    Fixed.__qualname__ = "Counter"  # as if it had been edited
    with af.Engine(tmp_path / "counter.db") as engine:
        counter = engine.start(Fixed(), id="counter")
        assert [counter.ask("up", timeout=10) for _ in range(10)][-1] == 13
        assert counter.query().kept == []
        counter.send("stop")
        assert counter.result(timeout=10) == 14


class Collects(af.Workflow[list[int]]):
    """Takes events after a signal, and returns their numbers."""

    def handle(self) -> list[int]:
        """Wait for the signal, then take the kept events."""
        self.wait("go")
        found = []
        while (event := self.wait("n", seconds=0)) is not None:
            found.append(event.data["n"])
        return found


def test_e01_kept_events_have_the_order_in_which_the_store_accepted_them() -> None:
    with af.Engine(":memory:") as engine:
        collects = engine.start(Collects())
        with ThreadPoolExecutor(4) as pool:  # the order among thcollects is the order of the store
            list(pool.map(lambda n: collects.send("n", id=f"n-{n}", n=n), range(40)))
        # A `send` returns once its event is stored, which may be before a run keeps it.
        until(engine, lambda: len(collects.query().kept_events) == 40)
        kept = collects.query().kept_events
        numbers = [each.number for each in kept]
        assert numbers == sorted(set(numbers))
        collects.send("go")
        assert collects.result(timeout=10) == [int(str(each.id)[2:]) for each in kept]


def test_e11_an_event_that_the_inbox_replaces_is_not_kept() -> None:
    newest = Debounce(Unique(key=lambda event: event.name), 0.05)
    with af.Engine(":memory:") as engine:
        collects = engine.start(Collects(), inbox=newest)
        for n in range(5):
            collects.send("n", n=n)
        collects.send("go")
        assert collects.result(timeout=10) == [4]


def test_e12_the_end_names_the_events_that_were_left(caplog: pytest.LogCaptureFixture) -> None:
    with af.Engine(":memory:") as engine:
        holds = engine.start(Holds(), id="holds")
        holds.send("ping", id="p-1")
        holds.send("stop")
        assert holds.result(timeout=10) == "stopped"
        end = [entry for entry in holds.history() if entry.get("type") == "terminated"]
        assert [(each["name"], each["id"]) for each in end[0]["kept"]] == [("ping", "p-1")]
        assert [event.name for event in holds.query().kept] == ["ping"]
        assert engine.statistics().events_left == 1
    assert "events that no wait has taken" in caplog.text


def test_f03_what_a_class_does_not_declare_is_refused_by_send() -> None:
    with af.Engine(":memory:") as engine:
        order = engine.start(Declares(), id="o-1")
        with pytest.raises(MessageRefused, match=r"no event .piad.*paid"):
            order.send("piad", amount=1)
        with pytest.raises(MessageRefused, match="'paid' is not Amount"):
            order.send("paid", amount="much")
        with pytest.raises(MessageRefused, match="belongs into 'data'"):
            engine.send("o-1", {"event": "paid", "amount": 1})
        order.send("paid", amount=40)
        assert order.result(timeout=10) == 40
        with pytest.raises(ExecutionEnded):
            order.send("paid", amount=40)


class Reads(af.Workflow[list[int]]):
    """Reads the remaining events on request."""

    def handle(self) -> list[int]:
        """Read."""
        self.wait("go")
        found = []
        while (event := self.receive("m", seconds=0)) is not None:
            found.append(int(event.data["n"]))
        return found


def test_a_kept_event_can_be_discarded_by_its_id_or_its_number(engine: af.Engine) -> None:
    reads = engine.start(Reads(), id="r")
    for n in range(4):
        reads.send("m", id=f"m{n}", n=n)
    until(engine, lambda: len(reads.query().kept_events) == 4)
    kept = {each.id: each.number for each in reads.query().kept_events}
    reads.discard("m1")
    reads.discard(kept["m2"])
    with pytest.raises(LookupError, match=r"keeps no event 'm1'; kept are: 1 \(m\), 4 \(m\)"):
        reads.discard("m1")
    reads.rewind("0/0.0")  # it does not bring them back
    reads.send("go")
    assert reads.result(timeout=20) == [0, 3]
