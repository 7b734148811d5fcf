"""Ids of executions: ``domain-unit-YYYYMMDD.HHMM.mnemonic``.

The mnemonic encodes seconds, microseconds, a counter and a random number in syllables that can be
read aloud. Ids made in one process are unique, and sort by the minute. The random number makes it
unlikely that another process, or a clock that was set back, leads to the same id; the creator
of an execution still has to check.
"""

from __future__ import annotations

import functools
import random
import re
import threading
from datetime import UTC, datetime
from typing import Any, Final

from actorflow.flows.errors import FlowError

__all__ = ["BadName", "ExidMaker", "check_domain", "mnemonic", "parts_of"]

_STARTS: Final = "b ch d f g h j k l m n p r s sh t ts w y z".split()  # noqa: SIM905 - reads better
_SYLLABLES: Final = [start + vowel for start in _STARTS for vowel in "aiueo"]
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_PARTS: Final = 3
_MINUTE: Final = 60 * 10**8
_RANDOM: Final = 10**8


class BadName(FlowError, ValueError):
    """A domain or a unit that cannot be part of an id."""


def mnemonic(number: int) -> str:
    """Return a number in syllables, the lowest two digits last.

    >>> mnemonic(0), mnemonic(4742), mnemonic(4_701_000_000)
    ('ba', 'mulu', 'mubibababa')
    """
    text = ""
    while True:
        number, rest = divmod(number, 100)
        text = _SYLLABLES[rest] + text
        if not number:
            return text


def check_domain(domain: Any, unit: Any) -> None:
    """Raise BadName for a domain or a unit that would be ambiguous in an id."""
    if not (isinstance(domain, str) and isinstance(unit, str)):
        msg = f"domain={domain!r:.80}, unit={unit!r:.80}: use strings, such as 'org.sales' and 'u0'"
        raise BadName(msg)
    _check_texts(domain, unit)


@functools.lru_cache(maxsize=256)
def _check_texts(domain: str, unit: str) -> None:
    if not _DOMAIN.fullmatch(domain):
        msg = f"domain={domain!r}: use names of letters, digits and _, joined by dots: 'org.sales'"
        raise BadName(msg)
    if not _NAME.fullmatch(unit):
        msg = f"unit={unit!r}: use letters, digits and _"
        raise BadName(msg)


def parts_of(exid: str) -> tuple[str, str]:
    """Return the domain and the unit of an id; both are empty if it is not one of these ids.

    >>> parts_of("org.sales-u0-20171021.0830.mechulorucho")
    ('org.sales', 'u0')
    """
    parts = exid.split("-")
    return (parts[0], parts[1]) if len(parts) == _PARTS else ("", "")


class ExidMaker:
    """Makes unique ids. Thread-safe."""

    def __init__(self) -> None:
        """Start without any ids."""
        self._lock = threading.Lock()
        self._last = -1
        self._random = random.Random().random  # noqa: S311 - it keeps ids apart, not secret

    def make(self, domain: str, unit: str, now: float) -> str:
        """Return a new id. Two calls at the same microsecond differ in the counter.

        Raises:
            BadName: the domain or the unit cannot be part of an id.

        """
        check_domain(domain, unit)
        with self._lock:
            number = self._last = max(int(now * 1_000_000) * 100, self._last + 1)
        minutes, rest = divmod(number, _MINUTE)
        said = mnemonic(rest * _RANDOM + int(self._random() * _RANDOM))
        return f"{domain}-{unit}-{_minute(minutes)}.{said}"


@functools.lru_cache(maxsize=16)
def _minute(minutes: int) -> str:
    return f"{datetime.fromtimestamp(minutes * 60, UTC):%Y%m%d.%H%M}"
