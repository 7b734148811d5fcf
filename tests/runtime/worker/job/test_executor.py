"""Executors: the hooks of a subclass, where they run, and what happens when they raise."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import PATIENCE, Caller, ended

if TYPE_CHECKING:
    from actorflow.testing import ManualLane


class Ledger(af.Executor):
    """Keeps a log of all its hooks."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def on_start(self) -> None:
        self.log.append("start")

    def handle(self, batch: Any) -> Any:
        self.log.append(batch)
        if batch == ["boom"]:
            raise ValueError("boom")

    def handle_message(self, message: Any) -> Any:
        self.log.append(message)
        if message == "boom":
            raise KeyError("boom")
        if message == "stop":
            return af.Stop("told to")
        if message == "exit":
            raise SystemExit(2)
        return f"heard {message}"

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.log.append(exception_type)

    def double(self, number: int) -> int:
        return 2 * number


class AsyncLedger(Ledger):
    """The same with coroutines."""

    async def on_start(self) -> None:  # type: ignore[override]
        super().on_start()

    async def handle(self, batch: Any) -> Any:
        return super().handle(batch)

    async def handle_message(self, message: Any) -> Any:
        return super().handle_message(message)

    async def on_stop(self) -> None:  # type: ignore[override]
        super().on_stop()


LEDGERS = pytest.mark.parametrize(
    ("ledger", "options"),
    [(Ledger, {}), (Ledger, {"executor": "thread"}), (AsyncLedger, {})],
    ids=["pool", "thread", "asyncio"],
)


