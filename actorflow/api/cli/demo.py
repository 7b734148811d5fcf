"""An engine that generates its own load, for `actorflow web --demo` and `actorflow top --demo`."""

from __future__ import annotations

import math
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import actorflow as af
from actorflow.behaviours import Bounded, Linger, Queue, Unique
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["demo_engine", "demo_workers", "furnish"]

_PACE = 0.05  # seconds between two bursts
_DECLINED = 31  # of so many orders one is declined
_FLOW = """sequence
  set f.total 42
  concurrence
    task 'clerk' 'check the address'
    sequence
      stall _
"""


@dataclass
class Decision:
    """What a person decides about a refund."""

    approved: bool
    amount: int = 0
    priority: Literal["low", "high"] = "low"
    note: str = ""


@af.task
def charge(order: str) -> int:
    """Charge a customer; now and then a card is declined."""
    number = order.rpartition("-")[2]
    if number == "declined" or (number.isdecimal() and int(number) % _DECLINED == 0):
        raise ValueError(f"card of {order} declined")
    return len(order)


@af.task
def approve(order: str) -> Decision:  # noqa: ARG001 - shown to the person
    """Decide whether the customer gets the money back."""
    return af.HOLD


class DemoOrder(af.Workflow[str]):
    """An order that waits for its payment."""

    def __init__(self, order: str, patience: float = 30.0) -> None:
        self.order = order
        self.patience = patience
        self.seen: list[str] = []

    def handle(self) -> str:
        """Charge, then wait for the payment."""
        amount = self.execute(charge(self.order))
        paid = self.wait("paid", seconds=self.patience)
        return f"{amount} {'paid' if paid is not None else 'not paid in time'}"

    def on_event(self, event: af.Event) -> None:
        """Note each event, also without a wait for it."""
        self.seen.append(event.name)


class DemoRefund(af.Workflow[str]):
    """A refund that a person has to approve."""

    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        """Ask a person."""
        self.execute(charge(self.order))
        decision = self.execute(approve(self.order))
        return "refunded" if decision.approved else f"refused: {decision.note}"


def load(rows: int) -> list[float]:
    """Return some data."""
    return [math.sin(row) for row in range(rows)]


def fit(values: list[float], degree: int) -> float:
    """Compute something slow."""
    return sum(value**power for value in values for power in range(degree))


def best(scores: list[float]) -> float:
    """Return the highest score."""
    return max(scores)


def _plan() -> af.Plan:
    plan = af.Plan()
    values = plan.job(load, 2_000)
    plan.job(best, [plan.job(fit, values, degree, name=f"fit-{degree}") for degree in (10, 40, 90)])
    return plan


def _book(rows: list[Any], total: int) -> int:
    """Add payments up; some cannot be booked."""
    return total + sum(int(row) for row in rows)


def _ship(rows: Sequence[Any], shipped: int) -> int:
    """Send parcels; some addresses do not exist."""
    if "unknown address" in rows:
        raise ValueError("cannot ship to 'unknown address'")
    return shipped + len(rows)


def _count(rows: Sequence[Any], total: int) -> int:
    time.sleep(0.002 + 0.0001 * len(rows))
    return total + len(rows)


@contextmanager
def furnish(engine: af.Engine) -> Iterator[None]:
    """Give an engine one of everything that the dashboard shows."""
    engine.workflows.register(DemoOrder)
    engine.workflows.register(DemoRefund)
    engine.tasker("clerk", lambda _task: af.HOLD)
    books = engine.worker("books", _book, state=0)
    for row in (40, 2, "a crown"):
        books.push(row)
    engine.every("nightly", "0 3 * * *", books, 1)
    engine.start(DemoOrder("order-declined"), id="order-declined")
    order = engine.start(DemoOrder("order-open", 86_400.0), id="order-open")
    order.send("address", city="Prague")
    engine.start(DemoRefund("order-9"), id="refund-9")
    engine.launch(_FLOW, payload={"order": 7}, id="main-u0-demo.flow")
    engine.plans.start(_plan(), id="plan-scores")
    tree = af.Supervisor(
        [
            af.Worker("shipping", _ship, state=0, on_failure="isolate"),
            af.Child(
                "storage",
                af.Supervisor([af.Worker("writer", _count, state=0)], strategy="one_for_all"),
            ),
        ],
        name="shop",
    ).start()
    try:
        for row in ("1 Main Street", "unknown address"):
            tree.worker("shipping").push(row)
        yield
    finally:
        tree.stop()


@contextmanager
def demo_engine(store: str) -> Iterator[af.Engine]:
    """Yield an engine with a control socket whose orders come and go."""
    with (
        af.Engine(store, control=True) as engine,
        furnish(engine),
        demo_workers(),
        _background(lambda number: _orders(engine, number)),
    ):
        yield engine


@contextmanager
def demo_workers() -> Iterator[list[Any]]:
    """Yield workers with different behaviours that are kept busy."""
    behaviours = {
        "queue": Queue(),
        "newest per key": Unique(key=lambda row: row % 50),
        "batches of 20 ms": Linger(Queue(), 0.02, size=200),
        "bounded": Bounded(Queue(), 2_000, when_full="drop_oldest"),
    }
    workers = [
        af.spawn(_count, state=0, behaviour=behaviour, name=name)
        for name, behaviour in behaviours.items()
    ]

    def push(_number: int) -> None:
        for worker in workers:
            for row in range(random.randrange(200)):  # noqa: S311 - a demonstration
                worker.push(row)

    try:
        with _background(push):
            yield workers
    finally:
        for worker in workers:
            worker.stop(drain=False)


def _orders(engine: af.Engine, number: int) -> None:
    order = engine.start(DemoOrder(f"order-{number}"), id=f"order-{number}")
    if number % 3:
        order.send("paid")


@contextmanager
def _background(step: Any) -> Iterator[None]:
    """Call a function again and again in a thread during a block."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(_PACE):
            number += 1
            try:
                step(number)
            except ActorflowError:
                if not stop.is_set():
                    raise

    thread = threading.Thread(target=run, name="actorflow-demo", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
