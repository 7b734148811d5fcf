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
    Item,
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
    Verdict,
    Window,
    WouldBlock,
    unwrap,
)

PAD = ("pad", 0, -1, 0.0)


def weight(message: Any) -> int:
    return message[1]  # type: ignore[no-any-return]


def merge(old: Any, new: Any) -> Any:
    return (*old[:1], max(old[1], new[1]), *old[2:])


def due(message: Any) -> float:
    return message[3]  # type: ignore[no-any-return]


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
    lambda inner: Bounded(inner, 5, weight=weight),
    lambda inner: Bounded(inner, 5, when_full="drop_oldest", weight=weight),
    lambda inner: Linger(inner, 1.0, size=3, weight=weight),
    lambda inner: Adaptive(inner, overhead=0.1), lambda inner: Deadline(inner, of=due),
    lambda inner: Rate(inner, 1.0, burst=2, key=0),
    lambda inner: Rate(inner, 1.0, burst=3, key=0, weight=weight),
    lambda inner: Rate(inner, 2.0, burst=3, refund=True),
    lambda inner: PerKey(inner, key=0, limit=2),
    lambda inner: PadTo(inner, [2, 4], fill=PAD, round="down"),
    lambda inner: PadTo(inner, [2, 3, 8], fill=PAD, round="cheapest"),
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


