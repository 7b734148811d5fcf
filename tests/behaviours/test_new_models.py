"""`Bucket`, `PerKey`, `Rate` and `Deadline` against naive models, and `PadTo` by its rules."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actorflow.behaviours import (
    BadBehaviour,
    Behaviour,
    Bounded,
    Bucket,
    Chunk,
    Deadline,
    Expire,
    Fair,
    Linger,
    Malformed,
    MessageOutcome,
    PadTo,
    PerKey,
    Priority,
    Queue,
    Rate,
    Stack,
    Throttle,
    Unique,
    Verdict,
)
from actorflow.testing.behaviours import check_behaviour
from tests.behaviours.models import learn

PROCESSED, FAILED = MessageOutcome.PROCESSED, MessageOutcome.FAILED
RETRIED, ABANDONED = MessageOutcome.RETRIED, MessageOutcome.ABANDONED
QUICK = settings(
    max_examples=max(40, settings().max_examples),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


class Naive:
    """A list of messages with their times of arrival, and what each behaviour says of them."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, float]] = []
        self.now = 0.0
        self.expired = 0

    def allowed(self) -> list[Any]:
        """Return the messages that may leave now, in order."""
        raise NotImplementedError

    def take(self, limit: int | None) -> list[Any]:
        batch = self.allowed()[:limit]
        self.held = [(each, at) for each, at in self.held if not any(each is one for one in batch)]
        return batch

    def done(self, batch: list[Any], outcome: MessageOutcome) -> None:
        pass

    def wakes(self) -> float | None:
        """Return from when on a message may leave; `None` if it is not checked."""
        return None


class NaiveBucket(Naive):
    def allowed(self) -> list[Any]:
        return [each for each, _ in self.held if each[0] == self.held[0][0][0]]


class NaivePerKey(Naive):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.flying: list[list[Any]] = []

    def busy(self, key: Any) -> bool:
        return sum(any(one[0] == key for one in batch) for batch in self.flying) >= self.limit

    def allowed(self) -> list[Any]:
        return [each for each, _ in self.held if not self.busy(each[0])]

    def take(self, limit: int | None) -> list[Any]:
        batch = super().take(limit)
        if batch:
            self.flying.append(list(batch))
        return batch

    def done(self, batch: list[Any], outcome: MessageOutcome) -> None:
        if outcome is not RETRIED:
            self.flying.remove(batch)

    def wakes(self) -> float | None:
        return self.now if self.allowed() else inf


class NaiveRate(Naive):
    """Counts credit as a bucket of tokens: another algorithm than that of `Rate`."""

    def __init__(self, per_second: float, burst: float, *, keyed: bool, weighed: bool) -> None:
        super().__init__()
        self.per_second, self.burst = per_second, burst
        self.keyed, self.weighed = keyed, weighed
        self.tokens: dict[Any, tuple[float, float]] = {}

    def use(self, message: Any) -> tuple[Any, float]:
        return (message[0] if self.keyed else None, float(message[1]) if self.weighed else 1.0)

    def has(self, key: Any, now: float) -> float:
        tokens, at = self.tokens.get(key, (self.burst, now))
        return min(tokens + (now - at) * self.per_second, self.burst)

    def take(self, limit: int | None) -> list[Any]:
        batch: list[Any] = []
        passed: set[Any] = set()
        for message, _ in self.held:
            key, weight = self.use(message)
            enough = self.has(key, self.now) >= min(weight, self.burst) - 1e-9
            if key in passed or not enough or (limit is not None and len(batch) >= limit):
                passed.add(key)
                continue
            self.tokens[key] = (self.has(key, self.now) - weight, self.now)
            batch.append(message)
        self.held = [(each, at) for each, at in self.held if not any(each is one for one in batch)]
        return batch

    def wakes(self) -> float | None:
        times: dict[Any, float] = {}
        for message, _ in self.held:
            key, weight = self.use(message)
            missing = min(weight, self.burst) - self.has(key, self.now)
            times.setdefault(key, self.now + max(missing, 0.0) / self.per_second)
        return min(times.values(), default=self.now)

    def done(self, batch: list[Any], outcome: MessageOutcome) -> None:
        if outcome is FAILED:
            for message in batch:
                key, weight = self.use(message)
                tokens = self.has(key, self.now) + weight
                self.tokens[key] = (min(tokens, self.burst), self.now)


