"""Every option and error of `spawn`, and what a ref answers."""

from __future__ import annotations

import gc
import logging
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Priority, Queue, Stack, Throttle, Unique
from actorflow.runtime.worker.shape import FOLD_AT
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.testing import ManualLane


def noop(batch: Any, state: Any) -> None:
    """Do nothing."""


def collect(seen: list[Any], batch: Any, state: Any) -> None:
    seen.extend(batch)


class Handler(af.Executor):
    def handle(self, batch: Any) -> None:
        """Do nothing."""


# Bad input: refused when built, and the message shows the right call.


def no_arguments() -> None: ...
def one_argument(batch: Any) -> None: ...
def three_arguments(batch: Any, state: Any, more: Any) -> None: ...
def keyword_needed(batch: Any, state: Any, *, more: Any) -> None: ...


@pytest.mark.parametrize("job", [no_arguments, one_argument, three_arguments, keyword_needed])
def test_job_of_the_wrong_shape_is_refused(job: Any) -> None:
    with pytest.raises(af.BadJob, match=rf"{job.__name__}.*def {job.__name__}\(batch, state\)"):
        af.spawn(job)


@pytest.mark.parametrize("job", [None, 5, "name", [noop]])
def test_job_that_cannot_be_called_is_refused(job: Any) -> None:
    with pytest.raises(af.BadJob, match="cannot be called"):
        af.spawn(job)


def test_executor_instance_instead_of_its_class_is_refused() -> None:
    with pytest.raises(af.BadJob, match=r"spawn\(Handler"):
        af.spawn(Handler())  # type: ignore[call-overload]


def test_executor_class_without_handle_is_refused() -> None:
    class Nothing(af.Executor):
        pass

    with pytest.raises(af.BadJob, match=r"must define handle\(self, batch\)"):
        af.spawn(Nothing)


def with_default(batch: Any, state: Any, more: Any = 3) -> None: ...
def with_rest(*arguments: Any) -> None: ...


class Callable2:
    def __call__(self, batch: Any, state: Any) -> None:
        """Do nothing."""

    def method(self, batch: Any, state: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "job",
    [
        with_default,
        with_rest,
        Callable2(),
        Callable2().method,
        partial(three_arguments, more=1),
        lambda batch, state: state,
        Handler,
        partial(Handler),
    ],
)
def test_whatever_can_be_called_with_batch_and_state_is_a_job(job: Any) -> None:
    with af.spawn(job) as worker:
        worker.push_block(1)


@pytest.mark.parametrize("behaviour", [Queue(), Unique(), Bounded(Queue, 5)])
def test_a_used_behaviour_is_refused(behaviour: Any) -> None:
    with (
        af.spawn(noop, behaviour=behaviour),
        pytest.raises(af.AlreadyUsed, match="behaviour=lambda"),
    ):
        af.spawn(noop, behaviour=behaviour)


def test_a_behaviour_inside_a_wrapper_is_used() -> None:
    inner = Queue()
    with af.spawn(noop, behaviour=Throttle(inner, 0.1)), pytest.raises(af.AlreadyUsed):
        af.spawn(noop, behaviour=inner)


def test_a_class_or_factory_of_behaviours_serves_many_workers() -> None:
    for behaviour in (Stack, lambda: Bounded(Queue(), 5), partial(Unique, key=0)):
        with af.spawn(noop, behaviour=behaviour), af.spawn(noop, behaviour=behaviour):
            pass


@pytest.mark.parametrize("behaviour", [5, "queue", object(), lambda: None, list])
def test_what_is_no_behaviour_is_refused(behaviour: Any) -> None:
    with pytest.raises(af.BadBehaviour, match="behaviour=Queue"):
        af.spawn(noop, behaviour=behaviour)


@pytest.mark.parametrize("throttle", [-1, -0.001, float("nan"), float("inf"), "1", True])
def test_bad_throttle_is_refused(throttle: Any) -> None:
    with pytest.raises(af.BadOption, match="seconds"):
        af.spawn(noop, throttle=throttle)


@pytest.mark.parametrize("idle_timeout", [0, -1.0, float("inf"), float("nan")])
def test_bad_idle_timeout_is_refused(idle_timeout: float) -> None:
    with pytest.raises(af.BadOption, match="idle_timeout"):
        af.spawn(noop, idle_timeout=idle_timeout)


def test_unknown_option_is_refused() -> None:
    with pytest.raises(af.BadOption, match="did you mean 'throttle'"):
        af.spawn(noop, throtle=1)  # type: ignore[call-overload]
    with pytest.raises(af.BadOption, match="did you mean 'throttle'"):
        af.Worker("a", noop, throtle=1)  # type: ignore[call-overload]


def test_unknown_word_for_executor_is_refused_and_a_near_one_named() -> None:
    with pytest.raises(af.BadOption, match="did you mean 'thread'"):
        af.spawn(noop, executor="threads")


