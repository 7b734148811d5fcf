"""Nothing hangs: each way to end something, at the worst moment, ends within its deadline."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import PATIENCE, Caller, until, until_accumulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


class Gate:
    """A job that blocks until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.then: Any = None

    def job(self, batch: Any, state: Any) -> Any:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        if isinstance(self.then, BaseException):
            raise self.then
        return self.then() if callable(self.then) else state


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def supervised(job: Any, **options: Any) -> tuple[af.SupervisorRef, af.WorkerRef]:
    flags = {"max_restarts": options.pop("max_restarts", 3)}
    shutdown = options.pop("shutdown", 5.0)
    worker = af.Worker("w", job, **options)
    supervisor = af.Supervisor([af.Child("w", worker, shutdown=shutdown)], **flags).start()
    return supervisor, supervisor.worker("w")


@pytest.mark.parametrize("executor", ["pool", "thread"])
@pytest.mark.parametrize("end", ["kill", "stop", "terminate", "worker now"])
def test_end_during_push_block(gate: Gate, end: str, executor: str) -> None:
    supervisor, worker = supervised(gate.job, executor=executor, shutdown=0.01)
    in_flight = Caller(worker.push_block, 1, timeout=PATIENCE)
    assert gate.entered.wait(PATIENCE)
    waiting = Caller(worker.push_block, 2, timeout=PATIENCE)
    until_accumulated(worker, 1)
    ways: dict[str, Callable[[], Any]] = {
        "kill": supervisor.kill,
        "stop": supervisor.stop,
        "terminate": lambda: supervisor.terminate_child("w"),
        "worker now": lambda: worker.stop(now=True),
    }
    ways[end]()
    for caller in (in_flight, waiting):
        assert isinstance(caller.wait().error, af.WorkerStopped)
    with pytest.raises(af.WorkerStopped):
        worker.push(3)
    gate.opened.set()
    supervisor.stop()


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_crash_during_push_block(gate: Gate, strategy: str) -> None:
    gate.then = ValueError("boom")
    supervisor = af.Supervisor(
        [af.Worker("w", gate.job), af.Worker("v", lambda batch, state: None)],
        strategy=strategy,
        max_restarts=0,
    ).start()
    worker = supervisor.worker("w")
    in_flight = Caller(worker.push_block, 1, timeout=PATIENCE)
    assert gate.entered.wait(PATIENCE)
    waiting = Caller(worker.push_block, 2, timeout=PATIENCE)
    until_accumulated(worker, 1)
    gate.opened.set()
    assert str(in_flight.wait().error) == "boom"  # those of the batch get the cause itself
    assert isinstance(waiting.wait().error, af.WorkerCrashed)  # the others that it crashed
    assert supervisor.actor_stopped.wait(PATIENCE)


def test_hanging_job_is_left_behind_and_the_worker_goes_on(gate: Gate) -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> Any:
        if batch == ["hang"]:
            return gate.job(batch, state)
        seen.extend(batch)
        return state

    supervisor = af.Supervisor(
        [
            af.Child("w", af.Worker("w", job), shutdown=0.01),
            af.Child("bomb", af.Worker("bomb", lambda batch, state: 1 / 0)),
        ],
        strategy="one_for_all",
    ).start()
    worker = supervisor.worker("w")
    hanging = Caller(worker.push_block, "hang", timeout=PATIENCE)
    assert gate.entered.wait(PATIENCE)
    worker.push("later")
    supervisor.worker("bomb").push(1)  # so the hanging one must make way for a restart
    assert isinstance(hanging.wait().error, af.WorkerStopped)
    until(lambda: seen == ["later"], "the new executor takes the accumulated messages")
    gate.opened.set()
    assert supervisor.stop()


def test_kill_while_a_batch_is_being_halved(gate: Gate) -> None:
    calls = []

    def job(batch: Any, state: Any) -> Any:
        calls.append(batch)
        if len(calls) == 1:
            gate.entered.set()
            assert gate.opened.wait(PATIENCE)
            return state
        if len(batch) > 1:
            raise ValueError("halve it")
        stuck.set()
        assert release.wait(PATIENCE)
        return state

    stuck, release = threading.Event(), threading.Event()
    supervisor, worker = supervised(job, on_failure="isolate")
    worker.push("first")
    assert gate.entered.wait(PATIENCE)
    callers = []
    for number in range(4):
        callers.append(Caller(worker.push_block, number, timeout=PATIENCE))
        until_accumulated(worker, number + 1)
    gate.opened.set()
    assert stuck.wait(PATIENCE)  # in the first of four parts
    supervisor.kill()
    for caller in callers:
        assert isinstance(caller.wait().error, af.WorkerStopped)
    release.set()


@pytest.mark.parametrize("form", ["function", "coroutine", "subclass"])
def test_stop_from_within_a_job(form: str) -> None:
    def stop() -> None:
        assert worker.stop() is True
        assert supervisor.stop(block=False)

    def job(batch: Any, state: Any) -> None:
        stop()

    async def coroutine(batch: Any, state: Any) -> None:
        stop()

    class Job(af.Executor):
        def handle(self, batch: Any) -> None:
            stop()

    supervisor, worker = supervised(
        {"function": job, "coroutine": coroutine, "subclass": Job}[form]
    )
    worker.push(1)
    assert supervisor.actor_stopped.wait(PATIENCE)
    assert not worker.is_alive()


def test_two_threads_stop_at_once(gate: Gate) -> None:
    for _ in range(20):
        supervisor, worker = supervised(lambda batch, state: None)
        worker.push(1)
        barrier = threading.Barrier(5)

        def end(how: Any, barrier: threading.Barrier = barrier) -> Any:
            barrier.wait(PATIENCE)
            return how()

        callers = [
            Caller(end, supervisor.stop),
            Caller(end, supervisor.stop),
            Caller(end, worker.stop),
            Caller(end, lambda worker=worker: worker.stop(now=True)),
        ]
        barrier.wait(PATIENCE)
        for caller in callers:
            caller.value()
        assert not supervisor.is_alive()
        assert not worker.is_alive()


