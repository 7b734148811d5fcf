"""Errors of messages and behaviours: one base class and a short tree.

`ActorflowError` is the base of every error that actorflow raises; it is defined here because
this package is the lowest layer. `actorflow` re-exports it.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any


class _Brief(Repr):
    """A `repr` that is short, and that nothing can make raise."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 200

    def repr1(self, x: Any, level: int) -> str:
        """Return the text for one value, which may be a part of another."""
        try:
            return super().repr1(x, level)
        except BaseException as error:  # noqa: BLE001 - the text of an error must not be another
            return f"<{kind_of(x)} whose repr() raised {kind_of(error)}>"


_BRIEF = _Brief()
_name: Any = type.__dict__["__name__"].__get__


def kind_of(value: object) -> str:
    """Return the name of the class of a value, even if its metaclass makes `__name__` raise."""
    return str(_name(type(value)))


def brief(value: object) -> str:
    """Return a short text for any value, even if it is huge or its `repr` raises.

    >>> brief(list(range(1_000_000)))
    '[0, 1, 2, 3, 4, 5, ...]'
    >>> class Rude:
    ...     def __repr__(self):
    ...         raise SystemExit
    >>> brief(Rude())
    '<Rude whose repr() raised SystemExit>'
    """
    return _BRIEF.repr(value)


class ActorflowError(Exception):
    """Base of every error raised by actorflow. Errors can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, self.__dict__)


def _remake(kind: type[ActorflowError], args: tuple[Any, ...], facts: dict[str, Any]) -> Any:
    """Rebuild an error without `__init__`, whose arguments are not its text."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class Rejected(ActorflowError):
    """A message was refused by the behaviour. Nothing else was lost.

    `push_ack` and `push_block` raise it. A plain `push` is a cast: there the rejection is
    counted and logged.
    """


class Full(Rejected):
    """The behaviour holds as many messages as its bound allows."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"full: {size} messages are waiting and the bound is {size}; "
            "push later, raise the bound, or choose another when_full"
        )
        self.size = size


class WouldBlock(Full):
    """The behaviour is full, and the pusher should wait (`when_full="block"`)."""


class Malformed(Rejected):
    """The behaviour cannot use this message: it has no usable key, priority or weight."""

    def __init__(self, message: object, why: str) -> None:
        super().__init__(f"malformed message {brief(message)}: {why}")
        self.message = message


class TooLarge(Rejected):
    """The message alone exceeds the limit of a batch (`Chunk(..., oversize="reject")`)."""

    def __init__(self, message: object, cost: float, limit: float) -> None:
        super().__init__(
            f"too large: {brief(message)} has a cost of {cost:g}, and a batch may have "
            f'{limit:g}; split it, raise the limit, or let it run alone with oversize="alone"'
        )
        self.message = message


class Displaced(ActorflowError):
    """An accepted message left without being processed; the subclass says how."""


class Replaced(Displaced):
    """A newer message with the same key took this one's place."""


class Dropped(Displaced):
    """The message was dropped to make room (`when_full="drop_oldest"` or `"drop_newest"`)."""


class Duplicate(Dropped):
    """The message was dropped, because the same one came before (`Dedup`)."""


class Expired(Displaced):
    """The message waited longer than its time to live."""


class BadBehaviour(ActorflowError, ValueError):
    """A behaviour was built or combined in a way that cannot work."""


class AlreadyUsed(BadBehaviour):
    """One behaviour instance was passed to two owners. Each worker needs its own."""
