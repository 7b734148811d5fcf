"""Measurement: real workers, a real job or one that sleeps as the model says, on this machine.

A process of its own says when each message is due, and the caller's thread pushes it. Latency
counts from the moment at which a message was due, so a producer that falls behind does not flatter
the result; a run in which the generator itself was late is rejected.
"""

from __future__ import annotations

import copy
import inspect
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import adapt
from actorflow.behaviours.wrapper import Wrapper
from actorflow.lab.models.policies import Policy, policy_of
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, CHUNK
from actorflow.lab.run.generator import Generator, GeneratorFailed
from actorflow.lab.run.goals import parse_goals
from actorflow.lab.run.repeats import combine
from actorflow.lab.run.result import Result, RunFailed
from actorflow.lab.run.statistics import RunStatistics, error_text
from actorflow.lab.run.verdicts import judge
from actorflow.runtime.errors import BadOption, WorkerStopped
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.job.jobs import kind_of
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message, Traffic
    from actorflow.lab.run.goals import Goal
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.job.failure import FailurePolicy

__all__ = ["measure"]

_SWITCH = 0.0005  # seconds for which a job may keep other threads from running
_ATTEMPTS = 3  # for a repetition in which the generator is late
_SHORT = 1.0  # seconds; shorter traffic counts as this long when its lag is judged


