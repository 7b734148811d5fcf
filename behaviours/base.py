"""The contract of a behaviour, and `Base`: the seed's five hooks.

A *behaviour* decides how messages accumulate while an executor is busy, and what leaves as one
batch when it is free. It is a plain mutable data structure: no thread, no lock, no clock of its
own. Whoever drives it (a worker, the embedded mode, the simulator) calls it from one thread at a
time and tells it the time.

The least that a behaviour of your own needs is `add`, `take` and `__len__`. Everything else has
a default, and `Traits` says which of the optional abilities it really has, so that a combination
that cannot work is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from behaviours.errors import AlreadyUsed, BadBehaviour

__all__ = [
    "Base",
    "Behaviour",
    "Fate",
    "Foreign",
    "Hooked",
    "Item",
    "Refusal",
    "Tally",
    "Traits",
    "adapt",
    "claim",
    "release",
    "unwrap",
]

Refusal: TypeAlias = tuple[Sequence[Any], Exception]
"""Messages that were refused together, and why."""


class Fate(Enum):
    """How an accepted message left without being handed over."""

    REPLACED = "replaced"
    DROPPED = "dropped"
    EXPIRED = "expired"


class Item:
    """A message with what must travel with it: who waits for it, and since when it is here.

    Only messages that need it are wrapped; see `Behaviour.track`.
    """

    __slots__ = ("born", "message", "tickets")

    def __init__(self, message: Any, tickets: tuple[Any, ...] = (), born: float = 0.0) -> None:
        self.message = message
        self.tickets = tickets
        self.born = born

    def __repr__(self) -> str:
        return f"Item({self.message!r}, {len(self.tickets)} waiting)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Item, (self.message, self.tickets, self.born))


def unwrap(item: Any) -> Any:
    """Give the message of an item; a message that is not wrapped is given back as it is."""
    return item.message if type(item) is Item else item


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a behaviour can do and needs. Wrappers derive theirs from what they wrap."""

    ordered: bool = False
    """`drop_oldest` works."""
    divisible: bool = False
    """`take(limit)` and `peek` work: a part may leave while the rest goes on accumulating."""
    shrinks: bool = False
    """It may hold fewer messages than were added, so it pays to fold early, and to ask `grows`."""
    bounded: bool = False
    """It holds so many messages at the most, so it pays to fold early."""
    timed: bool = False
    """`ready_at` matters: a batch may have to wait although messages are there."""
    stamped: bool = False
    """It must be told the time of each arrival, so messages cannot be folded in late."""
    blocks: bool = False
    """It may ask the pusher to wait (`WouldBlock`)."""
    trackable: bool = False
    """It accepts messages wrapped in `Item` (see `Behaviour.track`)."""
    observes: bool = False
    """It learns from how long the job takes: `observe` matters."""
    expires: bool = False
    """Messages may grow too old: `purge` matters, and `take` may give an empty list."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts since the behaviour was made."""

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
    """Base class of the built-in behaviours, and the place where the optional parts default.

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
            the messages that were refused, with the reason: usually nothing.

        """
        refused: list[Refusal] = []
        add = self.add
        for message in messages:
            try:
                add(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
        return refused

    def take(self, limit: int | None = None) -> Any:
        """Hand over the next batch and forget it. Called only when `len(self) > 0`.

        `limit` is given only if `traits.divisible`: hand over at most that many messages. Only
        where `traits.expires` the batch may be an empty list: all that was held had grown too
        old. The driver then does not call the job.
        """
        msg = f"{type(self).__name__} must define take(self)"
        raise BadBehaviour(msg)

    def __len__(self) -> int:
        """How many messages are held. O(1)."""
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
        """Whether adding `message` would make the behaviour longer. Asked if `traits.shrinks`.

        A message that `add` would refuse does not make it longer.
        """
        return True

    def ready_at(self, now: float) -> float:
        """Tell the behaviour the time; it says from when on a batch may leave.

        A value `<= now` means at once, `inf` not before something else happens. The driver of a
        timed behaviour calls this before it adds messages, and again before it takes a batch:
        this is the only way in which time comes in.
        """
        return now

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """From now on messages may come wrapped in `Item`.

        Such a message is treated by its `.message`; whenever one that bears tickets leaves
        other than by `take` or by a refusal, `(item, fate)` is appended to `gone`. What
        `drop_oldest` returns is for its caller to report. Needs `traits.trackable`. Called at
        any time, by one driver; a wrapper may have called it before.
        """
        self.gone = gone

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the messages of which `dead` is true, and return them. Used by `Expire`.

        `dead` is true of a message only if it is true of all that arrived before it, so it is
        enough to look from the oldest on until one is alive. By default nothing is forgotten
        here: what is too old is found out when it is taken.
        """
        return ()

    def purge(self) -> None:
        """Forget what has grown too old, because room is needed. Where `traits.expires`."""

    def observe(self, size: int, took: float) -> None:
        """Hear that the job took so many seconds for a batch of so many messages.

        Called after each batch, if `traits.observes`.
        """

    def flush(self) -> None:
        """Stop waiting for more: the driver is draining, so what is held should leave.

        Policies that hold messages back in the hope of more (linger, debounce) let go from now
        on; a policy that limits how often the job is called (throttle) goes on doing so.
        """

    def tally(self) -> Tally:
        """Count what was replaced, dropped, rejected or has expired so far. O(1)."""
        return Tally()

    def check(self) -> None:
        """Verify the invariants; tests call it after every step."""


_CLAIMED = "_actorflow_claimed"
"""The mark on an object of the user's that has an owner."""
_ONE_EACH = "give each worker its own, or pass the class or a factory: behaviour=lambda: {!r}"


def claim(behaviour: Behaviour) -> None:
    """Mark the behaviour as owned; a second owner is refused.

    Raises:
        AlreadyUsed: it belongs to another worker or wrapper already.

    """
    # A subclass may have forgotten super().__init__(): then it is not claimed yet.
    if getattr(behaviour, "_claimed", False):
        msg = f"{behaviour!r} is in use already; " + _ONE_EACH.format(behaviour)
        raise AlreadyUsed(msg)
    behaviour._claimed = True  # noqa: SLF001 - the flag belongs to this module


def release(behaviour: Behaviour) -> None:
    """Take back a claim: the wrapper that made it could not be built."""
    behaviour._claimed = False  # noqa: SLF001
    if isinstance(behaviour, (Hooked, Foreign)):
        with suppress(AttributeError):
            setattr(behaviour._driven, _CLAIMED, False)  # noqa: SLF001


class Base:
    """A behaviour in five small hooks over a value that you choose; as it stands, a stack.

    Each hook gets the accumulated value and gives back the new one. Override what differs:

    >>> class StackOneByOne(Base):
    ...     def transform(self, messages):
    ...         return messages[0]
    ...
    ...     def clear(self, messages):
    ...         return messages[1:]

    hands messages over one at a time, newest first. The default keeps a list, newest first, so
    `add` costs O(n) moves of a pointer; use `Stack` where the plain stack is all you need.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def init(self) -> Any:
        """Make the value of an empty behaviour."""
        return []

    def add(self, messages: Any, message: Any) -> Any:
        """Give the value with `message` added. Raise to refuse that message."""
        messages.insert(0, message)
        return messages

    def transform(self, messages: Any) -> Any:
        """Give what the job gets: any object. Must leave `messages` as it is."""
        return messages

    def clear(self, messages: Any) -> Any:
        """Give the value without what `transform` has just handed over."""
        return []

    def empty(self, messages: Any) -> bool:
        """Tell whether there is nothing to hand over."""
        return not messages


class Hooked(Behaviour):
    """Drives a `Base` through the behaviour contract."""

    __slots__ = ("_count", "_driven", "_rejected", "_value")

    def __init__(self, hooks: Base) -> None:
        super().__init__()
        self._driven = hooks
        self._value = self._not_none(hooks.init(), "init")
        self._count = 0
        self._rejected = 0

    def __repr__(self) -> str:
        return f"{type(self._driven).__name__}()"

    def _not_none(self, value: Any, hook: str) -> Any:
        if value is None:
            name = type(self._driven).__name__
            msg = f"{name}.{hook} returned None; it must return the accumulated value"
            raise BadBehaviour(msg)
        return value

    def add(self, message: Any) -> None:
        """Let the hook `add` make a new value; what it raises refuses the message."""
        try:
            self._value = self._not_none(self._driven.add(self._value, message), "add")
        except Exception:
            self._rejected += 1
            raise
        self._count += 1

    def tally(self) -> Tally:
        """Count what was refused."""
        return Tally(rejected=self._rejected)

    def take(self, limit: int | None = None) -> Any:
        """Hand over what `transform` gives, and keep what `clear` leaves."""
        payload = self._driven.transform(self._value)
        rest = self._not_none(self._driven.clear(self._value), "clear")
        self._value = rest
        if self._driven.empty(rest):
            self._count = 0
        return payload

    def __len__(self) -> int:
        if self._driven.empty(self._value):
            return 0
        try:
            return max(1, len(self._value))
        except TypeError:
            return max(1, self._count)

    def __iter__(self) -> Iterator[Any]:
        """Give the messages held, if the value is a collection of them."""
        return _listed(self._value)


class Foreign(Behaviour):
    """Drives an object that has just the methods it needs: `add`, `take`, `__len__`, ..."""

    __slots__ = ("_driven", "_rejected", "traits")

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._driven = inner
        self._rejected = 0
        self.traits = Traits(
            shrinks=callable(getattr(inner, "grows", None)),
            ordered=callable(getattr(inner, "drop_oldest", None)),
            timed=callable(getattr(inner, "ready_at", None)),
            stamped=callable(getattr(inner, "ready_at", None)),
        )

    def __repr__(self) -> str:
        return repr(self._driven)

    def add(self, message: Any) -> None:
        """Pass one message on; what the object raises refuses it."""
        try:
            self._driven.add(message)
        except Exception:
            self._rejected += 1
            raise

    def tally(self) -> Tally:
        """Count what was refused."""
        return Tally(rejected=self._rejected)

    def take(self, limit: int | None = None) -> Any:
        """Hand over what the object hands over."""
        return self._driven.take()

    def __len__(self) -> int:
        return len(self._driven)

    def drop_oldest(self) -> Any:
        """Let the object drop its oldest message, if it can."""
        return self._driven.drop_oldest() if self.traits.ordered else super().drop_oldest()

    def grows(self, message: Any) -> bool:
        """Ask the object, if it can tell."""
        return bool(self._driven.grows(message)) if self.traits.shrinks else True

    def ready_at(self, now: float) -> float:
        """Tell the object the time, if it cares."""
        return float(self._driven.ready_at(now)) if self.traits.timed else now

    def flush(self) -> None:
        """Tell the object that no more will come, if it cares."""
        flush = getattr(self._driven, "flush", None)
        if callable(flush):
            flush()

    def __iter__(self) -> Iterator[Any]:
        """Give the messages held, if the object can list them."""
        return _listed(self._driven)


def _listed(held: Any) -> Iterator[Any]:
    """Give the messages in a collection of the user's; of a mapping, its values."""
    if isinstance(held, Mapping):
        return iter(held.values())
    return iter(held) if isinstance(held, Iterable) else iter(())


_NEEDED = ("add", "take", "__len__")


def adapt(given: Any) -> Behaviour:
    """Make a driven behaviour of an instance, a class or a factory, and claim it.

    Raises:
        BadBehaviour: it is nothing of the kind; the message shows what is missing.
        AlreadyUsed: the instance belongs to another worker or wrapper.

    """
    made = _made(given)
    if isinstance(made, Behaviour):
        claim(made)
        return made
    driven: Behaviour
    if isinstance(made, Base):
        driven = Hooked(_once(made))
    else:
        missing = [name for name in _NEEDED if not hasattr(made, name)]
        if missing:
            msg = (
                f"{given!r} is not a behaviour: it lacks {', '.join(missing)}. Pass an instance, "
                "a class or a factory, as in behaviour=Queue or behaviour=Unique(key=0)"
            )
            raise BadBehaviour(msg)
        driven = Foreign(_once(made))
    claim(driven)
    return driven


def _made(given: Any) -> Any:
    """Call a class or a factory; give an instance back as it is."""
    if not isinstance(given, type):
        known = isinstance(given, (Behaviour, Base)) or hasattr(given, "take")
        if known or not callable(given):
            return given
    try:
        return given()
    except TypeError as error:
        name = getattr(given, "__name__", repr(given))
        msg = (
            f"{name}() does not make a behaviour: {error}. Pass an instance, or a function "
            f"without arguments that makes one: behaviour=lambda: {name}(...)"
        )
        raise BadBehaviour(msg) from error


def _once(made: Any) -> Any:
    """Refuse an object of the user's that was given twice."""
    if getattr(made, _CLAIMED, False):
        msg = f"{made!r} is in use already; " + _ONE_EACH.format(made)
        raise AlreadyUsed(msg)
    with suppress(AttributeError):  # it has __slots__: then nobody can tell
        setattr(made, _CLAIMED, True)
    return made
