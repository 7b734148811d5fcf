"""Executions of any kind: runs, races, ends, retirement, recovery."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import (
    Cancelled,
    EngineClosed,
    ExecutionEnded,
    StoreBroken,
    StoreBusy,
    StoreFull,
    UnknownExecution,
    WaitTimeout,
)
from actorflow.engine.executions import stored_backlog, table
from actorflow.engine.kind import Outcome, Outgoing, SetTimer, Status
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.pool import POOL
from tests.engine.kinds import PATIENCE, Kept, Script, collect, flush, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from actorflow.testing import VirtualClock


def test_messages_make_an_execution_and_change_its_state(engine: BareEngine) -> None:
    script = Script()
    engine.register(script)
    engine.send("x", 1, kind="script")
    engine.send("x", 2)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == [1, 2]
    assert engine.parts.row("x").kind == "script"


def test_emitted_messages_arrive_and_make_executions(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        if message:
            return Outcome(
                state=[*state, message],
                messages=[Outgoing(f"x{message - 1}", message - 1, "script")],
            )
        return Outcome(state=["end"], status=Status.DONE)

    engine.register(Script(step))
    engine.send("x5", 5, kind="script")
    until(engine, lambda: engine.parts.store.execution("x0"))
    assert engine.wait("x0", timeout=PATIENCE).status == "done"
    assert state_of(engine, "x3") == [3]


def test_a_run_that_loses_the_race_is_done_again_on_the_newer_state(engine: BareEngine) -> None:
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, message]

    script = Script(step)
    engine.register(script)
    engine.send("x", "mine", kind="script")
    assert entered.wait(PATIENCE)
    done = threading.Event()
    theirs = Change("x", kind="script", expected=0, state=script.encode(["theirs"]), at=1.0)
    engine.parts.writer.submit(theirs, lambda _change, _error: done.set())
    assert done.wait(PATIENCE)
    go.set()
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["theirs", "mine"]
    assert rows(engine, "messages") == []


def test_cancel_ends_an_execution_with_all_it_has(engine: BareEngine) -> None:
    engine.register(
        Script(lambda state, message: Outcome(state=[message], timers=[SetTimer("t", 5e9, 1)]))
    )
    engine.send("x", 1, kind="script")
    until(engine, lambda: rows(engine, "timers"))
    assert engine.cancel("x")
    assert engine.wait("x").status == "cancelled"
    assert not engine.cancel("x")
    assert rows(engine, "timers") == []
    with pytest.raises(ExecutionEnded, match="'x' has ended"):
        engine.send("x", "late")
    assert rows(engine, "messages") == []
    assert state_of(engine, "x") == [1]


def test_a_run_under_way_is_thrown_away_by_cancel(engine: BareEngine, clock: VirtualClock) -> None:
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, message]

    engine.register(Script(step))
    engine.send("x", 1, kind="script")
    assert entered.wait(PATIENCE)
    assert engine.cancel("x")
    go.set()
    while engine.parts.table.find("x") is not None:
        quiet(engine)
        clock.advance(1.0)
    assert engine.parts.row("x").status == "cancelled"
    assert state_of(engine, "x") is None


def test_wait_is_told_of_the_end_or_the_closing(clock: VirtualClock) -> None:
    engine = BareEngine(clock=clock)
    engine.register(Script(lambda state, message: Outcome(state=[], status=Status(message))))
    engine.worker("y", collect, state=[]).push_block(0)
    with pytest.raises(WaitTimeout):
        engine.wait("y", timeout=0.01)
    with pytest.raises(UnknownExecution):
        engine.wait("x", timeout=0.01)
    engine.send("x", "active", kind="script")
    found: list[Any] = []

    def wait(name: str) -> None:
        try:
            found.append(engine.wait(name, timeout=PATIENCE).status)
        except EngineClosed:
            found.append("closed")

    threads = [threading.Thread(target=wait, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    engine.send("x", "failed")
    threads[0].join(PATIENCE)
    engine.close()
    threads[1].join(PATIENCE)
    assert found == ["failed", "closed"]
    with pytest.raises(EngineClosed):
        engine.wait("x")


def test_an_unknown_execution_is_named_with_those_like_it(engine: BareEngine) -> None:
    engine.register(Script())
    engine.send("order-1", 1, kind="script")
    with pytest.raises(UnknownExecution, match="order-1"):
        engine.parts.row("order-2")


def test_messages_wait_for_their_kind_and_keep_their_order(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    for number in range(5):
        engine.send("x", number, kind="script")
    engine = reopen()
    engine.send("x", 5)
    engine.worker("late", collect, state=[])
    script = Script()
    engine.register(script)
    engine.send("x", 6)
    script.wait(7)
    quiet(engine)
    assert state_of(engine, "x") == list(range(7))
    with pytest.raises(BadOption, match="already"):
        engine.register(Script())


def test_executions_retire_when_idle_and_come_back(clock: VirtualClock) -> None:
    with BareEngine(clock=clock, max_live=10) as engine:
        script = Script()
        engine.register(script)
        for round_ in (1, 2, 3):
            for number in range(100):
                engine.send(f"x{number}", round_, kind="script")
            script.wait(100 * round_)
            while len(engine.parts.table) > 10:
                quiet(engine)
                clock.advance(1.0)
        assert all(state_of(engine, f"x{number}") == [1, 2, 3] for number in range(100))


def test_executions_retire_as_fast_as_others_come(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any time passing in between."""
    monkeypatch.setattr(table, "_SWEPT", 5)
    with BareEngine(clock=clock, max_live=10) as engine:
        engine.register(Script())
        for number in range(100):
            engine.send(f"x{number}", 1, kind="script")
            quiet(engine)
        assert len(engine.parts.table) < 25
        assert all(state_of(engine, f"x{number}") == [1] for number in range(100))


