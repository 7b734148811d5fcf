"""Wrong or extreme uses of a worker, none of which may lead to a hang or a silent loss."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import pickle
import signal
import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Behaviour, Full, Queue, Throttle, Traits, Unique
from actorflow.runtime.clock import SystemClock
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.pair.requests import abandon_executor
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until_accumulated


def noop(batch: Any, state: Any) -> Any:
    return state


def fail(batch: Any, state: Any) -> Any:
    raise ValueError("bad")


def test_more_at_once_than_memory_can_hold_is_refused_at_the_call() -> None:
    with pytest.raises(af.BadOption, match="a whole number, from 1 to 100000"):
        af.spawn(noop, concurrency=10**30)


def test_a_name_that_none_can_be_is_refused() -> None:
    unhashable: Any = ["a"]
    with pytest.raises(af.BadOption, match=r"name=\['a'\] cannot be hashed"):
        af.whereis(unhashable)


# Time.


def test_far_and_infinite_times_do_not_stop_the_clock() -> None:
    clock = SystemClock()
    called = threading.Event()
    for when in (math.inf, 1e300, clock.now() + 1e11):
        clock.call_at(when, lambda: None)
    clock.call_at(clock.now() + 0.001, called.set)
    assert called.wait(PATIENCE)


def test_a_behaviour_that_is_never_ready_holds_only_its_own_worker_up() -> None:
    class Never(Plain):
        def ready_at(self, now: float) -> float:
            return math.inf

    held = af.spawn(noop, behaviour=Never())
    held.push(1)
    with af.spawn(noop, behaviour=Throttle(Queue(), 0.001)) as worker:
        worker.push_block(1, timeout=PATIENCE)
        worker.push_block(2, timeout=PATIENCE)
    assert held.status is af.PairState.WAITING
    held.stop(now=True)


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
def test_an_infinite_timeout_is_no_limit(timeout: float) -> None:
    worker = af.spawn(noop)
    worker.push_block(1, timeout=timeout)
    assert worker.stop(timeout=timeout)


# Behaviours.


class Plain:
    """Just the methods that are needed."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def add(self, message: Any) -> None:
        self.messages.append(message)

    def take(self) -> Any:
        batch, self.messages = self.messages, []
        return batch

    def __len__(self) -> int:
        return len(self.messages)


class LongLiar(Plain):
    def __len__(self) -> int:
        return 2**62 if self.messages else 0

    def take(self) -> Any:
        self.messages.clear()
        return "not a list"


class EmptyHanded(Plain):
    def __len__(self) -> int:
        return 5


