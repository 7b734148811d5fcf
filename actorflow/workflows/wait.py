"""Waits and events."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from actorflow.workflows.errors import InvalidWork, MessageRefused
from actorflow.workflows.frames.values import freeze, thaw
from actorflow.workflows.frames.work import Work
from actorflow.workflows.instance.state import WorkType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Event", "Wait", "written_event"]

E = TypeVar("E")
WAIT = "Wait"
"""What a wait is called where works are named."""


class Event(Struct, frozen=True):
    """An event that was sent to an instance."""

    name: str
    data: Any = None

    def read(self, as_type: type[E]) -> E:
        """Return the data as an object of a type.

        >>> class Paid(Struct):
        ...     amount: int
        >>> Event("Paid", {"amount": 40}).read(Paid)
        Paid(amount=40)
        """
        value: E = thaw(self.data, as_type, f"the data of the event {self.name!r}")
        return value


def written_event(event: Any, data: dict[str, Any]) -> tuple[str, Any]:
    """Return the name and the data of an event that is given by name, or as an object.

    Raises:
        TypeError: it is neither.
        MessageRefused: the name is empty.
        NotStorable: the data is no plain data.

    """
    if isinstance(event, str):
        if not event:
            raise MessageRefused("'' is not an event: give it a name")
        return event, freeze(data, Any, f"the data of the event {event!r}")
    cls = type(event)
    if cls.__module__ == "builtins":
        msg = f"{event!r:.80} is not an event: send its name, or an object of a class of yours"
        raise TypeError(msg)
    if data:
        msg = f"{event!r:.80} has its own data: leave out {', '.join(data)}"
        raise TypeError(msg)
    return cls.__name__, freeze(event, cls, f"the event {cls.__name__}")


T = TypeVar("T")


class Wait(Work[T], Generic[T]):
    """A work that ends with an event, at a time, or with the first of both.

    Its result is the `Event`, or `None` when the time is over. With a class as the event, it is an
    object of that class.

    Args:
        event: the name of the event to wait for, or the class of its data, whose name it has.
        seconds: how long to wait; `minutes`, `hours` and `days` are added.
        until: when to stop waiting: an aware `datetime`, or seconds since the epoch.

    """

    __slots__ = ()

    def __init__(
        self,
        event: str | type[Any] | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | float | None = None,
    ) -> None:
        parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        for unit, amount in parts.items():
            if not _is_number(amount):
                raise InvalidWork(f"{unit}={amount!r:.80} is not a number, as in {unit}=3")
            if amount < 0:
                raise InvalidWork(f"{unit}={amount} is in the past: use 0 or more")
        duration = _duration(parts) if any(parts.values()) else None
        if duration is not None and until is not None:
            raise InvalidWork("a wait has either a duration or `until`, not both")
        if event is not None and not isinstance(event, (str, type)):
            raise InvalidWork(
                f"event={event!r:.80} is neither the name of an event nor the class of its data; "
                "a duration is written as in Wait('paid', seconds=5)"
            )
        if isinstance(event, type) and event.__module__ == "builtins":
            raise InvalidWork(
                f"event={event!r:.80} is a class of Python: nobody can send one; give a class of "
                "yours, or a name"
            )
        if isinstance(event, str) and not _is_name(event):
            raise InvalidWork(f"event={event!r:.80} is not a name: nobody could send it")
        if event is None and duration is None and until is None:
            raise InvalidWork("this wait would never end: give it an event, a duration or `until`")
        name = event if isinstance(event, str) or event is None else event.__name__
        timestamp = _timestamp(until)
        given = {"event": name, "duration": duration, "timestamp": timestamp}
        super().__init__(
            type=WorkType.WAIT,
            name=WAIT,
            input={key: value for key, value in given.items() if value is not None},
            read=_reader(event),
            event=name,
            duration=duration,
            timestamp=timestamp,
        )


def _duration(parts: dict[str, float]) -> float:
    try:
        return timedelta(**parts).total_seconds()
    except (ValueError, OverflowError):
        given = ", ".join(f"{unit}={amount}" for unit, amount in parts.items() if amount)
        raise InvalidWork(
            f"{given} is not a duration: to wait without a time limit, give only an event"
        ) from None


def _is_name(given: str) -> bool:
    try:
        return bool(given.encode())
    except UnicodeEncodeError:  # a lone surrogate, which cannot be stored
        return False


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


def _timestamp(until: datetime | float | None) -> float | None:
    if until is None:
        return None
    if not isinstance(until, datetime):
        if not _is_number(until) or not isfinite(until):
            raise InvalidWork(
                f"until={until!r:.80} is not a point in time: give an aware datetime, or seconds "
                "since the epoch"
            )
        return float(until)
    if until.tzinfo is None:
        raise InvalidWork(f"until={until} has no time zone: use `until.astimezone()`")
    return until.timestamp()


def _reader(event: str | type[Any] | None) -> Callable[[Any], Any]:
    def read(output: Any) -> Any:
        if output is None:
            return None
        found = Event(output["event_name"], thaw(output["event_input"], Any, "an event"))
        return found.read(event) if isinstance(event, type) else found

    return read
