"""Simulation: the runtime's own accumulation, in virtual time, reproducible by its seed.

Only the executor (a service model instead of a job) and time are simulated. Messages go through
`Accumulation` and the behaviour objects that a worker would use: folded in while the executor is
busy, taken when it is free, exactly as there. When the traffic ends, the worker is stopped as by
`stop(drain=True)`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from heapq import heappop, heappush
from math import inf
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours.adapt import adapt
from actorflow.behaviours.behaviour import MessageOutcome
from actorflow.behaviours.errors import Full
from actorflow.lab.models.clients import ClientTraffic
from actorflow.lab.models.policies import Policy, policy_of
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, Message, Traffic
from actorflow.lab.run.clients import ClientPool
from actorflow.lab.run.precision import precise, share
from actorflow.lab.run.result import BatchRecord
from actorflow.lab.run.statistics import RunStatistics
from actorflow.runtime.errors import BadOption, WouldBlock
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.pair.accumulation import Accumulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.run.result import Result
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.job.failure import FailurePolicy

__all__ = ["PolicySimulation", "simulate"]

_AT = itemgetter(AT)


def simulate(
    traffic: Traffic | str,
    service: Service | str,
    policy: Policy | str | Any,
    *,
    seed: int = 0,
    on_failure: Any = "drop",
    concurrency: int = 1,
    price: float = 0.0,
    precision: float | str | None = None,
    figures: Sequence[str] = ("p50", "p99"),
    warm_up: float = 0.0,
    keep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run one policy against traffic in virtual time.

    Args:
        traffic: the arrivals, as a model or as text (`"poisson(5000)"`, `"trace.jsonl"`).
        service: how long the job takes, as a model or as text (`"2ms + 10us*n"`).
        policy: what to run, as text, class or factory.
        seed: the same seed gives the same result.
        on_failure: what happens to a batch on which the job fails, as for `spawn`. After
            `"drop"` the worker goes on, as a supervised one does.
        concurrency: how many batches may run at once, as for `spawn`.
        price: of one executor for a second; the result has the `cost` of all of them.
        precision: run with one seed after the other, until the 95 % confidence interval of each
            of `figures` is at most this far from its mean on either side: 0.05, or `"5%"`. The
            warm-up is found and cut.
        figures: percentiles, `"mean"`, `"busy"`, `"batch"` or `"throughput"`.
        warm_up: seconds at the start that latencies and batches leave out.
        keep: whether the result has every batch, for `chrome_trace`.
        progress: called now and then with the number of messages so far.

    Raises:
        RunFailed: the behaviour refused every message as malformed.

    >>> result = simulate("constant(1000, duration=1s)", "5ms", "queue")
    >>> result.arrived, result.batches, round(result.busy, 2)
    (1000, 201, 1.0)

    """
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    model = parse_service(service) if isinstance(service, str) else service
    chosen, failing = policy_of(policy), failure_policy(on_failure)
    if type(concurrency) is not int or concurrency < 1:
        msg = f"concurrency={concurrency!r} must be a whole number, 1 or more"
        raise BadOption(msg)

    def one(seed: int, since: float, *, keep: bool = False) -> PolicySimulation:
        run = PolicySimulation(
            chosen, model, seed, failing,
            concurrency=concurrency, price=price, since=since, keep=keep,
        )  # fmt: skip
        run.run(source, progress)
        return run

    if precision is None:
        return one(seed, warm_up, keep=keep).result
    return precise(one, seed, share(precision), figures)


