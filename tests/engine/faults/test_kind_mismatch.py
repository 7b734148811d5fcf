"""An id that is taken by an execution of another kind is refused, and nothing is harmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.errors import KindMismatch
from actorflow.engine.kind import NewChild, Outcome, Outgoing
from tests.engine.kinds import Script, collect, quiet, rows, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine


def test_a_worker_with_the_id_of_a_schedule_does_not_brick_the_file(
    reopen: Callable[..., BareEngine],
) -> None:
    worker = reopen().worker("cron:daily", collect, state=[])
    worker.push_block(1)
    engine = reopen()
    other = engine.worker("other", collect, state=[])
    with pytest.raises(KindMismatch, match="cron:daily"):
        engine.every("daily", "0 0 * * *", other, "tick")
    again = engine.worker("cron:daily", collect, state=[])
    again.push_block(2)
    engine = reopen()
    engine.worker("cron:daily", collect, state=[]).push_block(3)
    assert state_of(engine, "cron:daily") == [1, 2, 3]


def test_a_schedule_with_the_id_of_a_worker_does_not_brick_the_file(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    engine.every("daily", "0 0 * * *", engine.worker("w", collect, state=[]), "tick")
    quiet(engine)
    with pytest.raises(KindMismatch, match="choose another name"):
        engine.worker("cron:daily", collect, state=[])
    engine = reopen()
    with pytest.raises(KindMismatch, match="choose another name"):
        engine.worker("cron:daily", collect, state=[])
    engine.worker("w", collect, state=[]).push_block(1)
    assert len(rows(engine, "timers")) == 1


def test_a_message_with_another_kind_is_refused(engine: BareEngine) -> None:
    worker = engine.worker("orders", collect, state=[])
    engine.register(Script(name="other"))
    worker.push_block(1)
    for _ in range(2):
        with pytest.raises(KindMismatch, match="'orders' is of kind 'worker', not 'other'"):
            engine.send("orders", "x", kind="other")
    with pytest.raises(KindMismatch, match="of kind 'worker', not 'other'"):
        engine.start("other", "x", id="orders")
    worker.push_block(2)
    assert worker.state() == [1, 2]


def test_two_kinds_in_one_commit_are_told_apart(engine: BareEngine) -> None:
    """Both messages arrive before there is an execution: the first one decides."""
    engine.register(Script(name="one"))
    engine.register(Script(name="two"))
    engine.resume()
    told: list[Any] = []

    class Told:
        def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
            told.append(error)

    def both() -> None:  # in the writer's thread, so that one commit takes both
        engine.parts.sender.append("x", "one", (1,), stored=Told())
        engine.parts.sender.append("x", "two", (2,), stored=Told())

    engine.parts.writer.call_and_wait(both)
    quiet(engine)
    assert sorted(type(each).__name__ for each in told) == ["KindMismatch", "NoneType"]
    assert state_of(engine, "x") == [1]


def test_a_kind_that_sends_to_another_kind_fails_alone(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        if message == "message":
            return Outcome(state=state, messages=[Outgoing("w", 7, "script")])
        if message == "child":
            return Outcome(state=state, children=[NewChild("w", "script")])
        return [*state, message]

    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    engine.register(Script(step))
    for message in ("before", "message", "child", "after"):
        engine.send("x", message, kind="script")
        quiet(engine)
    assert state_of(engine, "x") == ["before", "after"]
    assert [letter.message for letter in engine.dead_letters("x")] == ["message", "child"]
    assert all("KindMismatch" in letter.error for letter in engine.dead_letters("x"))
    worker.push_block(2)
    assert worker.state() == [1, 2]


def test_a_worker_that_was_not_pushed_to_keeps_its_name(engine: BareEngine) -> None:
    worker = engine.worker("orders", collect, state=[])
    engine.register(Script())
    for create in (
        lambda: engine.send("orders", 1, kind="other"),
        lambda: engine.send("orders", 1, kind="script"),
        lambda: engine.start("script", 1, id="orders"),
    ):
        with pytest.raises(KindMismatch, match="'orders' is of kind 'worker', not"):
            create()
    worker.push_block(1)
    engine.send("orders", 2, kind="worker")
    worker.push_block(3)
    assert worker.state() == [1, 2, 3]
