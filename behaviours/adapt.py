"""`Base` with its five hooks, and `adapt`, which makes a behaviour of any accepted value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from inspect import signature
from typing import Any

from actorflow.behaviours.behaviour import (
    Behaviour,
    MessageOutcome,
    Tally,
    Traits,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import AlreadyUsed, BadBehaviour, brief

__all__ = [
    "Base",
    "Foreign",
    "Hooked",
    "adapt",
    "adapt_inner",
    "check_copied",
    "claim",
    "refuse_preempting",
    "release",
]

_CLAIMED = "_actorflow_claimed"
"""Attribute that marks a caller's object that already has an owner."""


def claim(behaviour: Behaviour) -> None:
    """Mark the behaviour as owned.

    Raises:
        AlreadyUsed: it belongs to another worker or wrapper already.

    """
    # A subclass may have forgotten super().__init__(): then it is not claimed yet.
    if getattr(behaviour, "_claimed", False):
        raise _in_use(behaviour)
    behaviour._claimed = True  # noqa: SLF001 - the flag belongs to this module


def release(behaviour: Behaviour) -> None:
    """Undo `claim`, because the wrapper that claimed the behaviour could not be built."""
    behaviour._claimed = False  # noqa: SLF001
    if isinstance(behaviour, Foreign):
        driven = behaviour._driven  # noqa: SLF001
        with suppress(AttributeError):
            setattr(driven.hooks if isinstance(driven, Hooked) else driven, _CLAIMED, False)


def _in_use(given: Any) -> AlreadyUsed:
    shown = brief(given)
    return AlreadyUsed(
        f"{shown} is in use already; give each worker its own, or pass the class or a factory: "
        f"behaviour=lambda: {shown}"
    )


class Base:
    """A behaviour in five small hooks over a value of your choice; as it stands, a stack.

    Each hook receives the accumulated value and returns the new one. Override what differs:

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
        """Return the value of an empty behaviour."""
        return []

    def add(self, messages: Any, message: Any) -> Any:
        """Return the value with `message` added. Raise to refuse that message."""
        messages.insert(0, message)
        return messages

    def transform(self, messages: Any) -> Any:
        """Return what the job receives: any object. Must leave `messages` as it is."""
        return messages

    def clear(self, messages: Any) -> Any:
        """Return the value without what `transform` has just handed over."""
        return []

    def empty(self, messages: Any) -> bool:
        """Return whether there is nothing to hand over."""
        return not messages


class Hooked:
    """A `Base` as an object with the three methods that a behaviour needs."""

    __slots__ = ("_count", "_value", "hooks")

    def __init__(self, hooks: Base) -> None:
        self.hooks = hooks
        self._value = self._not_none(hooks.init(), "init")
        self._count = 0

    def __repr__(self) -> str:
        return brief(self.hooks)

    def _not_none(self, value: Any, hook: str) -> Any:
        if value is None:
            name = type(self.hooks).__name__
            msg = f"{name}.{hook} returned None; it must return the accumulated value"
            raise BadBehaviour(msg)
        return value

    def add(self, message: Any) -> None:
        """Replace the value by what the hook `add` returns."""
        self._value = self._not_none(self.hooks.add(self._value, message), "add")
        self._count += 1

    def take(self) -> Any:
        """Hand over what `transform` returns, and keep what `clear` leaves."""
        payload = self.hooks.transform(self._value)
        self._value = self._not_none(self.hooks.clear(self._value), "clear")
        if self.hooks.empty(self._value):
            self._count = 0
        return payload

    def __len__(self) -> int:
        if self.hooks.empty(self._value):
            return 0
        try:
            return max(1, len(self._value))
        except TypeError:
            return max(1, self._count)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, if the value is a collection of them."""
        return _listed(self._value)


