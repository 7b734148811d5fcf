"""The contract of a behaviour: what a driver calls, and the values that travel through it.

A *behaviour* decides how messages accumulate while an executor is busy, and what leaves as one
batch when it is free. It is a plain mutable data structure: no thread, no lock, no clock of its
own. Its driver (a worker, the embedded mode, the simulator) calls it from one thread at a time
and passes the time in.

A behaviour of your own needs only `add`, `take` and `__len__`. Everything else has a default,
and `Traits` declares which optional abilities it really has, so that a combination that cannot
work is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeAlias

from behaviours.errors import BadBehaviour, Malformed, brief

__all__ = ["Behaviour", "Fate", "Item", "Reason", "Refusal", "Tally", "Traits", "unwrap"]

Refusal: TypeAlias = tuple[Sequence[Any], Exception]
"""Messages that were refused together, and why."""


class Fate(Enum):
    """How an accepted message left without being handed over."""

    REPLACED = "replaced"
    DROPPED = "dropped"
    EXPIRED = "expired"


class Reason(StrEnum):
    """Why a batch left."""

    IDLE = "idle"
    """The executor was free, and nothing held the batch back."""
    SIZE = "size"
    """It had as many messages as it should or may have."""
    WEIGHT = "weight"
    """Its messages weighed as much as a batch may weigh."""
    TIME = "time"
    """It was held back for some time, and that time was over."""
    DEADLINE = "deadline"
    """Waiting any longer would have missed a limit."""
    FLUSH = "flush"
    """It would have waited for more, had the behaviour not been flushed."""
    DRAIN = "drain"
    """The worker was stopping. Set by drivers only."""
    RETRY = "retry"
    """It, or the batch it is a part of, had failed before. Set by drivers only."""


class Item:
    """A message together with the tickets of its waiting callers and its time of arrival.

    Only messages that need it are wrapped; see `Behaviour.track`.
    """

    __slots__ = ("born", "message", "tickets")

    def __init__(self, message: Any, tickets: tuple[Any, ...] = (), born: float = 0.0) -> None:
        self.message = message
        self.tickets = tickets
        self.born = born

    def __repr__(self) -> str:
        return f"Item({brief(self.message)}, {len(self.tickets)} waiting)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Item, (self.message, self.tickets, self.born))


def unwrap(item: Any) -> Any:
    """Return the message of an item, or a message that is not wrapped as it is."""
    return item.message if type(item) is Item else item


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a behaviour can do and needs. Wrappers derive theirs from what they wrap.

    The default of each trait is the one that is safe for a behaviour that knows nothing of it.
    """

    ordered: bool = False
    """`drop_oldest` works."""
    divisible: bool = False
    """`take(limit)` and `peek` work: a part may leave while the rest stays."""
    shrinks: bool = False
    """It may hold fewer messages than were added: fold early, and ask `grows`."""
    bounded: bool = False
    """It holds a limited number of messages: fold early."""
    accepts_all: bool = False
    """`add` never refuses a message."""
    timed: bool = False
    """`ready_at` matters: a batch may have to wait although messages are there."""
    stamped: bool = False
    """The time of *each* arrival matters. The driver adds messages with `extend_at`, or calls
    `ready_at` with the time of arrival before `add`."""
    first_stamped: bool = False
    """Only the arrival time of the first message of a batch matters. The driver calls `ready_at`
    with that time before `extend`; where `stamped` is set, too, it uses `extend_at`."""
    patient: bool = False
    """No number of messages makes a batch leave earlier: `until_full` always returns `None`, and
    pushes need not look."""
    blocks: bool = False
    """It may ask the pusher to wait (`WouldBlock`)."""
    trackable: bool = False
    """It accepts messages wrapped in `Item` (see `Behaviour.track`)."""
    observes: bool = False
    """It learns from how long the job takes: `observe` matters."""
    expires: bool = False
    """Messages may grow too old: `purge` matters, and `take` may return an empty list."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts since the behaviour was made.

    At every moment, messages added - rejected = handed over + held + replaced + dropped + expired
    + merged.
    """

    replaced: int = 0
    dropped: int = 0
    rejected: int = 0
    expired: int = 0
    merged: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.replaced + other.replaced,
            self.dropped + other.dropped,
            self.rejected + other.rejected,
            self.expired + other.expired,
            self.merged + other.merged,
        )


