"""A ring on a table: members, one register, and a network that delivers at once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from actorflow.cluster.ring import (
    CheckIn,
    Drain,
    Drained,
    Hint,
    Hinted,
    Member,
    Register,
    Registered,
    RingOptions,
    Roll,
    View,
    check_in,
)

if TYPE_CHECKING:
    from actorflow.cluster.ring import Action, Event

A = TypeVar("A")
STORE = 1_000.0
"""How far the store's clock is ahead of the members'."""


class Rig:
    """Several members in virtual time.

    Requests to the register are answered at once, partitions are drained at once, and hints arrive
    at once, unless a test says otherwise.
    """

    def __init__(self, *names: str, partitions: int = 4, **options: Any) -> None:
        self.options = RingOptions(**options)
        self.roll = Roll.of(partitions)
        self.now = 0.0
        self.members: dict[str, Member] = {}
        self.actions: dict[str, list[Action]] = defaultdict(list)
        self.dead: set[str] = set()
        self.store_up = True
        self.drains = True
        self.hints = True
        self._wakes: dict[str, float] = {}
        for name in names:
            self.join(name)

    def join(self, name: str) -> Member:
        """Add a member."""
        self.members[name] = Member(name, self.options)
        self._wakes[name] = self.now
        return self.members[name]

    @property
    def store_time(self) -> float:
        return STORE + self.now

    @property
    def view(self) -> View:
        return self.roll.view(self.store_time)

    @property
    def owners(self) -> dict[int, str | None]:
        return {number: each.owner for number, each in enumerate(self.roll.holdings)}

    def leave(self, name: str) -> None:
        """Let a member leave, as a store does that is closed."""
        self.dead.add(name)
        view = check_in(self.roll, CheckIn(name, 1.0, leave=True), self.store_time)
        for member in view.members:
            self.tell(member.name, Hinted())

    def may_start(self, name: str, partition: int, later: float = 0.0) -> bool:
        """Return whether a member may start runs of a partition."""
        return partition in self.members[name].usable(self.now + later)[0]

    def taken(self, name: str, kind: type[A]) -> list[A]:
        """Return the actions of one kind that a member has asked for, and forget all of its."""
        found: list[A] = [each for each in self.actions[name] if isinstance(each, kind)]
        self.actions[name].clear()
        return found

    def forget(self) -> None:
        """Forget all actions."""
        self.actions.clear()

    # Time.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            alive = {name: at for name, at in self._wakes.items() if name not in self.dead}
            name = min(alive, key=lambda each: (alive[each], each), default=None)
            if name is None or alive[name] > end:
                break
            self.now = max(self.now, alive[name])
            self.step(name)
        self.now = end

    def step(self, name: str) -> float:
        """Let one member do one step; return how long it wants to wait."""
        step = self.members[name].step(self.now)
        self._wakes[name] = self.now + step.wait
        self._do(name, step.actions)
        return step.wait

    def tell(self, name: str, event: Event) -> list[Action]:
        """Let something happen to a member."""
        actions = self.members[name].receive(event, self.now)
        self._wakes[name] = self.now
        self._do(name, actions)
        return actions

    def _do(self, name: str, actions: Any) -> None:
        for action in actions:
            self.actions[name].append(action)
            match action:
                case Register(number, request):
                    view = check_in(self.roll, request, self.store_time) if self.store_up else None
                    self.tell(name, Registered(number, view))
                case Hint(to) if self.hints and to in self.members and to not in self.dead:
                    self.tell(to, Hinted())
                case Drain(partition) if self.drains:
                    self.tell(name, Drained(partition))
