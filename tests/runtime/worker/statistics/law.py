"""The law of the statistics, and custom behaviours that make it hard to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours import Base

if TYPE_CHECKING:
    import actorflow as af


def check_law(worker: af.WorkerRef) -> af.WorkerStatistics:
    """Assert that the counts add up at this moment, and return them."""
    s = worker.statistics()
    ends = s.processed + s.failed + s.replaced + s.merged + s.dropped + s.expired + s.dead_lettered
    ends += s.abandoned
    assert s.accepted == ends + s.held + s.in_flight, s
    counts = (
        s.accepted, s.rejected, s.processed, s.failed, s.replaced, s.merged, s.dropped, s.expired,
        s.abandoned, s.dead_lettered, s.held, s.in_flight, s.batches,
    )  # fmt: skip
    assert min(counts) >= 0, s
    assert sum(s.reasons.values()) == s.batches, s
    return s


class Latest:
    """Holds the newest message only."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held = [message]

    def take(self) -> Any:
        held, self.held = self.held, []
        return held

    def __len__(self) -> int:
        return len(self.held)


class Sampled(Latest):
    """Keeps every third message, and lists what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def add(self, message: Any) -> None:
        self.seen += 1
        if self.seen % 3 == 1:
            self.held.append(message)

    def __iter__(self) -> Any:
        return iter(self.held)


class Picky(Latest):
    """Refuses some messages, and keeps all others."""

    def add(self, message: Any) -> None:
        if message[1] % 2:
            raise ValueError(message)
        self.held.append(message)


class OneByOne(Latest):
    """Hands messages over bare, one at a time."""

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> Any:
        return self.held.pop(0)


class Doubling(OneByOne):
    """Hands over more than it was given."""

    def take(self) -> Any:
        held, self.held = self.held, []
        return held + held


class Forgetful(OneByOne):
    """Forgets half of what it holds when it hands over the rest."""

    def take(self) -> Any:
        held, self.held = self.held, []
        return held[: len(held) // 2 + 1]


class Boasting(OneByOne):
    """Claims to hold more than it does."""

    def __len__(self) -> int:
        return 10 * len(self.held)


class Summed(Base):
    """Hands over something that is made of all messages."""

    def transform(self, messages: Any) -> Any:
        return [(0, sum(message[1] for message in messages))]


CUSTOM = (Latest, Sampled, Picky, OneByOne, Doubling, Forgetful, Boasting, Summed)
