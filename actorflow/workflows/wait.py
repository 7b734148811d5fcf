"""Waits and events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Struct

from actorflow.engine.typed import freeze, thaw
from actorflow.runtime.errors import near
from actorflow.workflows.errors import InvalidStep, InvalidWorkflow, MessageRefused
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.suspended.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Event", "Wait", "check_event", "declared_events", "kept_names", "written_event"]

E = TypeVar("E")
WAIT = "Wait"
"""What a wait is called where steps are named."""


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
        NotStorable: the data is not plain data.

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


def declared_events(of: str, events: Any) -> dict[str, Any]:
    """Return the types of the data of declared events by their names; `Any` for any data.

    Raises:
        InvalidWorkflow: they are not declared by names and types.

    """
    found: dict[str, Any] = {}
    pairs = events.items() if isinstance(events, Mapping) else [(each, each) for each in events]
    for name, declared in pairs:
        if isinstance(name, str) and _is_name(name) and isinstance(declared, (type, str, NoneType)):
            found[name] = declared if isinstance(declared, type) else Any
        elif isinstance(name, type) and name.__module__ != "builtins":
            found[name.__name__] = name
        else:
            raise InvalidWorkflow(
                f"events={{{name!r:.40}: {declared!r:.40}}} of {of}: give the names of events with "
                "the types of their data, as in events={'paid': Payment, 'stopped': None}"
            )
    return found


def kept_names(of: str, keep: Any) -> list[str] | None:
    """Return the names of the events that a workflow keeps; `None` for all, or none at all.

    Raises:
        InvalidWorkflow: they are not given by names or classes.

    """
    if isinstance(keep, bool):
        return None
    given: list[Any] = (
        [*keep] if isinstance(keep, Iterable) and not isinstance(keep, str) else [None]
    )
    found = [each.__name__ if isinstance(each, type) else each for each in given]
    if not all(isinstance(each, str) and _is_name(each) for each in found):
        raise InvalidWorkflow(
            f"keep_events={keep!r:.80} of {of}: give True, False, or the names of the events to "
            "keep, as in keep_events=['paid']"
        )
    return found


def check_event(of: str, declared: Mapping[str, Any], name: str, data: Any) -> None:
    """Refuse an event that a workflow does not declare.

    Raises:
        MessageRefused: the workflow has no such event, or its data is of another type.

    """
    if name not in declared:
        known = ", ".join(sorted(declared))
        raise MessageRefused(
            f"{of} has no event {name!r:.80}{near(name, declared)}: it declares {known}"
        )
    try:
        thaw(data, declared[name], f"the data of the event {name!r}")
    except TypeError as error:
        raise MessageRefused(str(error)) from None


T = TypeVar("T")


def duration_of(**units: float | None) -> float | None:
    """Return how many seconds a wait of some `seconds`, `minutes`, `hours` and `days` lasts.

    `None` if none of them is given.

    Raises:
        InvalidStep: one is not a number, or they are not a duration.

    """
    parts = {unit: amount for unit, amount in units.items() if amount is not None}
    for unit, amount in parts.items():
        if not _is_number(amount):
            raise InvalidStep(f"{unit}={amount!r:.80} is not a number, as in {unit}=3")
    return max(0.0, _duration(parts)) if parts else None


class Wait(Step[T], Generic[T]):
    """A step that ends with an event, at a time, or with the first of both.

    Its result is the `Event`, or `None` when the time is over. With a class as the event, it is an
    object of that class.

    Args:
        event: the name of the event to wait for, or the class of its data, whose name it has.
        seconds: how long to wait; `minutes`, `hours` and `days` are added. A wait of 0 seconds, or
            less, ends at once: with an event that has come before, or with `None`.
        until: when to stop waiting: an aware `datetime`, or seconds since the epoch.

    """

    __slots__ = ()

    @overload
    def __init__(self: Wait[Event], event: str) -> None: ...
    @overload
    def __init__(self: Wait[E], event: type[E]) -> None: ...
    @overload
    def __init__(
        self: Wait[Event | None],
        event: str,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Wait[E | None],
        event: type[E],
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Wait[None],
        event: None = None,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Wait[Any],
        event: str | type[Any] | None = None,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> None: ...
    def __init__(
        self,
        event: str | type[Any] | None = None,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> None:
        duration = duration_of(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if duration is not None and until is not None:
            raise InvalidStep("a wait has either a duration or `until`, not both")
        if event is not None and not isinstance(event, (str, type)):
            raise InvalidStep(
                f"event={event!r:.80} is neither the name of an event nor the class of its data; "
                "a duration is written as in Wait('paid', seconds=5)"
            )
        if isinstance(event, type) and event.__module__ == "builtins":
            raise InvalidStep(
                f"event={event!r:.80} is a class of Python: nobody can send one; give a class of "
                "yours, or a name"
            )
        if isinstance(event, str) and not _is_name(event):
            raise InvalidStep(f"event={event!r:.80} is not a name: nobody could send it")
        if event is None and duration is None and until is None:
            raise InvalidStep("this wait would never end: give it an event, a duration or `until`")
        name = event if isinstance(event, str) or event is None else event.__name__
        timestamp = _timestamp(until)
        shown = {"event": name, "duration": duration, "timestamp": timestamp}
        super().__init__(
            type=StepType.WAIT,
            name=WAIT,
            input={key: value for key, value in shown.items() if value is not None},
            read=_reader(event),
            event=name,
            duration=duration,
            timestamp=timestamp,
            typed=isinstance(event, type),
        )


def _duration(parts: dict[str, float]) -> float:
    try:
        return timedelta(**parts).total_seconds()
    except (ValueError, OverflowError):
        given = ", ".join(f"{unit}={amount}" for unit, amount in parts.items() if amount)
        raise InvalidStep(
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
            raise InvalidStep(
                f"until={until!r:.80} is not a point in time: give an aware datetime, or seconds "
                "since the epoch"
            )
        return float(until)
    if until.tzinfo is None:
        raise InvalidStep(f"until={until} has no time zone: use `until.astimezone()`")
    return until.timestamp()


def _reader(event: str | type[Any] | None) -> Callable[[Any], Any]:
    def read(output: Any) -> Any:
        if output is None:
            return None
        found = Event(output["event_name"], thaw(output["event_input"], Any, "an event"))
        return found.read(event) if isinstance(event, type) else found

    return read
