"""A worker once more, event by event, as obvious as it can be: what `simulate` must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import Rejected, WouldBlock
from tests.behaviours.compositions import Part, modelled
from tests.behaviours.models import Entry, World

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Naive:
    """One run. Times are looked for among all that could happen next; nothing is skipped."""

    layers: tuple[Part, ...]
    seconds: Callable[[int], float]
    busy_until: float | None = None
    blocked: list[Any] = field(default_factory=list)
    rejected: int = 0
    batches: list[list[Any]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    busy: float = 0.0

    def run(self, messages: list[Any]) -> None:
        self.world = World()
        self.model = modelled(self.layers, self.world)
        arrivals = list(messages)
        while arrivals:
            at = arrivals[0][3]
            if self.busy_until is not None and self.busy_until < at:
                self.free(self.busy_until)
            elif self.busy_until is None and self.due() <= at:
                self.take(self.due())
            else:
                self.arrive(arrivals.pop(0), at)
        self.model.flush()
        now = messages[-1][3] if messages else 0.0
        while self.busy_until is not None or self.model.size() or self.blocked:
            if self.busy_until is not None:
                now = self.busy_until
                self.free(now)
            else:
                self.take(max(now, self.due()))

    def due(self) -> float:
        """When a batch may leave, if nothing else happens."""
        if not self.model.size():
            return inf
        return self.model.ready_at() if self.model.timed else self.world.now

    def arrive(self, message: Any, at: float) -> None:
        self.world.now = at
        if self.blocked or not self.added(message):
            self.blocked.append(message)
        if self.busy_until is None:
            self.take(at)

    def added(self, message: Any) -> bool:
        try:
            self.model.add(Entry(message))
        except WouldBlock:
            return False
        except Rejected:
            self.rejected += 1
        return True

    def free(self, at: float) -> None:
        self.busy_until = None
        self.take(at)

    def take(self, at: float) -> None:
        self.world.now = at
        while self.model.size() and self.due() <= at:
            depth = self.model.size()
            batch = [entry.message for entry in self.model.take()]
            if batch:
                self.process(batch, depth, at)
            self.unblock()
            if batch:
                return
        if not self.model.size() and self.blocked:
            self.unblock()
            self.take(at)

    def unblock(self) -> None:
        while self.blocked and self.added(self.blocked[0]):
            self.blocked.pop(0)

    def process(self, batch: list[Any], depth: int, at: float) -> None:
        took = self.seconds(len(batch))
        self.busy_until = at + took
        self.busy += took
        self.batches.append(batch)
        self.depths.append(depth)
        self.latencies += [self.busy_until - message[3] for message in batch]