@LEDGERS
def test_hooks_run_in_order(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    with af.spawn(partial(ledger, log), **options) as worker:
        assert log == ["start"]
        worker.push_block(1)
        assert worker.executor.ask("hello", timeout=PATIENCE) == "heard hello"
        worker.executor.tell("note")
        worker.push_block(2)
    assert log == ["start", [1], "hello", "note", [2], "stop"]


@LEDGERS
def test_an_error_while_answering_is_the_callers(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    with af.spawn(partial(ledger, log), **options) as worker:
        with pytest.raises(KeyError, match="boom"):
            worker.executor.ask("boom", timeout=PATIENCE)
        worker.push_block("still here")


@LEDGERS
def test_an_error_after_a_tell_is_a_crash(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    worker = af.spawn(partial(ledger, log), **options)
    worker.executor.tell("boom")
    reason = ended(worker)
    assert isinstance(reason, af.Crash)
    assert isinstance(reason.exception, KeyError)
    assert log == ["start", "boom", KeyError]


@LEDGERS
def test_system_exit_while_answering_ends_that_worker_only(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    with af.spawn(lambda batch, state: None) as other:
        worker = af.spawn(partial(ledger, log), **options)
        asker = Caller(worker.executor.ask, "exit", timeout=PATIENCE)
        assert isinstance(asker.wait().error, SystemExit)
        reason = ended(worker)
        assert isinstance(reason, af.Crash)
        assert isinstance(reason.exception, SystemExit)
        other.push_block("fine")


@LEDGERS
def test_on_failure_is_called_and_on_stop_is_not(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    worker = af.spawn(partial(ledger, log), **options)
    with pytest.raises(ValueError, match="boom"):
        worker.push_block("boom")
    ended(worker)
    assert log == ["start", ["boom"], ValueError]


@LEDGERS
def test_stop_as_an_answer_ends_the_worker_and_the_asker_is_answered(
    ledger: Any, options: Any
) -> None:
    log: list[Any] = []
    worker = af.spawn(partial(ledger, log), **options)
    assert worker.executor.ask("stop", timeout=PATIENCE) is None
    assert ended(worker) == af.Shutdown("told to")
    assert log == ["start", "stop", "stop"]


@LEDGERS
def test_proxies_reach_the_executor_between_batches(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    with af.spawn(partial(ledger, log), state=5, **options) as worker:
        proxy: Any = worker.executor.proxy()
        assert proxy.double(21).get(timeout=PATIENCE) == 42
        assert proxy.state.get(timeout=PATIENCE) == 5
        proxy.state = 6
        assert proxy.state.get(timeout=PATIENCE) == 6


@LEDGERS
def test_mail_is_served_before_the_next_batch(ledger: Any, options: Any) -> None:
    log: list[Any] = []
    gate = threading.Event()

    class Waits(Ledger):
        def handle(self, batch: Any) -> Any:
            assert gate.wait(PATIENCE)
            return super().handle(batch)

    class AsyncWaits(AsyncLedger):
        async def handle(self, batch: Any) -> Any:
            while not gate.is_set():  # noqa: ASYNC110 - it is a thread that opens the gate
                await asyncio.sleep(0)
            return await super().handle(batch)

    chosen: Any = AsyncWaits if ledger is AsyncLedger else Waits
    with af.spawn(partial(chosen, log), **options) as worker:
        worker.push(1)
        worker.push(2)
        answer = worker.executor.ask("mail", block=False)
        gate.set()
        assert answer.get(timeout=PATIENCE) == "heard mail"
    assert log in (
        ["start", [1], "mail", [2], "stop"],
        ["start", "mail", [1], [2], "stop"],  # it came before the executor had begun
    )


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_on_start_that_raises_reaches_whoever_spawns(error: BaseException) -> None:
    class Fails(af.Executor):
        def on_start(self) -> None:
            raise error

        def handle(self, batch: Any) -> None: ...

    class AsyncFails(af.Executor):
        async def on_start(self) -> None:
            raise error

        def handle(self, batch: Any) -> None: ...

    attempts: list[tuple[Any, dict[str, Any]]] = [
        (Fails, {}), (Fails, {"executor": "thread"}), (AsyncFails, {})
    ]  # fmt: skip
    for cls, options in attempts:
        with pytest.raises(af.StartFailed) as raised:
            af.spawn(cls, name="fails", **options)
        assert raised.value.__cause__ is error
        assert type(error).__name__ in str(raised.value)
        assert af.whereis("fails") is None


def test_on_start_may_push_to_its_own_worker(lane: ManualLane) -> None:
    seen: list[Any] = []

    class Begins(af.Executor):
        def on_start(self) -> None:
            found: Any = af.whereis("begins")
            found.push("self-made")
            found.push_ack("acknowledged")

        def handle(self, batch: Any) -> None:
            seen.append(batch)

    with af.spawn(Begins, name="begins") as worker:
        worker.push_block("later")
    assert [message for batch in seen for message in batch] == [
        "self-made", "acknowledged", "later"
    ]  # fmt: skip
    assert seen[0] == ["self-made", "acknowledged"]


def test_push_block_in_on_start_would_deadlock() -> None:
    class Waits(af.Executor):
        def on_start(self) -> None:
            found: Any = af.whereis("waits")
            found.push_block("never")

        def handle(self, batch: Any) -> None: ...

    with pytest.raises(af.StartFailed) as raised:
        af.spawn(Waits, name="waits")
    assert isinstance(raised.value.__cause__, af.WouldDeadlock)


def test_arguments_reach_the_executor_through_partial() -> None:
    class Adds(af.Executor):
        def __init__(self, start: int, *, step: int) -> None:
            self.total, self.step = start, step

        def handle(self, batch: Any) -> None:
            self.total += self.step * len(batch)

    with af.spawn(partial(Adds, 100, step=5)) as worker:
        worker.push_block("x")
        adds: Any = worker.executor.actor
        assert adds.total == 105


def test_jobs_of_one_worker_never_overlap() -> None:
    inside: list[int] = []
    most: list[int] = []

    def job(batch: Any, state: Any) -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    with af.spawn(job) as worker:

        def push() -> None:
            for number in range(200):
                worker.push_ack(number)

        pushers = [Caller(push) for _ in range(4)]
        for pusher in pushers:
            pusher.value()
    assert set(most) == {1}
    assert worker.statistics().processed == 800


def test_a_worker_lets_others_run() -> None:
    """A worker that never runs dry does not keep a pool of one thread to itself."""
    from actorflow.runtime.lanes.pool import ThreadPool  # noqa: PLC0415

    pool = ThreadPool(core=1, limit=1, name="actorflow-single")
    greedy_runs = 0
    other_ran = threading.Event()

    def greedy(batch: Any, state: Any) -> Any:
        nonlocal greedy_runs
        greedy_runs += 1
        if other_ran.is_set():
            return af.Stop()
        workers[0].push("again")
        return None

    workers = [af.spawn(greedy, executor=pool)]
    workers[0].push("first")
    other = af.spawn(lambda batch, state: other_ran.set(), executor=pool)
    other.push("now me")
    assert ended(workers[0]) == af.Normal()
    assert greedy_runs > 1
    other.stop()
    pool.close()


def test_the_current_executor_is_known_to_its_own_code_only(lane: ManualLane) -> None:
    from actorflow.runtime.actor.actor import CURRENT  # noqa: PLC0415

    seen: list[Any] = []
    worker = af.spawn(lambda batch, state: seen.append(CURRENT.get()), executor=lane)
    worker.push(1)
    lane.run()
    assert seen == [worker.actor]
    assert CURRENT.get() is None