def test_nothing_is_lost_while_executions_retire_and_come_back(clock: VirtualClock) -> None:
    with BareEngine(clock=clock, max_live=0) as engine:
        workers = [
            engine.worker(f"w{number}", lambda batch, state: [*state, *batch], state=[])
            for number in range(3)
        ]
        stop = threading.Event()

        def sweep() -> None:
            while not stop.is_set():
                clock.advance(0.1)

        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        try:
            for number in range(200):
                for worker in workers:
                    (worker.push_block if number % 3 else worker.push)(number)
        finally:
            stop.set()
            sweeper.join()
        for worker in workers:
            worker.push_block(200)
            assert worker.state() == list(range(201))


def test_ended_executions_are_purged_by_age_with_their_history(clock: VirtualClock) -> None:
    with BareEngine(clock=clock, retention=100.0) as engine:
        engine.register(
            Script(lambda state, message: Outcome(state=[], status=Status.DONE, history=["done"]))
        )
        engine.send("x", 1, kind="script")
        engine.wait("x", timeout=PATIENCE)
        assert engine.upkeep.purge(before=clock.now() - 1) == 0
        clock.advance(4_000.0)
        until(engine, lambda: engine.parts.store.execution("x") is None)
        assert engine.parts.store.history("x").rows == []


def test_a_purge_by_hand_counts(engine: BareEngine, clock: VirtualClock) -> None:
    engine.register(Script(lambda state, message: Outcome(state=[], status=Status.DONE)))
    engine.send("x", 1, kind="script")
    engine.wait("x", timeout=PATIENCE)
    assert engine.upkeep.purge(before=clock.now() + 1) == 1