def test_help_needs_the_pool_and_a_function(lane: ManualLane) -> None:
    async def job(batch: Any, state: Any) -> None: ...

    with pytest.raises(af.BadOption, match="help"):
        af.spawn(noop, executor="thread", help=True)
    with pytest.raises(af.BadOption, match="help"):
        af.spawn(job, help=True)
    with pytest.raises(af.BadOption, match="help"):
        af.spawn(noop, executor=lane, help=True)


def test_a_coroutine_job_takes_no_thread() -> None:
    async def job(batch: Any, state: Any) -> None: ...

    with pytest.raises(af.BadOption, match="event loop"):
        af.spawn(job, executor="thread")


def test_a_refused_spawn_leaves_no_thread_and_no_name(pool_probe: Probe) -> None:
    import threading  # noqa: PLC0415

    with af.spawn(noop, name="taken"):
        for refused in (
            partial(af.spawn, noop, executor="thread", help=True),
            partial(af.spawn, noop, executor="thread", name="taken"),
        ):
            with pytest.raises(af.ActorflowError):
                refused()

    class Broken(af.Executor):
        def __init__(self) -> None:
            raise ZeroDivisionError

        def handle(self, batch: Any) -> None: ...

    with pytest.raises(ZeroDivisionError):
        af.spawn(Broken, executor="thread", name="broken")
    assert af.whereis("broken") is None
    names = {"actorflow-taken", "actorflow-noop", "actorflow-broken"}
    until(
        lambda: not names & {thread.name for thread in threading.enumerate()},
        "no thread is left of workers that never were",
    )


# Messages.


def test_malformed_messages_are_rejected_alone_and_the_first_one_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for behaviour, good in ((Unique, ("a", 1)), (Priority, (1, "a"))):
        caplog.clear()
        seen: list[Any] = []
        with (
            caplog.at_level(logging.WARNING, logger="actorflow"),
            af.spawn(partial(collect, seen), behaviour=behaviour) as w,
        ):
            for malformed in (5, None, ()):
                w.push(malformed)
                with pytest.raises(af.Malformed, match="malformed"):
                    w.push_ack(malformed)
                with pytest.raises(af.Malformed):
                    w.push_block(malformed)
            w.push_block(good)
            assert w.statistics().rejected == 9
            assert w.statistics().accepted == 1
        assert seen == [good]
        warnings = [r for r in caplog.records if r.name == "actorflow"]
        assert len(warnings) == 1
        assert warnings[0].levelno == logging.WARNING
        assert "malformed" in warnings[0].getMessage()