class NaiveDeadline(Naive):
    fixed, slope, within = 1.0, 0.5, 4.0

    def __init__(self) -> None:
        super().__init__()
        self.taken = -inf

    def takes(self, size: int) -> float:
        return self.fixed + self.slope * size

    def take(self, limit: int | None) -> list[Any]:
        best: list[Any] = []
        dues = sorted(at + self.within for _, at in self.held)
        for size in range(1, len(dues) + 1):
            ok = [due for due in dues if due >= self.now + self.takes(size) - 1e-9]
            if len(ok) >= size and (limit is None or size <= limit):
                best = ok[:size]
        probe = dues and dues[-1] >= self.now and self.now >= self.taken + self.takes(1)
        if not best and probe:
            best = dues[-1:]
        batch, rest = [], []
        for message, at in self.held:
            due = at + self.within
            if due in best:
                best.remove(due)
                batch.append(message)
            elif due < self.now + self.takes(1) - 1e-9:
                self.expired += 1
            else:
                rest.append((message, at))
        self.held = rest
        if batch:
            self.taken = self.now
        return batch


def bucket() -> tuple[Behaviour, Naive]:
    return Bucket(key=0), NaiveBucket()


def per_key(limit: int) -> Any:
    return lambda: (PerKey(Queue(), key=0, limit=limit), NaivePerKey(limit))


def rate(
    per_second: float, burst: float, *, keyed: bool, weighed: bool, refund: bool = True
) -> Any:
    def make() -> tuple[Behaviour, Naive]:
        real = Rate(
            Queue(),
            per_second,
            burst=burst,
            key=0 if keyed else None,
            weight=(lambda message: message[1]) if weighed else None,
            refund=refund,
        )
        return real, NaiveRate(per_second, burst, keyed=keyed, weighed=weighed)

    return make


def deadline() -> tuple[Behaviour, Naive]:
    real = Deadline(Queue(), within=4.0)
    for size in 1, 3:
        learn(real, size, NaiveDeadline.fixed + NaiveDeadline.slope * size)
    return real, NaiveDeadline()


class Against(RuleBasedStateMachine):
    make: Any

    @initialize()
    def build(self) -> None:
        self.real, self.model = type(self).make()
        self.real.ready_at(0.0)
        self.serial = 0
        self.out: list[list[Any]] = []

    @rule(drawn=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=5))
    def extend(self, drawn: list[tuple[int, int]]) -> None:
        messages = []
        for key, value in drawn:
            self.serial += 1
            messages.append((key, value, self.serial))
        self.model.held += [(message, self.model.now) for message in messages]
        if len(messages) == 1:
            self.real.add(messages[0])
        else:
            assert not self.real.extend(list(messages))

    @precondition(lambda self: len(self.real) > 0)
    @rule(limit=st.none() | st.integers(1, 3))
    def take(self, limit: int | None) -> None:
        batch = self.real.take(limit)
        assert batch == self.model.take(limit)
        if batch:
            self.out.append(batch)

    @precondition(lambda self: self.out)
    @rule(outcome=st.sampled_from([PROCESSED, FAILED, RETRIED, ABANDONED]), data=st.data())
    def done(self, outcome: MessageOutcome, data: st.DataObject) -> None:
        batch = self.out[data.draw(st.integers(0, len(self.out) - 1))]
        if outcome is not RETRIED:
            self.out.remove(batch)
        if isinstance(self.model, NaiveDeadline):
            return  # it would learn
        self.real.done(list(batch), 0.1, [outcome] * len(batch))
        self.model.done(batch, outcome)

    @rule(by=st.sampled_from([0.25, 1.0, 3.0]))
    def wait(self, by: float) -> None:
        self.model.now += by

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check()
        ready = self.real.ready_at(self.model.now)
        assert len(self.real) == len(self.model.held)
        assert self.real.tally().expired == self.model.expired
        wakes = self.model.wakes()
        if wakes is not None and len(self.real):
            assert max(ready, self.model.now) == pytest.approx(wakes)


