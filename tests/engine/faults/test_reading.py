"""A store that cannot be read for a moment, or has something in it that nobody can decode."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Queue
from actorflow.engine import bodies
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed, ExecutionFailed, StateUnreadable, StoreRefused
from actorflow.engine.executions import cancellation
from actorflow.engine.kind import NewTask, Options, Outcome, SetTimer, TaskEnded
from actorflow.engine.stores.protocol import Change, NewMessage, TaskRow, TimerRow
from actorflow.runtime.tickets import ThreadTicket
from tests.engine.kinds import (
    PATIENCE,
    Kept,
    Script,
    collect,
    flush,
    quiet,
    rows,
    state_of,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing import VirtualClock


class Forgetful(Kept):
    """A store of which one method fails as often as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = ""
        self.times = 0
        self.failed = 0
        self.error: type[Exception] = StoreRefused

    def fail(self, method: str, times: int = 1) -> None:
        self.failing, self.times, self.failed = method, times, 0

    def _pass_by(self, method: str) -> None:
        if method == self.failing and self.times:
            self.times -= 1
            self.failed += 1
            msg = f"{method} cannot be read"
            raise self.error(msg)

    def commit(self, changes: Any) -> Any:
        self._pass_by("commit")
        return super().commit(changes)

    def execution(self, execution: str) -> Any:
        self._pass_by("execution")
        return super().execution(execution)

    def executions(self, ids: Any) -> Any:
        self._pass_by("executions")
        return super().executions(ids)

    def pending(self, **options: Any) -> Any:
        self._pass_by("pending")
        return super().pending(**options)

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> Any:
        self._pass_by("due")
        return super().due(limit, execution=execution)

    def open(self, **options: Any) -> Any:
        self._pass_by("open")
        return super().open(**options)

    def watches(self, **options: Any) -> Any:
        self._pass_by("watches")
        return super().watches(**options)

    def task(self, task: str) -> Any:
        self._pass_by("task")
        return super().task(task)

    def dead_letter(self, id: Any) -> Any:  # noqa: A002 - as stores have it
        self._pass_by("dead_letter")
        return super().dead_letter(id)


METHODS = ["execution", "executions", "pending", "due", "open", "watches", "task"]


def _work(engine: BareEngine, clock: VirtualClock, number: int) -> list[Any]:
    """Do something of everything; return the answers to callers."""
    told: list[Any] = []

    def call(function: Callable[[], Any]) -> None:
        try:
            function()
        except StoreRefused as error:
            told.append(error)

    call(lambda: engine.send(f"x{number}", {"number": number}, kind="script"))
    call(lambda: engine.worker(f"w{number}", collect, state=[]).push_ack(number))
    call(lambda: engine.start("script", {"number": number}, id=f"y{number}"))
    for _ in range(3):
        flush(engine)
        clock.advance(1.0)
    return told


@pytest.mark.parametrize("error", [OSError, ConnectionResetError, TimeoutError])
def test_a_broken_way_to_the_store_gives_up_nothing(
    clock: VirtualClock, error: type[Exception]
) -> None:
    """A custom store may raise the errors of its network."""
    store = Forgetful()
    store.error = error

    def step(state: Any, message: Any) -> Any:
        if message == "fail":
            store.fail("commit", 3)
        return [*state, message]

    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(step))
        engine.send("x", "begin", kind="script")
        engine.send("x", "fail")
        until(engine, lambda: store.failed)
        with pytest.raises(StoreRefused):
            engine.send("x", "refused")
        while rows(engine, "messages"):
            clock.advance(1.0)
            flush(engine)
        engine.send("x", "on")
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        assert state_of(engine, "x") == ["begin", "fail", "on"]
        assert engine.execution("x").status == "active"


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_a_read_error_wedges_nothing(clock: VirtualClock, method: str, times: int) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            return [*state, "task"]
        if message == "tick":
            return [*state, "tick"]
        number = message["number"]
        return Outcome(
            state=[*state, number],
            timers=[SetTimer("t", clock.now() + 1.0, "tick")],
            tasks=[NewTask(f"{number}-{len(store.failing)}-{id(message)}", "t", number)],
        )

    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None, max_live=0) as engine:
        engine.register(Script(step))
        engine.tasker("t", lambda task: task.body)
        assert _work(engine, clock, 0) == []
        store.fail(method, times)
        _work(engine, clock, 1)
        store.times = 0
        assert _work(engine, clock, 2) == []

        def settled() -> bool:
            clock.advance(1.0)
            return not rows(engine, "messages") and not rows(engine, "tasks")

        until(engine, settled)
        quiet(engine)
        for name in ("x0", "x2", "y0", "y2"):
            assert sorted(map(str, state_of(engine, name))) == sorted([name[1], "task", "tick"])
        for name in ("x1", "y1"):  # it was stored and processed, or its sender got an error
            if store.execution(name) is not None:
                assert sorted(map(str, state_of(engine, name))) == ["1", "task", "tick"]
                assert engine.execution(name).status == "active"
        assert len(engine.dead_letters()) == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_read_error_at_the_beginning_is_told_or_overcome(
    clock: VirtualClock, method: str
) -> None:
    def step(state: Any, message: Any) -> Any:
        return Outcome(state=[*state, message], timers=[SetTimer("t", 5e9)])

    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None) as engine:
        for number in range(20):
            engine.send(f"x{number}", number, kind="script")
    store.fail(method)
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(step))
        try:
            engine.resume()
        except StoreRefused:
            engine.resume()

        def settled() -> bool:
            clock.advance(1.0)
            return not rows(engine, "messages")

        until(engine, settled)
        quiet(engine)
        store.times = 0
        assert [state_of(engine, f"x{number}") for number in range(20)] == [[n] for n in range(20)]