def test_malformed_messages_in_a_burst_spare_the_others(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(behaviour=Unique)
    worker.push(("first", 0))
    pool_probe.begun()
    worker.push_many([("a", 1), 5, ("b", 2), None, ("c", 3)])
    pool_probe.let_end()
    assert pool_probe.begun() == [("a", 1), ("b", 2), ("c", 3)]
    assert worker.statistics().rejected == 2


def test_malformed_message_for_an_idle_worker_leaves_it_idle(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Unique)
    worker.push(5)
    worker.push(("a", 1))
    assert probe.begun() == [("a", 1)]


def test_push_many_is_one_batch_for_an_idle_worker(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push_many(iter((1, 2, 3)))
    assert probe.begun() == [1, 2, 3]


def test_push_many_of_nothing_does_nothing(lane: ManualLane) -> None:
    worker = af.spawn(noop, executor=lane)
    worker.push_many([])
    assert len(lane) == 0


def test_any_object_is_a_message(pool_probe: Probe) -> None:
    messages = [None, (), [], {}, 0, False, object(), ValueError(), noop, float("nan")]
    worker = pool_probe.spawn()
    worker.push("first")
    pool_probe.begun()
    for message in messages:
        worker.push(message)
    pool_probe.let_end()
    assert all(a is b for a, b in zip(pool_probe.begun(), messages, strict=True))


@pytest.mark.parametrize(
    ("behaviour", "fold_at"),
    [(Unique, 4 * FOLD_AT), (lambda: Bounded(Unique(), 10), FOLD_AT)],
    ids=["shrinks", "bounded"],
)
def test_folding_refs_fold_long_inboxes_in_the_producer(
    pool_probe: Probe, behaviour: Callable[[], Behaviour], fold_at: int
) -> None:
    worker = pool_probe.spawn(behaviour=behaviour())
    worker.push((0, 0))
    pool_probe.begun()
    longest = 0
    for number in range(5 * fold_at):
        worker.push((number % 3, number))
        longest = max(longest, len(worker))
    assert fold_at <= longest < 4 * fold_at
    worker.push_many((number % 3, number) for number in range(50_000))
    assert len(worker) < 4 * fold_at
    pool_probe.let_end()
    assert sorted(pool_probe.begun()) == [(0, 49_998), (1, 49_999), (2, 49_997)]


def test_push_block_in_its_own_job_would_deadlock() -> None:
    def job(batch: Any, state: Any) -> None:
        workers[0].push_block("again")

    workers = [af.spawn(job)]
    with pytest.raises(af.WouldDeadlock, match="push_block"):
        workers[0].push_block("first")


def test_push_and_ack_in_its_own_job_are_fine() -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        seen.append(batch)
        if batch == ["first"]:
            workers[0].push("a")
            workers[0].push_ack("b")

    workers = [af.spawn(job)]
    with workers[0] as worker:
        worker.push_block("first")
    assert seen == [["first"], ["a", "b"]]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_any_exception_in_a_job_ends_that_worker_only(probe: Probe, error: BaseException) -> None:
    with af.spawn(noop) as other:
        probe.then(error)
        probe.open()
        worker = probe.spawn()
        caller = Caller(worker.push_block, "bad")
        assert caller.wait().error is error
        assert ended(worker) == af.Crash(error)
        other.push_block("fine")


def test_stop_iteration_in_a_job_is_an_exception_like_any_other() -> None:
    def job(batch: Any, state: Any) -> None:
        raise StopIteration("odd")

    worker = af.spawn(job)
    with pytest.raises(StopIteration, match="odd"):
        worker.push_block(1)
    assert isinstance(ended(worker), af.Crash)


# What a ref tells.


def test_repr_names_the_worker_and_how_it_ended() -> None:
    named = af.spawn(noop, name="named")
    assert "named" in repr(named)
    named.stop()
    assert "ended: normal" in repr(named)
    with af.spawn(noop) as plain:
        assert "noop" in repr(plain)
    with af.spawn(Handler) as handler:
        assert "Handler" in repr(handler)


def test_a_worker_is_true_even_when_nothing_is_accumulated(lane: ManualLane) -> None:
    worker = af.spawn(noop, executor=lane)
    assert worker
    assert len(worker) == 0
    worker.push(1)
    worker.push(2)
    assert len(worker) == 1  # the first is with the executor


def test_context_manager_drains(pool_probe: Probe) -> None:
    pool_probe.open()
    with pool_probe.spawn() as worker:
        worker.push_many(range(100))
        for number in range(100, 200):
            worker.push(number)
    assert [m for batch in pool_probe.batches for m in batch] == list(range(200))
    assert worker.exit_reason == af.Normal()


def test_context_manager_raises_after_a_crash(pool_probe: Probe) -> None:
    error = ValueError("broken")
    pool_probe.then(error)
    pool_probe.open()
    with pytest.raises(af.WorkerCrashed) as raised, pool_probe.spawn() as worker:
        worker.push("bad")
    assert raised.value.__cause__ is error


def test_context_manager_lets_the_bodys_own_error_through(pool_probe: Probe) -> None:
    pool_probe.then(ValueError("broken"))
    pool_probe.open()
    worker = pool_probe.spawn()
    with pytest.raises(KeyError, match="mine"), worker:
        fail_after(worker)


def fail_after(worker: af.WorkerRef) -> None:
    worker.push("bad")
    raise KeyError("mine")


def push_calls(worker: af.WorkerRef) -> list[Callable[[], Any]]:
    return [
        lambda: worker.push(1),
        lambda: worker.push_many([1, 2]),
        lambda: worker.push_ack(1),
        lambda: worker.push_block(1),
        lambda: worker.tell(1),
        lambda: worker.ask(1, timeout=PATIENCE),
        lambda: worker.executor.tell(1),
        lambda: worker.executor.ask(1, timeout=PATIENCE),
    ]


@pytest.mark.parametrize(
    "behaviour", [Queue, Unique, lambda: Bounded(Queue(), 5, when_full="block")]
)
@pytest.mark.parametrize("crash", [False, True])
def test_every_way_of_sending_to_an_ended_worker_raises(behaviour: Any, *, crash: bool) -> None:
    def job(batch: Any, state: Any) -> None:
        raise ValueError("broken")

    worker = af.spawn(job, behaviour=behaviour)
    if crash:
        worker.push((1, 1))
        ended(worker)
        assert worker.executor.actor_stopped.wait(PATIENCE)
    else:
        worker.stop()
    expected = af.WorkerCrashed if crash else af.WorkerStopped
    for call in push_calls(worker):
        with pytest.raises(expected) as raised:
            call()
        assert raised.type is expected
    assert len(worker) == 0


class _Large:
    """A state that takes much memory."""


def test_nothing_keeps_the_state_of_a_worker_that_has_ended() -> None:
    state = _Large()
    gone = weakref.ref(state)
    worker = af.spawn(lambda _batch, state: state, state=state)
    worker.push_block(1, timeout=PATIENCE)
    worker.stop()
    del worker, state

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    until(is_gone, "the state is released")
