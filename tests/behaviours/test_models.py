"""Each behaviour, and compositions of them, step by step against the naive models."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, reject, settings
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
    Fate,
    Item,
    Reason,
    Rejected,
    Traits,
    Verdict,
    bounded,
)
from actorflow.behaviours.behaviour import lower
from actorflow.behaviours.keys import table
from actorflow.behaviours.order import line
from tests.behaviours.compositions import (
    LEAVES,
    WRAPPERS,
    Part,
    built,
    compositions,
    modelled,
    parts,
    possible,
)
from tests.behaviours.models import Entry, World

# Each drawn value becomes a message with a serial number; the last two have no usable key.
MESSAGES = st.sampled_from(
    [(key, value) for key in range(3) for value in range(3)] * 2 + [(), ([1], 1)]
)

SPANS = st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])


class Against(RuleBasedStateMachine):
    """Drive a behaviour and its model, and compare all that can be seen."""

    drawn: st.SearchStrategy[tuple[Part, ...]]

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        layers = data.draw(self.drawn)
        self.serial = 0
        self.accepted = self.taken = self.shed = 0
        self.gone: list[tuple[Item, Fate]] = []
        self.tracked = False
        if not possible(layers):
            with pytest.raises(BadBehaviour):
                built(layers)
            reject()
        self.world = World()
        self.model = modelled(layers, self.world)
        self.real: Behaviour = built(layers)
        self.traits: Traits = self.real.traits
        self.real.ready_at(0.0)

    def entry(self, drawn: tuple[Any, ...], *, wrapped: bool) -> tuple[Any, Entry]:
        message = drawn
        if drawn:
            self.serial += 1
            message = (*drawn, self.serial)
        if wrapped and self.tracked:
            tickets = (f"ticket {self.serial}",)
            return Item(message, tickets), Entry(message, tickets)
        return message, Entry(message)

    @rule(drawn=MESSAGES, wrapped=st.booleans())
    def add(self, drawn: tuple[Any, ...], wrapped: bool) -> None:  # noqa: FBT001 - drawn
        item, entry = self.entry(drawn, wrapped=wrapped)
        expected = self.outcome(entry)
        if expected is None:
            self.real.add(item)
        else:
            with pytest.raises(expected):
                self.real.add(item)

    def outcome(self, entry: Entry) -> type[Rejected] | None:
        try:
            self.model.add(entry)
        except Rejected as error:
            return type(error)
        self.accepted += 1
        return None

    @rule(drawn=st.lists(st.tuples(MESSAGES, st.booleans()), max_size=8))
    def extend(self, drawn: list[tuple[tuple[Any, ...], bool]]) -> None:
        pairs = [self.entry(message, wrapped=wrapped) for message, wrapped in drawn]
        expected = []
        for item, entry in pairs:
            refused = self.outcome(entry)
            if refused is not None:
                expected.append((id(item), refused))
        refusals = self.real.extend([item for item, _ in pairs])
        found = [(id(item), type(error)) for items, error in refusals for item in items]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    @rule(drawn=st.lists(st.tuples(MESSAGES, st.booleans(), SPANS), max_size=6))
    def arrive(self, drawn: list[tuple[tuple[Any, ...], bool, float]]) -> None:
        items, times, expected = [], [], []
        for message, wrapped, by in drawn:
            self.world.now += by
            item, entry = self.entry(message, wrapped=wrapped)
            items.append(item)
            times.append(self.world.now)
            refused = self.outcome(entry)
            if refused is not None:
                expected.append((id(item), refused))
        refusals = self.real.extend_at(items, times)
        found = [(id(item), type(error)) for some, error in refusals for item in some]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    @precondition(lambda self: len(self.real) > 0)
    @rule(limit=st.none() | st.integers(1, 4))
    def take(self, limit: int | None) -> None:
        if not self.traits.divisible:
            limit = None
        most = lower(limit, self.real.portion())
        batch = self.real.take() if limit is None else self.real.take(limit)
        assert most is None or len(batch) <= most
        expected = self.model.take(limit)
        assert [seen(item) for item in batch] == [seen(entry) for entry in expected]
        assert not [item for item in batch if type(item) is Item and not item.tickets]
        assert isinstance(self.real.reason(), Reason)
        self.taken += len(batch)

    @precondition(lambda self: self.traits.divisible)
    @rule(
        odd=st.sampled_from([Verdict.TAKE, Verdict.SKIP, Verdict.DISCARD, Verdict.STOP]),
        even=st.sampled_from([Verdict.TAKE, Verdict.TAKE, Verdict.DISCARD]),
        limit=st.none() | st.integers(1, 4),
    )
    def choose(self, odd: Verdict, even: Verdict, limit: int | None) -> None:
        if odd is Verdict.SKIP and not self.traits.chooses:
            return

        def judge(each: Any) -> Verdict:
            message = each.message if is_wrapped(each) else each
            verdict = odd if message and message[-1] % 2 else even
            if verdict is Verdict.DISCARD and type(each) is not Entry:
                self.shed += 1
            return verdict

        expected = self.model.choose(judge, limit)
        batch = self.real.choose(judge, limit)
        assert [seen(item) for item in batch] == [seen(entry) for entry in expected]
        self.taken += len(batch)

    @rule(drawn=MESSAGES.filter(bool))
    def withdraw(self, drawn: tuple[Any, ...]) -> None:
        item, entry = self.entry(drawn, wrapped=True)
        expected = self.outcome(entry)
        if expected is not None:
            with pytest.raises(expected):
                self.real.add(item)
            return
        self.real.add(item)
        # A table cannot recognize a bare message: it stores copies.
        if type(item) is Item or self.traits.chooses:
            found = self.real.withdraw(item)
            assert found == self.model.withdraw(entry)
            assert not self.real.withdraw(item)
            self.shed += found

    @precondition(lambda self: len(self.real) > 0 and self.traits.ordered)
    @rule(count=st.integers(1, 3))
    def drop(self, count: int) -> None:
        count = min(count, len(self.real))
        dropped = [self.real.drop_oldest()] if count == 1 else self.real.drop_many(count)
        expected = [self.model.drop_oldest() for _ in range(count)]
        assert [seen(item) for item in dropped] == [seen(entry) for entry in expected]
        self.shed += count

    @precondition(lambda self: len(self.real) > 0 and self.traits.divisible)
    @rule()
    def peek(self) -> None:
        try:
            expected = self.model.peek()
        except IndexError:
            with pytest.raises(IndexError):
                self.real.peek()
        else:
            assert seen(self.real.peek()) == seen(expected)

    @rule(drawn=MESSAGES)
    def grows(self, drawn: tuple[Any, ...]) -> None:
        if self.traits.shrinks:
            assert self.real.grows(drawn) == self.model.grows(drawn)
        else:
            assert self.model.grows(drawn)

    @rule(by=st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0]))
    def wait(self, by: float) -> None:
        self.world.now += by
        self.real.ready_at(self.world.now)

    @rule()
    def purge(self) -> None:
        self.real.purge()
        self.model.purge()

    @precondition(lambda self: not self.tracked)
    @rule()
    def track(self) -> None:
        assert self.traits.trackable
        self.tracked = True
        self.real.track(self.gone)

    @precondition(lambda self: self.serial > 10)
    @rule()
    def flush(self) -> None:
        self.real.flush()
        self.model.flush()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check()
        now = self.world.now
        ready, expected = self.real.ready_at(now), self.model.ready_at()
        assert ready == expected or (ready <= now and expected <= now)
        assert len(self.real) == self.model.size()
        assert self.real.tally() == self.model.tally()
        gone = sorted((item.tickets, fate.name) for item, fate in self.gone)
        assert gone == sorted((tickets, fate.name) for tickets, fate in self.world.gone)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "real"):
            return
        tally = self.real.tally()
        displaced = tally.replaced + tally.dropped + tally.expired + tally.merged
        assert self.accepted == self.taken + len(self.real) + displaced + self.shed


def is_wrapped(each: Any) -> bool:
    return type(each) is Item or isinstance(each, Entry)


def seen(item: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what matters of a message, wrapped or not, real or modelled."""
    if isinstance(item, Entry) or type(item) is Item:
        return item.message, item.tickets
    return item, ()


