"""`Shortest`, `Lifo`, `CoDel`, `Window`, `Dedup`, `Lanes` and weights against naive models."""

from __future__ import annotations

from collections import Counter
from math import floor, inf, sqrt
from typing import TYPE_CHECKING, Any

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
    Adaptive,
    BadBehaviour,
    Behaviour,
    Bounded,
    Chunk,
    CoDel,
    Dedup,
    Expire,
    Fair,
    Fate,
    Full,
    Item,
    Lanes,
    Lifo,
    Linger,
    Malformed,
    MessageOutcome,
    PerKey,
    Priority,
    Queue,
    Rate,
    Reason,
    Sample,
    Shortest,
    Stack,
    TableUnique,
    TooLarge,
    Unique,
    Window,
)
from actorflow.testing.behaviours import check_behaviour
from tests.behaviours.models import learn

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSED, FAILED = MessageOutcome.PROCESSED, MessageOutcome.FAILED
QUICK = settings(
    max_examples=max(40, settings().max_examples),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def key(message: Any) -> Any:
    return message[0]


def weight(message: Any) -> Any:
    return message[1]


class Naive:
    """A list of messages with their times of arrival."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, float]] = []
        self.now = 0.0

    def add(self, message: Any) -> None:
        self.held.append((message, self.now))

    def allowed(self) -> list[Any]:
        return [each for each, _ in self.held]

    def take(self, limit: int | None) -> list[Any]:
        batch = self.allowed()[:limit]
        self.held = [(each, at) for each, at in self.held if not any(each is one for one in batch)]
        return batch

    def done(self, batch: list[Any], outcome: MessageOutcome) -> None:
        pass


class NaiveShortest(Naive):
    ageing = 0.5

    def allowed(self) -> list[Any]:
        now = self.now
        lightest = sorted(self.held, key=lambda one: one[0][1] - self.ageing * (now - one[1]))
        return [each for each, _ in lightest]


class NaiveLifo(Naive):
    def allowed(self) -> list[Any]:
        messages = super().allowed()
        return messages[::-1] if len(messages) > 3 else messages


class NaiveWindow(Naive):
    def allowed(self) -> list[Any]:
        first = min((floor(at / 2.0) for _, at in self.held), default=0)
        return [each for each, at in self.held if floor(at / 2.0) == first]


class NaiveLanes(Naive):
    def allowed(self) -> list[Any]:
        first = min((each[0] for each, _ in self.held), default=0)
        return [each for each, _ in self.held if each[0] == first]


class NaiveDedup(Naive):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, float]] = []

    def add(self, message: Any) -> None:
        held = any(each[:2] == message[:2] for each, _ in self.held)
        seen = any(one == message[:2] and at > self.now - 4.0 for one, at in self.seen)
        if not (held or seen):
            super().add(message)

    def take(self, limit: int | None) -> list[Any]:
        batch = super().take(limit)
        self.seen = [one for one in self.seen if one[0] not in [each[:2] for each in batch]]
        self.seen += [(each[:2], self.now) for each in batch]
        return batch

    def done(self, batch: list[Any], outcome: MessageOutcome) -> None:
        if outcome in (FAILED, MessageOutcome.ABANDONED):
            failed = [each[:2] for each in batch]
            self.seen = [one for one in self.seen if one[0] not in failed]


class NaiveBounded(Naive):
    def __init__(self, when_full: str) -> None:
        super().__init__()
        self.when_full = when_full

    def add(self, message: Any) -> None:
        self.held.append((message, self.now))
        if self.when_full == "drop_oldest":
            while sum(each[1] for each, _ in self.held) > 5:
                self.held.pop(0)
        elif sum(each[1] for each, _ in self.held) > 5:
            self.held.pop()


class NaiveLowest(Naive):
    def add(self, message: Any) -> None:
        super().add(message)
        if len(self.held) > 3:
            lowest = min(each[1] for each, _ in self.held)
            last = max(at for at, (each, _) in enumerate(self.held) if each[1] == lowest)
            self.held.pop(last)

    def allowed(self) -> list[Any]:
        return [each for each, _ in sorted(self.held, key=lambda one: -one[0][1])]


class NaiveCoDel(Naive):
    """The pseudo-code of RFC 8289, section 5, one message after the other."""

    target, interval = 1.0, 3.0

    def __init__(self) -> None:
        super().__init__()
        self.first_above = 0.0
        self.next = 0.0
        self.count = 0
        self.dropping = False

    def dequeue(self) -> tuple[Any, bool]:
        message, born = self.held.pop(0)
        if self.now - born < self.target or not self.held:
            self.first_above = 0.0
            return message, False
        if self.first_above == 0.0:
            self.first_above = self.now + self.interval
            return message, False
        return message, self.now >= self.first_above

    def one(self) -> Any:
        message, drop = self.dequeue()
        if self.dropping:
            if not drop:
                self.dropping = False
            while self.dropping and self.now >= self.next:
                self.count += 1
                message, drop = self.dequeue()
                if drop:
                    self.next += self.interval / sqrt(self.count)
                else:
                    self.dropping = False
        elif drop:
            message, drop = self.dequeue()
            self.dropping = True
            self.count = self.count - 2 if self.count > 2 else 1
            self.next = self.now + self.interval / sqrt(self.count)
        return message

    def take(self, limit: int | None) -> list[Any]:
        batch: list[Any] = []
        while self.held and (limit is None or len(batch) < limit):
            batch.append(self.one())
        return batch


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
        for one, other in drawn:
            self.serial += 1
            messages.append((one, other, self.serial))
        for message in messages:
            self.model.add(message)
        self.real.extend(list(messages))

    @precondition(lambda self: len(self.real) > 0)
    @rule(limit=st.none() | st.integers(1, 3))
    def take(self, limit: int | None) -> None:
        batch = self.real.take(limit)
        assert batch == self.model.take(limit)
        if batch:
            self.out.append(batch)

    @precondition(lambda self: self.out)
    @rule(outcome=st.sampled_from(MessageOutcome))
    def done(self, outcome: MessageOutcome) -> None:
        batch = self.out.pop(0)
        self.real.done(list(batch), 0.1, [outcome] * len(batch))
        self.model.done(batch, outcome)

    @rule(by=st.sampled_from([0.25, 1.0, 3.0]))
    def wait(self, by: float) -> None:
        self.model.now += by

    @invariant()
    def same(self) -> None:
        if hasattr(self, "real"):
            self.real.check()
            self.real.ready_at(self.model.now)
            assert len(self.real) == len(self.model.held)


def three_lanes() -> Lanes:
    names = ("zero", "one", "two")
    return Lanes(zero=Queue(), one=Queue(), two=Queue(), by=lambda message: names[message[0]])


MACHINES: dict[str, Callable[[], tuple[Behaviour, Naive]]] = {
    "shortest": lambda: (Shortest(weight, ageing=0.5), NaiveShortest()),
    "lifo": lambda: (Lifo(Queue(), beyond=3), NaiveLifo()),
    "window": lambda: (Window(2.0), NaiveWindow()),
    "lanes": lambda: (three_lanes(), NaiveLanes()),
    "dedup": lambda: (Dedup(Queue(), 4.0, key=lambda each: each[:2]), NaiveDedup()),
    "codel": lambda: (CoDel(Queue(), 1.0, 3.0), NaiveCoDel()),
    "the oldest by weight": lambda: (
        Bounded(Queue(), 5, "drop_oldest", weight=weight), NaiveBounded("drop_oldest"),
    ),
    "the newest by weight": lambda: (
        Bounded(Queue(), 5, "drop_newest", weight=weight), NaiveBounded("drop_newest"),
    ),
    "reject by weight": lambda: (Bounded(Queue(), 5, weight=weight), NaiveBounded("reject")),
    "the lowest": lambda: (Bounded(Priority(key=1), 3, "drop_lowest"), NaiveLowest()),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_each_behaviour_is_its_model(name: str) -> None:
    machine = type("Machine", (Against,), {"make": staticmethod(MACHINES[name])})
    run_state_machine_as_test(machine, settings=QUICK)


def first(message: Any) -> str:
    return ("zero", "one", "two", "three")[message[0]]


CONFORMING: list[Callable[[], Any]] = [
    lambda: Dedup(Priority(), within=2.0, key=1),
    lambda: Chunk(Dedup(Queue(), 5.0, key=0), 2),
    lambda: Expire(Dedup(Queue(), 5.0, key=0), 2.0),
    lambda: Bounded(Dedup(Queue(), 5.0, key=0), 2, when_full="drop_oldest"),
    lambda: Chunk(Shortest(key, ageing=1.0), 2),
    lambda: Expire(Shortest(key, ageing=1.0), 2.0),
    lambda: Bounded(Shortest(key, ageing=1.0), 2, when_full="drop_lowest"),
    lambda: Bounded(Expire(Priority(), 2.0), 2, when_full="drop_lowest"),
    lambda: Chunk(Sample(3), 2),
    lambda: Expire(Sample(3), 2.0),
    lambda: Chunk(Lifo(Queue(), 2), 2),
    lambda: Expire(Lifo(Queue(), 2), 2.0),
    lambda: Lifo(Unique(), 2),
    lambda: CoDel(Chunk(Fair(), 2), 0.5, 1.0),
    lambda: Chunk(CoDel(Priority(), 0.5, 1.0), 2),
    lambda: Window(2.0, inner=Unique),
    lambda: Window(2.0, inner=Chunk(Queue(), 2)),
    lambda: Expire(Window(2.0), 3.0),
    lambda: Bounded(Window(2.0), 3, when_full="drop_oldest"),
    lambda: Lanes(zero=Queue(), one=Bounded(Queue(), 2), two=Queue(), three=Stack(), by=first),
    lambda: Lanes(
        zero=Queue(), one=Linger(Queue(), 1.0, size=2), two=Expire(Queue(), 2.0),
        three=Chunk(Stack(), 1), by=first,
    ),
    lambda: Bounded(Queue(), 4, "block", weight=key),
    lambda: Bounded(Priority(), 4, "drop_lowest", weight=key),
    lambda: Bounded(Expire(Queue(), 2.0), 4, "drop_oldest", weight=key),
    lambda: Bounded(Unique(), 4, "drop_oldest", weight=lambda message: message[1] % 4),
    lambda: Linger(Queue(), 2.0, size=4, weight=key),
    lambda: Linger(Expire(Priority(), 2.0), 2.0, size=4, weight=key),
    lambda: Fair(key=lambda message: message[1] % 3, weight=key),
    lambda: Chunk(Fair(key=lambda message: message[1] % 3, weight=key), 4, weight=key),
    lambda: Expire(Fair(key=lambda message: message[1] % 3, weight=key), 2.0),
    lambda: PerKey(Fair(key=lambda message: message[1] % 3, weight=key), key=0),
    lambda: Adaptive(Queue(), overhead=0.1),
    lambda: Chunk(Adaptive(Queue(), target=1.0, overhead=0.5), 2),
]  # fmt: skip


@pytest.mark.parametrize("factory", CONFORMING, ids=lambda factory: repr(factory()))
def test_all_conform(factory: Callable[[], Any]) -> None:
    check_behaviour(factory, max_examples=40)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Shortest(5), "weight=5"),  # type: ignore[arg-type]
        (lambda: Shortest(len, ageing=-1), "ageing=-1"),
        (lambda: Sample(0), "size=0"),
        (lambda: Lifo(Chunk(Queue(), 2), 5), "limits and Expire around it"),
        (lambda: Lifo(Priority(), 5), "newest message"),
        (lambda: CoDel(Queue(), -1), "target=-1"),
        (lambda: Window(0), "period=0"),
        (lambda: Window(1.0, inner=Linger(Queue(), 1.0)), "put it around"),
        (lambda: Dedup(Queue(), within=0), "within=0"),
        (lambda: Dedup(Bounded(Queue(), 5), 1.0), "put Dedup inside"),
        (lambda: Dedup(Unique(), 1.0), "put Dedup inside"),
        (lambda: Lanes(by=str), "at least one lane"),
        (lambda: Lanes(steer=Queue(), by=5), "by=5"),  # type: ignore[arg-type]
        (lambda: Bounded(Queue(), 5, "drop_lowest"), "no priorities"),
        (lambda: Bounded(Queue(), 0, weight=len), "size=0"),
        (lambda: Bounded(TableUnique(), 5, weight=len), "cannot be weighed|does not list"),
        (lambda: Linger(Queue(), 1.0, weight=len), "size=None"),
        (lambda: Adaptive(Queue(), overhead=0), "overhead=0"),
        (lambda: Adaptive(Queue(), overhead=2), "overhead=2"),
    ],
)
def test_what_cannot_work_is_refused_when_built(build: Any, words: str) -> None:
    with pytest.raises(BadBehaviour, match=words):
        build()


@pytest.mark.parametrize(
    "behaviour",
    [
        Shortest(weight=len),
        Dedup(Queue(), 5.0, key=0),
        Lanes(a=Queue(), by=lambda message: message[0]),
        Bounded(Queue(), 5, weight=len),
        Fair(key=0, weight=len),
        Linger(Queue(), 5.0, size=9, weight=len),
    ],
    ids=repr,
)
def test_w25_malformed_messages_are_refused_alone(behaviour: Behaviour) -> None:
    with pytest.raises(Malformed):
        behaviour.add(5)
    [(refused, error)] = behaviour.extend(["a", 6])
    assert list(refused) == [6]
    assert isinstance(error, Malformed)
    assert (len(behaviour), behaviour.tally().rejected) == (1, 2)
    assert not behaviour.accepts(7)


def test_a_sample_keeps_each_message_with_the_same_probability() -> None:
    kept: Counter[int] = Counter()
    for seed in range(2_000):
        sample = Sample(3, seed=seed)
        sample.extend(list(range(12)))
        batch = sample.take()
        assert batch == sorted(batch)
        kept.update(batch)
    assert all(400 < kept[each] < 600 for each in range(12))  # 500 each


def test_callers_of_duplicates_are_told_and_a_failed_message_can_be_sent_again() -> None:
    once = Dedup(Queue(), within=60.0)
    gone: list[Any] = []
    once.track(gone)
    once.ready_at(0.0)
    once.add("a")
    once.add(Item("a", ("ticket",)))
    assert [(item.message, fate) for item, fate in gone] == [("a", Fate.DUPLICATE)]
    assert once.take() == ["a"]
    once.done(["a"], 0.1, [FAILED])
    once.add("a")
    assert once.take() == ["a"]
    once.done(["a"], 0.1, [PROCESSED])
    once.ready_at(59.0)
    once.add("a")
    assert len(once) == 0
    once.ready_at(61.0)
    once.add("a")
    assert len(once) == 1


def test_a_saved_window_has_the_keys_that_were_handed_over_and_no_others() -> None:
    before, after = Dedup(Queue(), within=60.0, key=0), Dedup(Queue(), within=60.0, key=0)
    before.ready_at(100.0)
    before.extend([("a", 1), ("b", 2)])
    before.take(1)
    after.load(before.save())
    after.ready_at(5.0)
    after.extend([("a", 1), ("b", 2)])
    assert after.take() == [("b", 2)]


def test_a_heavier_message_than_the_bound_is_too_large() -> None:
    texts = Bounded(Queue(), 5, weight=len)
    with pytest.raises(TooLarge):
        texts.add("much too long")
    texts.add("abc")
    with pytest.raises(Full):
        texts.add("def")
    texts.add("de")
    assert texts.take() == ["abc", "de"]


def test_a_linger_leaves_by_weight_and_never_exceeds_it() -> None:
    texts = Linger(Queue(), 5.0, size=6, weight=len)
    texts.ready_at(100.0)
    texts.extend(["abc", "de"])
    assert texts.ready_at(100.0) == 105.0
    texts.add("fg")
    assert texts.ready_at(100.0) == 100.0
    assert texts.take() == ["abc", "de"]
    assert texts.reason() is Reason.WEIGHT
    assert texts.take() == ["fg"]


def test_keys_share_the_weight_fairly() -> None:
    fair = Fair(key=0, weight=weight)
    fair.extend([("light", 1 + at % 2) for at in range(400)])
    fair.extend([("heavy", 7 + at % 3) for at in range(100)])
    served: Counter[str] = Counter()
    for _ in range(200):
        [(name, cost)] = fair.take(1)
        served[name] += cost
        assert abs(served["light"] - served["heavy"]) <= 2 * 9


def test_the_fixed_part_of_calls_takes_no_more_than_its_share() -> None:
    rows = Adaptive(Queue(), overhead=0.1)
    for size in 1, 11, 1, 11:  # 0.1 s, and 0.01 s for each message
        learn(rows, size, 0.1 + 0.01 * size)
    rows.ready_at(100.0)
    rows.add("a")
    assert rows.ready_at(100.0) == 100.0  # after a pause, at once
    rows.take()
    rows.add("b")
    assert rows.ready_at(100.5) == pytest.approx(101.0)
    assert rows.ready_at(101.0) <= 101.0


def test_limits_of_lanes_hold_for_each_lane() -> None:
    inbox = Lanes(steer=Queue(), follow=Bounded(Queue(), 1), by=key)
    inbox.add(("follow", 1))
    with pytest.raises(Full):
        inbox.add(("follow", 2))
    inbox.add(("steer", 3))
    with pytest.raises(Malformed, match="there is no lane 'other'"):
        inbox.add(("other", 4))
    assert len(inbox.lane("follow")) == 1
    assert inbox.take() == [("steer", 3)]


def test_a_period_that_is_over_leaves_alone_however_late() -> None:
    window = Window(10.0, inner=Unique(key=0))
    window.extend_at([("a", 1), ("a", 2), ("a", 3)], [101.0, 109.0, 112.0])
    assert window.ready_at(150.0) == 150.0
    assert [window.take(), window.take()] == [[("a", 2)], [("a", 3)]]
    assert window.tally().replaced == 1
    assert window.ready_at(150.0) == inf


def test_a_rate_around_a_dedup_keeps_both_states() -> None:
    def make() -> Rate:
        return Rate(Dedup(Queue(), 60.0, key=0), 1.0)

    before, after = make(), make()
    before.ready_at(100.0)
    before.extend([("a", 1), ("b", 2)])
    assert before.take() == [("a", 1)]
    after.load(before.save())
    assert after.ready_at(0.0) == 0.0
    after.extend([("a", 1), ("b", 2)])
    assert after.ready_at(0.0) == 1.0
    after.ready_at(1.0)
    assert after.take() == [("b", 2)]
