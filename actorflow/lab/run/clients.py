"""The clients of a closed-loop simulation: what each does next, and what they have seen."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.lab.run.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.lab.models.clients import ClientTraffic
    from actorflow.lab.models.traffic import Message
    from actorflow.lab.run.result import Result

__all__ = ["ClientPool"]

_ONE = [None]  # a client thinks about one thing at a time


class _ClientRequest:
    """A message that a client waits for: its ticket. Resolved by the accumulation."""

    __slots__ = ("abandoned", "attempt", "ended", "first", "pool")

    def __init__(self, pool: ClientPool, first: float, attempt: int) -> None:
        self.pool = pool
        self.first = first
        """When the client sent this request for the first time."""
        self.attempt = attempt
        self.abandoned = False
        self.ended = False

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Let the client go on, unless it has stopped waiting."""
        if not (self.ended or self.abandoned):
            self.ended = True
            if error is None:
                self.pool.answered(self)
            else:
                self.pool.refused(self)


class ClientPool:
    """All clients of one run, as events in virtual time. The simulation sets `now`."""

    def __init__(
        self, traffic: ClientTraffic, seed: int, give_up: Callable[[_ClientRequest], None]
    ) -> None:
        self.now = 0.0
        self._give_up = give_up
        self._traffic = traffic
        self._random = Random(f"{seed}/clients")  # noqa: S311 - no secret
        self._draws = [
            draw.sampler(Random(f"{seed}/{name}"))  # noqa: S311 - no secret
            for name, draw in (
                ("keys", traffic.keys), ("priorities", traffic.priorities), ("sizes", traffic.sizes)
            )
        ]  # fmt: skip
        self._numbers = count()
        self._events: list[tuple[float, int, _ClientRequest | None, _ClientRequest | None]] = []
        """(when, number, the request to send, or the one that times out)."""
        self._counts = dict.fromkeys(
            ("requests", "answered", "refused", "timeouts", "retries", "gave_up"), 0
        )
        self._latencies = Histogram()
        for _ in range(traffic.count):
            self._think()

    def next_at(self) -> float:
        """Return when something happens next; `inf` if nothing will on its own."""
        return self._events[0][0] if self._events else inf

    def send(self) -> list[tuple[Message, _ClientRequest]]:
        """Perform the next event: return a message to send, or nothing after a timeout."""
        at, _, sending, waiting = heappop(self._events)
        self.now = at
        if waiting is not None:
            if not waiting.ended:
                self._give_up(waiting)
                self._counts["timeouts"] += 1
                self._again(waiting)
            return []
        assert sending is not None  # noqa: S101 - an event is one or the other
        self._counts["requests" if not sending.attempt else "retries"] += 1
        if self._traffic.timeout is not None:
            self._push(at + self._traffic.timeout, None, sending)
        key, priority, size = (next(iter(draw(1))) for draw in self._draws)
        return [((key, priority, size, at), sending)]

    def answered(self, request: _ClientRequest) -> None:
        """Count an answer; the client thinks."""
        self._counts["answered"] += 1
        self._latencies.add_many([self.now - request.first])
        self._think()

    def refused(self, request: _ClientRequest) -> None:
        """Count a refusal; the client tries again, or gives up."""
        self._counts["refused"] += 1
        self._again(request)

    def _again(self, request: _ClientRequest) -> None:
        if request.attempt < self._traffic.retries:
            at = self.now + self._traffic.backoff * 2**request.attempt
            if at < self._traffic.duration:
                self._push(at, _ClientRequest(self, request.first, request.attempt + 1), None)
                return
        self._counts["gave_up"] += 1
        self._think()

    def _think(self) -> None:
        at = self.now + self._traffic.think.seconds(_ONE, self._random)
        if at < self._traffic.duration:
            self._push(at, _ClientRequest(self, at, 0), None)

    def _push(
        self, at: float, sending: _ClientRequest | None, waiting: _ClientRequest | None
    ) -> None:
        heappush(self._events, (at, next(self._numbers), sending, waiting))

    def seen(self, result: Result) -> Result:
        """Return the result with what the clients have seen."""
        found: dict[str, float] = dict(self._counts)
        found |= {name: self._latencies.quantile(q) for name, q in (("p50", 0.5), ("p99", 0.99))}
        return replace(result, clients=found)
