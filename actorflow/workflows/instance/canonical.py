"""Plain data as bytes that do not depend on the order of keys."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["canonical", "same"]

_encode = msgspec.msgpack.Encoder().encode
_in_order = msgspec.msgpack.Encoder(order="deterministic")


def canonical(value: Any) -> bytes:
    """Return the bytes of a value: equal bytes mean equal values of equal types."""
    try:
        return _in_order.encode(value)
    except TypeError:
        # It only orders keys that are strings.
        return _in_order.encode(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = [(canonical(key), _ordered(part)) for key, part in value.items()]
        return {"dict": sorted(pairs, key=lambda pair: pair[0])}
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two plain values are stored as the same bytes, up to the order of keys.

    >>> same({"a": 1, "b": 2}, {"b": 2, "a": 1}), same(1, True)
    (True, False)
    """
    return _encode(one) == _encode(other) or canonical(one) == canonical(other)
