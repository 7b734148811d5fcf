"""An execution is started again by its id, while news for the one that is there arrive."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import Engine
from actorflow.engine.errors import StoreFull, UnknownExecution
from actorflow.engine.execution.live import Live
from actorflow.engine.kind import Message, NewTask, Outcome, TaskEnded
from actorflow.engine.tasks.tasker import HOLD
from tests.engine.kinds import PATIENCE, Kept, Script, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable


class Quick(Script):
    """Its executions run before they are stored."""

    def quick(self, _execution: str) -> bool:
        return True


def step(state: list[Any], message: Any) -> Any:
    if message == "start":
        return Outcome(state=[*state, "start"], tasks=[NewTask("t", "desk")])
    if isinstance(message, TaskEnded):
        assert state, "the execution has not begun"
        return [*state, message.value]
    return [*state, message]


@pytest.mark.parametrize("stored", [False, True])
def test_what_arrives_goes_to_the_one_that_is_there(
    reopen: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    engine = reopen()
    engine.register(Quick(step))
    engine.tasker("desk", lambda _task: HOLD)
    engine.start("script", "start", id="x")
    engine = reopen()
    engine.register(Quick(step))
    engine.tasker("desk", lambda _task: HOLD)
    engine.resume()
    until(engine, lambda: engine.statistics().tasks == 1)
    offer = Live.offer_unstored
    seen: list[str] = []

    def offer_later(live: Live, envelope: Any, waiter: Any, task: Any) -> bool:
        """Let an answer come just before the message that begins the execution."""
        if type(envelope) is Message and not seen:
            seen.append(live.id)
            if stored:
                engine.return_task("t", "answer")
            else:
                engine.core.board.succeed("t", "answer")
        return offer(live, envelope, waiter, task)

    monkeypatch.setattr(Live, "offer_unstored", offer_later)
    assert engine.start("script", "start", id="x").id == "x"
    assert seen == ["x"]
    until(engine, lambda: state_of(engine, "x") == ["start", "answer"])
    assert rows(engine, "dead") == rows(engine, "tasks") == []


def test_two_starts_of_one_id_are_one_although_the_second_is_stored_first(
    reopen: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = reopen()
    offered = threading.Event()
    offer = Live.offer_unstored
    others: list[threading.Thread] = []

    def step(state: Any, message: Any) -> Any:
        assert offered.wait(PATIENCE)
        return [*state, message]

    def offer_later(live: Live, envelope: Any, waiter: Any, task: Any) -> bool:
        """Let the message of another start be in the inbox first."""
        if not others:
            start = partial(engine.start, "script", "other", id="x")
            others.append(threading.Thread(target=start))
            others[0].start()
            until(engine, lambda: live.held)
        try:
            return offer(live, envelope, waiter, task)
        finally:
            offered.set()

    monkeypatch.setattr(Live, "offer_unstored", offer_later)
    engine.register(Quick(step))
    assert engine.start("script", "one", id="x").id == "x"
    others[0].join(PATIENCE)
    until(engine, lambda: not rows(engine, "messages"))
    quiet(engine)
    assert state_of(engine, "x") == ["other"]
    assert rows(engine, "dead") == []


class Full(Kept):
    """A store that has no room while the test says so."""

    full = False

    def commit(self, changes: Any) -> Any:
        if self.full:
            msg = "no room"
            raise StoreFull(msg)
        return super().commit(changes)


def _fail(state: list[Any], message: Any) -> Any:
    raise ValueError(message)


@pytest.mark.parametrize("step", [step, _fail])
@pytest.mark.parametrize("script", [Script, Quick])
def test_a_start_without_room_is_refused(script: type[Script], step: Any) -> None:
    """It does not wait until there is room, as the commit of a run that is under way does."""
    store = Full()
    with Engine(store) as engine:
        engine.register(script(step))
        engine.tasker("desk", lambda _task: HOLD)
        store.full = True
        for _ in range(2):
            with pytest.raises(StoreFull):
                engine.start("script", "start", id="x")
        with pytest.raises(UnknownExecution):
            engine.execution("x")
        store.full = False
        engine.start("script", "start", id="x")
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        if step is _fail:
            assert engine.execution("x").status == "failed"
        else:
            assert state_of(engine, "x") == ["start"]