MACHINES = {
    "bucket": bucket,
    "per key": per_key(1),
    "two per key": per_key(2),
    "rate": rate(2.0, 1, keyed=False, weighed=False),
    "rate with burst": rate(1.0, 3, keyed=False, weighed=True),
    "rate per key": rate(1.0, 2, keyed=True, weighed=False),
    "rate per key and weight": rate(0.5, 2, keyed=True, weighed=True),
    "deadline": deadline,
}


@pytest.mark.parametrize("name", MACHINES)
def test_each_behaviour_is_its_model(name: str) -> None:
    machine = type("Machine", (Against,), {"make": staticmethod(MACHINES[name])})
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.parametrize(
    "factory",
    [
        Bucket,
        lambda: Bucket(0, Chunk(Queue(), 2)),
        lambda: Bucket(0, Linger(Queue(), 1.0, size=2)),
        lambda: Bucket(0, Unique(key=lambda each: each)),
        lambda: Bounded(Bucket(0), 3, when_full="drop_oldest"),
        lambda: Bucket(0, Stack),
        lambda: Deadline(Queue(), within=2.0),
        lambda: Deadline(Fair(), within=2.0),
        lambda: Chunk(Deadline(Priority(), within=2.0), 2),
        lambda: Deadline(Unique(), of=lambda each: float(each[0])),
        lambda: Rate(Queue(), 1.0, burst=2),
        lambda: Rate(Fair(), 1.0, key=0),
        lambda: Rate(Expire(Queue(), 2.0), 1.0),
        lambda: Throttle(Rate(Queue(), 2.0), 1.0),
    ],
    ids=lambda factory: repr(factory()),
)
def test_all_conform(factory: Any) -> None:
    check_behaviour(factory, max_examples=25)


def test_pad_to_rounds_up_down_or_to_what_is_cheapest() -> None:
    def batches(behaviour: Behaviour, count: int) -> list[int]:
        behaviour.extend(list(range(count)))
        found = []
        while len(behaviour):
            batch = behaviour.take()
            found.append(len(batch))
            assert batch[len(batch) - behaviour.padding() :] == ["-"] * behaviour.padding()
        return found

    assert batches(PadTo(Queue(), [2, 4], fill="-"), 9) == [4, 4, 2]
    assert batches(PadTo(Queue(), [4, 2], fill="-"), 7) == [4, 4]
    assert batches(PadTo(Queue(), [2, 4], fill="-", round="down"), 7) == [4, 2, 2]
    assert batches(PadTo(Queue(), [1, 4, 8], fill="-", round="down"), 13) == [8, 4, 1]
    cheapest = PadTo(Queue(), [1, 4], fill="-", round="cheapest")
    learn(cheapest, 1, 1.0)
    learn(cheapest, 4, 1.1)  # a call is expensive, a message is not
    assert batches(cheapest, 3) == [4]
    costly = PadTo(Queue(), [1, 4], fill="-", round="cheapest")
    learn(costly, 1, 1.0)
    learn(costly, 4, 4.0)
    assert batches(costly, 3) == [1, 1, 1]
    assert batches(PadTo(Chunk(Queue(), 3), [2, 4], fill="-"), 6) == [4, 4]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: PadTo(Queue(), []), "sizes"),
        (lambda: PadTo(Queue(), [0]), "1 or more"),
        (lambda: PadTo(Queue(), [1], round="nearest"), "round='nearest'"),
        (lambda: Chunk(PadTo(Queue(), [1]), 2), "as a whole"),
        (lambda: Deadline(Queue()), "either within= or of="),
        (lambda: Deadline(Queue(), 1.0, of=float), "either within= or of="),
        (lambda: Deadline(Queue(), 0), "within=0"),
        (lambda: Rate(Queue(), 0), "per_second=0"),
        (lambda: Rate(Queue(), 1, burst=0), "burst=0"),
        (lambda: Rate(PerKey(Queue()), 1, key=0), "one Rate"),
        (lambda: PerKey(Queue(), limit=0), "limit=0"),
        (lambda: PerKey(Rate(Queue(), 1)), "put PerKey inside"),
        (lambda: Bucket(key="shape"), "itemgetter"),
    ],
)
def test_what_cannot_work_is_refused_when_built(build: Any, words: str) -> None:
    with pytest.raises(BadBehaviour, match=words):
        build()


