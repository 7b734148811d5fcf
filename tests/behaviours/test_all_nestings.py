"""Random nestings of all behaviours keep their promises."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest

from actorflow.behaviours import (
    Adaptive,
    BadBehaviour,
    Behaviour,
    Bounded,
    Bucket,
    Chunk,
    Coalesce,
    CoDel,
    Deadline,
    Debounce,
    Dedup,
    Expire,
    Fair,
    Lanes,
    Lifo,
    Linger,
    MessageOutcome,
    PadTo,
    PerKey,
    Preempt,
    Priority,
    Queue,
    Rate,
    Rejected,
    Sample,
    Shortest,
    Stack,
    TableUnique,
    Throttle,
    Unique,
    Window,
    WouldBlock,
)
from actorflow.behaviours.behaviour import unwrap

PAD = ("pad", 0, -1)


def weight(message: Any) -> int:
    return message[1]  # type: ignore[no-any-return]


def merge(old: Any, new: Any) -> Any:
    return (old[0], max(old[1], new[1]), old[2])


LEAVES: list[Any] = [
    Queue, Stack, lambda: Unique(key=0), lambda: TableUnique(0, database=":memory:"),
    lambda: Coalesce(0, merge), lambda: Priority(key=1), lambda: Fair(key=0),
    lambda: Fair(key=0, weight=weight), lambda: Shortest(weight), lambda: Sample(4),
    lambda: Lanes(first=Queue, follow=Queue, by=lambda m: "first" if m[1] > 1 else "follow"),
    lambda: Bucket(0), lambda: Window(1.0),
]  # fmt: skip
WRAPPERS: list[Any] = [
    lambda inner: Chunk(inner, 1), lambda inner: Chunk(inner, 3),
    lambda inner: Chunk(inner, 4, weight=weight), lambda inner: Bounded(inner, 3),
    lambda inner: Bounded(inner, 2, when_full="drop_oldest"),
    lambda inner: Bounded(inner, 2, when_full="drop_newest"),
    lambda inner: Bounded(inner, 2, when_full="drop_lowest"),
    lambda inner: Bounded(inner, 2, when_full="block"),
    lambda inner: Linger(inner, 1.0), lambda inner: Linger(inner, 1.0, size=2),
    lambda inner: Debounce(inner, 0.5, 2.0), lambda inner: Throttle(inner, 1.0),
    lambda inner: Expire(inner, 2.0), lambda inner: Adaptive(inner, 2.0),
    lambda inner: Deadline(inner, 3.0), lambda inner: Rate(inner, 2.0, burst=3),
    lambda inner: PerKey(inner, key=0), lambda inner: PadTo(inner, [1, 2, 4], fill=PAD),
    lambda inner: CoDel(inner, 0.5, 1.0), lambda inner: Lifo(inner, 2),
    lambda inner: Dedup(inner, 1.5, key=0), lambda inner: Bucket(0, inner),
    lambda inner: Window(1.0, inner), lambda inner: Preempt(inner, when=lambda m: m[1] > 2),
    lambda inner: Preempt(inner, when=lambda m: m[1] > 2, victims="return"),
]  # fmt: skip


def nested(random: Random) -> Behaviour | None:
    """Return a random nesting, or `None` if it is one that is refused."""
    behaviour: Any = random.choice(LEAVES)
    try:
        made: Behaviour = behaviour()
        for _ in range(random.randint(1, 4)):
            made = random.choice(WRAPPERS)(made)
    except BadBehaviour:
        return None
    return made


def layers(behaviour: Any) -> list[Any]:
    found = [behaviour]
    while hasattr(found[-1], "inner"):
        found.append(found[-1].inner)
    return found


class Run:
    """One nesting under random traffic. Messages are (key, weight, number)."""

    def __init__(self, behaviour: Behaviour, random: Random) -> None:
        self.behaviour, self.random = behaviour, random
        self.added = self.handed = self.waiting = 0
        self.seen: set[int] = set()
        self.now = 0.0
        self.layers = layers(behaviour)
        kinds = {type(each) for each in self.layers}
        self.merges = Coalesce in kinds
        self.in_order = kinds <= {
            Queue, Chunk, Linger, Debounce, Throttle, Expire, Rate, CoDel, Bounded, Adaptive, PadTo
        }  # fmt: skip
        self.last = -1

    def add(self) -> None:
        message = (self.random.randint(0, 3), self.random.randint(1, 3), self.added)
        self.behaviour.ready_at(self.now)
        try:
            self.behaviour.add(message)
        except WouldBlock:
            self.waiting += 1  # it would be offered again
        except Rejected:
            pass  # counted by the behaviour
        self.added += 1

    def take(self) -> bool:
        """Take a batch if one may leave; return whether one could."""
        behaviour = self.behaviour
        if not len(behaviour) or behaviour.ready_at(self.now) > self.now:
            return False
        most, held, gone = behaviour.portion(), len(behaviour), self.displaced()
        batch = behaviour.take()
        fill = behaviour.padding() if behaviour.traits.pads else 0
        messages = [unwrap(each) for each in (batch if isinstance(batch, list) else [batch])]
        padded, messages = messages, messages[: len(messages) - fill]
        assert all(each == PAD for each in padded[len(messages) :])
        assert most is None or len(messages) <= most
        for layer in self.layers:
            if isinstance(layer, Chunk) and layer._weight is None:
                assert len(messages) <= layer._size
            if isinstance(layer, Chunk) and layer._weight is not None:
                assert len(messages) == 1 or sum(map(weight, messages)) <= layer._size
            if isinstance(layer, Bucket):
                assert len({each[0] for each in messages}) <= 1
        self.handed += len(messages)
        assert len(behaviour) + len(messages) + self.displaced() - gone == held
        for each in messages:
            assert each[2] not in self.seen or self.merges  # nothing comes twice
            self.seen.add(each[2])
        if self.in_order:
            numbers = [each[2] for each in messages]
            assert numbers == sorted(numbers)
            assert not numbers or numbers[0] > self.last
            self.last = max(numbers, default=self.last)
        took = self.random.choice([0.1, 0.5])
        self.now += took
        if behaviour.traits.observes:
            behaviour.ready_at(self.now)
            behaviour.done(padded, took, [MessageOutcome.PROCESSED] * len(padded))
        self.check()
        return bool(messages) or len(behaviour) < held

    def displaced(self) -> int:
        tally = self.behaviour.tally()
        return tally.replaced + tally.dropped + tally.expired + tally.merged

    def check(self) -> None:
        """Every message is held, was handed over, or is counted."""
        tally = self.behaviour.tally()
        settled = self.handed + len(self.behaviour) + self.displaced() + tally.rejected
        assert settled in (self.added, self.added - self.waiting), (settled, self.added, tally)
        for layer in self.layers:
            if isinstance(layer, Bounded):
                assert len(layer) <= layer._size

    def drain(self) -> None:
        self.behaviour.flush()
        for _ in range(400):
            if not len(self.behaviour):
                break
            ready = self.behaviour.ready_at(self.now)
            assert ready < inf, "it never releases what it holds"
            self.now = max(self.now, ready)
            self.take()
        assert not len(self.behaviour)
        self.check()


def keep_their_promises(count: int, seed: int) -> None:
    random = Random(seed)
    kept = 0
    while kept < count:
        state = random.getstate()
        behaviour = nested(random)
        if behaviour is None:
            continue
        shown = repr(behaviour)
        run = Run(behaviour, random)
        try:
            for _ in range(random.randint(1, 14)):
                for _ in range(random.randint(0, 4)):
                    run.add()
                run.check()
                run.now += random.choice([0.0, 0.0, 0.25, 1.0, 3.0])
                run.take()
            run.drain()
        except Exception as error:
            error.add_note(f"number {kept} of seed {seed}: {shown}; state {hash(state)}")
            raise
        kept += 1


def test_random_nestings_of_all_behaviours_keep_their_promises() -> None:
    keep_their_promises(400, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_30_000_random_nestings_of_all_behaviours_keep_their_promises() -> None:
    for seed in range(30):
        keep_their_promises(1_000, seed=seed)
