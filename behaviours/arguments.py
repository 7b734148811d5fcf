"""Checks of constructor arguments: each refusal shows the value and a call that works."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from behaviours.errors import BadBehaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def seconds(value: Any, name: str, example: str, *, zero: bool = True) -> float:
    """Give a span of time as a float; refuse what is not a finite span.

    >>> seconds(2, "every", "Throttle(Queue(), 0.5)")
    2.0
    """
    if _is_real(value) and isfinite(value) and (value > 0 or (zero and value == 0)):
        return float(value)
    least = "zero or more" if zero else "positive"
    msg = f"{name}={value!r}: {name} must be a finite number of seconds, {least}, as in {example}"
    raise BadBehaviour(msg)


def count(value: Any, name: str, example: str) -> int:
    """Give a number of messages; refuse what is not a whole number from 1 on.

    >>> count(3, "size", "Chunk(Queue(), 100)")
    3
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    msg = f"{name}={value!r}: {name} must be a whole number, 1 or more, as in {example}"
    raise BadBehaviour(msg)


def amount(value: Any, name: str, example: str) -> float:
    """Give a sum of weights; refuse what is not positive and finite.

    >>> amount(1.5, "size", "Chunk(Queue(), 1_000_000, weight=len)")
    1.5
    """
    if _is_real(value) and isfinite(value) and value > 0:
        return value  # type: ignore[no-any-return]
    msg = f"{name}={value!r}: {name} must be a positive finite number, as in {example}"
    raise BadBehaviour(msg)


def function(value: Any, name: str, example: str) -> Callable[..., Any]:
    """Give a function of the user's; refuse what cannot be called.

    >>> function(len, "weight", "Chunk(Queue(), 1_000_000, weight=len)")(b"abc")
    3
    """
    if callable(value):
        return value  # type: ignore[no-any-return]
    msg = f"{name}={value!r}: {name} must be a function, as in {example}"
    raise BadBehaviour(msg)


def key_function(key: Any, example: str) -> Callable[[Any], Any]:
    """Give the function that a key stands for: itself, or, for an index, that element.

    >>> key_function(0, "Unique(key=0)")(("a", 1))
    'a'
    """
    if isinstance(key, int) and not isinstance(key, bool):
        return itemgetter(key)
    if callable(key):
        return key  # type: ignore[no-any-return]
    hint = ""
    if isinstance(key, str):
        # Item or attribute: a string does not say which of the two is meant.
        hint = f"; for a field write key=itemgetter({key!r}) or key=attrgetter({key!r})"
    msg = (
        f"key={key!r}: key must be a function of the message or the index of an element, "
        f"as in {example}{hint}"
    )
    raise BadBehaviour(msg)


def choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Give one of a few words; refuse others, naming the nearest.

    >>> choice("reject", "when_full", ("reject", "block"))
    'reject'
    """
    if isinstance(value, str) and value in choices:
        return value
    from difflib import get_close_matches  # noqa: PLC0415 - only to word a refusal

    near = get_close_matches(str(value).lower().replace("-", "_"), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    words = ", ".join(map(repr, choices))
    msg = f"{name}={value!r}: {name} must be one of {words}{hint}"
    raise BadBehaviour(msg)


def shown(value: Any) -> str:
    """Name a key or function in a `repr`.

    >>> shown(0), shown(len)
    ('0', 'len')
    """
    return str(getattr(value, "__name__", None) or repr(value))


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