class Observing(Behaviour):
    traits = Traits(observes=True)

    def __init__(self) -> None:
        super().__init__()
        self.inner = Queue()

    def add(self, message: Any) -> None:
        self.inner.add(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        return self.inner.take()

    def __len__(self) -> int:
        return len(self.inner)

    def done(self, batch: Any, took: float, outcomes: Any) -> None:
        raise RuntimeError("broken")


def test_a_done_that_raises_is_logged_and_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with af.spawn(noop, behaviour=Observing) as worker:
        for message in range(3):
            worker.push_block(message, timeout=PATIENCE)
        assert worker.statistics().processed == 3
        worker.stop(drain=True)
    assert "done of" in caplog.text
    assert "broken" in caplog.text


@pytest.mark.parametrize("behaviour", [EmptyHanded])
def test_a_behaviour_that_breaks_the_rules_crashes_its_worker_and_hangs_nobody(
    behaviour: type,
) -> None:
    worker = af.spawn(noop, behaviour=behaviour)
    with contextlib.suppress(RuntimeError, af.BadBehaviour, af.WorkerCrashed):
        worker.push_block(1, timeout=PATIENCE)
    assert worker.actor_stopped.wait(PATIENCE)
    assert isinstance(worker.exit_reason, af.Crash)


def test_a_length_that_makes_no_sense_does_not_spoil_the_counts() -> None:
    with af.spawn(noop, behaviour=LongLiar) as worker:
        worker.push_block(1, timeout=PATIENCE)
        counts = worker.statistics()
    assert (counts.accepted, counts.processed, counts.held) == (1, 1, 0)


def test_a_flush_that_raises_does_not_keep_the_worker_from_stopping() -> None:
    class Unflushable(Observing):
        traits = Traits()

        def flush(self) -> None:
            raise RuntimeError("broken")

    worker = af.spawn(noop, behaviour=Unflushable)
    worker.push_block(1, timeout=PATIENCE)
    assert worker.stop(timeout=PATIENCE)
    assert worker.exit_reason == af.Normal()


# Failure policies.


class Policy:
    buries = False

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def parts(self, batch: Any) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("outcome", [None, [], 5, RuntimeError("broken")])
def test_a_policy_that_gives_nothing_useful_crashes_the_worker_and_tells_the_caller(
    outcome: Any,
) -> None:
    worker = af.spawn(fail, on_failure=Policy(outcome))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        worker.push_block(1, timeout=PATIENCE)
    assert not isinstance(caught.value, af.ActorflowError)
    assert worker.actor_stopped.wait(PATIENCE)


def test_a_policy_without_buries_is_refused() -> None:
    class Half:
        def parts(self, batch: Any) -> None: ...

    with pytest.raises(af.BadOption, match="buries"):
        af.spawn(noop, on_failure=Half())


def test_isolate_finds_the_poison_though_the_job_empties_its_batch(pool_probe: Probe) -> None:
    seen: set[int] = set()

    def pops(batch: list[int], state: None) -> None:
        pool_probe.call(list(batch), state)
        while batch:
            message = batch.pop(0)
            if message == 13:
                raise ValueError(message)
            seen.add(message)

    worker = af.spawn(pops, on_failure="isolate")
    worker.push(-1)
    pool_probe.begun()
    worker.push_many(range(20))
    pool_probe.open()
    worker.push_block(99, timeout=PATIENCE)
    worker.stop()
    assert [letter.message for letter in worker.dead_letters] == [13]
    assert seen == {-1, 99, *range(20)} - {13}
    assert worker.statistics().processed == 21


# Jobs.


class Methods:
    def one(self, batch: Any) -> None: ...

    def two(self, batch: Any, state: Any) -> Any:
        return state


def test_the_signature_of_a_bound_method_is_checked() -> None:
    with pytest.raises(af.BadJob, match="one"):
        af.spawn(Methods().one)  # type: ignore[arg-type]
    with af.spawn(Methods().two) as worker:
        worker.push_block(1, timeout=PATIENCE)


def test_generators_are_refused_as_jobs() -> None:
    def generator(batch: Any, state: Any) -> Any:
        yield state

    async def asynchronous(batch: Any, state: Any) -> Any:
        yield state

    class Handles(af.Executor):
        def handle(self, batch: Any) -> Any:
            yield batch

    for job in (generator, asynchronous, Handles):
        with pytest.raises(af.BadJob, match="generator"):
            af.spawn(job)


def test_a_plain_job_that_returns_a_coroutine_is_told_so() -> None:
    async def real(batch: Any, state: Any) -> Any: ...

    def job(batch: Any, state: Any) -> Any:
        return real(batch, state)

    worker = af.spawn(job)
    with pytest.raises(af.BadJob, match="async def"):
        worker.push_block(1, timeout=PATIENCE)


def test_a_job_that_is_cancelled_does_not_cancel_who_waits_for_it() -> None:
    async def job(batch: Any, state: Any) -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(RuntimeError, match="CancelledError"):
            await af.spawn(job).apush_block(1, timeout=PATIENCE)

    asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["function", "coroutine"])
def test_awaiting_what_was_cancelled_is_a_failure_like_any_other(*, asynchronous: bool) -> None:
    def fail(batch: list[int]) -> None:
        if 7 in batch:
            raise asyncio.CancelledError

    async def coroutine(batch: Any, state: Any) -> None:
        fail(batch)

    def function(batch: Any, state: Any) -> None:
        fail(batch)

    with af.spawn(coroutine if asynchronous else function, on_failure="isolate") as worker:
        worker.push_many(range(10))
        worker.push_block(10, timeout=PATIENCE)
        assert [letter.message for letter in worker.dead_letters] == [7]
        assert worker.statistics().processed == 10