class PolicySimulation:
    """One run. Use `simulate`; this class exists so that tests can look inside.

    Each executor is busy until a moment that is known. While none is free, messages accumulate.
    While one is free, either nothing may leave (`due` of the accumulation says until when), or
    nothing is held: then the next message goes to it at once and alone.
    """

    def __init__(
        self,
        tested: Policy,
        service: Service,
        seed: int,
        on_failure: FailurePolicy,
        *,
        concurrency: int = 1,
        price: float = 0.0,
        since: float = 0.0,
        keep: bool = False,
    ) -> None:
        self._policy = tested
        self._service = service
        self._seed = seed
        self._on_failure = on_failure
        self._price = price
        self._random = Random(f"{seed}/service")  # noqa: S311 - no secret
        self._core = Accumulation(adapt(tested.make()))
        shape = self._core.shape
        self._stamped = shape.stamped or shape.first_stamped
        traits = self._core.behaviour.traits
        # With several executors, one may be free while messages are held back.
        self._patient = not self._stamped and (concurrency == 1 or traits.patient)
        self._singly = self._stamped or traits.blocks
        self._blocked: deque[Message] = deque()
        self._running: list[_RunningBatch] = []
        self._free = list(range(concurrency - 1, -1, -1))
        self._number = 0
        self._clients: ClientPool | None = None
        self.statistics = RunStatistics(concurrency, since=since, keep=keep)
        self.result: Result

    def run(
        self,
        traffic: Traffic | ClientTraffic,
        progress: Callable[[int], None] | None = None,
    ) -> Result:
        """Run until all messages have arrived and the executors have finished.

        Raises:
            RunFailed: the behaviour refused every message as malformed.

        """
        statistics = self.statistics
        if isinstance(traffic, ClientTraffic):
            if self._core.behaviour.traits.blocks:
                msg = (
                    f"{self._policy.name} makes pushers wait, and the clients of {traffic} wait "
                    "for their answers anyway; use when_full='reject'"
                )
                raise BadOption(msg)
            self._clients = ClientPool(traffic, self._seed, self._core.give_up)
            self._serve_clients(self._clients)
        else:
            for chunk in traffic.chunks(self._seed):
                statistics.arrive(chunk)
                self._arrive(chunk)
                if progress is not None:
                    progress(statistics.arrived)
        self._drain()
        self._note_refusals()
        self.result = statistics.result(
            policy=self._policy.name,
            mode="simulate",
            seed=self._seed,
            tally=self._core.behaviour.tally(),
            rejected=self._core.rejected,
            abandoned=self._core.abandoned,
            price=self._price,
        )
        if self._clients is not None:
            self.result = self._clients.seen(self.result)
        return self.result

    def _note_refusals(self) -> None:
        """Record why messages were refused; what a full behaviour refuses is not an error."""
        for _, error in self._core.take_refusals():
            if not isinstance(error, Full):
                self.statistics.blame(error)

    def _arrive(self, chunk: list[Message]) -> None:
        """Simulate the arrival of a chunk."""
        core, running, add = self._core, self._running, self._add
        times = list(map(_AT, chunk))
        at, count = 0, len(chunk)
        while at < count:
            if not self._free:  # all that come before an executor is free accumulate
                upto = bisect_right(times, running[0].done, at)
                if upto > at:
                    add(chunk[at:upto])
                    at = upto
                    if at == count:
                        break
                self._turn(self._complete())
                continue
            now = times[at]
            due = core.due
            if running and running[0].done < now and (due is None or running[0].done <= due):
                self._turn(self._complete())
            elif due is not None and due <= now:
                self._turn(due)
            elif due is None or not self._patient:
                add(chunk[at : at + 1])
                at += 1
                self._turn(now)
            else:  # waiting for a moment that messages do not change
                upto = bisect_left(times, min(due, running[0].done if running else inf), at)
                upto = max(upto, at + 1)
                add(chunk[at:upto])
                at = upto

    def _serve_clients(self, clients: ClientPool) -> None:
        """Simulate clients that send the next message when they have an answer."""
        core, running = self._core, self._running
        while True:
            sending = clients.next_at()
            done = running[0].done if running else inf
            due = core.due if self._free and core.due is not None else inf
            if sending == inf and not (running or len(core)):
                return
            if done <= min(sending, due):
                self._turn(self._complete())
            elif due <= sending:
                self._turn(due)
            elif sending == inf:
                return  # the held messages leave when the worker stops
            else:
                for message, ticket in clients.send():
                    self.statistics.arrive([message])
                    self._ask(message, ticket, sending)
                if self._free:
                    self._turn(sending)

    def _ask(self, message: Message, ticket: Any, now: float) -> None:
        """Add the message of a client that waits for its answer."""
        try:
            self._core.offer(message, ticket, now)
        except Full as error:
            ticket.resolve(error)
        except Exception as error:  # noqa: BLE001 - malformed, or the behaviour has failed
            self.statistics.blame(error)
            ticket.resolve(error)

    def _drain(self) -> None:
        """Process the remaining messages, as after `stop(drain=True)`."""
        core, running = self._core, self._running
        core.behaviour.flush()
        now = self.statistics.last
        while True:
            self._turn(now)
            done = running[0].done if running else inf
            due = core.due if self._free and core.due is not None else inf
            if done == due == inf:
                return  # nothing is left, or a behaviour never releases its messages
            now = self._complete() if done <= due else max(now, due)

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
                self.statistics.blame(error)
        return True

    def _unblock(self, now: float) -> None:
        """Retry the pushes that wait for room."""
        blocked = self._blocked
        while blocked:
            some = [blocked.popleft() for _ in range(min(len(blocked), 256))]
            if not self._offer(some, now):
                return

    def _turn(self, now: float) -> None:
        """Let free executors take batches, as many as may leave."""
        core = self._core
        if self._clients is not None:
            self._clients.now = now
        while self._free:
            held = len(core.behaviour)
            batch = core.take(now, len(self._free))
            if batch is not None:
                self.statistics.begin(now, batch.size, held)
                self._start(batch, now)
                if self._blocked:
                    self._unblock(now)
            elif self._blocked and not len(core.behaviour):
                self._unblock(now)  # everything that was held has expired
            else:
                return

    def _start(self, batch: Batch, now: float) -> None:
        """Give a batch to a free executor: draw how its calls end, and when."""
        seconds, random = self._service.seconds, self._random
        todo = [batch]
        done = now
        calls: list[_SimulatedCall] = []
        while todo:
            part = todo.pop()
            began = done
            try:
                done += seconds(part.payload, random)
            except ServiceFailure as failure:
                done += failure.seconds
                part.attempt += 1
                parts = self._on_failure.parts(part)
                outcome = MessageOutcome.FAILED if parts is None else MessageOutcome.RETRIED
                if parts is not None:
                    todo.extend(reversed(parts))
            else:
                outcome = MessageOutcome.PROCESSED
            calls.append(_SimulatedCall(part, began, done, outcome))
        self._number += 1
        heappush(self._running, _RunningBatch(done, self._number, now, self._free.pop(), calls))
        if not self._free:
            self.statistics.idle.occupied(now)

    def _complete(self) -> float:
        """End the calls of the executor that is done first; return when that is."""
        ended = heappop(self._running)
        statistics = self.statistics
        if self._clients is not None:
            self._clients.now = ended.done
        for batch, began, done, outcome in ended.calls:
            if outcome is MessageOutcome.FAILED:
                statistics.failed += batch.size
                if batch.tickets:
                    batch.resolve(_FAILED)
            elif outcome is MessageOutcome.PROCESSED:
                messages = batch.messages()
                statistics.finish(messages, began, done)
                if statistics.batch_log is not None:
                    oldest = min(map(_AT, messages), default=began)
                    statistics.log_batch(
                        BatchRecord(
                            ended.executor, began, done, batch.size, batch.reason.value, oldest
                        )
                    )
                if batch.tickets:
                    batch.resolve()
            if self._core.shape.observed:
                self._core.report(batch, done - began, outcome)
        statistics.occupy(ended.began, ended.done)
        statistics.idle.freed(ended.done)
        self._free.append(ended.executor)
        return ended.done


class _SimulatedCall(NamedTuple):
    batch: Batch
    began: float
    done: float
    outcome: MessageOutcome


class _RunningBatch(NamedTuple):
    """What an executor is busy with; the one that is done first comes first."""

    done: float
    number: int
    began: float
    executor: int
    calls: list[_SimulatedCall]


_FAILED = ServiceFailure(0.0)
