"""Cron lines: when they come due next. For the schedules of the engine and the timers of flows.

cronsim reads the fields and knows about zones and daylight saving. Differences:

- A line that restricts both the day of the month and the day of the week comes due on either of
  them, as the manual of cron says, also where one of them is a step: ``0 0 */2 * 1``.
- Months and weekdays may be written out: ``monday``, ``sept``.
- The next moment is never in the past, also when clocks go back and local times repeat.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["moments", "next_time"]

_FIELDS: Final = 5
_MINUTE: Final = 60
_WORD: Final = re.compile(r"[a-z]{4,}")
_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
    *("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
)


def next_time(line: str, after: float, zone: str = "UTC") -> float:
    """Return the first moment after another one at which a cron line comes due.

    A line has five fields, or six with seconds in front. Moments are seconds since the epoch.

    >>> next_time("30 9 * * *", 0.0)
    34200.0
    >>> next_time("*/15 * * * * *", 14.0)
    15.0

    Raises:
        BadOption: the line or the zone cannot be read, or the line never comes due.

    """
    for moment in moments(line, after, zone):
        return moment
    msg = f"cron {line!r} never comes due: no such day is in the calendar"
    raise BadOption(msg)


def moments(line: str, after: float, zone: str = "UTC") -> Iterator[float]:
    """Yield the moments after another one at which a cron line comes due, until the year 9999.

    A few microseconds for each, because the line is read once.

    Raises:
        BadOption: the line or the zone cannot be read.

    """
    minutes, seconds = _read(line, after, _zone(zone))
    last = after
    with suppress(OverflowError):  # the calendar ends there
        for begin in minutes:
            moment = begin.timestamp()
            for second in seconds:
                if moment + second > last:
                    last = moment + second
                    yield last


def _read(line: str, after: float, here: tzinfo) -> tuple[Iterable[datetime], list[int]]:
    """Return the minutes of a cron line, the first maybe over, and the seconds of each."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - not every engine has schedules

    try:
        if not isinstance(line, str):
            raise CronSimError("it is not text")  # noqa: TRY301 - raised again as ours
        fields = line.lower().split()
        seconds = _seconds(fields.pop(0)) if len(fields) > _FIELDS else [0]
        if len(fields) != _FIELDS:
            raise CronSimError("it takes five fields, or six with seconds in front")  # noqa: TRY301
        minute, hour, days, months, weekdays = (_WORD.sub(_shortened, field) for field in fields)
        any_day, any_weekday = days in ("*", "*/1"), weekdays in ("*", "*/1")
        days, weekdays = "1-31" if any_day else days, "0-6" if any_weekday else weekdays
        before = datetime.fromtimestamp(after // _MINUTE * _MINUTE - _MINUTE, UTC).astimezone(here)
        minutes = CronSim(f"{minute} {hour} {days} {months} {weekdays}", before)
        minutes.day_and = any_day or any_weekday
    except (CronSimError, ValueError, OSError, OverflowError) as error:
        why = str(error) or repr(error)
        msg = (
            f"cannot read cron {line!r}: {why[0].lower()}{why[1:]}; write for example '30 9 * * *'"
        )
        raise BadOption(msg) from error
    return minutes, seconds


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        msg = f"there is no time zone {name!r}; write for example 'Europe/Berlin'"
        raise BadOption(msg) from error


def _shortened(word: re.Match[str]) -> str:
    """Return the three-letter form of a month or weekday that is written out, fully or in part."""
    text = word[0]
    return text[:3] if any(name.startswith(text) for name in _NAMES) else text


def _seconds(field: str) -> list[int]:
    """Read the field of seconds: `*`, `*/n`, `a-b`, `a/n`, `a,b`. Raises ValueError."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = ("0", "-", "59") if span == "*" else span.partition("-")
        end = last if dash else "59" if step else first
        found.update(range(int(first), int(end) + 1, int(step or 1)))
    if not found or min(found) < 0 or max(found) >= _MINUTE:
        msg = f"{field!r} are not seconds between 0 and 59"
        raise ValueError(msg)
    return sorted(found)
