"""Closing an engine takes no longer than it may, and loses nothing that is stored."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine import bodies, parts
from actorflow.engine.clock import WALL
from actorflow.engine.commit.entries import Append
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed
from actorflow.engine.executions.table import ExecutionTable
from actorflow.engine.kind import NewTask, Options, Outcome, SetTimer
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.tickets import ThreadTicket
from tests.engine.kinds import PATIENCE, Kept, Script, collect, inbox, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store
    from actorflow.runtime.clock import Timer

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store | Path:
    """Return what one engine after the other is opened on."""
    return Kept() if request.param == "memory" else tmp_path / "s.db"


class Hanging:
    """A job that does not end before the test says so; each call is counted."""

    def __init__(self, error: Exception | None = None) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.error = error
        self.calls = 0

    def __call__(self, batch: list[Any], state: list[Any]) -> list[Any]:
        self.calls += 1
        self.entered.set()
        assert self.go.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return [*state, *batch]


def let_go(job: Hanging) -> None:
    """Let a run that was cut off come to its end."""
    job.go.set()
    end = monotonic() + PATIENCE
    while (pool := POOL.statistics()).waiting or pool.idle < pool.threads:
        assert monotonic() < end, "it does not end"


@pytest.mark.parametrize("error", [None, ValueError("late")])
@pytest.mark.parametrize("policy", ["isolate", "retry", "drop"])
def test_a_job_that_hangs_is_left_behind_and_its_messages_run_again(
    store: Store | Path,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    policy: str,
) -> None:
    engine = BareEngine(store)
    job = Hanging(error)
    worker = engine.worker("w", job, state=[], on_failure=policy)
    worker.push_ack(1)
    assert job.entered.wait(PATIENCE)
    worker.push_ack(2)
    worker.push_ack(3)
    engine.close(timeout=0.05)
    assert "execution did not end in time" in caplog.text
    assert "execution='w'" in caplog.text

    with BareEngine(store) as again:
        assert [bodies.decode(row.body) for row in rows(again, "messages")] == [1, 2, 3]
        let_go(job)  # while the next engine is at work on the same store
        fresh = again.worker("w", collect, state=[])
        fresh.push_block(4)
        assert fresh.state() == [1, 2, 3, 4]
        assert job.calls == 1
        assert len(fresh.dead_letters) == 0


def test_a_coroutine_that_hangs_is_left_behind(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    entered = threading.Event()
    go = asyncio.Event()

    async def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        await go.wait()
        return [*state, "late"]

    engine.worker("w", job, state=[]).push_ack(1)
    assert entered.wait(PATIENCE)
    engine.close(timeout=0.05)
    again = reopen().worker("w", collect, state=[])
    LOOP.call_soon(go.set)
    end = monotonic() + PATIENCE
    while LOOP._tasks:
        assert monotonic() < end, "it does not end"
    again.push_block(2)
    assert again.state() == [1, 2]


def test_everyone_who_waits_is_told(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    job = Hanging()
    worker = engine.worker("w", job, state=[])
    found: list[Any] = []

    def push(message: Any) -> None:
        try:
            worker.push_block(message, timeout=None)
        except EngineClosed:
            found.append(message)

    threads = [threading.Thread(target=push, args=("running",))]
    threads[0].start()
    assert job.entered.wait(PATIENCE)
    for message in ("waiting", "stored"):
        if message == "stored":  # it is stored first where others have not been yet
            engine.parts.writer._unstored[Append("w", None, ())] = None
        threads.append(threading.Thread(target=push, args=(message,)))
        threads[-1].start()
        until(engine, lambda: len(inbox(engine, "w")) >= len(threads) - 1)
    engine.close(timeout=0.05)
    for thread in threads:
        thread.join(PATIENCE)
    let_go(job)
    assert sorted(found) == ["running", "stored", "waiting"]
    again = reopen().worker("w", collect, state=[])
    again.push_block("new")
    assert again.state()[-1] == "new"
    assert "waiting" not in again.state(), "it was not stored, and its pusher got the error"


def test_a_commit_that_is_under_way_counts(reopen: Callable[..., BareEngine]) -> None:
    """A run that was cut off while it was being committed: waiters get the outcome."""

    class Slow(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.entered, self.go = threading.Event(), threading.Event()
            self.go.set()

        def commit(self, changes: Any) -> None:
            if any(change.expected is not None for change in changes):
                self.entered.set()
                assert self.go.wait(PATIENCE)
            super().commit(changes)

    store = Slow()
    engine = BareEngine(store)
    worker = engine.worker("w", collect, state=[])
    worker.push_block(0)
    store.go.clear()
    store.entered.clear()
    results: list[Any] = []

    def push() -> None:
        worker.push_block(1, timeout=PATIENCE)
        results.append("done")

    thread = threading.Thread(target=push)
    thread.start()
    assert store.entered.wait(PATIENCE)
    live = engine.parts.table._live["w"]
    closing = threading.Thread(target=engine.close, args=(0.0,))
    closing.start()
    while not live.has_ended:
        pass
    store.go.set()
    closing.join(PATIENCE)
    thread.join(PATIENCE)
    assert results == ["done"]
    with BareEngine(store) as again:
        assert again.worker("w", collect).state() == [0, 1]


def test_all_taskers_together_have_the_time_of_one(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    count = 60
    go, begun = threading.Event(), threading.Semaphore(0)

    def hang(task: Any) -> None:
        begun.release()
        assert go.wait(PATIENCE)

    names = [f"t{number}" for number in range(count)]
    for name in names:
        engine.tasker(name, hang)
    tasks = [NewTask(name, name, None) for name in names]
    engine.register(Script(lambda state, message: Outcome(state=[], tasks=tasks)))
    engine.send("x", "begin", kind="script")
    for _ in names:
        assert begun.acquire(timeout=PATIENCE)
    closing = threading.Thread(target=engine.close, args=(0.5,))
    closing.start()
    closing.join(PATIENCE)
    late = closing.is_alive()
    go.set()
    closing.join(PATIENCE)
    assert not late, "each tasker was given that time"
    assert len(rows(reopen(), "tasks")) == count


EXIT = """
import sys, threading
from actorflow.engine import bodies, parts
from actorflow.engine.clock import WALL
from actorflow.engine.engine import BareEngine