@pytest.mark.parametrize("error", [StoreRefused, ConnectionResetError])
@pytest.mark.parametrize("how", ["push_block", "push_ack"])
def test_a_state_that_cannot_be_read_for_a_moment_is_read_again(
    clock: VirtualClock, how: str, error: type[Exception]
) -> None:
    """A job has failed, so its state is fetched again, and the store does not answer."""

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if "bad" in batch:
            raise ValueError("bad")
        return [*state, *batch]

    store = Forgetful()
    store.error = error
    with BareEngine(store, clock=clock, retention=None) as engine:
        worker = engine.worker("w", job, state=[])
        worker.push_block(0)
        with pytest.raises(ValueError, match="bad"):
            worker.push_block("bad")
        store.fail("execution", 2)
        found: list[Any] = []

        def push() -> None:
            try:
                getattr(worker, how)(1, timeout=PATIENCE)
                found.append("served")
            except StoreRefused:
                found.append("told")

        thread = threading.Thread(target=push)
        thread.start()

        def overcome() -> bool:
            clock.advance(1.0)
            return bool(found) and not store.times

        until(engine, overcome)
        thread.join(PATIENCE)

        def processed() -> bool:
            clock.advance(1.0)
            return not rows(engine, "messages")

        until(engine, processed)
        worker.push_block(2)
        assert (worker.state(), found) == ([0, 1, 2], ["served"])
        assert engine.execution("w").status == "active"


