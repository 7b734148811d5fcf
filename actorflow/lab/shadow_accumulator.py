"""Shadow a live worker: what another policy would do with the same messages.

A second accumulator gets every message that is pushed, and takes batches in virtual time, which
follows the arrivals. Nothing is executed: how long a batch would take comes from a model that is
fitted to the batches of the live worker. Shadowing the policy that the worker has shows how far the
prediction is off.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from random import Random
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours.adapt import adapt
from actorflow.behaviours.behaviour import MessageOutcome
from actorflow.lab.models.policies import policy_of
from actorflow.lab.recording import PushTap
from actorflow.lab.run.fit import fit_batches
from actorflow.lab.run.goals import Goal, parse_goals
from actorflow.lab.run.statistics import RunStatistics
from actorflow.runtime.errors import ActorflowError, BadOption, WorkerStopped
from actorflow.runtime.worker.latency import observe_batches
from actorflow.runtime.worker.pair.accumulation import Accumulation
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from actorflow.lab.models.service import Service
    from actorflow.lab.run.result import Result
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["Shadow", "ShadowAccumulator", "ShadowRefused", "shadow"]

_REMEMBERED = 2_000  # batches of the live worker
_REFIT_EVERY = 100
_FEW = 10  # batches, with which no line can be fitted


class ShadowRefused(ActorflowError):
    """The shadowed policy is not put in place: it misses a goal, or too little is known of it."""


def shadow(worker: WorkerRef, policy: Any) -> Shadow:
    """Let a policy see the messages that are pushed through a ref, until the shadow is closed.

    Use it as `with shadow(worker, lambda: Linger(Queue(), 0.005)) as seen: ...`.

    Args:
        worker: the ref through which messages are pushed; its pushes work as before.
        policy: what to predict, as class, factory or text. Its functions get the real messages.

    """
    return Shadow(worker, policy)


class Shadow:
    """A policy in the shadow of a live worker. It works in a thread of its own."""

    def __init__(self, worker: WorkerRef, policy: Any) -> None:
        PushTap.check(worker)
        self._policy = policy_of(policy)
        self._worker = worker
        self._begin = monotonic()
        concurrency = worker.actor.settings.concurrency
        self._service = _LearntService()
        self._accumulator = ShadowAccumulator(
            self._policy.make(), self._service, concurrency=concurrency
        )
        self._follower = spawn(self._follow)
        self._tap = PushTap(worker, self._note)
        self._stop = observe_batches(worker.actor, self._note_batch)

    def _note(self, messages: Sequence[Any]) -> None:
        """Pass arrivals on. Runs in the pusher's thread."""
        at = monotonic() - self._begin
        with suppress(WorkerStopped):
            self._follower.push((at, messages))

    def _note_batch(self, size: int, began: float, done: float) -> None:
        """Pass a batch on. Runs under the lock of the worker."""
        with suppress(WorkerStopped):
            self._follower.push((size, done - began, None))

    def _follow(self, rows: list[Any], _state: None) -> None:
        """Let the second accumulator follow. In the thread of the shadow."""
        for row in rows:
            if len(row) == 3:  # noqa: PLR2004 - a batch
                self._service.learn(row[0], row[1])
            else:
                at, messages = row
                for message in messages:
                    self._accumulator.push(message, at)

    def result(self) -> Result:
        """Return what the policy would have done so far; its `mode` is `shadow`."""
        with suppress(WorkerStopped):  # closed: it has seen all
            self._follower.push_block((monotonic() - self._begin, ()))
        return self._accumulator.result(self._policy.name)

    def error(self) -> float | None:
        """Return predicted p99 / live p99 - 1; `None` if there is too little data for either.

        It says how far the prediction is off only if the policy is the one that the worker has.
        """
        predicted, live = self.result(), self._worker.statistics().latency_p99
        if not live or predicted.needed("p99"):
            return None
        return predicted.latency["p99"] / live - 1

    def change(self, goals: str | Sequence[Goal]) -> Result:
        """Give the worker the shadowed policy, if that would have met the goals; return its result.

        Raises:
            ShadowRefused: it would have missed one, or too few messages were seen to know.
            BadOption: the worker cannot have this policy; see `worker.change`.

        """
        wanted = parse_goals(goals) if isinstance(goals, str) else tuple(goals)
        if not wanted:
            msg = "change needs a goal, as in shadow.change('p99 < 50ms, no loss')"
            raise BadOption(msg)
        found = self.result()
        short = [goal for goal in wanted if found.needed(goal.figure)]
        if short:
            msg = (
                f"{found.observed} messages are too few to know {short[0].figure}: it needs "
                f"{found.needed(short[0].figure)}; wait for more"
            )
            raise ShadowRefused(msg)
        missed = [goal for goal in wanted if not goal.is_met(found)]
        if missed:
            msg = f"{self._policy.name} would have missed {', '.join(map(str, missed))}"
            raise ShadowRefused(msg)
        self._worker.change(self._policy.make)
        return found

    def close(self) -> None:
        """Stop following. Idempotent; the result stays."""
        self._tap.close()
        self._stop()
        with suppress(WorkerStopped):
            self._follower.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _LearntService:
    """How long a batch takes, as learnt from the latest batches of the live worker."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._model: Service | None = None
        self._fitted_at = self._count = 0

    def learn(self, size: int, took: float) -> None:
        """Record a batch."""
        if size > 0 and took > 0:
            self._batches.append((size, took))
            self._count += 1

    def seconds(self, batch: Any, random: Random) -> float:
        """Return the time for a batch. O(1), except for each hundredth."""
        if self._count < _FEW:
            return median([took for _, took in self._batches]) if self._batches else 0.0
        if self._model is None or self._count >= self._fitted_at + _REFIT_EVERY:
            self._fitted_at = self._count
            self._model = fit_batches(self._batches).model()
        return self._model.seconds(batch, random)


class _ShadowArrival:
    """A message that waits in the second accumulator: its ticket."""

    __slots__ = ("at", "owner")

    def __init__(self, at: float, owner: ShadowAccumulator) -> None:
        self.at = at
        self.owner = owner

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Do nothing: losses are in the tally of the behaviour."""


