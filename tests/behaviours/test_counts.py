"""The law of conservation: added - rejected = handed over + held + all that left otherwise."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import (
    Adaptive,
    Base,
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Rejected,
    Stack,
    TableUnique,
    Throttle,
    Unique,
    adapt,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Latest:
    """Replaces whatever it holds."""

    def __repr__(self) -> str:
        return "Latest()"

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        if message[0] == 1:
            raise ValueError
        self.held = [message]

    def take(self) -> Any:
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        return len(self.held)


class Sheds(Latest):
    """Drops the oldest of more than two, without being asked to."""

    def __repr__(self) -> str:
        return "Sheds()"

    def add(self, message: Any) -> None:
        self.held.append(message)
        del self.held[:-2]

    def drop_oldest(self) -> Any:
        return self.held.pop(0)


class OneByOne(Base):
    """Hands over one message at a time, in a list that is longer than that."""

    def transform(self, messages: Any) -> Any:
        return [messages[0], "in a list"]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


class Total(Base):
    """A number: the value is not even a collection."""

    def init(self) -> Any:
        return 0

    def add(self, messages: Any, message: Any) -> Any:
        return messages + message[1] + 1

    def clear(self, messages: Any) -> Any:
        return 0


def total(old: Any, new: Any) -> Any:
    return (old[0], old[1] + new[1])


FACTORIES: list[Callable[[], Behaviour]] = [
    Queue,
    Stack,
    Unique,
    Priority,
    Fair,
    TableUnique,
    lambda: Coalesce(0, total),
    lambda: Chunk(Coalesce(0, total), 3, weight=lambda message: message[1]),
    lambda: Adaptive(Bounded(Coalesce(0, total), 2, when_full="drop_oldest"), 2.0),
    lambda: Bounded(Expire(Queue(), 2.0), 3, when_full="drop_oldest"),
    lambda: Bounded(Expire(Stack(), 2.0), 3),
    lambda: Expire(Bounded(Unique(), 2, when_full="drop_newest"), 2.0),
    lambda: Throttle(Debounce(Linger(Bounded(Unique(), 2), 1.0), 1.0), 1.0),
    lambda: Expire(TableUnique(), 2.0),
    lambda: adapt(Latest),
    lambda: adapt(Sheds),
    lambda: adapt(OneByOne),
    lambda: adapt(Total),
    lambda: Bounded(Latest(), 1),
    lambda: Bounded(Sheds(), 3, when_full="drop_oldest"),
]


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: repr(factory()))
def test_m5_m16_each_message_is_counted_once_at_every_moment(
    factory: Callable[[], Behaviour],
) -> None:
    random = Random(11)
    for _ in range(20):
        behaviour = factory()
        added = handed = 0
        now = 0.0
        behaviour.ready_at(now)
        for serial in range(60):
            now += random.choice([0.0, 0.5, 1.0])
            messages: list[Any] = [
                (random.randrange(4), serial + at) for at in range(random.randrange(5))
            ]
            messages += random.choices([(), None], k=random.random() < 0.1)
            added += len(messages)
            step = random.randrange(3)
            if step == 0:
                behaviour.ready_at(now)
                add_singly(behaviour, messages)
            elif step == 1:
                behaviour.ready_at(now)
                behaviour.extend(messages)
            else:
                times = sorted(random.uniform(now, now + 1) for _ in messages)
                behaviour.extend_at(messages, times)
                now += 1
            check(behaviour, added, handed)
            if len(behaviour) and random.random() < 0.3:
                behaviour.ready_at(now)
                held = len(behaviour)
                batch = behaviour.take()
                tracks = behaviour.traits.trackable
                handed += len(batch) if tracks else held - len(behaviour)
                check(behaviour, added, handed)


def add_singly(behaviour: Behaviour, messages: list[Any]) -> None:
    for message in messages:
        with suppress(Rejected, TypeError, IndexError, ValueError):
            behaviour.add(message)


def check(behaviour: Behaviour, added: int, handed: int) -> None:
    tally = behaviour.tally()
    left = tally.replaced + tally.dropped + tally.expired + tally.merged
    assert added - tally.rejected == handed + len(behaviour) + left


def test_what_disappears_in_an_object_of_the_users_was_dropped() -> None:
    latest = adapt(Latest)
    latest.extend([(0, 1), (0, 2), (1, 3), (0, 4)])
    assert latest.take() == [(0, 4)]
    assert (latest.tally().dropped, latest.tally().rejected) == (2, 1)
    sheds = adapt(Sheds)
    sheds.extend([1, 2, 3, 4, 5])
    assert sheds.take() == [4, 5]
    assert sheds.tally().dropped == 3


def test_coalesce_counts_what_it_has_merged() -> None:
    coalesce = Coalesce(0, total)
    coalesce.extend([("a", 1), ("a", 2), ("b", 3), ("a", None), None])
    coalesce.add(("b", 1))
    assert (coalesce.tally().merged, coalesce.tally().rejected) == (2, 2)
    assert coalesce.take() == [("a", 3), ("b", 4)]