# Options.


def test_a_server_of_one_worker_without_brackets() -> None:
    with pytest.raises(af.BadOption, match=r"write Server\(\[Worker\(\.\.\.\)\]\)"):
        af.Server(af.Worker("a", lambda batch, state: None))  # type: ignore[arg-type] # a mistake


@pytest.mark.parametrize(
    "options",
    [
        {"breaker": 5},
        {"executor": None},
        {"executor": "pooll"},
        {"idle_timeout": "5"},
        {"idle_timeout": True},
        {"throttle": -1},
        {"name": []},
        {"on_failure": "dropp"},
        {"help": True, "executor": "thread"},
    ],
)
def test_bad_options_are_refused_by_spawn_and_by_worker(options: dict[str, Any]) -> None:
    for make in (lambda: af.spawn(noop, **options), lambda: af.Worker("a", noop, **options)):
        with pytest.raises((af.BadOption, af.BadBehaviour), match=next(iter(options))):
            make()


def test_an_id_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(af.BadOption, match="id"):
        af.Worker([], noop)  # type: ignore[call-overload]


def test_near_ids_are_named_as_they_are() -> None:
    with af.Server([af.Worker(10, noop)]) as server, pytest.raises(af.UnknownWorker) as caught:
        server.push(11, 1)
    assert str(caught.value) == "no worker 11 here; did you mean 10?"


def test_a_state_that_cannot_be_copied_is_refused_under_a_supervisor_with_the_remedy() -> None:
    tree = af.Supervisor([af.Worker("a", noop, state=threading.Lock())])
    with pytest.raises(af.StartFailed, match="on_start"):
        tree.start()


# Copies.


@pytest.mark.parametrize(
    "error",
    [
        Full(3),
        af.Malformed(1, "no key"),
        af.StartFailed("a", "b"),
        af.AlreadyStarted("a", None),
        af.UnknownWorker("a", ["b"]),
        af.WorkerCrashed("a"),
    ],
)
def test_errors_can_be_pickled_and_copied(error: af.ActorflowError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_specifications_can_be_pickled_and_copied() -> None:
    spec = af.Worker("a", noop, state=[1])
    for again in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):  # noqa: S301
        assert again == spec
        assert again.options == {"state": [1]}


# Servers and trees.


def test_a_server_lets_its_callers_help() -> None:
    threads: list[threading.Thread] = []

    def job(batch: Any, state: Any) -> None:
        threads.append(threading.current_thread())

    with af.Server([af.Worker("a", job, help=True)]) as server:
        server.push_block("a", 1)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("supervisor", [None, af.Restart()])
def test_a_server_refuses_a_stop_that_contradicts_itself(supervisor: Any) -> None:
    with af.Server([af.Worker("a", noop)], supervisor=supervisor) as server:
        with pytest.raises(af.BadOption, match="choose one"):
            server.stop(drain=True, now=True)
        server.push_block("a", 1, timeout=PATIENCE)


def test_the_stop_of_a_supervised_server_ends_in_time_whatever_the_grace(
    pool_probe: Probe,
) -> None:
    server = af.Server([af.Worker("a", pool_probe.call)], supervisor=af.Restart(shutdown=math.inf))
    server.push("a", 1)
    pool_probe.begun()
    with pytest.raises(af.StopTimeout):
        server.stop(timeout=0.01)
    assert server.supervisor is not None
    assert not server.supervisor.is_alive()
    pool_probe.open()


def test_run_refuses_what_is_no_tree_and_deadlines_that_are_none() -> None:
    for tree in (af.Worker("a", noop), 5):
        with pytest.raises(af.BadOption, match="Supervisor"):
            af.run(tree)  # type: ignore[arg-type]
    with pytest.raises(af.BadOption, match="deadline"):
        af.run(af.Supervisor(), deadline=math.nan)


