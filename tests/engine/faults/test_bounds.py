"""Full inboxes: accepted messages stay accepted, and rejected ones become dead letters."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Base, Bounded, Queue, Unique
from actorflow.engine.errors import EngineClosed
from actorflow.runtime.errors import Full
from actorflow.runtime.tickets import ThreadTicket
from tests.engine.kinds import PATIENCE, collect, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine


def _take_two(batch: list[Any], state: list[Any]) -> list[Any]:
    assert len(batch) <= 2, "more than the bound"
    return collect(batch, state)


@pytest.mark.parametrize("behaviour", [Queue, lambda: Unique(key=lambda number: number)])
def test_what_was_accepted_earlier_waits_until_there_is_room(
    engine: BareEngine, behaviour: Callable[[], Any]
) -> None:
    engine.start("worker", 0, id="w")
    for number in range(1, 9):
        engine.send("w", number)  # accepted: nobody knows the worker yet
    worker = engine.worker("w", _take_two, state=[], behaviour=lambda: Bounded(behaviour(), 2))
    until(engine, lambda: not worker.depth())
    assert worker.state() == list(range(9))
    assert len(worker.dead_letters) == 0


class _Gate:
    """A job that does not go on before the test opens."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, batch: list[Any], state: list[Any]) -> list[Any]:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return _take_two(batch, state)


def test_nothing_overtakes_what_waits_for_room(engine: BareEngine) -> None:
    engine.start("worker", 0, id="w")
    for number in range(1, 8):
        engine.send("w", number)
    gate = _Gate()
    worker = engine.worker("w", gate, state=[], behaviour=lambda: Bounded(Queue(), 2))
    assert gate.entered.wait(PATIENCE)
    with pytest.raises(Full):
        worker.push_ack("too much")
    gate.opened.set()
    until(engine, lambda: not worker.depth())
    worker.push_block("last")
    assert worker.state() == [*range(8), "last"]
    assert [letter.message for letter in worker.dead_letters] == ["too much"]


def test_both_who_wait_for_a_message_are_told_that_it_is_rejected(engine: BareEngine) -> None:
    gate = _Gate()
    worker = engine.worker("w", gate, state=[], behaviour=lambda: Bounded(Queue(), 1))
    worker.push_ack("runs")
    assert gate.entered.wait(PATIENCE)
    worker.push_ack("waits")
    stored, processed = ThreadTicket(), ThreadTicket()
    engine.parts.sender.append("w", "worker", ["too much"], stored=stored, processed=processed)
    for ticket in (stored, processed):
        assert ticket.wait(PATIENCE)
        assert isinstance(ticket.error, Full)
    gate.opened.set()


def test_whoever_waits_for_room_is_told_when_the_engine_is_closed(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    engine.start("worker", 0, id="w")
    for number in range(1, 6):
        engine.send("w", number)
    processed = ThreadTicket()
    engine.parts.sender.append("w", "worker", ["last"], processed=processed)
    gate = _Gate()
    engine.worker("w", gate, state=[], behaviour=lambda: Bounded(Queue(), 2))
    assert gate.entered.wait(PATIENCE)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine.closed:
        pass
    gate.opened.set()
    closing.join(PATIENCE)
    assert processed.wait(PATIENCE)
    assert isinstance(processed.error, EngineClosed)

    engine = reopen()
    again = engine.worker("w", collect, state=[], behaviour=lambda: Bounded(Queue(), 2))
    engine.resume()
    until(engine, lambda: not again.depth())
    assert again.state() == [0, 1, 2, 3, 4, 5, "last"]


def test_a_behaviour_that_is_full_without_holding_anything_rejects(engine: BareEngine) -> None:
    class Never(Base):
        def add(self, messages: Any, message: Any) -> Any:
            raise Full(0)

    engine.start("worker", 0, id="w")
    worker = engine.worker("w", collect, state=[], behaviour=Never)
    until(engine, lambda: not worker.depth())
    assert [letter.message for letter in worker.dead_letters] == [0]


def test_whoever_is_rejected_is_told_when_the_dead_letter_is_stored(engine: BareEngine) -> None:
    gate, entered = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        assert gate.wait(PATIENCE)
        return collect(batch, state)

    worker = engine.worker("w", job, state=[], behaviour=lambda: Bounded(Queue(), 1))
    worker.push_ack("running")
    assert entered.wait(PATIENCE)
    worker.push_ack("waiting")
    for number in range(20):
        with pytest.raises(Full):
            worker.push_ack(number)
        assert [letter.message for letter in worker.dead_letters] == list(range(number + 1))
    assert worker.depth() == 2
    gate.set()