def machine(drawn: st.SearchStrategy[tuple[Part, ...]]) -> type[Against]:
    return type("Against", (Against,), {"drawn": drawn})


QUICK = settings(
    max_examples=max(60, settings().max_examples),  # the soak profile asks for more
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


@pytest.mark.parametrize("name", [*LEAVES, *WRAPPERS])
def test_w27_each_behaviour_is_its_model(name: str) -> None:
    run_state_machine_as_test(machine(parts(name)), settings=QUICK)


def test_compositions_are_their_models() -> None:
    more = settings(QUICK, max_examples=2 * QUICK.max_examples)
    run_state_machine_as_test(machine(compositions), settings=more)


def test_bulk_paths_are_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcuts for many messages, made to be taken with a few."""
    monkeypatch.setattr(bounded, "_FEW", 1)
    monkeypatch.setattr(bounded, "_SLICE", 2)
    monkeypatch.setattr(line, "_SLICE", 1)
    monkeypatch.setattr(table, "_NEAR", 1)
    for drawn in parts("Bounded"), parts("TableUnique"), compositions:
        run_state_machine_as_test(machine(drawn), settings=QUICK)


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("name", ["Queue", "Stack", "Unique"])
def test_many_messages_at_once_are_as_many_one_by_one(name: str, when_full: str) -> None:
    random = Random(7)
    messages = [(random.randrange(300), number) for number in range(5_000)]
    for size in 10, 100, 250, 1_000, 10_000:
        together = Bounded(LEAVES[name].real(), size, when_full=when_full)
        singly = Bounded(LEAVES[name].real(), size, when_full=when_full)
        start = 0
        while start < len(messages):
            some = messages[start : start + random.randrange(2_000)]
            start += len(some)
            refused = [
                message for messages, _ in together.extend(list(some)) for message in messages
            ]
            assert refused == [message for message in some if not accepts(singly, message)]
            if random.random() < 0.5:
                limit = random.randrange(1, 200)
                assert len(together) == len(singly)
                if len(together):
                    assert together.take(limit) == singly.take(limit)
        assert together.tally() == singly.tally()
        assert together.take() == singly.take()


def accepts(behaviour: Behaviour, message: Any) -> bool:
    try:
        behaviour.add(message)
    except Rejected:
        return False
    return True