@pytest.mark.parametrize(
    "behaviour",
    [
        Bucket(0),
        PerKey(Queue(), 0),
        Rate(Queue(), 1, key=0),
        Rate(Queue(), 1, weight=lambda each: each[0]),
        Deadline(Queue(), of=lambda each: each[0]),
    ],
    ids=repr,
)
def test_w25_malformed_messages_are_refused_alone(behaviour: Behaviour) -> None:
    with pytest.raises(Malformed):
        behaviour.add(5)
    [(refused, error)] = behaviour.extend([(1, "a"), 6])
    assert list(refused) == [6]
    assert isinstance(error, Malformed)
    assert (len(behaviour), behaviour.tally().rejected) == (1, 2)


def test_a_state_that_is_saved_limits_the_rate_of_the_next_process() -> None:
    def make() -> Rate:
        return Rate(Queue(), 1.0, key=lambda each: (each[0], 1))

    before, after = make(), make()
    before.ready_at(100.0)
    before.extend([("a", 1), ("b", 2)])
    assert len(before.take()) == 2
    after.load([[[["a", 1], 1.0]], None] if before.save() is None else before.save())
    after.ready_at(5.0)
    after.extend([("a", 3), ("c", 4)])
    assert after.take() == [("c", 4)]
    assert after.ready_at(5.0) == 6.0


def test_a_message_that_waits_behind_another_of_its_key_makes_none_leave_earlier() -> None:
    rate = Rate(Queue(), 0.5, burst=2, key=0, weight=lambda message: message[1], refund=True)
    rate.ready_at(0.0)
    rate.extend([(0, 2), (0, 0)])
    assert rate.take(1) == [(0, 2)]
    light = rate.take()
    rate.add((0, 1))
    rate.add((0, 0))
    assert rate.ready_at(0.0) == 2.0
    rate.done(light, 0.1, [FAILED] * len(light))  # returns nothing
    assert rate.ready_at(0.0) == 2.0


def test_a_deadline_learns_again_when_all_messages_seem_to_miss() -> None:
    deadline = Deadline(Queue(), within=1.0)
    learn(deadline, 1, 60.0)  # a slow start
    taken = 0
    for second in range(130):
        now = float(second)
        deadline.ready_at(now)
        deadline.add("x")
        if batch := deadline.take():
            taken += len(batch)
            learn(deadline, len(batch), 0.1)
    assert taken > 50


def test_stop_and_skip_reach_through_all_layers() -> None:
    limited = PerKey(Chunk(Fair(0), 3), key=0)
    limited.extend([("a", 1), ("a", 2), ("b", 3), ("c", 4)])
    odd = limited.choose(lambda each: Verdict.TAKE if each[1] % 2 else Verdict.SKIP)
    assert odd == [("a", 1), ("b", 3)]