def test_a_cancel_that_cannot_look_again_is_told(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lost a race, and the store does not say what there is now."""
    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block(0)
        stale = engine.parts.row("w")
        worker.push_block(1)
        with monkeypatch.context() as patch:
            patch.setattr(cancellation, "execution_row", lambda *_given: stale)
            store.fail("execution")
            with pytest.raises(StoreRefused):
                engine.cancel("w")
            assert engine.cancel("w"), "it looks again, and ends what there is"
        assert engine.execution("w").status == "cancelled"


class Fussy:
    """A kind that can read some of its states only."""

    name = "fussy"

    def options(self, _execution: str) -> Options:
        return Options()

    def decode(self, data: bytes | None) -> Any:
        state = [] if data is None else bodies.decode(data)
        if "bad" in state:
            msg = "this state cannot be read"
            raise ValueError(msg)
        return state

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def run(self, _context: Any, state: Any, batch: Any) -> Outcome:
        return Outcome(state=[*state, *(each.body for each in batch)])


def _spoil(engine: BareEngine, name: str) -> None:
    row = engine.parts.row(name)
    change = Change(name, kind="fussy", expected=row.revision, state=bodies.encode(["bad"]), at=1.0)
    engine.parts.writer.submit(change)
    flush(engine)


def test_one_state_that_cannot_be_decoded_holds_up_nobody(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    engine.register(Fussy())
    for number in range(5):
        engine.send(f"x{number}", 1, kind="fussy")
    quiet(engine)
    _spoil(engine, "x2")
    engine = reopen()
    for number in range(5):  # nobody knows the kind: these wait in the store
        engine.send(f"x{number}", 2)
    engine = reopen()
    engine.register(Fussy())
    engine.resume()
    found = engine.wait("x2", timeout=PATIENCE)
    assert found.status == "stuck"
    assert found.failure is not None
    assert found.failure.type == "StateUnreadable"
    assert "ValueError: this state cannot be read" in found.failure.message
    with pytest.raises(ExecutionFailed, match="cannot be read"):
        engine.result("x2")
    until(engine, lambda: len(rows(engine, "messages")) == 1)
    assert [state_of(engine, f"x{number}") for number in (0, 1, 3, 4)] == [[1, 2]] * 4
    engine.send("new", 1, kind="fussy")
    engine.start("fussy", 1, id="started")
    quiet(engine)
    assert state_of(engine, "new") == state_of(engine, "started") == [1]


@pytest.mark.parametrize("method", ["commit", "execution"])
def test_a_failure_that_cannot_be_stored_for_a_moment_is_stored_later(
    clock: VirtualClock, method: str
) -> None:
    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None, max_live=0) as engine:
        engine.register(Fussy())
        engine.send("x", 1, kind="fussy")
        quiet(engine)
        _spoil(engine, "x")
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.resume()
        engine.send("x", 2)
        flush(engine)
        store.fail(method)
        engine.register(Fussy())
        until(engine, lambda: store.failed)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(engine.wait("x", PATIENCE).status))
        thread.start()

        def told() -> bool:
            clock.advance(1.0)
            return bool(found)

        until(engine, told)
        thread.join(PATIENCE)
        assert found == ["stuck"]


def test_code_that_can_read_it_goes_on_with_what_has_waited(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    engine.register(Fussy())
    engine.send("x", 1, kind="fussy")
    quiet(engine)
    _spoil(engine, "x")
    engine = reopen()
    engine.register(Fussy())
    engine.send("x", 2)
    assert engine.wait("x", PATIENCE).status == "stuck"
    engine = reopen()
    engine.register(Script(name="fussy"))
    engine.resume()
    until(engine, lambda: not rows(engine, "messages"))
    assert state_of(engine, "x") == ["bad", 2]
    assert engine.execution("x").status == "active"


def test_a_message_that_cannot_be_decoded_becomes_a_dead_letter(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    engine.worker("w", collect, state=[]).push_block(1)
    unreadable = NewMessage("w", "message", b"\xc1")
    engine.parts.writer.submit(Change("w", messages=(unreadable,)))
    flush(engine)
    engine = reopen()
    worker = engine.worker("w", collect, state=[])
    worker.push_block(2, timeout=PATIENCE)
    assert worker.state() == [1, 2]
    (letter,) = worker.dead_letters
    assert (letter.message, letter.type) == (b"\xc1", "message")
    assert letter.error.startswith("DecodeError")
    assert worker.dead_letters.purge(letter) == 1


def test_a_waiter_is_told_that_the_state_cannot_be_read(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    engine.worker("w", collect, state=[]).push_block(1)
    row = engine.parts.row("w")
    change = Change("w", kind="worker", expected=row.revision, state=b"\xc1", at=1.0)
    engine.parts.writer.submit(change)
    flush(engine)
    worker = reopen().worker("w", collect, state=[])
    for _ in range(2):
        with pytest.raises(StateUnreadable, match="the state of execution 'w'"):
            worker.push_block(2, timeout=PATIENCE)


def test_an_answer_waits_with_the_others_for_code_that_can_read_the_state(
    reopen: Callable[..., BareEngine],
) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            return [*state, message.value]
        return Outcome(state=[*state, message], tasks=[NewTask("a", "t")])

    engine = reopen()
    script = Script(step, name="fussy")
    engine.register(script)
    engine.send("x", 1, kind="fussy")
    script.wait(1)
    quiet(engine)
    _spoil(engine, "x")
    engine = reopen()
    engine.register(Fussy())
    engine.resume()
    assert engine.return_task("a", 7)
    assert engine.wait("x", PATIENCE).status == "stuck"
    flush(engine)
    engine = reopen()
    engine.register(Script(step, name="fussy"))
    engine.resume()
    until(engine, lambda: not rows(engine, "messages"))
    quiet(engine)
    assert state_of(engine, "x") == ["bad", 7]
    assert rows(engine, "tasks") == []


def test_a_timer_whose_body_cannot_be_read_holds_up_no_other(
    reopen: Callable[..., BareEngine], clock: VirtualClock
) -> None:
    engine = reopen()
    engine.register(script := Script())
    for name in ("x", "y"):
        engine.send(name, "begin", kind="script")
    script.wait(2)
    quiet(engine)
    timers = [
        TimerRow("x", "t", clock.now() + 1.0, b"\xc1"),
        TimerRow("y", "t", clock.now() + 1.0, bodies.encode("tick")),
    ]
    engine.parts.writer.submit(Change("x", timers=timers))
    flush(engine)
    engine.parts.writer.call_and_wait(engine.parts.timers.start)
    clock.advance(1.0)
    until(engine, lambda: state_of(engine, "y") == ["begin", "tick"])
    assert engine.wait("x", PATIENCE).status == "stuck"
    assert rows(engine, "timers") == []


@pytest.mark.parametrize("options", [{}, {"behaviour": Queue}], ids=["by priority", "a queue"])
def test_a_task_whose_body_cannot_be_read_fails_and_holds_up_no_other(
    reopen: Callable[..., BareEngine], options: dict[str, Any]
) -> None:
    engine = reopen()
    engine.register(script := Script(_keep_answers))
    for name in ("x", "y"):
        engine.send(name, "begin", kind="script")
    script.wait(2)
    quiet(engine)
    tasks = [
        TaskRow("a", "x", "t", b"\xc1", 0, 0.0, None, None, 0, tell_start=False),
        TaskRow("b", "y", "t", bodies.encode(7), 0, 0.0, None, None, 0, tell_start=False),
    ]
    engine.parts.writer.submit(Change("x", tasks=tasks))
    flush(engine)
    engine.tasker("t", lambda task: task.body, **options)
    script.wait(4)
    quiet(engine)
    assert state_of(engine, "y") == ["begin", 7]
    assert state_of(engine, "x") == ["begin", "DecodeError"]
    assert rows(engine, "tasks") == []


def _keep_answers(state: Any, message: Any) -> Any:
    if isinstance(message, TaskEnded):
        return [*state, message.error.type if message.error else message.value]
    return [*state, message]


@pytest.mark.parametrize("quick", [False, True])
def test_who_starts_what_is_there_is_told_that_the_store_cannot_be_read(*, quick: bool) -> None:
    store = Forgetful()
    kind = Script()
    kind.quick = lambda _execution: quick  # type: ignore[attr-defined]
    with BareEngine(store) as engine:
        engine.register(kind)
        engine.start("script", "first", id="x")
        store.fail("execution", 100)
        with pytest.raises(StoreRefused, match="execution cannot be read"):
            engine.start("script", "second", id="x")
        store.fail("")
        assert engine.start("script", "third", id="x").id == "x"


def test_who_looks_while_the_store_is_being_closed_is_told_that_the_engine_is() -> None:
    class Closes(Kept):
        """Is closed while somebody looks."""

        armed = False

        def execution(self, execution: str) -> Any:
            if self.armed:
                closes = threading.Thread(target=engine.close)
                closes.start()
                closes.join(PATIENCE)
                raise StoreRefused("the store is closed")
            return super().execution(execution)

    store = Closes()
    with BareEngine(store) as engine:
        engine.register(Script())
        engine.start("script", "first", id="x")
        store.armed = True
        with pytest.raises(EngineClosed):
            engine.execution("x")


@pytest.mark.parametrize("verb", ["cancelled_tasks", "withdrawn_tasks"])
def test_an_execution_goes_on_although_its_task_cannot_be_read(
    clock: VirtualClock, verb: str
) -> None:
    """It gives up a task that is in the store only, because there is no tasker for it."""

    def step(state: list[Any], message: Any) -> Any:
        if message == "begin":
            return Outcome(state=state, tasks=[NewTask("a", "nobody")])
        if message == "give it up":
            options: Any = {verb: ["a"]}
            return Outcome(state=state, **options)
        return [*state, message.outcome if isinstance(message, TaskEnded) else message]

    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None) as engine:
        engine.register(Script(step))
        engine.start("script", "begin", id="x")
        until(engine, lambda: rows(engine, "tasks"))
        store.fail("task")
        engine.send("x", "give it up")
        engine.send("x", "after")
        until(engine, lambda: "after" in state_of(engine, "x"))
        clock.advance(AGAIN)
        until(engine, lambda: not rows(engine, "tasks"))
        quiet(engine)
        told = [] if verb == "cancelled_tasks" else ["failed"]
        assert state_of(engine, "x") == ["after", *told]


def test_only_who_asks_what_became_of_a_message_is_told_that_it_cannot_be_read(
    clock: VirtualClock,
) -> None:
    store = Forgetful()
    with BareEngine(store, clock=clock, retention=None) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_ack("first", key="k")
        quiet(engine)
        store.fail("dead_letter")
        again, other = ThreadTicket(), ThreadTicket()

        def both() -> None:
            """In the writer's thread, so that one commit takes both."""
            engine.parts.sender.append("w", "worker", ("other",), stored=other)
            engine.parts.sender.append("w", "worker", ("first",), stored=again, key="k")

        engine.parts.writer.call_and_wait(both)
        assert again.wait(PATIENCE)
        assert other.wait(PATIENCE)
        assert isinstance(again.error, StoreRefused)
        assert other.error is None
        assert engine.parts.writer.quiet
        worker.push_block("last")
        assert worker.state() == ["first", "other", "last"]