def test_the_store_can_be_backed_up_while_it_runs(tmp_path: Path) -> None:
    with BareEngine(tmp_path / "s.db") as engine:
        worker = engine.worker("w", lambda batch, state: [*state, *batch], state=[])
        worker.push_block(1)
        engine.upkeep.backup(tmp_path / "copy.db")
        worker.push_block(2)
        with pytest.raises(StoreBusy):
            BareEngine(tmp_path / "s.db")
    with BareEngine(tmp_path / "copy.db") as copy:
        assert copy.worker("w", lambda batch, state: state).state() == [1]
    with BareEngine() as memory, pytest.raises(BadOption, match="no backup"):
        memory.upkeep.backup(tmp_path / "never.db")
    with pytest.raises(StoreBroken):
        BareEngine(tmp_path)


class Moody(Kept):
    """A store that refuses when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.sizes: list[int] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, changes: Sequence[Change]) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        if self.full:
            raise StoreFull("no room")
        if any(change.execution == "poison" for change in changes):
            raise ValueError("poison")
        super().commit(changes)
        self.sizes.append(sum(len(change.rows) for change in changes))


def test_what_arrives_during_a_commit_is_the_next_commit(clock: VirtualClock) -> None:
    store = Moody()
    with BareEngine(store, clock=clock) as engine:
        worker = engine.worker("w", lambda batch, state: state + len(batch), state=0)
        store.gate.clear()
        store.entered.clear()
        worker.push("first")
        assert store.entered.wait(PATIENCE)
        for number in range(1_000):
            worker.push(number)
        store.gate.set()
        worker.push_block("last")
        assert worker.state() == 1_002
        assert store.sizes[:2] == [1, 1_000] or store.sizes[:2] == [1, 1_001]
        assert engine.statistics().commits < 10


def test_a_full_store_says_so_and_goes_on_when_there_is_room(clock: VirtualClock) -> None:
    store = Moody()
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, *batch]

    with BareEngine(store, clock=clock) as engine:
        worker = engine.worker("w", job, state=[])
        worker.push_ack("before")
        assert entered.wait(PATIENCE)
        store.full = True
        go.set()  # its commit is refused, and tried again later
        with pytest.raises(StoreFull):
            worker.push_ack("refused")
        with pytest.raises(StoreFull):
            worker.push("refused too")
        flush(engine)
        assert worker.state() == []
        clock.advance(1.5)
        flush(engine)
        assert worker.state() == []
        store.full = False
        clock.advance(1.5)
        worker.push_block("after")
        assert worker.state() == ["before", "after"]
        assert engine.statistics().refused > 0


def test_closing_a_full_engine_does_not_hang(clock: VirtualClock) -> None:
    store = Moody()
    engine = BareEngine(store, clock=clock)
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if batch == [1]:
            entered.set()
            assert go.wait(PATIENCE)
        return [*state, *batch]

    worker = engine.worker("w", job, state=[])
    worker.push_block(0)
    told: list[Any] = []

    def push() -> None:
        with pytest.raises(EngineClosed):
            worker.push_block(1, timeout=PATIENCE)
        told.append(1)

    thread = threading.Thread(target=push)
    thread.start()
    assert entered.wait(PATIENCE)
    store.full = True
    go.set()  # its commit is refused, and tried again until the engine is closed
    with pytest.raises(StoreFull):
        worker.push_ack("refused")
    with pytest.raises(StoreFull):
        worker.push_block("refused")
    until(engine, lambda: engine.parts.writer.waiting)
    engine.close()
    thread.join(PATIENCE)
    assert told == [1]
    store.full = False
    with BareEngine(store, clock=clock) as again:
        assert again.worker("w", lambda batch, state: state).state() == [0]


def test_a_change_that_cannot_be_stored_does_not_harm_others(clock: VirtualClock) -> None:
    store = Moody()
    with BareEngine(store, clock=clock) as engine:
        worker = engine.worker("w", lambda batch, state: state + 1, state=0)
        errors: list[Exception | None] = []
        store.gate.clear()
        store.entered.clear()
        worker.push(0)
        assert store.entered.wait(PATIENCE)
        engine.parts.writer.submit(Change("poison"), lambda _change, error: errors.append(error))
        worker.push(1)
        store.gate.set()
        worker.push_block(2)
        assert [type(error) for error in errors] == [ValueError]


def test_statistics_are_a_picture(engine: BareEngine) -> None:
    engine.worker("w", lambda batch, state: state).push_block(1)
    found = engine.statistics()
    assert found.live == 1
    assert found.messages == 1
    assert found.commits >= 2


def test_many_executions_are_recovered_page_by_page_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actorflow.engine.executions.stored_backlog._PAGE", 3)
    names = [f"x{number}" for number in range(20)]
    with BareEngine(tmp_path / "e.db") as engine:
        for text in ("first", "second"):
            for name in names:
                engine.send(name, text, kind="script")
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, message]

    script = Script(step)
    kept: list[Any] = []  # what reads the second page

    def submit(runnable: Any) -> None:
        later = isinstance(runnable, stored_backlog._Later)
        kept.append(runnable) if later else POOL.submit(runnable)

    with BareEngine(tmp_path / "e.db") as engine:
        engine.register(script)
        with monkeypatch.context() as patch:
            patch.setattr(engine.parts.environment, "pool", SimpleNamespace(submit=submit))
            engine.resume()
            until(engine, lambda: kept)
        assert entered.wait(PATIENCE)
        assert len(engine.parts.table) < len(names)
        for name in reversed(names):  # the last ones have not been woken yet
            engine.send(name, "third")
        POOL.submit(kept.pop())
        go.set()
        script.wait(3 * len(names))
    with BareEngine(tmp_path / "e.db") as engine:
        assert {tuple(state_of(engine, name)) for name in names} == {("first", "second", "third")}
        assert rows(engine, "messages") == []


def test_the_verbs_for_asyncio(engine: BareEngine) -> None:
    def step(state: Any, message: Any) -> Any:
        if message == "end":
            return Outcome(state=state, status=Status.DONE, result=[*state, message])
        return [*state, message]

    async def main() -> None:
        engine.register(Script(step))
        started = await engine.astart("script", 1, id="x")
        assert (started.id, started.kind) == ("x", "script")
        again, *_ = await asyncio.gather(*(engine.astart("script", 1, id="x") for _ in range(8)))
        assert again.id == "x"
        await asyncio.gather(*(engine.asend("x", 2, key="k") for _ in range(8)))
        await engine.asend("x", "end")
        found = await engine.await_("x", PATIENCE)
        assert (found.status, found.result) == ("done", [1, 2, "end"])
        assert await engine.aresult("x") == [1, 2, "end"]
        with pytest.raises(ExecutionEnded):
            await engine.asend("x", 3)
        await engine.asend("y", 1, kind="script")
        with pytest.raises(WaitTimeout):
            await engine.aresult("y", 0.01)
        assert await engine.acancel("y")
        assert not await engine.acancel("y")
        with pytest.raises(Cancelled):
            await engine.aresult("y")
        with pytest.raises(UnknownExecution):
            await engine.asend("z", 1)
        await engine.aclose()
        with pytest.raises(EngineClosed):
            await engine.asend("x", 1)

    asyncio.run(main())


def test_an_engine_in_an_async_with_block(clock: VirtualClock) -> None:
    async def main() -> None:
        async with BareEngine(clock=clock) as engine:
            await engine.worker("w", collect, state=[]).apush_block(1)
        assert engine.closed

    asyncio.run(main())


def test_wait_returns_the_execution_as_it_is_stored(tmp_path: Path) -> None:
    """Waiters get the state that the commit has left, without reading the store."""
    with BareEngine(tmp_path / "s.db") as engine:
        engine.register(Script(lambda state, _: Outcome(state=state, status=Status.DONE, result=7)))
        engine.send("early", 1, kind="script")
        ended = engine.wait("early", PATIENCE)
        assert ended._row == engine.parts.store.execution("early")
        assert ended.result == 7
