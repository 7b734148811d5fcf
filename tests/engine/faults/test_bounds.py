"""Inboxes that are full: what was accepted stays so, and what is rejected is a dead letter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.errors import EngineClosed
from actorflow.runtime.errors import Full
from behaviours import Base, Bounded, Queue, Unique
from tests.engine.kinds import PATIENCE, collect, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import Engine


def _take_two(batch: list[Any], state: list[Any]) -> list[Any]:
    assert len(batch) <= 2, "more than the bound"
    return collect(batch, state)


@pytest.mark.parametrize("behaviour", [Queue, lambda: Unique(key=lambda number: number)])
def test_what_was_accepted_earlier_waits_until_there_is_room(
    engine: Engine, behaviour: Callable[[], Any]
) -> None:
    engine.start("worker", 0, id="w")
    for number in range(1, 9):
        engine.send("w", number)  # accepted: nobody knows the worker yet
    worker = engine.worker("w", _take_two, state=[], behaviour=lambda: Bounded(behaviour(), 2))
    until(engine, lambda: not worker.depth())
    assert worker.state() == list(range(9))
    assert len(worker.dead_letters) == 0


def test_messages_stand_in_line_behind_those_that_wait_for_room(engine: Engine) -> None:
    opened = threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        assert opened.wait(PATIENCE)
        return _take_two(batch, state)

    engine.start("worker", 0, id="w")
    for number in range(1, 5):
        engine.send("w", number)
    worker = engine.worker("w", job, state=[], behaviour=lambda: Bounded(Queue(), 2))
    told = threading.Event()

    def push() -> None:
        worker.push_ack("last", timeout=PATIENCE)
        told.set()

    thread = threading.Thread(target=push)
    thread.start()
    until(engine, lambda: worker.depth() == 6)
    assert not told.is_set(), "it is stored, but not accumulated"
    opened.set()
    thread.join(PATIENCE)
    until(engine, lambda: not worker.depth())
    assert worker.state() == [0, 1, 2, 3, 4, "last"]


def test_whoever_stands_in_line_is_told_when_the_engine_is_closed(
    reopen: Callable[..., Engine],
) -> None:
    entered, opened = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        assert opened.wait(PATIENCE)
        return collect(batch, state)

    engine = reopen()
    engine.start("worker", 0, id="w")
    for number in range(1, 6):
        engine.send("w", number)
    worker = engine.worker("w", job, state=[], behaviour=lambda: Bounded(Queue(), 2))
    assert entered.wait(PATIENCE)
    errors: list[BaseException] = []

    def push() -> None:
        try:
            worker.push_block("last", timeout=PATIENCE)
        except EngineClosed as error:
            errors.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    until(engine, lambda: worker.depth() == 7)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine.closed:
        pass
    opened.set()
    closing.join(PATIENCE)
    thread.join(PATIENCE)
    assert len(errors) == 1

    engine = reopen()
    again = engine.worker("w", collect, state=[], behaviour=lambda: Bounded(Queue(), 2))
    again.push_ack("new")
    until(engine, lambda: not again.depth())
    assert again.state() == [0, 1, 2, 3, 4, 5, "last", "new"]


def test_a_behaviour_that_is_full_without_holding_anything_rejects(engine: Engine) -> None:
    class Never(Base):
        def add(self, messages: Any, message: Any) -> Any:
            raise Full(0)

    engine.start("worker", 0, id="w")
    worker = engine.worker("w", collect, state=[], behaviour=Never)
    until(engine, lambda: not worker.depth())
    assert [letter.message for letter in worker.dead_letters] == [0]


def test_whoever_is_rejected_is_told_when_the_dead_letter_is_stored(engine: Engine) -> None:
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