class Meter:
    """A naive GCRA: what a `Rate` may let through."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.full_at: dict[Any, float] = {}

    def leaves(self, message: Any, now: float) -> None:
        rate: Any = self.rate
        key = None if rate._key is None else message[0]
        cost = 1.0 if rate._weight is None else float(weight(message))
        full_at = max(self.full_at.get(key, now), now) + cost * rate._each
        assert full_at - max(rate._burst, cost) * rate._each <= now + 1e-6, "too fast"
        self.full_at[key] = full_at


KEEP_KEYS_IN_ORDER = {
    Queue, Chunk, Linger, Debounce, Throttle, Expire, Rate, CoDel, Bounded, Adaptive, PadTo,
    Bucket, PerKey, Fair, type(Fair(key=0, weight=weight)),
    type(Bounded(Queue(), 1, weight=weight)),
}  # fmt: skip


def parts(behaviour: Any) -> list[Any]:
    """Return the layers, and those of the behaviour that a `Bucket` or `Window` copies."""
    found = layers(behaviour)
    template = getattr(found[-1], "_template", None)
    return found if template is None else found + parts(template)


class Run:
    """One nesting under random traffic. Messages are (key, weight, number, due)."""

    def __init__(self, behaviour: Behaviour, random: Random) -> None:
        self.behaviour, self.random = behaviour, random
        self.added = self.handed = self.waiting = self.taken_out = 0
        self.seen: set[int] = set()
        self.now = 1.0
        self.layers = layers(behaviour)
        kinds = {type(each) for each in parts(behaviour)}
        self.merges = Coalesce in kinds
        self.in_order = kinds <= KEEP_KEYS_IN_ORDER
        self.last: dict[Any, int] = {}
        self.meters = [
            Meter(each) for each in self.layers if isinstance(each, Rate) and not each._refund
        ]
        self.flying: list[tuple[float, list[Any]]] = []
        self.waits: tuple[float, int] | None = None
        """Until when, and for how many more messages, a driver that has looked need not look."""
        self.gone: list[Any] = []
        self.tickets: set[int] = set()
        self.tracks = behaviour.traits.trackable and random.random() < 0.6
        if self.tracks:
            behaviour.track(self.gone)

    def add(self) -> None:
        random, behaviour = self.random, self.behaviour
        dues = self.now + random.choice([0.5, 2.0, 4.0])
        message: Any = (random.randint(0, 3), random.randint(1, 3), self.added, dues)
        self.added += 1
        if self.tracks and random.random() < 0.5:
            self.tickets.add(message[2])
            message = Item(message, (message[2],))
        if random.random() < 0.5 and behaviour.traits.stamped and not behaviour.traits.blocks:
            self.refused(
                [one for some, _ in behaviour.extend_at([message], [self.now]) for one in some]
            )
        else:
            behaviour.ready_at(self.now)
            try:
                behaviour.add(message)
            except WouldBlock:
                self.waiting += 1  # it would be offered again
                self.refused([message])
            except Rejected:  # counted by the behaviour
                self.refused([message])
        if self.waits is not None:
            self.waits = (self.waits[0], self.waits[1] - 1)
        self.hear()

    def refused(self, messages: list[Any]) -> None:
        for message in messages:
            self.answered(message)

    def answered(self, message: Any) -> None:
        """Record that those who wait for a message have an answer: nobody has two."""
        for ticket in message.tickets if type(message) is Item else ():
            self.tickets.remove(ticket)

    def hear(self) -> None:
        while self.gone:
            self.answered(self.gone.pop()[0])

    def may_leave(self) -> bool:
        """Look whether a batch may leave, and whether a driver would have looked."""
        behaviour = self.behaviour
        if not len(behaviour):
            self.waits = None
            return False
        ready = behaviour.ready_at(self.now)
        if ready <= self.now:
            return True
        self.waits = (ready, behaviour.until_full() or 1_000)
        return False

    def take(self) -> bool:
        """Take a batch if one may leave; return whether one could."""
        behaviour = self.behaviour
        if not self.may_leave():
            return False
        most, held, gone = behaviour.portion(), len(behaviour), self.displaced()
        time, missing = self.waits or (0.0, 0)
        batch = behaviour.take()
        assert type(batch) is list
        assert not batch or self.now >= time - 1e-9 or missing <= 0, "nobody would have looked"
        self.waits = None
        self.hear()
        fill = behaviour.padding() if behaviour.traits.pads else 0
        padded, real = batch, batch[: len(batch) - fill]
        messages = [unwrap(each) for each in real]
        assert all(each == PAD for each in padded[len(messages) :])
        assert most is None or len(messages) <= most
        self.limits_hold(messages, len(padded))
        self.handed += len(messages)
        assert len(behaviour) + len(messages) + self.displaced() - gone == held
        for each in real:
            self.answered(each)
        for each in messages:
            assert each[2] not in self.seen or self.merges  # nothing comes twice
            self.seen.add(each[2])
            for meter in self.meters:
                meter.leaves(each, self.now)
            if self.in_order:
                assert self.last.get(each[0], -1) < each[2]
                self.last[each[0]] = each[2]
        progress = bool(messages) or len(behaviour) < held
        assert progress or behaviour.ready_at(self.now) > self.now, "it is ready for ever"
        if messages:
            self.flying.append((self.now, messages))
        self.check()
        return progress

    def limits_hold(self, messages: list[Any], padded: int) -> None:
        keys = {each[0] for each in messages}
        for layer in self.layers:
            if isinstance(layer, Chunk) and layer._weight is None:
                assert len(messages) <= layer._size
            if isinstance(layer, Chunk) and layer._weight is not None:
                assert len(messages) == 1 or sum(map(weight, messages)) <= layer._size
            if isinstance(layer, Bucket):
                assert len(keys) <= 1
            if isinstance(layer, PadTo) and messages:
                assert padded in layer._sizes
            if isinstance(layer, PerKey):
                for key in keys:
                    there = sum(key in {each[0] for each in some} for _, some in self.flying)
                    assert there < layer._limit

    def end(self) -> None:
        """End one of the batches in flight."""
        if not self.flying:
            return
        began, messages = self.flying.pop(self.random.randrange(len(self.flying)))
        if self.behaviour.traits.observes:
            self.behaviour.ready_at(self.now)
            outcomes = self.random.choices(OUTCOMES, k=len(messages))
            self.behaviour.done(messages, self.now - began, outcomes)
            self.waits = None
        self.hear()
        self.check()

    def look(self) -> None:
        """Look at the first message: that ends no wait."""
        behaviour = self.behaviour
        if behaviour.traits.divisible and len(behaviour):
            held, ready = len(behaviour), behaviour.ready_at(self.now)
            behaviour.choose(lambda _: Verdict.STOP)
            after = behaviour.ready_at(self.now)
            assert after == ready or len(behaviour) < held or behaviour.traits.may_be_empty
            self.hear()
            self.check()

    def withdraw(self) -> None:
        held = list(getattr(self.behaviour, "__iter__", tuple)())
        if held:
            message = self.random.choice(held)
            if not getattr(message, "tickets", ()):
                message = unwrap(message)
            if self.behaviour.withdraw(message):
                self.taken_out += 1
                self.waits = None
                self.answered(message)
            self.check()

    def drop(self) -> None:
        if self.behaviour.traits.ordered and len(self.behaviour):
            self.answered(self.behaviour.drop_oldest())
            self.taken_out += 1
            self.waits = None
            self.check()

    def displaced(self) -> int:
        tally = self.behaviour.tally()
        return tally.replaced + tally.dropped + tally.expired + tally.merged

    def check(self) -> None:
        """Every message is held, was handed over, or is counted."""
        tally = self.behaviour.tally()
        settled = self.handed + len(self.behaviour) + self.displaced() + tally.rejected
        settled += self.taken_out
        assert settled in (self.added, self.added - self.waiting), (settled, self.added, tally)
        self.behaviour.check()
        for layer in self.layers:
            if type(layer) is Bounded:
                assert len(layer) <= layer._size

    def drain(self) -> None:
        self.behaviour.flush()
        self.waits = None
        for _ in range(600):
            if not len(self.behaviour):
                break
            ready = self.behaviour.ready_at(self.now)
            if ready == inf:
                assert self.flying, "it never releases what it holds"
                self.now += 0.1
                self.end()
                continue
            self.now = max(self.now, ready)
            self.take()
        assert not len(self.behaviour)
        while self.flying:
            self.end()
        assert not self.tickets, "somebody waits for ever"


OUTCOMES = [*4 * [MessageOutcome.PROCESSED], MessageOutcome.FAILED, MessageOutcome.ABANDONED]


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
                for action, share in (
                    (run.end, 0.6),
                    (run.look, 0.3),
                    (run.withdraw, 0.2),
                    (run.drop, 0.1),
                ):
                    if random.random() < share:
                        action()
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
