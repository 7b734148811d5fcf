"""Which thread commits: a caller that waits anyway if it has time, never one that must not block.

A change that nobody waits for goes with a commit of others.
"""

from __future__ import annotations

import asyncio
import threading
from _thread import get_ident
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.commit import writer as writer_module
from actorflow.engine.commit.deferred_changes import DeferredChanges, StartPredictor
from actorflow.engine.commit.entries import Request
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed, OutcomeUnknown, StoreFull
from actorflow.engine.kind import Outcome, Status
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import PushTimeout
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.serial_lane import SERIAL_LANE
from actorflow.runtime.tickets import ThreadTicket
from tests.engine.kinds import PATIENCE, Kept, Script, collect, quiet, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Watched(MemoryStore):
    """Notes which threads commit messages, and stops them while it is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, changes: Sequence[Change]) -> None:
        if any(change.messages for change in changes):
            self.threads.append(get_ident())
        assert self.gate.wait(PATIENCE)
        super().commit(changes)


class Quick(Script):
    """A kind whose inbox the engine need not call in a lane."""

    def quick(self, execution: str) -> bool:
        return True


def in_thread(call: Callable[[], Any]) -> Any:
    """Call in another thread than the main one; return what the call returned, or raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((get_ident(), call()))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found.append((get_ident(), error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert found, "it hangs"
    return found[0]


def test_a_caller_with_time_makes_the_commit_itself() -> None:
    store = Watched()
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])

        def push() -> bool:
            for number in range(1_000):  # the writer has to be idle, and may be cleaning up
                quiet(engine)
                worker.push_ack(number, timeout=None)
                if store.threads[-1] == get_ident():
                    return True
            return False

        assert in_thread(push)[1] is True


def test_push_ack_keeps_a_short_timeout_although_the_store_hangs() -> None:
    store = Watched()
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block(0)
        quiet(engine)
        store.gate.clear()
        try:
            thread, found = in_thread(lambda: worker.push_ack(1, timeout=0.01))
        finally:
            store.gate.set()
        assert isinstance(found, PushTimeout)
        assert thread not in store.threads


@pytest.mark.parametrize("verb", ["apush_ack", "asend", "astart"])
def test_an_event_loop_never_commits(verb: str) -> None:
    store = Watched()
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block(0)
        calls: dict[str, Callable[[], Any]] = {
            "apush_ack": lambda: worker.apush_ack(1, timeout=None),
            "asend": lambda: engine.asend("w", 1),
            "astart": lambda: engine.astart("worker", 1, id="v"),
        }

        async def call() -> None:
            await calls[verb]()

        quiet(engine)
        thread, _ = in_thread(lambda: asyncio.run(call()))
        assert store.threads
        assert thread not in store.threads


