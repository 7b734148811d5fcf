"""An execution is started again by its id, while news for the one that is there arrive."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine import bodies
from actorflow.engine.commit.entries import Append
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import StoreFull, UnknownExecution
from actorflow.engine.executions.admission_lane import InboxAdmission
from actorflow.engine.kind import Message, NewTask, Outcome, TaskEnded
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.engine.tasks.task import HOLD
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker.port import Port
from tests.engine.kinds import PATIENCE, Kept, Script, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.testing.clock import VirtualClock


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
    reopen: Callable[..., BareEngine], monkeypatch: pytest.MonkeyPatch, *, stored: bool
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
    offer = InboxAdmission.offer_unstored
    seen: list[str] = []

    def offer_later(
        admission: InboxAdmission, live: LoadedExecution, envelope: Any, waiter: Any, task: Any
    ) -> bool:
        """Let an answer come just before the message that begins the execution."""
        if type(envelope) is Message and not seen:
            seen.append(live.id)
            if stored:
                engine.return_task("t", "answer")
            else:
                engine.parts.tasks.succeed("t", "answer")
        return offer(admission, live, envelope, waiter, task)

    monkeypatch.setattr(InboxAdmission, "offer_unstored", offer_later)
    assert engine.start("script", "start", id="x").id == "x"
    assert seen == ["x"]
    until(engine, lambda: state_of(engine, "x") == ["start", "answer"])
    assert rows(engine, "dead") == rows(engine, "tasks") == []


def test_two_starts_of_one_id_are_one_although_the_second_is_stored_first(
    reopen: Callable[..., BareEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = reopen()
    offered = threading.Event()
    offer = InboxAdmission.offer_unstored
    others: list[threading.Thread] = []

    def step(state: Any, message: Any) -> Any:
        assert offered.wait(PATIENCE)
        return [*state, message]

    def offer_later(
        admission: InboxAdmission, live: LoadedExecution, envelope: Any, waiter: Any, task: Any
    ) -> bool:
        """Let the message of another start be stored first."""
        if not others:
            start = partial(engine.start, "script", "other", id="x")
            others.append(threading.Thread(target=start))
            others[0].start()
            until(engine, lambda: live.has_unread)
        try:
            return offer(admission, live, envelope, waiter, task)
        finally:
            offered.set()

    monkeypatch.setattr(InboxAdmission, "offer_unstored", offer_later)
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
    with BareEngine(store) as engine:
        engine.register(script(step))
        engine.tasker("desk", lambda _task: HOLD)
        store.full = True
        for _ in range(2):
            with pytest.raises(af.StoreFull):
                engine.start("script", "start", id="x")
        with pytest.raises(UnknownExecution):
            engine.execution("x")
        store.full = False
        engine.start("script", "start", id="x")
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        if step is _fail:
            assert engine.execution("x").status == "stuck"
        else:
            assert state_of(engine, "x") == ["start"]


def test_nothing_is_kept_of_starts_that_were_refused(caplog: pytest.LogCaptureFixture) -> None:
    store = Full()
    with BareEngine(store) as engine:
        engine.register(Quick())
        engine.resume()
        store.full = True
        for _ in range(3):
            with pytest.raises(StoreFull):
                engine.start("script", "start")
        store.full = False
        quiet(engine)
        assert not engine.parts.table.backlog._unread
    assert "messages wait for their kind" not in caplog.text


class Gate:
    """Blocks the runs of executions that are not quick after all."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()
        self.runs = 0

    def step(self, state: list[Any], message: Any) -> Any:
        self.runs += 1
        self.begun.set()
        assert self.open.wait(PATIENCE)
        return [*state, message]


def test_who_starts_does_not_wait_for_a_run_that_blocks() -> None:
    """All that a newcomer does next works: send, look, start it again, cancel."""
    gate = Gate()
    with BareEngine(":memory:") as engine:
        engine.register(Quick(gate.step))
        for name in ("x", "y"):
            engine.start("script", "start", id=name)
        assert not gate.open.is_set()
        engine.send("x", "more")
        assert engine.execution("x").status == "active"
        assert engine.start("script", "again", id="x").id == "x"
        assert engine.cancel("y")
        gate.open.set()
        until(engine, lambda: state_of(engine, "x") == ["start", "more"])
        quiet(engine)
        assert engine.execution("y").status == "cancelled"
        assert rows(engine, "dead") == rows(engine, "messages") == []


