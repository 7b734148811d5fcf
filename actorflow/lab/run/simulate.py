"""Simulation: the runtime's own accumulation, in virtual time, reproducible by its seed.

Only the executor (a service model instead of a job) and time are simulated. Messages go through
`Accumulation` and the behaviour objects that a worker would use: folded in while the executor is
busy, taken when it is free, exactly as there. When the traffic ends, the worker is stopped as by
`stop(drain=True)`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from math import inf
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import Policy, policy_of
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, Message, Traffic
from actorflow.lab.run.ledger import Ledger
from actorflow.runtime.errors import WouldBlock
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.pair.accumulation import Accumulation
from behaviours.base import adapt
from behaviours.errors import Full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.run.result import Result
    from actorflow.runtime.worker.job.failure import FailurePolicy
    from actorflow.runtime.worker.pair.batch import Batch

__all__ = ["Simulation", "simulate"]

_AT = itemgetter(AT)


def simulate(
    traffic: Traffic | str,
    service: Service | str,
    policy: Policy | str | Any,
    *,
    seed: int = 0,
    on_failure: Any = "drop",
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run one policy against traffic in virtual time.

    Args:
        traffic: the arrivals, as a model or as text (`"poisson(5000)"`, `"trace.jsonl"`).
        service: how long the job takes, as a model or as text (`"2ms + 10us*n"`).
        policy: what to run, as text, class or factory.
        seed: the same seed gives the same result.
        on_failure: what becomes of a batch on which the job fails, as for `spawn`. After
            `"drop"` the worker goes on, as a supervised one does.
        progress: called now and then with the number of messages so far.

    Raises:
        RunFailed: the behaviour refused every message as malformed.

    >>> result = simulate("constant(1000, duration=1s)", "5ms", "queue")
    >>> result.arrived, result.batches, round(result.busy, 2)
    (1000, 201, 1.0)

    """
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    model = parse_service(service) if isinstance(service, str) else service
    run = Simulation(policy_of(policy), model, seed, failure_policy(on_failure))
    return run.run(source.chunks(seed), progress)


class Simulation:
    """One run. Use `simulate`; this class exists so that tests can look inside.

    The executor is busy (`done` says until when), waits (`due` of the accumulation says until
    when), or is idle: then the next message goes to it at once and alone.
    """

    def __init__(
        self, tested: Policy, service: Service, seed: int, on_failure: FailurePolicy
    ) -> None:
        self._policy = tested
        self._service = service
        self._seed = seed
        self._on_failure = on_failure
        self._random = Random(f"{seed}/service")
        self._core = Accumulation(adapt(tested.make()))
        shape = self._core.shape
        self._stamped = shape.stamped or shape.first_stamped
        self._singly = self._stamped or self._core.behaviour.traits.blocks
        self._blocked: deque[Message] = deque()
        self._books = Ledger()

    def run(
        self, chunks: Iterator[list[Message]], progress: Callable[[int], None] | None = None
    ) -> Result:
        """Run until all messages have arrived and the executor has finished.

        Raises:
            RunFailed: the behaviour refused every message as malformed.

        """
        books = self._books
        done: float | None = None
        for chunk in chunks:
            done = self._arrive(chunk, done)
            books.arrive(chunk)
            if progress is not None:
                progress(books.arrived)
        self._drain(done)
        self._note_refusals()
        return books.result(
            policy=self._policy.name,
            mode="simulate",
            seed=self._seed,
            tally=self._core.behaviour.tally(),
            rejected=self._core.rejected,
        )

    def _note_refusals(self) -> None:
        """Note why messages were refused; what a full behaviour refuses is no error."""
        for _, error in self._core.take_refusals():
            if not isinstance(error, Full):
                self._books.blame(error)

    def _arrive(self, chunk: list[Message], done: float | None) -> float | None:
        """Simulate the arrival of a chunk; return until when the executor is busy, if it is."""
        core, turn, add = self._core, self._turn, self._add
        times = list(map(_AT, chunk))
        at, count = 0, len(chunk)
        while at < count:
            if done is not None:  # busy: all that come before it is free accumulate
                upto = bisect_right(times, done, at)
                if upto > at:
                    add(chunk[at:upto])
                    at = upto
                    if at == count:
                        break
                done = turn(done)
                continue
            now = times[at]
            due = core.due
            if due is not None and due <= now:
                done = turn(due)
            elif due is None or self._stamped:
                add(chunk[at : at + 1])
                at += 1
                done = turn(now)
            else:  # waiting for a moment that messages do not change
                upto = bisect_left(times, due, at)
                add(chunk[at:upto])
                at = upto
        return done

    def _drain(self, done: float | None) -> None:
        """Process what is left, as after `stop(drain=True)`."""
        self._core.behaviour.flush()
        now = self._books.last
        while True:
            if done is not None:
                now = done
            elif not len(self._core) and not self._blocked:
                return
            done = self._turn(now)
            if done is None:
                due = self._core.due
                if due is None or due == inf:
                    return  # a behaviour that never releases its messages
                now = max(now, due)

    def _add(self, messages: list[Message]) -> None:
        """Accumulate messages; behind one that has to wait for room, all have to wait."""
        if self._blocked:
            self._blocked.extend(messages)
        elif self._singly:
            self._offer(messages, None)
        else:
            self._core.raw = messages
            self._core.fold()
            if self._core.refusals:
                self._note_refusals()

    def _offer(self, messages: Sequence[Message], now: float | None) -> bool:
        """Offer messages one by one; return whether none has to wait for room."""
        offer = self._core.offer
        for place, message in enumerate(messages):
            try:
                offer(message, None, message[AT] if now is None else now)
            except WouldBlock:
                self._core.unoffer()
                self._blocked.extendleft(reversed(messages[place:]))
                return False
            except Full:
                continue  # the accumulation has counted it
            except Exception as error:  # noqa: BLE001 - malformed, or the behaviour has failed
                self._books.blame(error)
        return True

    def _unblock(self, now: float) -> None:
        """Retry the pushes that wait for room."""
        blocked = self._blocked
        while blocked:
            some = [blocked.popleft() for _ in range(min(len(blocked), 256))]
            if not self._offer(some, now):
                return

    def _turn(self, now: float) -> float | None:
        """Take a batch if one may leave, and process it; return when that ends."""
        core = self._core
        while True:
            held = len(core.behaviour)
            batch = core.take(now)
            if batch is not None:
                break
            if not self._blocked or len(core.behaviour):
                return None
            self._unblock(now)  # everything that was held has expired
        self._books.begin(now, batch.size, held)
        done = self._process(batch, now)
        if self._blocked:
            self._unblock(now)
        return done

    def _process(self, batch: Batch, now: float) -> float:
        """Process a batch, as the failure policy says if it fails; return when that ends."""
        seconds, random = self._service.seconds, self._random
        todo = [batch]
        done = now
        while todo:
            part = todo.pop()
            began = done
            try:
                done += seconds(part.payload, random)
            except ServiceFailure as failure:
                done += failure.seconds
                part.attempt += 1
                parts = self._on_failure.parts(part)
                if parts is None:
                    self._books.failed += part.size
                else:
                    todo.extend(reversed(parts))
            else:
                payload = part.payload
                self._books.finish(payload if type(payload) is list else [payload], began, done)
                if self._core.shape.observed:
                    self._core.behaviour.observe(part.size, done - began)
        self._books.busy += done - now
        self._books.end = done
        return done