def test_run_puts_handlers_back_if_a_signal_cannot_be_handled() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match=r"."):
        af.run(af.Supervisor(), signals=(signal.SIGTERM, signal.SIGKILL))
    assert signal.getsignal(signal.SIGTERM) is before


# Reports and their times.


class Unprintable(tuple[Any, ...]):
    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("cannot be printed")


def test_a_message_that_cannot_be_printed_can_be_replaced_refused_and_late(
    pool_probe: Probe,
) -> None:
    worker = pool_probe.spawn(behaviour=Unique(key=0))
    worker.push(("busy", 0))
    pool_probe.begun()
    waiter = Caller(worker.push_block, Unprintable(("a", 1)))
    until_accumulated(worker, 1)
    worker.push_ack(("a", 2))
    assert isinstance(waiter.wait().error, af.Replaced)
    with pytest.raises(af.PushTimeout):
        worker.push_block(Unprintable(("b", 1)), timeout=0.001)
    with pytest.raises(af.Malformed):
        worker.push_ack(Unprintable())


def test_a_letter_that_cannot_be_pushed_again_stays() -> None:
    worker = af.spawn(fail, on_failure="isolate")
    for message in ("a", "b"):
        with pytest.raises(ValueError, match="bad"):
            worker.push_block(message, timeout=PATIENCE)
    worker.stop()
    with pytest.raises(af.WorkerStopped):
        worker.dead_letters.retry()
    assert [letter.message for letter in worker.dead_letters] == ["a", "b"]


@pytest.mark.parametrize("repeat", range(20))
def test_who_hears_of_a_crash_finds_the_worker_dead(repeat: int) -> None:
    worker = af.spawn(fail)
    with pytest.raises(ValueError, match="bad"):
        worker.push_block(1, timeout=PATIENCE)
    assert isinstance(worker.exit_reason, af.Crash)
    with pytest.raises(af.WorkerCrashed):
        worker.push(2)


class Ugly(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("cannot be printed")

    __str__ = __repr__


def ugly(batch: Any, state: Any) -> Any:
    raise Ugly


class UglyExecutor(af.Executor):
    def __repr__(self) -> str:
        raise RuntimeError("cannot be printed")

    def handle(self, batch: Any) -> None:
        raise ValueError("bad")


class UglyStart(UglyExecutor):
    def on_start(self) -> None:
        raise Ugly


@pytest.mark.parametrize("on_failure", ["drop", "retry", "isolate"])
@pytest.mark.parametrize("job", [ugly, UglyExecutor])
def test_a_crash_that_cannot_be_printed_is_told_all_the_same(job: Any, on_failure: str) -> None:
    worker = af.spawn(job, on_failure=on_failure)
    with pytest.raises((Ugly, ValueError)):
        worker.push_block(1, timeout=PATIENCE)
    worker.stop(timeout=PATIENCE)
    tree = af.Supervisor([af.Worker("a", job, on_failure=on_failure)]).start()
    for _ in range(2):
        with pytest.raises((Ugly, ValueError)):
            tree.worker("a").push_block(1, timeout=PATIENCE)
    assert "'a'" in str(tree.tree())
    tree.stop(timeout=PATIENCE)


def test_a_failed_start_that_cannot_be_printed_is_told_all_the_same() -> None:
    with pytest.raises(af.StartFailed) as caught:
        af.spawn(UglyStart)
    assert isinstance(caught.value.__cause__, Ugly)


def test_what_a_killed_executor_had_put_off_is_not_run_by_its_successor(pool_probe: Probe) -> None:
    tree = af.Supervisor(
        [af.Child("a", af.Worker("a", pool_probe.call), shutdown="brutal_kill")]
    ).start()
    accumulator = tree.worker("a").actor
    old = accumulator.generation
    tree.worker("a").push("held")
    pool_probe.begun()
    abandon_executor(accumulator)
    accumulator.postpone(accumulator, old, Batch(["stale"], 1))
    pool_probe.open()
    tree.worker("a").push_block("fresh", timeout=PATIENCE)
    tree.stop()
    assert pool_probe.batches == [["held"], ["fresh"]]