def test_one_that_is_cancelled_before_its_first_run_leaves_no_dead_letter() -> None:
    """A message that was sent to it meanwhile becomes one."""
    gate = Gate()
    with BareEngine(":memory:") as engine:
        engine.register(Quick(gate.step))
        engine.start("script", "start", id="x")
        engine.send("x", "more")
        assert engine.cancel("x")
        gate.open.set()
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        assert [row.body for row in rows(engine, "dead")] == [bodies.encode("more")]


def test_a_start_whose_run_blocks_survives_the_engine(reopen: Callable[..., BareEngine]) -> None:
    engine, gate = reopen(), Gate()
    engine.register(Quick(gate.step))
    engine.start("script", "start", id="x")
    engine.close(timeout=0.1)
    gate.open.set()
    engine = reopen()
    engine.register(Quick(step))
    engine.tasker("desk", lambda _task: HOLD)
    engine.resume()
    until(engine, lambda: state_of(engine, "x") == ["start"])


@pytest.mark.parametrize("room", ["never", "for the run", "apart"])
def test_a_start_that_is_committed_twice_fails_only_if_both_commits_do(room: str) -> None:
    store, gate = Full(), Gate()
    with BareEngine(store) as engine:
        engine.register(Quick(gate.step))
        engine.resume()
        store.full = room != "apart"
        told: list[Any] = []

        def start() -> None:
            try:
                told.append(engine.start("script", "start", id="x").id)
            except StoreFull:
                told.append("full")

        thread = threading.Thread(target=start)
        thread.start()
        assert gate.begun.wait(PATIENCE)
        until(engine, lambda: engine.statistics().refused if store.full else bool(told))
        assert told == (["x"] if room == "apart" else [])
        store.full = room == "never"
        gate.open.set()
        thread.join(PATIENCE)
        assert told == (["full"] if room == "never" else ["x"])
        store.full = False
        quiet(engine)
        if room == "never":
            with pytest.raises(UnknownExecution):
                engine.execution("x")
        else:
            until(engine, lambda: state_of(engine, "x") == ["start"])


@pytest.fixture
def there(reopen: Callable[..., BareEngine]) -> BareEngine:
    """Return an engine whose execution `x` waits for a task, and is not in memory."""

    def opened() -> BareEngine:
        engine = reopen()
        engine.register(Quick(step))
        engine.tasker("desk", lambda _task: HOLD)
        return engine

    opened().start("script", "start", id="x")
    engine = opened()
    engine.resume()
    until(engine, lambda: engine.statistics().tasks == 1)
    assert engine.parts.table.find("x") is None
    return engine