class Behaviour:
    """Base class of the built-in behaviours, with a default for every optional method.

    A subclass implements `add`, `take` and `__len__`, and sets `traits`.
    """

    __slots__ = ("_claimed", "gone")

    traits: Traits = Traits()

    _claimed: bool
    gone: list[tuple[Item, Fate]] | None

    def __init__(self) -> None:
        self._claimed = False
        self.gone = None

    def add(self, message: Any) -> None:
        """Accumulate one message.

        Raises:
            Rejected: the message is refused; the behaviour is as it was before.

        """
        msg = f"{type(self).__name__} must define add(self, message)"
        raise BadBehaviour(msg)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages, as `add` would one after the other. May keep the list.

        Returns:
            the messages that were refused, with the reason; usually nothing.

        """
        refused: list[Refusal] = []
        add = self.add
        for message in messages:
            try:
                add(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
            except BaseException as error:  # noqa: BLE001 - raised by the user's code, not by ours
                refused.append(((message,), unusable(message, "add raised", error)))
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Like `extend`, for messages that arrived at these times. Used if `traits.stamped`.

        `times` has one entry per message and never decreases; both lists may be kept. By default
        `ready_at` is called with each time before its messages are added.
        """
        refused: list[Refusal] = []
        start, end = 0, len(messages)
        while start < end:
            now = times[start]
            stop = start + 1
            while stop < end and times[stop] == now:
                stop += 1
            self.ready_at(now)
            refused += self.extend(messages[start:stop])
            start = stop
        return refused

    def take(self, limit: int | None = None) -> Any:
        """Hand over the next batch and forget it. Called only when `len(self) > 0`.

        `limit` is passed only if `traits.divisible`: hand over at most that many messages. The
        batch may be an empty list only if `traits.expires`: all that was held had grown too old.
        The driver then does not call the job.
        """
        msg = f"{type(self).__name__} must define take(self)"
        raise BadBehaviour(msg)

    def reason(self) -> Reason:
        """Return why the batch that `take` has just handed over left.

        Called at most once per batch, right after `take`, and never on behaviours that leave
        this default as it is.
        """
        return Reason.IDLE

    def __len__(self) -> int:
        """Return how many messages are held. O(1)."""
        msg = f"{type(self).__name__} must define __len__(self)"
        raise BadBehaviour(msg)

    def drop_oldest(self) -> Any:
        """Forget the message that has waited longest, and return it. Needs `traits.ordered`."""
        msg = f"{self!r} keeps no order of arrival, so it has no oldest message to drop"
        raise BadBehaviour(msg)

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` messages that have waited longest, and return them, oldest first."""
        return [self.drop_oldest() for _ in range(count)]

    def peek(self) -> Any:
        """Return the first message of the next batch without taking it. Needs `divisible`.

        Raises:
            IndexError: nothing is held, or (where `traits.expires`) nothing that is alive.

        """
        msg = f"{self!r} hands its messages over as a whole, so it cannot be taken in parts"
        raise BadBehaviour(msg)

    def grows(self, message: Any) -> bool:
        """Return whether adding `message` would make the behaviour longer. Needs `shrinks`.

        A message that `add` would refuse does not make it longer.
        """
        return True

    def ready_at(self, now: float) -> float:
        """Set the time, and return from when on a batch may leave.

        A value `<= now` means at once, `inf` not before something else happens. The driver of a
        timed behaviour calls this with the current time before it takes a batch, and with times
        of arrival, which may lie a little back, before it adds messages (see `Traits`). Time
        comes in here and through `extend_at` only.
        """
        return now

    def until_full(self) -> int | None:
        """Return after how many more messages a batch that has to wait could leave earlier.

        Asked after `ready_at` has returned a later time; the driver calls `ready_at` again at
        that time, or after that many messages. `None` means that no number of messages helps, and
        1, the default, that each arrival must be looked at.
        """
        return 1

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item` from now on.

        Such a message is treated by its `.message`; whenever one with tickets leaves other than
        by `take` or by a refusal, `(item, fate)` is appended to `gone`. What `drop_oldest`
        returns is for its caller to report. Needs `traits.trackable`. Called at any time, by one
        driver; a wrapper may have called it before.
        """
        self.gone = gone

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the messages for which `dead` is true, and return them. Used by `Expire`.

        `dead` is true of a message only if it is true of all that arrived before it, so a search
        from the oldest on may stop at the first that is alive. By default nothing is forgotten
        here: messages that are too old are found when they are taken.
        """
        return ()

    def purge(self) -> None:
        """Forget what has grown too old, because room is needed. Where `traits.expires`."""

    def observe(self, size: int, took: float) -> None:
        """Learn that the job took `took` seconds for a batch of `size` messages.

        Called after each batch, if `traits.observes`.
        """

    def flush(self) -> None:
        """Stop waiting for more: the driver is draining, so what is held should leave.

        Policies that hold messages back in the hope of more (linger, debounce) no longer do; a
        policy that limits how often the job is called (throttle) still does.
        """

    def tally(self) -> Tally:
        """Return the counts of messages that were replaced, dropped, rejected, ... O(1)."""
        return Tally()

    def check(self) -> None:
        """Verify the invariants; tests call it after every step."""


def unusable(message: Any, what: str, error: BaseException | None = None) -> Malformed:
    """Return the refusal of a message for which the user's code failed.

    >>> unusable(("a", 1), "no key=len:", TypeError("no len"))
    Malformed("malformed message ('a', 1): no key=len: TypeError('no len')")
    """
    plain = unwrap(message)
    refusal = Malformed(plain, what if error is None else f"{what} {brief(error)}")
    refusal.__cause__ = error
    return refusal