class _Running(NamedTuple):
    done: float
    number: int
    began: float
    batch: Batch
    arrivals: list[float]


class ShadowAccumulator:
    """An accumulator in virtual time that gets arrivals one by one, in order."""

    def __init__(
        self, behaviour: Any, service: Service, *, concurrency: int = 1, seed: int = 0
    ) -> None:
        self._core = Accumulation(adapt(behaviour))
        self._service = service
        self._random = Random(f"{seed}/service")  # noqa: S311 - no secret
        self._free = concurrency
        self._running: list[_Running] = []
        self._number = 0
        self._now = 0.0
        self._statistics = RunStatistics(concurrency)

    def push(self, message: Any, at: float) -> None:
        """Add a message that arrives now. Two threads may be a little out of order."""
        at = self._now = max(at, self._now)
        self._advance(at)
        self._statistics.arrive([(0, 0, 1.0, at)])
        # Refused, or asked to wait: the live worker has told its caller.
        with suppress(Exception):
            self._core.offer(message, _ShadowArrival(at, self), at)
        if self._free:
            self._turn(at)

    def _advance(self, until: float) -> None:
        core, running = self._core, self._running
        while True:
            done = running[0].done if running else inf
            due = core.due if self._free and core.due is not None else inf
            if min(done, due) > until:
                return
            self._turn(self._complete() if done <= due else due)

    def _turn(self, now: float) -> None:
        core = self._core
        while self._free:
            held = len(core.behaviour)
            batch = core.take(now, self._free)
            if batch is None:
                return
            took = self._service.seconds(batch.payload, self._random)
            arrivals = [ticket.at for _, ticket in batch.tickets or ()]  # type: ignore[attr-defined]
            self._statistics.begin(now, batch.size, held)
            self._number += 1
            heappush(self._running, _Running(now + took, self._number, now, batch, arrivals))
            self._free -= 1
            if not self._free:
                self._statistics.idle.occupied(now)

    def _complete(self) -> float:
        ended = heappop(self._running)
        messages = [(0, 0, 1.0, at) for at in ended.arrivals]
        self._statistics.finish(messages, ended.began, ended.done)
        if self._core.shape.observed:
            took = ended.done - ended.began
            self._core.report(ended.batch, took, MessageOutcome.PROCESSED)
        self._statistics.occupy(ended.began, ended.done)
        self._statistics.idle.freed(ended.done)
        self._free += 1
        return ended.done

    def result(self, name: str) -> Result:
        """Return the figures so far. What still waits or runs is not lost."""
        core = self._core
        found = self._statistics.result(
            policy=name, mode="shadow", seed=0, tally=core.behaviour.tally(), rejected=core.rejected
        )
        waiting = len(core.behaviour) + sum(each.batch.size for each in self._running)
        return replace(found, unaccounted=max(found.unaccounted - waiting, 0))