def test_one_that_is_woken_does_not_run_beside_one_that_is_being_started(
    there: BareEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, table = there, there.parts.table
    kind_of = table._kind
    offered = threading.Event()
    offer = InboxAdmission.offer_unstored
    others: list[threading.Thread] = []

    def offer_later(
        admission: InboxAdmission, live: LoadedExecution, envelope: Any, waiter: Any, task: Any
    ) -> bool:
        assert offered.wait(PATIENCE)
        return offer(admission, live, envelope, waiter, task)

    def start_first(*given: Any) -> Any:
        """Let a start come just before the execution is in memory."""
        if not others:
            start = partial(engine.start, "script", "start", id="x")
            others.append(threading.Thread(target=start))
            others[0].start()
            while table.find("x") is None:
                others[0].join(0.001)
        return kind_of(*given)

    monkeypatch.setattr(table, "_kind", start_first)
    monkeypatch.setattr(InboxAdmission, "offer_unstored", offer_later)
    engine.return_task("t", "answer")
    found = table.find("x")
    assert found is not None
    assert found.creates is not None, "two of one id are in memory"
    offered.set()
    others[0].join(PATIENCE)
    until(engine, lambda: state_of(engine, "x") == ["start", "answer"])
    assert rows(engine, "dead") == rows(engine, "tasks") == []


def test_what_is_stored_is_not_run_by_one_that_is_being_started(
    there: BareEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its waiters learn its own outcome, not that of the other start."""
    engine, parts = there, there.parts
    offer = InboxAdmission.offer_unstored
    answers: list[ThreadTicket] = []

    def store_first(
        admission: InboxAdmission, live: LoadedExecution, envelope: Any, waiter: Any, task: Any
    ) -> bool:
        """Let a message be stored, whose sender waits, before the one of the start is here."""
        if not answers:
            answers.append(ThreadTicket())
            parts.writer.append(Append("x", None, (bodies.encode("stored"),), processed=answers[0]))
            parts.writer.call_and_wait(lambda: None)
        return offer(admission, live, envelope, waiter, task)

    monkeypatch.setattr(InboxAdmission, "offer_unstored", store_first)
    assert engine.start("script", "start", id="x").id == "x"
    assert answers[0].wait(PATIENCE)
    assert answers[0].error is None
    assert state_of(engine, "x") == ["start", "stored"]
    assert rows(engine, "dead") == []


def test_what_is_stored_beside_one_that_was_not_started_is_not_left_behind(
    there: BareEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, parts = there, there.parts
    finish = Port.finish
    ended = threading.Event()

    def look_first(*_given: Any) -> bool:
        """Let somebody look through the store while it is in memory."""
        older = Change("x", messages=(NewMessage("x", "message", b"\xa5older"),))
        parts.writer.call_and_wait(lambda: parts.writer.commit([older]))
        parts.writer.call_and_wait(parts.table.backlog.recover)
        return False

    def answer_then(port: Port) -> None:
        """Let an answer come just when it has ended."""
        finish(port)
        if not ended.is_set():
            engine.return_task("t", "answer")
            ended.set()

    monkeypatch.setattr(InboxAdmission, "offer_unstored", look_first)
    monkeypatch.setattr(Port, "finish", answer_then)
    threading.Thread(target=partial(engine.start, "script", "start", id="x")).start()
    assert ended.wait(PATIENCE)
    until(engine, lambda: not rows(engine, "messages"))
    quiet(engine)
    assert state_of(engine, "x") == ["start", "older", "answer"]
    assert rows(engine, "dead") == []


def test_what_is_stored_with_a_start_that_is_refused_is_delivered_once(there: BareEngine) -> None:
    engine, writer = there, there.parts.writer

    def send(body: bytes) -> None:
        change = Change("x", messages=(NewMessage("x", "message", body),))
        writer.submit(change, lambda change, _error: engine.parts.table.deliver_rows(change.rows))

    def at_once() -> None:
        """In the writer's thread: one commit takes all of it."""
        send(b"\xa1a")
        before = writer.waiting
        start = threading.Thread(target=partial(engine.start, "script", "start", id="x"))
        start.start()
        while writer.waiting == before:
            start.join(0.001)
        send(b"\xa1b")

    engine.parts.writer.call_and_wait(at_once)
    until(engine, lambda: "b" in state_of(engine, "x"))
    quiet(engine)
    assert state_of(engine, "x") == ["start", "a", "b"]


def test_who_waits_for_a_message_waits_until_its_execution_can_be_woken(
    there: BareEngine, clock: VirtualClock
) -> None:
    engine, kind = there, there.parts.kinds["script"]
    options, failures = kind.options, ["no options now"]

    def refuse_once(execution: str) -> Any:
        if failures:
            raise ValueError(failures.pop())
        return options(execution)

    ticket = ThreadTicket()
    kind.options = refuse_once  # type: ignore[method-assign]
    engine.parts.writer.append(Append("x", None, (bodies.encode("late"),), processed=ticket))
    quiet(engine)
    assert not failures
    assert not ticket.resolved
    clock.advance(AGAIN)
    assert ticket.wait(PATIENCE)
    assert ticket.error is None
    assert state_of(engine, "x") == ["start", "late"]
