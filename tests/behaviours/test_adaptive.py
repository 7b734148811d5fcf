"""`Adaptive`: the rules, the conformance check, and a naive model that remembers everything."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
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
    Base,
    Bounded,
    Chunk,
    Coalesce,
    Fair,
    Priority,
    Queue,
    Stack,
    Throttle,
    Unique,
)
from actorflow.testing.behaviours import check_behaviour
from tests.behaviours.compositions import LEAVES, Part, leaves
from tests.behaviours.models import Around, Entry, Model, World, learn


class AdaptiveModel(Around):
    """Keeps all calls of the job, and computes everything from them each time."""

    def __init__(self, world: World, inner: Model, target: float) -> None:
        super().__init__(world, inner)
        self.timed = self.stamped = True
        self.target = target
        self.calls: list[tuple[int, float]] = []
        self.since: float | None = None
        self.flushed = False

    def line(self, calls: list[tuple[int, float]]) -> tuple[float, float]:
        """Fit a line, by weights that fade; by differences from the means, for a change."""
        if not calls:
            return (0.0, 0.0)
        weights = [0.98 ** (len(calls) - 1 - at) for at in range(len(calls))]
        total = sum(weights)
        n = sum(w * size for w, (size, _) in zip(weights, calls, strict=True)) / total
        t = sum(w * took for w, (_, took) in zip(weights, calls, strict=True)) / total
        up = sum(w * (s - n) * (k - t) for w, (s, k) in zip(weights, calls, strict=True))
        across = sum(w * (s - n) ** 2 for w, (s, _) in zip(weights, calls, strict=True))
        if len({size for size, _ in calls}) == 1:
            return (t, 0.0)
        slope = max(up / across, 0.0)
        return (max(t - slope * n, 0.0), slope)

    def late(self) -> float:
        """Follow the allowance for surprises, from the first call on."""
        late = deviation = 0.0
        for at, (size, took) in enumerate(self.calls):
            if at < 3:
                continue
            fixed, slope = self.line(self.calls[:at])
            by = took - fixed - slope * size
            deviation += (abs(by) - deviation) * 0.02
            late += deviation * 0.05 * 99 if by > late + 1e-9 * self.target else -deviation * 0.05
            late = min(max(late, 0.0), self.target / 4)
        return late

    def cut(self) -> int | None:
        fixed, slope = self.line(self.calls)
        room = self.target / 2 - fixed - self.late()
        return max(int(room / slope + 1e-9), 1) if slope > 1e-12 and room > 0 else None

    def add(self, entry: Entry) -> None:
        empty = self.inner.size() == 0
        self.inner.add(entry)
        if empty:
            self.since = self.world.now

    def take(self, limit: int | None = None) -> list[Entry]:
        cut = self.cut()
        if cut is not None:
            if self.inner.size() > 2 * cut:
                fixed, slope = self.line(self.calls)
                cut = max(cut, int(9 * fixed / slope))
            limit = cut if limit is None else min(limit, cut)
        self.since = None
        return self.inner.take(limit)

    def ready_at(self) -> float:
        held = self.inner.size()
        cut = self.cut()
        if not held:
            return inf
        if self.since is None or self.flushed or (cut is not None and held >= cut):
            return self.inner.ready_at()
        fixed, slope = self.line(self.calls)
        spare = 0.02 * self.target
        due = self.since + self.target - fixed - slope * held - self.late() - spare
        return max(self.inner.ready_at(), due)

    def flush(self) -> None:
        self.flushed = True
        self.inner.flush()


class Against(RuleBasedStateMachine):
    """Times are binary fractions and few, so that a rounding does not decide about a cut."""

    @initialize(leaf=leaves, within=st.sampled_from([1.0, 8.0]))
    def build(self, leaf: Part, within: float) -> None:
        self.world = World()
        self.model = AdaptiveModel(self.world, leaf.model(self.world), within)
        self.real = Adaptive(leaf.real(), target=within)
        self.real.ready_at(0.0)
        self.serial = 0

    @rule(key=st.integers(0, 3), count=st.integers(1, 5), singly=st.booleans())
    def add(self, key: int, count: int, singly: bool) -> None:  # noqa: FBT001 - drawn
        messages = [(key, self.serial + at) for at in range(count)]
        self.serial += count
        for message in messages:
            self.model.add(Entry(message))
        if singly:
            for message in messages:
                self.real.add(message)
        else:
            assert not self.real.extend(list(messages))

    @precondition(lambda self: len(self.real) > 0)
    @rule(limit=st.none() | st.integers(1, 4))
    def take(self, limit: int | None) -> None:
        expected = [entry.message for entry in self.model.take(limit)]
        assert self.real.take(limit) == expected

    @rule(size=st.integers(1, 6), took=st.sampled_from([0.0, 0.125, 0.3, 0.7, 3.1]))
    def observe(self, size: int, took: float) -> None:
        learn(self.real, size, took)
        self.model.calls.append((size, took))

    @rule(by=st.sampled_from([0.25, 1.0, 10.0]))
    def wait(self, by: float) -> None:
        self.world.now += by

    @precondition(lambda self: self.serial > 20)
    @rule()
    def flush(self) -> None:
        self.real.flush()
        self.model.flush()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "real"):
            return
        now = self.world.now
        ready, expected = self.real.ready_at(now), self.model.ready_at()
        assert (ready <= now and expected <= now) or ready == pytest.approx(expected)
        assert len(self.real) == self.model.size()
        assert self.real.tally() == self.model.tally()


def test_a_call_that_takes_what_was_foreseen_is_no_surprise() -> None:
    adaptive = Adaptive(Queue(), target=8.0)
    for size, took in [(4, 3.1), (2, 0.7), (4, 0.0), (4, 0.3)]:
        learn(adaptive, size, took)
    adaptive.add("a")
    before = adaptive.ready_at(0.0)
    learn(adaptive, 2, 0.7)
    assert adaptive.ready_at(0.0) == pytest.approx(before)


def test_adaptive_is_its_model() -> None:
    run_state_machine_as_test(
        Against,
        settings=settings(
            max_examples=max(60, settings().max_examples),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("leaf", [name for name in LEAVES if name != "Coalesce"])
def test_adaptive_conforms_around_every_leaf(leaf: str) -> None:
    make = LEAVES[leaf].real
    check_behaviour(lambda: Adaptive(make(), target=2.0), max_examples=40)


def test_adaptive_conforms_in_compositions() -> None:
    check_behaviour(lambda: Bounded(Adaptive(Queue(), 2.0), 5, when_full="drop_oldest"))
    check_behaviour(lambda: Throttle(Chunk(Adaptive(Unique(), 2.0), 3), 1.0))


@pytest.mark.parametrize("inner", [Queue, Stack, Unique, Priority, Fair])
def test_what_is_there_is_taken_in_the_order_of_the_inner_behaviour(inner: Any) -> None:
    adaptive, plain = Adaptive(inner(), target=1.0), inner()
    messages = [(number % 3, number) for number in range(9)]
    adaptive.extend(list(messages))
    plain.extend(list(messages))
    assert adaptive.take() == plain.take()


def test_the_first_message_decides_and_replacing_it_changes_nothing() -> None:
    adaptive = Adaptive(Coalesce(0, lambda old, new: (old[0], old[1] + new[1])), target=1.0)
    adaptive.ready_at(10.0)
    adaptive.add(("a", 1))
    adaptive.ready_at(10.5)
    adaptive.add(("a", 2))
    assert adaptive.ready_at(10.5) == pytest.approx(10.98)
    assert adaptive.take() == [("a", 3)]


def test_a_job_that_takes_longer_leaves_less_time_to_wait() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    for _ in range(50):
        learn(adaptive, 10, 0.3)
    adaptive.ready_at(5.0)
    adaptive.add("a")
    assert adaptive.ready_at(5.0) == pytest.approx(5.0 + 1.0 - 0.3 - 0.02)


def test_a_job_that_takes_longer_than_the_target_is_not_waited_for() -> None:
    adaptive = Adaptive(Queue(), target=0.1)
    learn(adaptive, 10, 3.0)
    adaptive.ready_at(5.0)
    adaptive.add("a")
    assert adaptive.ready_at(5.0) <= 5.0


def test_what_a_cut_leaves_behind_is_due_at_once() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    learn(adaptive, 1, 0.1)
    learn(adaptive, 3, 0.3)
    adaptive.ready_at(5.0)
    adaptive.extend(list(range(7)))
    assert adaptive.ready_at(5.0) <= 5.0
    assert adaptive.take() == [0, 1, 2, 3, 4]
    assert adaptive.ready_at(5.0) <= 5.0
    assert adaptive.take() == [5, 6]


def test_a_backlog_is_not_cut_into_calls_that_only_pay_the_fixed_part() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    for size in (1, 3, 5):
        learn(adaptive, size, 0.4 + 0.01 * size)
    adaptive.extend(list(range(1_000)))
    # Ten would fit into half of the target; 360 take nine times as long as a call by itself.
    assert len(adaptive.take()) in (359, 360)


def test_what_hands_over_as_a_whole_is_not_cut() -> None:
    adaptive = Adaptive(Base(), target=1.0)
    learn(adaptive, 1, 0.1)
    learn(adaptive, 3, 0.3)
    adaptive.extend(list(range(7)))
    assert len(adaptive.take()) == 7


@pytest.mark.parametrize("target", [0, -1, inf, "fast", True])
def test_a_target_must_be_a_time(target: Any) -> None:
    with pytest.raises(BadBehaviour, match=r"as in Adaptive\(Queue\(\), target=0.05\)"):
        Adaptive(Queue(), target=target)
