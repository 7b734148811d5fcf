"""Properties of the ring that hold in every order of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actorflow.cluster.ring import (
    Committed,
    Cycle,
    Drain,
    Drained,
    Lose,
    Member,
    Own,
    Received,
    Register,
    Registered,
    RingOptions,
    Roll,
    Send,
    Tracker,
    check_in,
)
from actorflow.cluster.ring.trackers import Trackers

if TYPE_CHECKING:
    from actorflow.cluster.ring import Action, Payload, View

NAMES = st.sampled_from("abc")
PARTITIONS = 3


@dataclass
class Asked:
    """A check-in on its way to the store, or its answer on its way back."""

    member: str
    request: Register
    view: View | None = None


class Ownership(RuleBasedStateMachine):
    """Members, one register, and requests and answers that take any time, or are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.options = RingOptions(lease=6.0, cycle=None)
        self.members = {name: Member(name, self.options) for name in "abc"}
        self.held: dict[str, dict[int, int]] = {name: {} for name in "abc"}
        self.roll = Roll.of(PARTITIONS)
        self.now = 0.0
        self.asked: list[Asked] = []
        self.answers: list[Asked] = []
        self.drains: list[tuple[str, int]] = []

    def do(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Register():
                    self.asked.append(Asked(name, action))
                case Own(partition, epoch):
                    self.held[name][partition] = epoch
                case Lose(partition):
                    self.held[name].pop(partition, None)
                case Drain(partition):
                    self.drains.append((name, partition))

    @rule(seconds=st.sampled_from([0.05, 0.5, 2.0, 5.0, 6.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=NAMES)
    def step(self, name: str) -> None:
        self.do(name, list(self.members[name].step(self.now).actions))

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 9))
    def reach_the_store(self, number: int) -> None:
        asked = self.asked.pop(number % len(self.asked))
        asked.view = check_in(self.roll, asked.request.request, self.now)
        self.answers.append(asked)

    @precondition(lambda self: self.answers)
    @rule(number=st.integers(0, 9), lost=st.booleans())
    def reach_the_member(self, number: int, lost: bool) -> None:  # noqa: FBT001 - drawn
        answer = self.answers.pop(number % len(self.answers))
        event = Registered(answer.request.number, None if lost else answer.view)
        self.do(answer.member, self.members[answer.member].receive(event, self.now))

    @precondition(lambda self: self.drains)
    @rule()
    def finish_the_runs(self) -> None:
        name, partition = self.drains.pop(0)
        self.do(name, self.members[name].receive(Drained(partition), self.now))

    @invariant()
    def c6_no_two_members_may_start_runs_of_the_same_partition(self) -> None:
        for partition in range(PARTITIONS):
            owners = [
                name
                for name, member in self.members.items()
                if member.may_start(partition, self.now)
            ]
            assert len(owners) <= 1, f"partition {partition} is run by {owners}"
            for name in owners:
                holding = self.roll.holdings[partition]
                assert holding.owner == name
                assert holding.epoch == self.members[name].epoch_of(partition)
                assert holding.until > self.now

    @invariant()
    def what_a_member_owns_is_what_it_has_told(self) -> None:
        for name, member in self.members.items():
            for partition, epoch in member.owned.items():
                assert self.held[name].get(partition) == epoch


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


TRACKERS = st.builds(
    Tracker,
    st.sampled_from(["x", "y"]),
    st.sampled_from(["s", "t"]),
    st.integers(0, 20).map(float),
    st.just(0),
)


@given(st.lists(st.tuples(TRACKERS, st.booleans())), st.integers(0, 20).map(float))
def test_trackers_are_kept_by_their_moment_and_refused_once_discarded(
    given_: list[tuple[Tracker, bool]], time: float
) -> None:
    trackers = Trackers()
    known: set[Tracker] = set()
    gone: set[Tracker] = set()
    for tracker, discard in given_:
        if discard:
            trackers.discard(tracker, 100.0)
            known.discard(tracker)
            gone.add(tracker)
        else:
            new = tracker not in known | gone
            assert trackers.add(tracker, 0.0) is new
            known |= {tracker} if new else set()
    assert sorted(trackers) == sorted(known)
    assert [each.due for each in trackers] == sorted(each.due for each in known)
    assert set(trackers.due(time)) == {each for each in known if each.due <= time}
    trackers.forget(100.0)
    for tracker in gone:
        assert trackers.add(tracker, tracker.due + 1.0) is False, "too old"
        assert trackers.add(tracker, 0.0) is True


@given(st.lists(TRACKERS, unique=True), st.randoms())
def test_b8_the_hash_depends_on_what_is_known_and_not_on_the_order(
    given_: list[Tracker], dice: object
) -> None:
    first, second = Trackers(), Trackers()
    for tracker in given_:
        first.add(tracker, 0.0)
    for tracker in reversed(given_):
        second.add(tracker, 0.0)
    assert first.digest(-10.0, lambda _: True) == second.digest(-10.0, lambda _: True)
    if given_:
        left_out = given_[0].key
        assert first.digest(-10.0, lambda key: key != left_out) != first.digest(
            -10.0, lambda _: True
        )


class Circulation(RuleBasedStateMachine):
    """A cycle that is lost, doubled and reordered: it goes on, and all learn of every tracker."""

    def __init__(self) -> None:
        super().__init__()
        self.options = RingOptions(lease=1_000.0)
        self.members = {name: Member(name, self.options) for name in "abc"}
        self.now = 0.0
        self.roll = Roll.of(PARTITIONS)
        self.under_way: list[tuple[str, Payload]] = []
        self.trackers = 0
        for _ in range(3):
            for name in self.members:
                self.step(name)
            self.now += 0.1

    def do(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Register(number, request):
                    view = check_in(self.roll, request, self.now)
                    self.tell(name, Registered(number, view))
                case Send(to, payload):
                    self.under_way.append((to, payload))
                case Drain(partition):
                    self.tell(name, Drained(partition))

    def tell(self, name: str, event: object) -> None:
        self.do(name, self.members[name].receive(event, self.now))  # type: ignore[arg-type]

    @rule(name=NAMES)
    def step(self, name: str) -> None:
        self.do(name, list(self.members[name].step(self.now).actions))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=NAMES)
    def set_a_timer(self, name: str) -> None:
        self.trackers += 1
        tracker = Tracker("x", f"t{self.trackers}", 10_000.0, 0)
        self.tell(name, Committed(trackers=(tracker,)))

    @precondition(lambda self: self.under_way)
    @rule(number=st.integers(0, 9), copies=st.integers(0, 2))
    def deliver(self, number: int, copies: int) -> None:
        to, payload = self.under_way.pop(number % len(self.under_way))
        for _ in range(copies):
            self.tell(to, Received(payload))
            self.step(to)

    def teardown(self) -> None:
        """Let the network be good for a while."""
        for _ in range(400):
            self.now += 0.25
            for name in self.members:
                self.step(name)
            under_way, self.under_way = self.under_way, []
            for to, payload in under_way:
                self.tell(to, Received(payload))
        assert {name: each.status().trackers for name, each in self.members.items()} == (
            dict.fromkeys("abc", self.trackers)
        )
        epochs = {each.status().cycle_epoch for each in self.members.values()}
        assert len(epochs) == 1, "one cycle is left"
        assert sum(isinstance(payload, Cycle) for _, payload in self.under_way) <= 1


TestCirculation = Circulation.TestCase
TestCirculation.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
