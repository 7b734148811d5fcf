"""Measurement: real workers, a real job or one that sleeps as the model says, on this machine.

The traffic is replayed in real time by one thread. Latency counts from the moment at which a
message was *due* to arrive, so a producer that falls behind does not flatter the result.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from operator import itemgetter
from random import Random
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import Policy, policy
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, SIZE
from actorflow.lab.run.ledger import Ledger
from actorflow.lab.run.result import Result
from actorflow.runtime.errors import BadOption, WorkerStopped
from actorflow.runtime.worker.failure import Drop, failure_policy
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message, Traffic

__all__ = ["measure"]

# Student's t for 95 %, by the number of repetitions.
_STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
_NEAR = 0.0005  # seconds before an arrival that are spun away instead of slept


def measure(
    traffic: Traffic | str,
    job: Callable[[list[Message]], Any] | Service | str,
    tested: Policy | str | Any,
    *,
    seed: int = 0,
    repetitions: int = 3,
    on_failure: Any = "drop",
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run one policy against traffic with a real worker, several times.

    Args:
        traffic: the arrivals, in real time: ten seconds of traffic take ten seconds.
        job: a function of the batch, or a service model whose time is slept.
        tested: the policy, as text, class or factory.
        seed: of the traffic; each repetition has the next one.
        repetitions: how often; two or more give confidence intervals.
        on_failure: what becomes of a batch on which the job fails, as for `spawn`. After
            `"drop"` the worker goes on, as a supervised one does.
        progress: called now and then with the number of messages so far.

    """
    if repetitions < 1:
        msg = f"repetitions={repetitions!r} must be at least 1"
        raise BadOption(msg)
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    chosen = policy(tested)
    runs: list[Result] = []
    so_far = 0
    for number in range(repetitions):
        tell = None if progress is None else _beyond(progress, so_far)
        runs.append(_Run(chosen, job, seed + number, on_failure, tell).run(source))
        so_far += runs[-1].arrived
    return runs[0] if repetitions == 1 else _combine(runs)


def _beyond(progress: Callable[[int], None], start: int) -> Callable[[int], None]:
    return lambda count: progress(start + count)


class _Run:
    """One repetition. The job runs in the worker's thread, everything else in the caller's."""

    def __init__(
        self,
        tested: Policy,
        job: Any,
        seed: int,
        on_failure: Any,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._policy = tested
        self._seed = seed
        self._on_failure = failure_policy(on_failure)
        self._progress = progress
        self._random = Random(f"{seed}/service")
        self._call = self._caller(job)
        self._books = Ledger()
        self._start = self._end = 0.0
        self._worker: Any = None

    def _caller(self, job: Any) -> Callable[[list[Message]], Any]:
        model = parse_service(job) if isinstance(job, str) else job
        if callable(getattr(model, "seconds", None)):
            return lambda batch: self._sleep(model, batch)
        if callable(model):
            call: Callable[[list[Message]], Any] = model
            return call
        msg = f"{job!r} is neither a job, called as job(batch), nor a service model like '2ms'"
        raise BadOption(msg)

    def _sleep(self, model: Service, batch: list[Message]) -> None:
        try:
            time.sleep(model.seconds(batch, self._random))
        except ServiceFailure as failure:
            time.sleep(failure.seconds)
            raise

    def _job(self, batch: Any, _state: None) -> None:
        began = time.perf_counter() - self._start
        messages = batch if type(batch) is list else [batch]
        self._books.begin(began, len(messages), len(messages) + len(self._worker))
        try:
            self._call(batch)
        except Exception:
            self._account(began)
            if not isinstance(self._on_failure, Drop):
                raise
            self._books.failed += len(messages)
        else:
            self._books.finish(messages, began, self._account(began))

    def _account(self, began: float) -> float:
        done = self._end = time.perf_counter() - self._start
        self._books.busy += done - began
        return done

    def run(self, traffic: Traffic) -> Result:
        """Replay the traffic and wait for the end."""
        arrived = 0
        first = last = None
        volume = 0.0
        with spawn(
            self._job,
            behaviour=self._policy.make,
            executor="thread",
            on_failure=self._on_failure,
        ) as worker:
            self._worker = worker
            self._start = time.perf_counter()
            for chunk in traffic.chunks(self._seed):
                first = chunk[0][AT] if first is None else first
                try:
                    self._replay(chunk, worker)
                except WorkerStopped:
                    break  # it crashed: the context manager says so
                arrived += len(chunk)
                volume += math.fsum(map(itemgetter(SIZE), chunk))
                last = chunk[-1][AT]
                if self._progress is not None:
                    self._progress(arrived)
        books = self._books
        statistics = worker.statistics()
        figures = books.figures() | {"failed": books.failed + statistics.dead_letters}
        duration = max(max(self._end, last or 0.0) - (first or 0.0), 1e-9)
        settled = books.processed + statistics.replaced + statistics.merged
        return Result(
            policy=self._policy.name,
            mode="measure",
            seed=self._seed,
            arrived=arrived,
            duration=duration,
            throughput=settled / duration,
            busy=books.busy / duration,
            replaced=statistics.replaced,
            merged=statistics.merged,
            dropped=statistics.dropped,
            rejected=statistics.rejected,
            expired=statistics.expired,
            memory=figures["peak_depth"] * volume / max(arrived, 1),
            **figures,
        )

    def _replay(self, chunk: Iterable[Message], worker: Any) -> None:
        clock, start = time.perf_counter, self._start
        for message in chunk:
            left = message[AT] - (clock() - start)
            if left > 0:
                _wait(left, clock() + left)
            worker.push(message)


def _wait(left: float, until: float) -> None:
    """Wait for a moment: sleep most of it, spin the rest, letting other threads run."""
    if left > _NEAR:
        time.sleep(left - _NEAR)
    while time.perf_counter() < until:
        time.sleep(0)


_MEANS = ("duration", "throughput", "latency_mean", "batch_mean", "busy", "fairness")
_COUNTS = (
    "arrived", "processed", "batches", "replaced", "merged", "dropped", "rejected", "expired",
    "failed",
)  # fmt: skip
_WORST = ("oldest", "batch_max", "peak_depth", "memory")
_INTERVALS = ("throughput", "latency_mean", "p50", "p90", "p99", "busy", "batch_mean")


def _combine(runs: list[Result]) -> Result:
    """Average repetitions, with confidence intervals; of what is a maximum, the greatest."""
    first = runs[0]
    changed: dict[str, Any] = {name: fmean(_figure(run, name) for run in runs) for name in _MEANS}
    changed |= {name: round(fmean(_figure(run, name) for run in runs)) for name in _COUNTS}
    changed |= {name: max(_figure(run, name) for run in runs) for name in _WORST}
    latency = {name: fmean(run.latency[name] for run in runs) for name in first.latency}
    latency["max"] = max(run.latency["max"] for run in runs)
    intervals = {name: _interval([_figure(run, name) for run in runs]) for name in _INTERVALS}
    return replace(first, **changed, latency=latency, intervals=intervals)


def _figure(run: Result, name: str) -> float:
    value: float = run.latency[name] if name in run.latency else getattr(run, name)
    return value


def _interval(values: list[float]) -> tuple[float, float]:
    """Give the 95 % confidence interval of a mean, by Student's t."""
    mean = fmean(values)
    half = _STUDENT.get(len(values), 2.0) * stdev(values) / math.sqrt(len(values))
    return (mean - half, mean + half)