def measure(
    traffic: Traffic | str,
    job: Any,
    policy: Policy | str | Any,
    *,
    state: Any = None,
    seed: int = 0,
    repetitions: int = 3,
    on_failure: Any = "drop",
    concurrency: int = 1,
    goals: str | Sequence[Goal] = (),
    max_lag: float = 0.01,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run one policy against traffic with a real worker, several times.

    Args:
        traffic: the arrivals, in real time: ten seconds of traffic take ten seconds.
        job: what `spawn` takes, called as `job(batch, state)`; or a function of the batch alone;
            or a service model, whose time is slept.
        policy: what to run, as text, class or factory.
        state: the first state of the job; each repetition begins with a copy.
        seed: of the traffic; each repetition has the next one.
        repetitions: how often; two or more give confidence intervals.
        on_failure: the policy for batches on which the job fails, as for `spawn`. Messages
            that are given up are counted, and the worker keeps its last state.
        concurrency: how many batches may run at once, as for `spawn`.
        goals: as text (`"p99 < 50ms"`), or parsed. The result has a verdict for each: pass, fail or
            undecided, by the early-stopping rule of MLPerf where the goal is a percentile.
        max_lag: how late the generator may be, as a share of the traffic's length. A repetition
            in which it is later is run again, twice at most.
        progress: called now and then with the number of messages so far.

    Raises:
        BadOption: the job cannot be called as one, or an option is wrong.
        RunFailed: the job failed on every batch, or ended the worker; the cause says why. Or the
            generator was too late three times, because the machine is busy with other things.

    """
    if repetitions < 1:
        msg = f"repetitions={repetitions!r} must be at least 1"
        raise BadOption(msg)
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    wanted = parse_goals(goals) if isinstance(goals, str) else tuple(goals)
    chosen = policy_of(policy)
    runs: list[Result] = []
    so_far = 0

    def one(number: int) -> Result:
        for _ in range(_ATTEMPTS):
            tell = None if progress is None else _beyond(progress, so_far)
            run = _Repetition(
                chosen, job, seed + number,
                on_failure=failure_policy(on_failure), concurrency=concurrency, progress=tell,
            )  # fmt: skip
            result = run.run(source, copy.deepcopy(state))
            if (result.lag or 0.0) <= max_lag:
                return result
        msg = (
            f"the generator was late by {result.lag:.1%} of the traffic, and at most {max_lag:.1%} "
            "is allowed; stop what else this machine does, lower the rate, or raise max_lag"
        )
        raise RunFailed(msg)

    with _switching_often():
        for number in range(repetitions):
            runs.append(one(number))
            so_far += runs[-1].arrived
    found = runs[0] if repetitions == 1 else combine(runs)
    return replace(found, verdicts={str(goal): judge(goal, runs).value for goal in wanted})


@contextmanager
def _switching_often() -> Iterator[None]:
    """Let the pushing thread run soon, although the job keeps the interpreter busy."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _beyond(progress: Callable[[int], None], start: int) -> Callable[[int], None]:
    return lambda count: progress(start + count)


class _GoOn:
    """A failure policy that counts what another one gives up, and lets the worker go on.

    So one failed batch does not end the run, as it would not end a supervised worker.
    """

    buries = True

    def __init__(self, inner: FailurePolicy, statistics: RunStatistics) -> None:
        self._inner = inner
        self._statistics = statistics

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return what to run instead, as the other policy says."""
        parts = self._inner.parts(batch)
        if not parts:
            self._statistics.failed += batch.size
        return parts


class _Repetition:
    """One repetition. The job runs in the worker's thread, everything else in the caller's."""

    def __init__(
        self,
        tested: Policy,
        job: Any,
        seed: int,
        *,
        on_failure: FailurePolicy,
        concurrency: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._policy = tested
        self._seed = seed
        self._progress = progress
        self._random = Random(f"{seed}/service")  # noqa: S311 - no secret
        self._concurrency = concurrency
        self._running = 0
        self._lock = threading.Lock()
        self._statistics = RunStatistics(concurrency)
        self._on_failure = _GoOn(on_failure, self._statistics)
        self._job = self._timed(parse_service(job) if isinstance(job, str) else job)
        self._start = 0.0
        self._worker: Any = None
        self._watched: _DepthProbe | None = None

    # The job, with a stopwatch.

    def _timed(self, job: Any) -> Any:
        """Return a job for `spawn` that calls `job` and records its statistics."""
        if not isinstance(job, type) and callable(getattr(job, "seconds", None)):
            return self._timed_function(partial(self._sleep, job))
        if not callable(job):
            msg = (
                f"{job!r} is neither a job, called as job(batch, state), "
                "nor a service model like '2ms'"
            )
            raise BadOption(msg)
        call = _of_two(job)
        kind = kind_of(call)
        if kind.executor is not None:
            timed = self._timed_executor(kind.executor)
            given = call if isinstance(call, partial) else partial(call)
            return partial(timed, *given.args, **given.keywords)
        return self._timed_coroutine(call) if kind.asynchronous else self._timed_function(call)

    def _timed_function(self, call: Callable[[Any, Any], Any]) -> Any:
        def job(batch: Any, state: Any) -> Any:
            began = self._begin(batch)
            try:
                outcome = call(batch, state)
            except Exception as error:
                self._fail(began, error)
                raise
            return self._finish(batch, began, outcome)

        return job

    def _timed_coroutine(self, call: Callable[[Any, Any], Any]) -> Any:
        async def job(batch: Any, state: Any) -> Any:
            began = self._begin(batch)
            try:
                outcome = await call(batch, state)
            except Exception as error:
                self._fail(began, error)
                raise
            return self._finish(batch, began, outcome)

        return job

    def _timed_executor(self, base: Any) -> Any:
        """Derive an executor whose `handle` is timed; the hooks stay as they are."""
        timed = self._timed_coroutine if kind_of(base).asynchronous else self._timed_function

        def handle(executor: Any, batch: Any) -> Any:
            return timed(lambda some, _state: base.handle(executor, some))(batch, None)

        async def ahandle(executor: Any, batch: Any) -> Any:
            async def call(some: Any, _state: Any) -> Any:
                outcome = base.handle(executor, some)
                return await outcome if inspect.isawaitable(outcome) else outcome

            return await timed(call)(batch, None)

        chosen = ahandle if kind_of(base).asynchronous else handle
        return type(base.__name__, (base,), {"handle": chosen})

    def _sleep(self, model: Service, batch: Any, _state: Any) -> None:
        try:
            time.sleep(model.seconds(batch, self._random))
        except ServiceFailure as failure:
            time.sleep(failure.seconds)
            raise

    def _begin(self, batch: Any) -> float:
        began = time.perf_counter() - self._start
        size = len(_messages(batch))
        watched = self._watched
        held = size + len(self._worker) if watched is None else watched.depth
        with self._lock:
            self._running += 1
            if self._running == self._concurrency:
                self._statistics.idle.occupied(began)
            self._statistics.begin(began, size, held)
        return began

    def _fail(self, began: float, error: BaseException) -> None:
        self._end(began)
        if not isinstance(error, ServiceFailure):
            self._statistics.blame(error)

    def _finish(self, batch: Any, began: float, outcome: Any) -> Any:
        """Count a batch that the job has returned from; return what the worker gets to see."""
        if isinstance(outcome, Deferred):
            outcome.then(partial(self._resolved, batch, began))
            return outcome
        messages = _messages(batch)
        done = self._end(began)
        if isinstance(outcome, Answers) and len(outcome.answers) == len(messages):
            for answer in outcome.answers:
                if isinstance(answer, BaseException):
                    self._statistics.blame(answer)
            messages = [
                message
                for message, answer in zip(messages, outcome.answers, strict=True)
                if not isinstance(answer, BaseException)
            ]
        with self._lock:
            self._statistics.finish(messages, began, done)
        return outcome

    def _resolved(self, batch: Any, began: float, error: BaseException | None, result: Any) -> None:
        if error is not None:
            self._fail(began, error)
        else:
            self._finish(batch, began, result)

    def _end(self, began: float) -> float:
        done = time.perf_counter() - self._start
        with self._lock:
            self._running -= 1
            self._statistics.idle.freed(done)
            self._statistics.occupy(began, done)
        return done

    # The traffic.

    def run(self, traffic: Traffic, state: Any) -> Result:
        """Replay the traffic and wait for the end."""
        messages = [message for chunk in traffic.chunks(self._seed) for message in chunk]
        statistics = self._statistics
        stopped: WorkerStopped | None = None
        lag = 0.0
        with self._spawned(state) as worker:
            self._worker = worker
            if messages:
                self._try(messages[0])
                try:
                    lag = self._replay(messages, worker)
                except WorkerStopped as error:
                    stopped = error
                except GeneratorFailed as error:
                    msg = "the process that generates the traffic has ended; run it again"
                    raise RunFailed(msg) from error
        if stopped is not None:
            msg = f"the job ended the worker, and the run with it: {stopped}"
            raise RunFailed(msg) from stopped
        counted = worker.statistics()
        result = statistics.result(
            policy=self._policy.name,
            mode="measure",
            seed=self._seed,
            tally=counted,
            rejected=counted.rejected,
        )
        return replace(result, lag=lag)

    def _spawned(self, state: Any) -> Any:
        kind = kind_of(self._job)
        alone = not kind.asynchronous and self._concurrency == 1
        options: dict[str, Any] = {"executor": "thread"} if alone else {}
        worker = spawn(
            self._job,
            state=state,
            behaviour=self._behaviour,
            on_failure=self._on_failure,
            concurrency=self._concurrency,
            **options,
        )
        return _Ending(worker)

    def _behaviour(self) -> Any:
        watched = _DepthProbe(self._policy.make)
        if not watched.traits.bounded:
            return self._policy.make()
        self._watched = watched
        return watched

    def _try(self, message: Message) -> None:
        """Add one message to a behaviour of its own, so that a policy that refuses it is seen."""
        try:
            adapt(self._policy.make()).add(message)
        except Exception as error:
            msg = f"{self._policy.name} refuses the messages of this traffic: {error}"
            raise RunFailed(msg) from error

    def _replay(self, messages: list[Message], worker: Any) -> float:
        """Push each message when it is due; return the generator's lag."""
        arrived, push = self._statistics.arrived, worker.push
        with Generator([message[AT] for message in messages]) as generator:
            self._start = generator.start
            for due in generator.due():
                some = messages[arrived:due]
                with self._lock:
                    self._statistics.arrive(some)
                for message in some:
                    push(message)
                arrived = due
                if self._progress is not None and (arrived % CHUNK < len(some)):
                    self._progress(arrived)
        if self._progress is not None:
            self._progress(arrived)
        return generator.latest / max(messages[-1][AT] - messages[0][AT], _SHORT)


class _DepthProbe(Wrapper):
    """A bounded behaviour that notes how many messages it held when a batch was taken.

    The worker itself may hold more than the bound for a moment, before it offers them.
    """

    __slots__ = ("depth",)

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.depth = 0

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Record the depth, and hand over a batch."""
        self.depth = len(self)
        return super().take(limit, free)


class _Ending:
    """A worker that is stopped at the end; one that has crashed is a run that failed."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __enter__(self) -> Any:
        return self._worker

    def __exit__(self, *raised: object) -> None:
        try:
            self._worker.__exit__(*raised)
        except WorkerStopped as error:
            cause = error.__cause__ or error
            msg = f"the worker crashed: {error_text(cause)}"
            raise RunFailed(msg) from cause


def _messages(batch: Any) -> list[Message]:
    return batch if type(batch) is list else [batch]


def _of_two(job: Any) -> Any:
    """Return a job that is called with a batch and a state; one may take the batch alone.

    Raises:
        BadOption: it cannot be called with either.

    """
    target = job.func if isinstance(job, partial) else job
    if isinstance(target, type):
        return job
    try:
        signature = inspect.signature(job)
    except (TypeError, ValueError):
        return job  # a builtin that does not say; the first call will
    if _takes(signature, 2):
        return job
    if not _takes(signature, 1):
        name = getattr(job, "__name__", repr(job))
        msg = f"{name}{signature} cannot be a job; write def {name}(batch, state): ..."
        raise BadOption(msg)
    if inspect.iscoroutinefunction(job):

        async def alone(batch: Any, _state: Any) -> None:
            await job(batch)

        return alone
    return lambda batch, _state: job(batch)


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