entered = threading.Event()

def job(batch, state):
    entered.set()
    threading.Event().wait()

async def coroutine(batch, state):
    import asyncio
    entered.set()
    await asyncio.Event().wait()

engine = BareEngine(sys.argv[1])
worker = engine.worker("w", globals()[sys.argv[2]], state=0)
worker.push_ack(1)
assert entered.wait(20)
if sys.argv[3] == "close":
    engine.close(timeout=0.05)
print("end")
"""


@pytest.mark.parametrize("job", ["job", "coroutine"])
@pytest.mark.parametrize("how", ["close", "leave"])
def test_the_interpreter_ends_although_a_job_hangs(tmp_path: Path, job: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(tmp_path / "s.db"), job, how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    with BareEngine(tmp_path / "s.db") as engine:
        worker = engine.worker("w", lambda batch, state: state + sum(batch), state=0)
        worker.push_block(2)
        assert worker.state() == 3


class Stuck(Kept):
    """A store whose commits do not return before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = False
        self.entered, self.go, self.closed = threading.Event(), threading.Event(), threading.Event()

    def commit(self, changes: Any) -> Any:
        if self.stuck:
            self.entered.set()
            assert self.go.wait(PATIENCE)
        return super().commit(changes)

    def close(self) -> None:
        assert self.go.is_set(), "a commit is under way"
        super().close()
        self.closed.set()


def test_a_commit_that_hangs_is_left_behind_and_who_waits_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parts, "LAST_COMMIT", 0.05)
    store = Stuck()
    engine = BareEngine(store)
    engine.register(Script())
    worker = engine.worker("w", collect, state=[])
    worker.push_block(0)
    store.stuck = True
    found: dict[str, BaseException | None] = {}
    calls: dict[str, Callable[[], Any]] = {
        "push_ack": lambda: worker.push_ack(1, timeout=PATIENCE),
        "push_block": lambda: worker.push_block(2, timeout=PATIENCE),
        "send": lambda: engine.send("x", 3, kind="script"),
        "start": lambda: engine.start("script", 4, id="y"),
        "cancel": lambda: engine.cancel("w"),
        "purge": lambda: engine.upkeep.purge(before=0.0),
    }

    def call(name: str) -> None:
        try:
            calls[name]()
        except BaseException as error:  # noqa: BLE001 - what the test looks at
            found[name] = error

    threads = [threading.Thread(target=call, args=(name,)) for name in calls]
    worker.push("stuck")
    assert store.entered.wait(PATIENCE)
    for thread in threads:
        thread.start()
    writer = engine.parts.writer
    end = monotonic() + PATIENCE
    while writer.waiting < len(calls):
        assert monotonic() < end, "they do not come"
    engine.close(timeout=0.05)
    for thread in threads:
        thread.join(PATIENCE)
    assert {name: type(error) for name, error in found.items()} == dict.fromkeys(
        calls, EngineClosed
    )
    assert "not known" in str(found["push_ack"])
    assert "a commit hangs" in caplog.text
    assert not store.closed.is_set()
    store.go.set()
    assert store.closed.wait(PATIENCE)


