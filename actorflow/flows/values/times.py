"""Durations, points in time and schedules as flows write them, and when they are next due.

Times are seconds since the epoch; ``now`` is always a parameter.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from actorflow.engine import cron
from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.runtime.errors import BadOption

_UNITS: Final = {
    "y": 365 * 86400.0,
    "year": 365 * 86400.0,
    "M": 30 * 86400.0,
    "month": 30 * 86400.0,
    "w": 7 * 86400.0,
    "week": 7 * 86400.0,
    "d": 86400.0,
    "day": 86400.0,
    "h": 3600.0,
    "hour": 3600.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "ms": 0.001,
}
_PART = re.compile(r"\s*(?:and\s+|,\s*)?(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_DAYS: Final = {name: i for i, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_NAMED_HOURS: Final = {
    "noon": 12,
    "midnight": 0,
    **{
        name: i + 1
        for i, name in enumerate(
            "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
        )
    },
}
_LONGEST: Final = 1_000 * _UNITS["year"]


def duration(text: str) -> float:
    """Return a duration in seconds.

    >>> duration("1h30m"), duration("2 days and 1 hour"), duration("0.5s"), duration("10")
    (5400.0, 176400.0, 0.5, 10.0)

    Raises FlowError if it is not a duration.
    """
    bare = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        return _within_reach(float(bare), text)
    total, at = 0.0, 0
    while at < len(bare):
        match = _PART.match(bare, at)
        if match is None:
            break
        unit = match.group(2)
        seconds = (
            _UNITS.get(unit) or _UNITS.get(unit.lower()) or _UNITS.get(unit.lower().rstrip("s"))
        )
        if seconds is None:
            break
        total += float(match.group(1)) * seconds
        at = match.end()
    if at == 0 or at < len(bare):
        raise FlowError(
            f'cannot read duration "{text:.100}": write it like "1h30m", "2 days" or "500ms"'
        )
    return _within_reach(total, text)


def _within_reach(seconds: float, text: str) -> float:
    if seconds > _LONGEST:
        raise LimitExceeded(f'the duration "{text:.100}" is longer than 1,000 years')
    return seconds


def point_in_time(text: str) -> float:
    """Return an ISO date and time as seconds since the epoch; without a zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text.strip().replace(" UTC", "+00:00"))
    except ValueError as error:
        raise FlowError(
            f'cannot read time "{text}": write it like "2030-12-25 14:30:00"'
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def next_cron(line: str, now: float) -> float:
    """Return the first time after ``now`` that matches a cron line, in UTC.

    A line has five fields, or six with seconds in front. Raises FlowError for a bad line.
    """
    try:
        return cron.next_time(line, now)
    except BadOption as error:
        raise FlowError(str(error)) from error


def _hour_and_minute(text: str) -> tuple[int, int]:
    """Read ``noon``, ``five``, ``5pm``, ``16:30``. Raises ValueError for anything else."""
    if text in _NAMED_HOURS:
        return _NAMED_HOURS[text], 0
    match = re.fullmatch(r"(\d{1,2})(?::(\d\d))?\s*(am|pm)?", text)
    if match is None:
        raise ValueError(text)
    hour, minute = int(match.group(1)), int(match.group(2) or 0)
    if match.group(3):
        hour = hour % 12 + (12 if match.group(3) == "pm" else 0)
    if hour > 23 or minute > 59:  # noqa: PLR2004
        raise ValueError(text)
    return hour, minute


def words_to_cron(text: str) -> str:
    """Turn ``day at noon`` or ``monday and friday at 5pm`` into a cron line.

    >>> words_to_cron("every weekday at five"), words_to_cron("wed or Monday at 5pm and 11")
    ('0 5 * * 1,2,3,4,5', '0 11,17 * * 1,3')

    Raises ValueError for other words.
    """
    words = re.sub(r"\s+", " ", text.lower().strip()).removeprefix("every ")
    if words in ("minute", "hour", "day", "midnight", "noon"):
        return {"minute": "* * * * *", "hour": "0 * * * *", "noon": "0 12 * * *"}.get(
            words, "0 0 * * *"
        )
    what, found, when = words.partition(" at ")
    days: set[int] = set()
    for word in re.split(r" and | or |, ?", what):
        if word == "day":
            days |= set(range(7))
        elif word in ("weekday", "weekdays"):
            days |= set(range(1, 6))
        elif word[:3] in _DAYS:
            days.add(_DAYS[word[:3]])
        else:
            raise ValueError(text)
    times = (
        [_hour_and_minute(one) for one in re.split(r" and | or |, ?", when)] if found else [(0, 0)]
    )
    hours = ",".join(str(hour) for hour in sorted({hour for hour, _ in times}))
    minutes = ",".join(str(minute) for minute in sorted({minute for _, minute in times}))
    weekdays = "*" if len(days) == 7 else ",".join(str(day) for day in sorted(days))  # noqa: PLR2004
    return f"{minutes} {hours} * * {weekdays}"


def settle(kind: str | None, text: str) -> tuple[str, str]:
    """Return the kind of a timer, inferred from its text if not given, and the text to use.

    >>> settle("in", "1h"), settle(None, "1h"), settle(None, "day at noon")
    (('in', '1h'), ('in', '1h'), ('cron', 'every day at noon'))

    Raises FlowError if the text is not a schedule.
    """
    if kind is not None:
        return kind, text
    try:
        words_to_cron(text)
    except ValueError:
        pass
    else:
        return "cron", text if text.lower().startswith("every ") else f"every {text}"
    for name, read in (("in", duration), ("cron", _first_time), ("at", point_in_time)):
        try:
            read(text)
        except FlowError:
            continue
        return name, text
    raise FlowError(
        f'cannot read schedule "{text}": write it like "1h", "day at noon" or "0 5 * * *"'
    )


def _first_time(line: str) -> float:
    return next_cron(line, 0.0)


def _cron_line(text: str) -> str:
    """Return the cron line for some words, or the given line itself."""
    try:
        return words_to_cron(text)
    except ValueError:
        return text


def next_time(kind: str | None, text: str, now: float) -> float:
    """Return when a timer is due: ``in``, ``at``, ``cron`` or ``every``.

    Without a kind, the text is a duration or a cron line.
    """
    if kind == "in":
        return now + duration(text)
    if kind == "at":
        return point_in_time(text)
    if kind == "cron":
        return next_cron(_cron_line(text), now)
    try:
        return now + duration(text)
    except FlowError:
        return next_cron(_cron_line(text), now)
