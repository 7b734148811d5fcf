"""Rewinding and forking instances on an engine, after a fix."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionEnded, KindMismatch
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE, Order, Parent, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.testing import VirtualClock

DONE: list[tuple[str, str]] = []
"""The tasks that were done: their text, and the id to deduplicate by."""
PRICE = {"o-1": 40}
HOLD = threading.Event()


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    DONE.clear()
    PRICE["o-1"] = 40
    HOLD.clear()
    yield
    HOLD.set()


@af.task
def note(text: str) -> str:
    DONE.append((text, af.current_task().id))
    return text


@af.task
def price(order: str) -> int:
    DONE.append(("price", af.current_task().id))
    return PRICE[order]


@af.task
def held(text: str) -> str:
    DONE.append((text, af.current_task().id))
    HOLD.wait(PATIENCE)
    return text


class Sale(af.Workflow[str]):
    """Asks for a price, notes it, waits, and notes the payment."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.paid = 0

    def handle(self) -> str:
        cost = self.execute(price(self.order))
        self.execute(note(f"costs {cost}"))
        self.wait("end")
        return self.execute(note(f"paid {self.paid} of {cost}"))

    def on_event(self, event: af.Event) -> int:
        if event.name == "paid":
            self.paid += event.data["amount"]
        return self.paid


def test_a_rewound_instance_does_again_what_came_later(engine: af.Engine) -> None:
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    sale.ask("paid", amount=40, timeout=PATIENCE)
    PRICE["o-1"] = 50
    sale.rewind("0/0.0")
    until(engine, lambda: len(DONE) == 4)
    wait_for_event(sale)
    assert sale.query().properties["paid"] == 40, "the payment has happened again"
    sale.send("end")
    assert sale.result(PATIENCE) == "paid 40 of 50"
    assert DONE == [
        ("price", "s/0/0.0"),
        ("costs 40", "s/0/1.0"),
        ("price", "s/0/0.0#2"),
        ("costs 50", "s/0/1.0#2"),
        ("paid 40 of 50", "s/0/3.0"),
    ]
    assert {"type": "rewind", "steps": ["0/0.0"]}.items() <= next(
        each for each in sale.history() if each.get("type") == "rewind"
    ).items()
    assert rows(engine, "timers") == rows(engine, "tasks") == rows(engine, "dead") == []


def test_a_rewound_instance_goes_on_after_a_restart(reopen: Callable[..., af.Engine]) -> None:
    engine = reopen()
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    sale.rewind("0/1.0")
    until(engine, lambda: len(DONE) == 3)
    wait_for_event(sale)
    engine = reopen()
    sale = engine.workflows.get(Sale, "s")
    sale.send("end")
    assert sale.result(PATIENCE) == "paid 0 of 40"
    assert [text for text, _ in DONE] == ["price", "costs 40", "costs 40", "paid 0 of 40"]


def test_a_failed_instance_is_rewound_to_before_its_fault(engine: af.Engine) -> None:
    PRICE.clear()
    sale = engine.start(Sale("o-1"), id="s")
    assert engine.wait("s", PATIENCE).status == "stuck"
    PRICE["o-1"] = 7
    sale.rewind("0/0.0")
    wait_for_event(sale)
    assert sale.status == "active"
    sale.send("end")
    assert sale.result(PATIENCE) == "paid 0 of 7"


def test_tasks_under_way_are_stopped_and_begun_anew(engine: af.Engine) -> None:
    class Holds(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(held("a"))

    holds = engine.start(Holds(), id="h")
    until(engine, lambda: len(DONE) == 1)
    holds.rewind("0/0.0")
    until(engine, lambda: len(DONE) == 2)
    HOLD.set()
    assert holds.result(PATIENCE) == "a"
    assert DONE == [("a", "h/0/0.0"), ("a", "h/0/0.0#2")]


def test_sub_workflows_that_are_undone_are_cancelled(engine: af.Engine) -> None:
    parent = engine.start(Parent("p"), id="p")
    until(engine, lambda: parent.query().running)
    wait_for_event(engine.workflows.get(Order, "p/0/0.0"))
    parent.rewind("0/0.0")
    until(engine, lambda: engine.execution("p/0/0.0").status == "cancelled")
    child = engine.workflows.get(Order, "p/0/0.0#2")
    wait_for_event(child)
    child.send("paid", amount=3)
    assert parent.result(PATIENCE) == "child: p shipped for 3"


def test_a_fork_goes_on_from_the_past_of_another(engine: af.Engine, clock: VirtualClock) -> None:
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    clock.advance(1)
    sale.ask("paid", amount=40, timeout=PATIENCE)
    sale.send("end")
    assert sale.result(PATIENCE) == "paid 40 of 40"
    fork = sale.fork("0/1.0", id="f")
    again = sale.fork("0/1.0", id="f")
    wait_for_event(fork)
    assert again.query().properties == {"order": "o-1", "paid": 0}
    fork.ask("paid", amount=1, timeout=PATIENCE)
    fork.send("end")
    assert fork.result(PATIENCE) == "paid 1 of 40"
    assert [text for text, _ in DONE].count("price") == 1, "the past is not done again"
    assert ("costs 40", "f/0/1.0") in DONE
    assert engine.execution("s").status == "done"
    first = next(iter(fork.history()))
    assert (first["type"], first["of"], first["step"]) == ("fork", "s", "0/1.0")
    assert rows(engine, "dead") == []


def test_a_fork_knows_nothing_of_later_events_while_the_clock_stands(engine: af.Engine) -> None:
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    sale.ask("paid", amount=40, timeout=PATIENCE)
    sale.send("end")
    assert sale.result(PATIENCE) == "paid 40 of 40"
    fork = sale.fork("0/1.0", id="f")
    wait_for_event(fork)
    fork.send("end")
    assert fork.result(PATIENCE) == "paid 0 of 40"


def test_a_fork_takes_over_the_tags_and_ids_are_made(engine: af.Engine) -> None:
    class Tagged(af.Workflow[None]):
        def handle(self) -> None:
            self.tag(customer="c-7")
            self.wait("one")
            self.wait("two")

    tagged = engine.start(Tagged(), id="t")
    wait_for_event(tagged)
    fork = tagged.fork("0/0.0")
    wait_for_event(fork)
    assert fork.id.startswith("t-")
    assert {each.id for each in engine.executions(tags={"customer": "c-7"})} == {"t", fork.id}


def test_what_cannot_be_gone_back_to_is_named(engine: af.Engine) -> None:
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    with pytest.raises(LookupError, match=r"no step '0/7.0'.*'0/0.0'"):
        sale.rewind("0/7.0")
    with pytest.raises(LookupError, match="no step"):
        sale.fork("nonsense")
    with pytest.raises(KindMismatch):
        engine.workflows.get(Order, sale.fork("0/0.0", id="f").id)
    sale.cancel()
    with pytest.raises(ExecutionEnded):
        sale.rewind("0/0.0")


async def _going_back(sale: af.WorkflowHandle[Any]) -> str:
    await sale.arewind("0/0.0")
    return (await sale.afork("0/0.0", id="f")).id


def test_the_asyncio_twins(engine: af.Engine) -> None:
    sale = engine.start(Sale("o-1"), id="s")
    wait_for_event(sale)
    assert asyncio.run(_going_back(sale)) == "f"
