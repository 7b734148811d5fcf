"""Measurement: real workers, a real job or one that sleeps as the model says, on this machine.

The traffic is replayed in real time by one thread. Latency counts from the moment at which a
message was *due* to arrive, so a producer that falls behind does not flatter the result.
"""

from __future__ import annotations

import copy
import inspect
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import Policy, policy_of
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT
from actorflow.lab.run.ledger import Ledger, error_text
from actorflow.lab.run.repetitions import combine
from actorflow.lab.run.result import Result, RunFailed
from actorflow.runtime.errors import BadOption, WorkerStopped
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.job.jobs import kind_of
from actorflow.runtime.worker.spec import spawn
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message, Traffic
    from actorflow.runtime.worker.job.failure import FailurePolicy
    from actorflow.runtime.worker.pair.batch import Batch

__all__ = ["measure"]

_NEAR = 0.0005  # seconds before an arrival that are spun away instead of slept


def measure(
    traffic: Traffic | str,
    job: Any,
    policy: Policy | str | Any,
    *,
    state: Any = None,
    seed: int = 0,
    repetitions: int = 3,
    on_failure: Any = "drop",
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
        on_failure: what becomes of a batch on which the job fails, as for `spawn`. What is given
            up is counted, and the worker goes on with the state that it had.
        progress: called now and then with the number of messages so far.

    Raises:
        BadOption: the job cannot be called as one, or an option is wrong.
        RunFailed: the job failed on every batch, or ended the worker; the cause says why.

    """
    if repetitions < 1:
        msg = f"repetitions={repetitions!r} must be at least 1"
        raise BadOption(msg)
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    chosen = policy_of(policy)
    runs: list[Result] = []
    so_far = 0
    for number in range(repetitions):
        tell = None if progress is None else _beyond(progress, so_far)
        run = _Run(chosen, job, seed + number, failure_policy(on_failure), tell)
        runs.append(run.run(source, copy.deepcopy(state)))
        so_far += runs[-1].arrived
    return runs[0] if repetitions == 1 else combine(runs)


def _beyond(progress: Callable[[int], None], start: int) -> Callable[[int], None]:
    return lambda count: progress(start + count)


class _GoOn:
    """A failure policy that counts what another one gives up, and lets the worker go on.

    So one failed batch does not end the run, as it would not end a supervised worker.
    """

    buries = True

    def __init__(self, inner: FailurePolicy, books: Ledger) -> None:
        self._inner = inner
        self._books = books

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return what to run instead, as the other policy says."""
        parts = self._inner.parts(batch)
        if not parts:
            self._books.failed += batch.size
        return parts


class _Run:
    """One repetition. The job runs in the worker's thread, everything else in the caller's."""

    def __init__(
        self,
        tested: Policy,
        job: Any,
        seed: int,
        on_failure: FailurePolicy,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._policy = tested
        self._seed = seed
        self._progress = progress
        self._random = Random(f"{seed}/service")
        self._books = Ledger()
        self._on_failure = _GoOn(on_failure, self._books)
        self._job = self._timed(parse_service(job) if isinstance(job, str) else job)
        self._start = 0.0
        self._worker: Any = None

    # The job, with a stopwatch.

    def _timed(self, job: Any) -> Any:
        """Return a job for `spawn` that does what `job` does and keeps the books."""
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
        self._books.begin(began, size, size + len(self._worker))
        return began

    def _fail(self, began: float, error: BaseException) -> None:
        self._end(began)
        if not isinstance(error, ServiceFailure):
            self._books.blame(error)

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
                    self._books.blame(answer)
            messages = [
                message
                for message, answer in zip(messages, outcome.answers, strict=True)
                if not isinstance(answer, BaseException)
            ]
        self._books.finish(messages, began, done)
        return outcome

    def _resolved(self, batch: Any, began: float, error: BaseException | None, result: Any) -> None:
        if error is not None:
            self._fail(began, error)
        else:
            self._finish(batch, began, result)

    def _end(self, began: float) -> float:
        done = self._books.end = time.perf_counter() - self._start
        self._books.busy += done - began
        return done

    # The traffic.

    def run(self, traffic: Traffic, state: Any) -> Result:
        """Replay the traffic and wait for the end."""
        chunks = traffic.chunks(self._seed)
        books = self._books
        stopped: WorkerStopped | None = None
        with self._spawned(state) as worker:
            self._worker = worker
            self._start = time.perf_counter()
            for chunk in chunks:
                if not books.arrived:
                    self._try(chunk[0])
                    self._start = time.perf_counter()
                books.arrive(chunk)
                try:
                    self._replay(chunk, worker)
                except WorkerStopped as error:
                    stopped = error
                    break
                if self._progress is not None:
                    self._progress(books.arrived)
        if stopped is not None:
            msg = f"the job ended the worker, and the run with it: {stopped}"
            raise RunFailed(msg) from stopped
        statistics = worker.statistics()
        return books.result(
            policy=self._policy.name,
            mode="measure",
            seed=self._seed,
            tally=statistics,
            rejected=statistics.rejected,
        )

    def _spawned(self, state: Any) -> Any:
        kind = kind_of(self._job)
        options: dict[str, Any] = {} if kind.asynchronous else {"executor": "thread"}
        worker = spawn(
            self._job,
            state=state,
            behaviour=self._policy.make,
            on_failure=self._on_failure,
            **options,
        )
        return _Ending(worker)

    def _try(self, message: Message) -> None:
        """Add one message to a behaviour of its own, so that a policy that refuses it is seen."""
        try:
            adapt(self._policy.make()).add(message)
        except Exception as error:
            msg = f"{self._policy.name} refuses the messages of this traffic: {error}"
            raise RunFailed(msg) from error

    def _replay(self, chunk: Iterable[Message], worker: Any) -> None:
        clock, start = time.perf_counter, self._start
        for message in chunk:
            left = message[AT] - (clock() - start)
            if left > 0:
                _wait(left, clock() + left)
            worker.push(message)


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


def _wait(left: float, until: float) -> None:
    """Wait for a moment: sleep most of it, spin the rest, letting other threads run."""
    if left > _NEAR:
        time.sleep(left - _NEAR)
    while time.perf_counter() < until:
        time.sleep(0)