def test_stop_and_kill_and_requests_at_once() -> None:
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for round_ in range(30):
            supervisor = af.Supervisor(
                [af.Worker(n, lambda batch, state: None) for n in range(3)], max_restarts=10**6
            ).start()
            workers = [supervisor.worker(n) for n in range(3)]
            barrier = threading.Barrier(5)

            def storm(what: Any, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(PATIENCE)
                for number in range(20):
                    try:
                        what(number)
                    except (af.RequestRefused, af.WorkerStopped, af.UnknownWorker):
                        continue

            callers = [
                Caller(storm, lambda n, s=supervisor: s.terminate_child(n % 3)),
                Caller(storm, lambda n, s=supervisor: s.restart_child(n % 3)),
                Caller(storm, lambda n, w=workers: w[n % 3].kill()),
                Caller(
                    storm,
                    lambda n, s=supervisor: s.start_child(
                        af.Worker(("new", n), lambda batch, state: None)
                    ),
                ),
            ]
            barrier.wait(PATIENCE)
            if round_ % 2:
                supervisor.kill()
            else:
                supervisor.stop(timeout=PATIENCE)
            for caller in callers:
                caller.value()
            assert not supervisor.is_alive()
    finally:
        sys.setswitchinterval(switch)


def test_stop_inside_on_start() -> None:
    class Shy(af.Executor):
        def on_start(self) -> Any:
            return af.Stop("not today")

        def handle(self, batch: Any) -> None:
            """Do nothing."""

    with pytest.raises(af.StartFailed, match="not today"):
        supervised(Shy)

    class Quitter(af.Actor):
        def on_start(self) -> None:
            self.stop()

    supervisor = af.Supervisor([af.Child("q", Quitter, restart="transient")]).start()
    until(lambda: supervisor.count_children().active == 0, "it stops at once")
    assert supervisor.stop()


def test_kill_during_a_start_leaves_no_actor() -> None:
    entered, gate = threading.Event(), threading.Event()

    class Slow(af.Actor):
        def on_start(self) -> None:
            entered.set()
            assert gate.wait(PATIENCE)

    supervisor = af.Supervisor([af.Worker("w", lambda batch, state: None)]).start()
    starting = Caller(supervisor.start_child, af.Child("slow", Slow))
    assert entered.wait(PATIENCE)
    queued = Caller(supervisor.which_children)
    supervisor.kill()
    assert isinstance(starting.wait().error, af.WorkerStopped)
    assert isinstance(queued.wait().error, af.WorkerStopped)
    gate.set()  # the slow child ends once it has started; the fixture checks that no actor is left


def test_stop_while_a_child_cannot_be_started() -> None:
    tries = threading.Semaphore(0)

    class Sick(af.Executor):
        starts = 0

        def on_start(self) -> None:
            Sick.starts += 1
            tries.release()
            if Sick.starts > 1:
                raise OSError("sick")

        def handle(self, batch: Any) -> None:
            raise ValueError(batch)

    supervisor, worker = supervised(Sick, max_restarts=10**9)
    worker.push(1)
    for _ in range(10):
        assert tries.acquire(timeout=PATIENCE)
    waiting = Caller(worker.push_block, 2, timeout=PATIENCE)
    assert supervisor.stop(timeout=PATIENCE)
    assert isinstance(waiting.wait().error, af.WorkerStopped)


def test_stop_of_an_ancestor_from_within_a_job_is_refused_s41() -> None:
    caught: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        try:
            root.stop()
        except af.WouldDeadlock as error:
            caught.append(error)

    inner = af.Supervisor([af.Worker("w", job)])
    root = af.Supervisor([af.Child("inner", af.Supervisor([af.Child("inner", inner)]))]).start()
    middle = root.which_child("inner").ref
    middle.which_child("inner").ref.worker("w").push_block(1, timeout=PATIENCE)
    assert len(caught) == 1
    assert root.stop()


def test_apush_block_ends_when_the_supervisor_does(gate: Gate) -> None:
    supervisor, worker = supervised(gate.job, shutdown=0.01)

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(worker.apush_block(n, timeout=PATIENCE)) for n in range(3)]
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        await asyncio.to_thread(supervisor.stop)
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert all(isinstance(outcome, af.WorkerStopped) for outcome in outcomes)


def test_hanging_on_stop_is_cut_off_at_the_deadline(gate: Gate) -> None:
    class Slow(af.Actor):
        def on_stop(self) -> None:
            assert gate.opened.wait(PATIENCE)

    supervisor = af.Supervisor([af.Child("slow", Slow, shutdown=0.01)]).start()
    child = supervisor.which_child("slow").ref
    assert supervisor.stop(timeout=PATIENCE)
    assert child.exit_reason == af.Killed(abandoned=True)


def test_hanging_coroutine_job_is_cut_off_at_the_deadline() -> None:
    entered = threading.Event()
    loops: list[Any] = []

    async def job(batch: Any, state: Any) -> None:
        loops.append((asyncio.get_running_loop(), asyncio.Event()))
        entered.set()
        await loops[0][1].wait()

    supervisor, worker = supervised(job, shutdown=0.01)
    waiting = Caller(worker.push_block, 1, timeout=PATIENCE)
    assert entered.wait(PATIENCE)
    assert supervisor.stop(timeout=PATIENCE)
    assert isinstance(waiting.wait().error, af.WorkerStopped)
    loop, event = loops[0]
    loop.call_soon_threadsafe(event.set)
