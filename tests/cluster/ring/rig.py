"""A ring on a table: members, one register, and a network that delivers at once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from actorflow.cluster.ring import (
    Drain,
    Drained,
    Member,
    Process,
    Processed,
    Received,
    Register,
    Registered,
    RingOptions,
    Roll,
    Send,
    SendFailed,
    Verdict,
    View,
    check_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.cluster.ring import Action, Event, Post

A = TypeVar("A")
STORE = 1_000.0
"""How far the store's clock is ahead of the members'."""


class Rig:
    """Several members in virtual time.

    Requests to the register are answered at once, partitions are drained at once, wake-ups are done
    at once, and messages arrive at once, unless a test says otherwise.
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
        self.verdict: Verdict | None = Verdict.DONE
        self.carries: Callable[[str, Send], bool | None] = lambda _source, _send: True
        """Whether a message arrives; `None`: the sender is told that it does not."""
        self._wakes: dict[str, float] = {}
        for name in names:
            self.join(name)

    def join(self, name: str, **options: Any) -> Member:
        """Add a member."""
        self.members[name] = Member(name, self.options, **options)
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
                case Send(to, payload):
                    self._carry(name, action, to, payload)
                case Drain(partition) if self.drains:
                    self.tell(name, Drained(partition))
                case Process(post) if self.verdict is not None:
                    self.tell(name, Processed(post, self.verdict))

    def _carry(self, name: str, send: Send, to: str, payload: Any) -> None:
        arrives = self.carries(name, send)
        if arrives and to in self.members and to not in self.dead:
            self.tell(to, Received(payload))
        elif not arrives and arrives is not None:
            return
        else:
            self.tell(name, SendFailed(to, payload))


def processed(rig: Rig, name: str) -> list[Post]:
    """Return the wake-ups that a member has acted on."""
    return [each.post for each in rig.taken(name, Process)]
