"""`Lanes`: several lines, the first of which goes first."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import adapt_inner
from actorflow.behaviours.arguments import function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Judge,
    Reason,
    Tally,
    Traits,
    lower,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import BadBehaviour, Malformed, brief
from actorflow.behaviours.order.fair import Noting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from actorflow.behaviours.behaviour import MessageOutcome

_EXAMPLE = "Lanes(steer=Queue(), follow=Bounded(Queue(), 10), by=lambda message: message.kind)"


class Lanes(Behaviour):
    """Named lanes, each with a behaviour of its own; a batch has messages of one lane.

    `by(message)` returns the name of its lane. The first lane that may hand over a batch does so,
    in the order in which the lanes are written: an agent gets corrections of its present task
    before new tasks. Each lane has its own order, bound and limits. A message whose lane does not
    exist is refused alone, with `Malformed`. A running job can take the messages of the first lane
    into its batch (`current_inbox`).

    >>> from actorflow.behaviours import Bounded, Queue
    >>> inbox = Lanes(steer=Queue(), follow=Bounded(Queue(), 10), by=lambda message: message[0])
    >>> _ = inbox.extend([("follow", "and then?"), ("steer", "stop!")])
    >>> inbox.take(), inbox.take()
    ([('steer', 'stop!')], [('follow', 'and then?')])
    """

    __slots__ = ("_by", "_lanes", "_last", "_now", "_rejected", "traits")

    def __init__(self, *, by: Callable[[Any], str], **lanes: Any) -> None:
        super().__init__()
        self._by = function(by, "by", _EXAMPLE)
        if not lanes:
            msg = f"Lanes needs at least one lane, as in {_EXAMPLE}"
            raise BadBehaviour(msg)
        self._lanes = {name: adapt_inner(lane) for name, lane in lanes.items()}
        each = [lane.traits for lane in self._lanes.values()]
        self.traits = Traits(
            divisible=all(one.divisible for one in each),
            trackable=all(one.trackable for one in each),
            chooses=all(one.chooses for one in each),
            shrinks=any(one.shrinks for one in each),
            bounded=any(one.bounded for one in each),
            timed=any(one.timed for one in each),
            stamped=any(one.timed for one in each),
            blocks=any(one.blocks for one in each),
            observes=any(one.observes for one in each),
            expires=any(one.expires for one in each),
            may_be_empty=any(one.may_be_empty or one.expires for one in each),
            limits=True,
            saves=any(one.saves for one in each),
            pads=any(one.pads for one in each),
            paces=any(one.paces for one in each),
        )
        self._last = next(iter(self._lanes.values()))
        self._now = 0.0
        self._rejected = 0

    def __repr__(self) -> str:
        lanes = ", ".join(f"{name}={lane!r}" for name, lane in self._lanes.items())
        return f"Lanes({lanes}, by={shown(self._by)})"

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, lane by lane, where a lane lists them."""
        return chain.from_iterable(
            getattr(lane, "__iter__", tuple)() for lane in self._lanes.values()
        )

    def lane(self, name: str) -> Behaviour:
        """Return the behaviour of a lane.

        >>> from actorflow.behaviours import Queue
        >>> len(Lanes(steer=Queue(), by=str).lane("steer"))
        0
        """
        return self._lanes[name]

    def add(self, message: Any) -> None:
        """Put a message into its lane. O(1) more."""
        self._lane_of(message).add(message)

    def accepts(self, message: Any) -> bool:
        """Return whether the message has a lane that can use it."""
        rejected = self._rejected
        try:
            return self._lane_of(message).accepts(message)
        except Malformed:
            self._rejected = rejected
            return False

    def grows(self, message: Any) -> bool:
        """Return whether `message` makes its lane longer."""
        rejected = self._rejected
        try:
            return self._lane_of(message).grows(message)
        except Malformed:
            self._rejected = rejected
            return False

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch of the first lane that has one. O(lanes) more."""
        batch: Any = []
        for lane in self._ready():
            self._last = lane
            batch = lane.take() if limit is None else lane.take(limit)
            if type(batch) is not list or batch:
                break
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the first lane in which it takes anything."""
        noting = Noting(judge)
        for lane in self._ready():
            self._last = lane
            batch = lane.choose(noting, limit)
            if batch or noting.stopped:
                return batch
        return []

    def peek(self) -> Any:
        """Return the first message of the first lane that has one."""
        for lane in self._ready():
            try:
                return lane.peek()
            except IndexError:
                continue
        msg = f"peek at an empty {self!r}"
        raise IndexError(msg)

    def steers(self) -> bool:
        """Return whether the next batch comes from the first lane: others wait for their turn.

        >>> from actorflow.behaviours import Queue
        >>> inbox = Lanes(steer=Queue(), follow=Queue(), by=str)
        >>> inbox.add("follow")
        >>> inbox.steers()
        False
        """
        first = next(iter(self._lanes.values()))
        return len(first) > 0 and self._ready()[0] is first and first.steers()

    def portion(self) -> int | None:
        """Return how many messages of a lane may leave, of whichever is next. O(lanes).

        A wrapper may discard all messages of the first lane, so that another one leaves.
        """
        portions: list[int] = []
        for lane in self._ready():
            portion = lower(lane.portion(), len(lane))
            portions.append(len(lane) if portion is None else portion)
        return max(portions, default=None)

    def padding(self) -> int:
        """Return how many items the last lane has padded its batch with."""
        return self._last.padding()

    def reason(self) -> Reason:
        """Return why the batch left its lane."""
        return self._last.reason()

    def ready_at(self, now: float) -> float:
        """Return when the first of the lanes may hand over a batch. O(lanes)."""
        self._now = now
        held = [lane.ready_at(now) for lane in self._lanes.values() if len(lane)]
        for lane in self._lanes.values():
            if not len(lane):
                lane.ready_at(now)
        return min(held, default=now)

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item`, in each lane."""
        super().track(gone)
        for lane in self._lanes.values():
            lane.track(gone)

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages of all lanes and return them."""
        return [message for lane in self._lanes.values() for message in lane.forget(dead)]

    def purge(self) -> None:
        """Make all lanes drop their expired messages."""
        for lane in self._lanes.values():
            lane.purge()

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held."""
        try:
            return self._lane_of(message).withdraw(message)
        except Malformed:  # it has never been accepted
            self._rejected -= 1
            return False

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Report the outcome of a batch to its lane."""
        lane = self._lane_again(batch)
        if lane is not None:
            lane.done(batch, took, outcomes)

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Return when the lane of a batch allows a retry."""
        lane = self._lane_again(batch)
        return now if lane is None else lane.retry_at(batch, now)

    def save(self) -> Any:
        """Return the states of the lanes by name, if there are any."""
        saved = {name: lane.save() for name, lane in self._lanes.items()}
        return saved if any(state is not None for state in saved.values()) else None

    def load(self, state: Any) -> None:
        """Restore the states of the lanes that there are."""
        for name, saved in (state or {}).items():
            if name in self._lanes and saved is not None:
                self._lanes[name].load(saved)

    def flush(self) -> None:
        """Make all lanes stop waiting for more."""
        for lane in self._lanes.values():
            lane.flush()

    def tally(self) -> Tally:
        """Return the counts of all lanes."""
        total = Tally(rejected=self._rejected)
        for lane in self._lanes.values():
            total += lane.tally()
        return total

    def depths(self) -> Mapping[Any, int]:
        """Return how many messages each lane holds. O(lanes)."""
        return {name: len(lane) for name, lane in self._lanes.items() if len(lane)}

    def check(self) -> None:
        """Verify the invariants of the lanes."""
        for lane in self._lanes.values():
            lane.check()

    def _ready(self) -> list[Behaviour]:
        """Return the lanes that may hand over a batch now, in order; if none may, all."""
        held = [lane for lane in self._lanes.values() if len(lane)]
        if not self.traits.timed:
            return held
        return [lane for lane in held if lane.ready_at(self._now) <= self._now] or held

    def _lane_again(self, batch: Sequence[Any]) -> Behaviour | None:
        """Return the lane that has handed a batch over, unless a merged message has lost it."""
        rejected = self._rejected
        try:
            return self._lane_of(batch[0]) if batch else None
        except Malformed:
            self._rejected = rejected
            return None

    def _lane_of(self, message: Any) -> Behaviour:
        try:
            name = self._by(unwrap(message))
            lane = self._lanes.get(name)
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no lane by={shown(self._by)}:", error) from error
        if lane is None:
            self._rejected += 1
            there = ", ".join(map(repr, self._lanes))
            raise unusable(message, f"there is no lane {brief(name)}; there are {there}")
        return lane