def interrupt_when(condition: Callable[[], bool]) -> None:
    """Send SIGINT to the main thread once a condition holds."""
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        end = monotonic() + PATIENCE
        while not condition():
            assert monotonic() < end, "it never holds"
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def test_closing_that_is_interrupted_goes_on_and_another_call_waits_for_its_end(
    reopen: Callable[..., BareEngine],
) -> None:
    job, found = Hanging(), list[BaseException]()
    engine = reopen()
    worker = engine.worker("w", job, state=[])

    def wait() -> None:
        try:
            engine.wait("w")
        except EngineClosed as error:
            found.append(error)

    waits = threading.Thread(target=wait)
    worker.push_ack(1)
    assert job.entered.wait(PATIENCE)
    waits.start()
    interrupt_when(lambda: engine.closed)
    with pytest.raises(KeyboardInterrupt):
        engine.close(timeout=PATIENCE)
    job.go.set()
    engine.close()
    waits.join(PATIENCE)
    assert len(found) == 1
    again = reopen().worker("w", collect, state=[])
    again.push_block(2)
    assert again.state() == [1, 2]


def test_who_closes_what_another_thread_is_closing_waits_for_it(
    reopen: Callable[..., BareEngine],
) -> None:
    job, ended = Hanging(), list[bool]()
    engine = reopen()
    engine.worker("w", job, state=[]).push_ack(1)
    assert job.entered.wait(PATIENCE)

    def close() -> None:
        engine.close(timeout=PATIENCE)
        ended.append(job.go.is_set())

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(engine, lambda: engine.closed)
    for thread in threads:
        thread.join(0.02)
    job.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert ended == [True] * 3


def test_a_job_may_close_an_engine_that_is_being_closed(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    entered = threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        until(engine, lambda: engine.closed)
        engine.close()
        return [*state, *batch]

    engine.worker("w", job, state=[]).push_ack(1)
    assert entered.wait(PATIENCE)
    engine.close(timeout=PATIENCE)
    assert reopen().worker("w", collect, state=[]).state() == [1]


def test_nothing_keeps_a_closed_engine_in_memory(store: Store | Path) -> None:
    """Neither a purge in an hour, nor a task or a timer that is due in years."""
    far = WALL.now() + 1e9
    plan = Outcome(
        state=[], tasks=[NewTask("t", "late", None, due=far)], timers=[SetTimer("s", far)]
    )

    def use() -> weakref.ref[Any]:
        with BareEngine(store) as engine:
            engine.register(Script(lambda _state, _message: plan))
            engine.tasker("late", lambda _task: None)
            engine.send("e", "go", kind="script")
            engine.worker("w", collect, state=[]).push_block("m", timeout=PATIENCE)
            until(engine, lambda: rows(engine, "tasks"))
            return weakref.ref(engine.parts)

    gone = use()
    end = monotonic() + PATIENCE
    while gone() is not None:  # a thread may just be at the end of what it did for the engine
        assert monotonic() < end, "somebody refers to it"
        gc.collect()


def test_no_timer_of_a_closed_engine_is_looked_at_any_more(
    store: Store | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A far one would be set again every few seconds, for as long as the program runs."""
    looking: list[Timer] = []
    arm = WALL._arm

    def look(timer: Any) -> None:
        looking.append(timer)
        arm(timer)

    monkeypatch.setattr(WALL, "_arm", look)
    engine = BareEngine(store)
    engine.worker("w", collect, state=[]).push_block("m", timeout=PATIENCE)
    assert any(timer.callback is not None for timer in looking)  # the purge
    engine.close()
    assert [timer.when for timer in looking if timer.callback is not None] == []


@pytest.mark.parametrize("hook", ["quick", "options"])
def test_what_comes_to_life_while_the_engine_is_closed_does_not_run(
    reopen: Callable[..., BareEngine], monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """The table has stopped all executions when one more is loaded."""
    waking, told = threading.Event(), threading.Event()
    close = ExecutionTable.close

    def close_table(table: ExecutionTable, timeout: float) -> None:
        close(table, timeout)
        told.set()

    monkeypatch.setattr(ExecutionTable, "close", close_table)

    class Late(Script):
        def hold(self, name: str) -> None:
            if name == hook and armed:
                waking.set()
                assert told.wait(PATIENCE)

        def quick(self, _execution: str) -> bool:
            self.hold("quick")
            return hook == "quick"

        def options(self, execution: str) -> Options:
            self.hold("options")
            return super().options(execution)

    armed = False
    engine = reopen()
    engine.register(Late())
    engine.start("script", "begin", id="x")
    until(engine, lambda: state_of(engine, "x") == ["begin"])  # or it would wake up by itself
    engine = reopen()
    told.clear()
    kind = Late()
    engine.register(kind)
    engine.resume()
    armed = True
    processed = ThreadTicket()
    engine.parts.sender.append("x", "script", ["late"], processed=processed)
    assert waking.wait(PATIENCE)
    engine.close()
    assert processed.wait(PATIENCE)
    assert isinstance(processed.error, EngineClosed)
    assert kind.batches == []
    armed = False
    engine = reopen()
    engine.register(Script())
    engine.resume()
    until(engine, lambda: state_of(engine, "x") == ["begin", "late"])
