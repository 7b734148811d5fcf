"""Properties of the ring that hold in every order of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actorflow.cluster.ring import (
    Drain,
    Drained,
    Lose,
    Member,
    Own,
    Register,
    Registered,
    RingOptions,
    Roll,
    check_in,
)

if TYPE_CHECKING:
    from actorflow.cluster.ring import Action, View

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
        self.options = RingOptions(lease=6.0)
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
                if partition in member.usable(self.now)[0]
            ]
            assert len(owners) <= 1, f"partition {partition} is run by {owners}"
            for name in owners:
                holding = self.roll.holdings[partition]
                assert holding.owner == name
                assert holding.epoch == self.members[name].owned[partition]
                assert holding.until > self.now

    @invariant()
    def what_a_member_owns_is_what_it_has_told(self) -> None:
        for name, member in self.members.items():
            for partition, epoch in member.owned.items():
                assert self.held[name].get(partition) == epoch


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