def test_only_the_states_of_durable_workers_wait_for_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next message to an execution waits for its commit: a reaction must not be late."""
    kept: list[Request] = []
    sent = threading.Event()

    def step(state: Any, message: Any) -> Any:
        assert sent.wait(PATIENCE)  # the sender knows that it is stored, and may have more
        return [*state, message]

    monkeypatch.setattr(DeferredChanges, "add", lambda _, request, _patience: kept.append(request))
    with BareEngine(":memory:") as engine:
        engine.register(Quick(step))
        engine.send("x", "message", kind="script")
        sent.set()
        until(engine, lambda: kept or state_of(engine, "x") == ["message"])
        assert kept == []


def test_what_nobody_waits_for_is_committed_with_others_or_alone_once_nothing_else_is() -> None:
    busy = [True]
    looked, alone = threading.Event(), threading.Event()

    def is_busy() -> bool:
        looked.set()
        return busy[0]

    kept = DeferredChanges(is_busy, alone.set, SYSTEM)
    request = Request(Change("x"), None, insist=True)
    kept.add(request, 0.006)
    assert looked.wait(PATIENCE)
    assert kept.take(all_of_them=False) == [request]  # it is old enough
    assert kept.take(all_of_them=True) == []
    assert not alone.is_set()
    kept.add(request, 0.006)
    busy[0] = False
    assert alone.wait(PATIENCE)
    assert len(kept) == 1
    assert kept.take(all_of_them=True) == [request]


def test_what_has_little_patience_does_not_wait_as_long_as_what_was_there_before() -> None:
    alone = threading.Event()
    kept = DeferredChanges(lambda: False, alone.set, SYSTEM)
    requests = [Request(Change(name), None, insist=True) for name in "xy"]
    kept.add(requests[0], 10 * PATIENCE)
    kept.add(requests[1], 0.001)
    assert alone.wait(PATIENCE)
    assert kept.take(all_of_them=True) == requests


# Runs that go with the next start.


class Grouped(MemoryStore):
    """Notes which executions were committed together."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[str]] = []

    def commit(self, changes: Sequence[Change]) -> None:
        self.groups.append([change.execution for change in changes])
        super().commit(changes)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make every change expect another start, however long it takes; say when one waits for it."""
    kept = threading.Event()
    add = DeferredChanges.add

    def noted(deferred: DeferredChanges, request: Request, patience: float) -> None:
        add(deferred, request, patience)
        kept.set()

    monkeypatch.setattr(DeferredChanges, "add", noted)
    monkeypatch.setattr(StartPredictor, "expected", lambda _, _now: True)
    monkeypatch.setattr(writer_module, "_UNSTARTED", 10 * PATIENCE)
    return kept


def test_what_nobody_waits_for_goes_with_the_next_start(kept: threading.Event) -> None:
    store = Grouped()
    with BareEngine(store) as engine:
        engine.register(Quick())
        engine.start("script", "a", id="x")
        engine.send("x", "b")
        assert kept.wait(PATIENCE)
        assert state_of(engine, "x") == ["a"]
        engine.start("script", "c", id="y")
        assert state_of(engine, "x") == ["a", "b"]
        assert sorted(store.groups[-1]) == ["x", "y"]


def test_what_waits_for_a_start_is_committed_when_the_engine_is_closed(
    kept: threading.Event,
) -> None:
    store = Kept()
    with BareEngine(store) as engine:
        engine.register(Quick())
        engine.start("script", "a", id="x")
        engine.send("x", "b")
        assert kept.wait(PATIENCE)
        assert state_of(engine, "x") == ["a"]
    with BareEngine(store) as engine:
        assert state_of(engine, "x") == ["a", "b"]


def test_what_somebody_waits_for_does_not_wait_for_a_start(kept: threading.Event) -> None:
    with BareEngine(MemoryStore()) as engine:
        engine.register(Quick(lambda _, body: Outcome(state=[], status=Status(body))))
        engine.start("script", "active", id="x")
        waiting = threading.Event()
        found: list[Any] = []

        def wait() -> None:
            ticket = ThreadTicket()
            engine.parts.waiters.add("x", ticket)
            waiting.set()
            found.append(ticket.wait(PATIENCE))

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(PATIENCE)
        engine.send("x", "done")
        thread.join(2 * PATIENCE)
        assert found == [True]
        engine.worker("w", collect, state=[]).push_block(1, timeout=PATIENCE)
        assert not kept.is_set()


def test_what_waits_for_a_start_that_does_not_come_is_committed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missed = threading.Event()
    monkeypatch.setattr(StartPredictor, "expected", lambda _, _now: True)
    monkeypatch.setattr(StartPredictor, "missed", lambda _: missed.set())
    with BareEngine(MemoryStore()) as engine:
        engine.register(Quick())
        engine.start("script", "a", id="x")
        engine.send("x", "b")
        assert missed.wait(PATIENCE)
        until(engine, lambda: state_of(engine, "x") == ["a", "b"])


def test_starts_are_expected_after_some_that_came_soon() -> None:
    starts = StartPredictor()
    found = []
    for now in range(6):
        starts.arrived(now, 1.5)
        found.append(starts.expected(now))
    assert found == [False, False, False, True, True, True]
    starts.missed()
    assert not starts.expected(5.0)
    for now in range(6, 10):
        starts.arrived(now, 1.5)
    assert starts.expected(9.0)
    starts.arrived(19.0, 1.5)  # late
    assert not starts.expected(19.0)


# Runs that wait for each other.


def test_runs_of_one_thread_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: Any) -> Any:
        if batch == ["block"]:
            begun.set()
            assert go.wait(PATIENCE)
        return state

    monkeypatch.setattr(POOL, "_looks", [])  # nobody takes over from a run that blocks
    with BareEngine(MemoryStore()) as engine:
        names = [f"w{number}" for number in range(6)]
        workers = [engine.worker(name, job) for name in names]
        for worker in workers:
            worker.push_block(0)
        quiet(engine)

        def push(number: int) -> threading.Thread:
            message = "block" if number == 0 else "go on"
            thread = threading.Thread(target=workers[number].push_block, args=(message,))
            thread.start()
            return thread

        threads = [push(0)]
        assert begun.wait(PATIENCE)
        threads += [push(number) for number in range(1, 6)]
        until(engine, lambda: len(SERIAL_LANE.ready) == 5)
        before = engine.parts.writer.commits
        go.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert engine.parts.writer.commits == before + 1
        assert all(engine.parts.row(name).revision == 2 for name in names)


def test_a_run_that_is_to_be_committed_with_others_learns_that_the_engine_is_closed() -> None:
    told: list[Any] = []
    engine = BareEngine(MemoryStore())
    writer = engine.parts.writer
    request = Request(Change("x"), lambda _change, error: told.append(error), insist=True)
    writer._together.append(request)
    assert writer.waiting >= 1
    engine.close()
    writer.gather(writer._gatherer.pop())
    assert [type(error) for error in told] == [EngineClosed]
    assert writer._gatherer
    assert not writer._together


class Refusing(MemoryStore):
    """A store that has no room while the test says so."""

    full = False

    def commit(self, changes: Any) -> Any:
        if self.full:
            msg = "x.db: disk I/O error; nothing of this is stored. Make room"
            raise StoreFull(msg) from OSError("disk I/O error")
        return super().commit(changes)


def test_an_unknown_outcome_does_not_say_that_nothing_is_stored() -> None:
    """The refusal is that of one attempt, and the engine makes more."""
    store = Refusing()
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block(0, timeout=PATIENCE)
        store.full = True
        with pytest.raises(OutcomeUnknown, match="StoreFull: disk I/O error") as unknown:
            worker.push_block(1, timeout=0.05)
        assert "nothing" not in str(unknown.value)
        assert engine.outcome(unknown.value.id) == "unknown"
        store.full = False
        worker.push_block(2, timeout=PATIENCE)
        assert engine.outcome(unknown.value.id) == "stored"