class Foreign(Behaviour):
    """Drives an object that has just the methods it needs: `add`, `take`, `__len__`, ...

    Such an object keeps no counts, so they are derived from its `len()`: what `take` removes was
    handed over, and whatever else is no longer there was dropped.
    """

    __slots__ = ("_accepted", "_driven", "_handed", "_rejected", "traits")

    def __init__(self, driven: Any) -> None:
        super().__init__()
        self._driven = driven
        self._accepted = self._handed = self._rejected = 0
        self.traits = Traits(
            shrinks=callable(getattr(driven, "grows", None)),
            ordered=callable(getattr(driven, "drop_oldest", None)),
            timed=callable(getattr(driven, "ready_at", None)),
            stamped=callable(getattr(driven, "ready_at", None)),
            observes=callable(getattr(driven, "done", None)),
            saves=callable(getattr(driven, "save", None)) and hasattr(driven, "load"),
            spreads=_has_parameter(driven.take, "free"),
            limits=callable(getattr(driven, "portion", None)),
        )

    def __repr__(self) -> str:
        return brief(self._driven)

    def __len__(self) -> int:
        return len(self._driven)

    def add(self, message: Any) -> None:
        """Pass one message on; whatever the object raises refuses it."""
        try:
            self._driven.add(message)
        except Exception:
            self._rejected += 1
            raise
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"add of {self!r} raised", error) from error
        self._accepted += 1

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over what the object hands over."""
        held = len(self)
        payload = self._driven.take(free=free) if self.traits.spreads else self._driven.take()
        self._handed += held - len(self)
        return payload

    def portion(self) -> int | None:
        """Ask the object, if it knows."""
        return self._driven.portion() if self.traits.limits else None

    def tally(self) -> Tally:
        """Return the counts of refused messages and of messages that vanished before `take`."""
        lost = self._accepted - self._handed - len(self)
        return Tally(dropped=max(lost, 0), rejected=self._rejected)

    def drop_oldest(self) -> Any:
        """Let the object drop its oldest message, if it can."""
        if not self.traits.ordered:
            return super().drop_oldest()
        dropped = self._driven.drop_oldest()
        self._handed += 1  # the caller counts it
        return dropped

    def grows(self, message: Any) -> bool:
        """Ask the object, if it knows."""
        return bool(self._driven.grows(message)) if self.traits.shrinks else True

    def accepts(self, message: Any) -> bool:
        """Ask the object, if it knows."""
        accepts = getattr(self._driven, "accepts", None)
        return bool(accepts(message)) if callable(accepts) else True

    def ready_at(self, now: float) -> float:
        """Pass the time on, if the object uses it."""
        return float(self._driven.ready_at(now)) if self.traits.timed else now

    def flush(self) -> None:
        """Pass the flush on, if the object has such a method."""
        flush = getattr(self._driven, "flush", None)
        if callable(flush):
            flush()

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Report the outcome of a batch to the object, if it has such a method."""
        if self.traits.observes:
            self._driven.done(batch, took, outcomes)

    def withdraw(self, message: Any) -> bool:
        """Let the object forget a message, if it can."""
        withdraw = getattr(self._driven, "withdraw", None)
        if not callable(withdraw) or not withdraw(unwrap(message)):
            return False
        self._handed += 1  # the caller counts it
        return True

    def save(self) -> Any:
        """Return the state of the object, if it has any."""
        return self._driven.save() if self.traits.saves else None

    def load(self, state: Any) -> None:
        """Restore the state of the object."""
        if self.traits.saves:
            self._driven.load(state)

    def depths(self) -> Mapping[Any, int] | None:
        """Ask the object, if it has such a method."""
        depths = getattr(self._driven, "depths", None)
        return depths() if callable(depths) else None

    @property
    def lists(self) -> bool:
        """Whether the object can list the messages held."""
        return hasattr(self._driven, "__iter__")

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, if the object can list them."""
        return _listed(self._driven)


def _listed(held: Any) -> Iterator[Any]:
    """Iterate over the messages in the caller's collection; over the values of a mapping."""
    if isinstance(held, Mapping):
        return iter(held.values())
    return iter(held) if isinstance(held, Iterable) else iter(())


def _has_parameter(function: Any, name: str) -> bool:
    """Return whether a function can be called with a named argument."""
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):  # it is written in C
        return False
    return name in parameters


_NEEDED = ("add", "take", "__len__")


def adapt(given: Any) -> Behaviour:
    """Return a claimed behaviour made from an instance, a class or a factory.

    Raises:
        BadBehaviour: it has too few of the methods; the error names the missing ones.
        AlreadyUsed: the instance belongs to another worker or wrapper.

    """
    made = _made(given)
    if isinstance(made, Behaviour):
        claim(made)
        return made
    missing = (
        [] if isinstance(made, Base) else [name for name in _NEEDED if not hasattr(made, name)]
    )
    if missing:
        msg = (
            f"{brief(given)} is not a behaviour: it lacks {', '.join(missing)}. Pass an "
            "instance, a class or a factory, as in behaviour=Queue or behaviour=Unique(key=0)"
        )
        raise BadBehaviour(msg)
    driven = Foreign(Hooked(made) if isinstance(made, Base) else made)
    _once(made)
    claim(driven)
    return driven


def _made(given: Any) -> Any:
    """Call a class or a factory; return an instance as it is."""
    if not isinstance(given, type):
        known = isinstance(given, (Behaviour, Base)) or hasattr(given, "take")
        if known or not callable(given):
            return given
    try:
        return given()
    except TypeError as error:
        name = getattr(given, "__name__", None) or brief(given)
        msg = (
            f"{name}() does not make a behaviour: {brief(error)}. Pass an instance, or a function "
            f"without arguments that makes one: behaviour=lambda: {name}(...)"
        )
        raise BadBehaviour(msg) from error


def _once(made: Any) -> None:
    """Mark the caller's object as used, or refuse one that was passed twice."""
    if getattr(made, _CLAIMED, False):
        raise _in_use(made)
    with suppress(AttributeError):  # it has __slots__: then a second owner goes unnoticed
        setattr(made, _CLAIMED, True)


def check_copied(template: Behaviour, need: str) -> None:
    """Refuse a behaviour that cannot be copied, where several like it are needed.

    Raises:
        BadBehaviour: it cannot; a function that makes new ones will do instead.

    """
    try:
        deepcopy(template)
    except Exception as error:
        release(template)
        msg = (
            f"{need}, and {template!r} cannot be copied: {brief(error)}; give it a function that "
            "makes one, as in lambda: TableUnique(...)"
        )
        raise BadBehaviour(msg) from error


def adapt_inner(given: Any) -> Behaviour:
    """Like `adapt`, for a behaviour inside another one, which cannot end running batches.

    Raises:
        BadBehaviour: it is, or holds, a `Preempt`.

    """
    behaviour = adapt(given)
    if behaviour.traits.preempts:
        release(behaviour)
        msg = (
            f"{behaviour!r} must be the outermost behaviour, because only a worker can end a "
            "batch that runs; put Preempt around the others, as in Preempt(Chunk(Queue(), 10), "
            "when=is_urgent)"
        )
        raise BadBehaviour(msg)
    return behaviour


def refuse_preempting(behaviour: Behaviour, where: str, error: type[Exception]) -> None:
    """Refuse a `Preempt` where nothing can end a batch that runs."""
    if behaviour.traits.preempts:
        release(behaviour)
        msg = (
            f"{where} cannot end a batch that runs, which {behaviour!r} needs; use a worker of "
            "spawn(job, behaviour=Preempt(...)), or the behaviour inside it"
        )
        raise error(msg)
