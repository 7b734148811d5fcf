"""Values as texts for people: moments, durations, JSON, numbers."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

__all__ = ["FILTERS", "brief", "duration", "moment", "number", "pretty", "seconds_of"]

_WIDEST = 80
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def moment(seconds: float | None) -> str:
    """Return a moment in UTC, as ISO 8601 with seconds.

    >>> moment(0.0), moment(None)
    ('1970-01-01 00:00:00', '')
    """
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def seconds_of(text: str | None) -> float | None:
    """Return the moment that a field of a form holds, in UTC; `None` for an empty one.

    >>> seconds_of("1970-01-01T00:01"), seconds_of("")
    (60.0, None)
    """
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        msg = f"{text!r:.80} is not a moment: write it like 2026-01-31T12:00"
        raise ValueError(msg) from None


def duration(seconds: float | None) -> str:
    """Return a duration in the unit that fits.

    >>> duration(0.0042), duration(7.25), duration(90.0), duration(200_000.0), duration(0.0)
    ('4.2 ms', '7.2 s', '1 min 30 s', '2 d 7 h', '0.0 s')
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def number(value: int | float) -> str:  # noqa: PYI041 - whole numbers are shown as such
    """Return a number with separators, and with one decimal if it is small and not whole.

    >>> number(12345), number(0.25), number(1234.5)
    ('12,345', '0.2', '1,234')
    """
    few = 100
    return f"{value:,.1f}" if isinstance(value, float) and abs(value) < few else f"{value:,.0f}"


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def brief(value: Any) -> str:
    """Return a value as JSON on one line, shortened.

    >>> brief({"order": "o-1"}), brief("")
    ('{"order": "o-1"}', '')
    """
    if value == "":
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


FILTERS = {each.__name__: each for each in (brief, duration, moment, number, pretty)}
"""What templates may use."""
