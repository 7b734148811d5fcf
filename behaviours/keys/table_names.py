"""How keys are named in a SQLite table, so that it compares them as Python does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDE = 2**63
"""Integers from here on do not fit in a column."""
OTHER = object()
"""The name of keys that SQLite cannot compare as Python does."""


def name_of(key: Any) -> Any:
    """Return a value that SQLite compares as Python compares the key, or `OTHER`.

    Raises:
        ValueError: the key does not equal itself.

    >>> name_of("a"), name_of(1.0), name_of(("a", 1)), name_of(frozenset()) is OTHER
    ('a', 1, b"t['a', 1]", True)
    """
    if key is None:
        return b"n"
    kind = type(key)
    for base, name in _NAMES:
        if _is_plain(kind, base):
            return name(key)
    return OTHER


def _is_plain(kind: type, base: type) -> bool:
    """Return whether objects of this kind compare as those of the built-in type do."""
    if kind is base:
        return True
    same = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
    return issubclass(kind, base) and same


def _text(text: str) -> str | bytes:
    """Return the text itself or, if it has lone surrogates, which SQLite does not allow, bytes."""
    text = str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return b"s" + text.encode("utf-8", "surrogatepass")
    return text


def _whole(number: int) -> int | bytes:
    number = int(number)
    return number if -_WIDE <= number < _WIDE else b"i%d" % number


def _real(number: float) -> float | bytes:
    if number != number:  # noqa: PLR0124 - NaN is not itself
        msg = "NaN equals nothing, not even itself"
        raise ValueError(msg)
    return _whole(int(number)) if number.is_integer() else float(number)


def _tuple(key: tuple[Any, ...]) -> Any:
    names = [name_of(element) for element in key]
    return OTHER if OTHER in names else b"t" + repr(names).encode()


_NAMES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, _text),
    (int, _whole),  # bool, too
    (float, _real),
    (bytes, lambda key: b"b" + key),
    (tuple, _tuple),
)
