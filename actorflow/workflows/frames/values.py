"""Values of the user's as plain data, and back.

Where a type is declared (an annotation of a property, an argument or a result), dataclasses,
msgspec structs, datetimes, sets and the like are stored as plain data and come back as what they
were. Without a declared type only plain data can be stored, because nothing else would come back.
"""

from __future__ import annotations

import inspect
import sys
import typing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine import bodies
from actorflow.engine.errors import NotStorable

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["freeze", "hints_of", "thaw"]

_SCALARS = frozenset((type(None), bool, int, float, str, bytes))


def freeze(value: Any, hint: Any, what: str, *names: str) -> Any:
    """Return a copy of a value as plain data.

    Args:
        value: anything that can be stored.
        hint: its declared type; `Any` for none.
        what: names it in errors.
        names: fill the gaps of `what`, which is only formatted for an error.

    Raises:
        NotStorable: the value, or a part of it, is no plain data.

    """
    if type(value) in _SCALARS and _fits(value):
        return value
    try:
        plain = value if hint is Any else msgspec.to_builtins(value, builtin_types=(bytes,))
        return bodies.decode(bodies.encode(plain))
    except NotStorable as error:
        raise NotStorable(f"{what.format(*names) if names else what}: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        named = what.format(*names) if names else what
        advice = "use plain data, dataclasses or msgspec structs"
        raise NotStorable(f"{named} cannot be stored: {error}: {advice}") from None


def _fits(value: Any) -> bool:
    """Return whether a scalar can be stored as it is."""
    if type(value) is int:
        return -(2**63) <= value < 2**64
    # The rest of Unicode is left to the encoder, which refuses lone surrogates.
    return type(value) is not str or value.isascii()


def thaw(value: Any, hint: Any, what: str, *names: str) -> Any:
    """Return a copy of plain data as a value of its declared type.

    Like `freeze`, which has the same arguments.

    Raises:
        TypeError: it is not of that type.

    """
    kind = type(value)
    if kind in _SCALARS and (hint is Any or hint is kind):
        return value
    copy = value if kind in _SCALARS else bodies.decode(bodies.encode(value))
    if hint is Any:
        return copy
    try:
        return msgspec.convert(copy, hint)
    except msgspec.ValidationError as error:
        named = what.format(*names) if names else what
        raise TypeError(f"{named} is not {_named(hint)}, as it is declared: {error}") from None
    except TypeError:
        # A type that is not msgspec's to make: a protocol, a class of the user's.
        return copy


def hints_of(of: Any) -> dict[str, Any]:
    """Return the declared types of a class or function, `Any` for those that cannot be resolved.

    They cannot where a name is local to a function, or only imported for type checkers.
    """
    return _hints_of(of)


@lru_cache(maxsize=4096)
def _hints_of(of: Hashable) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(of)
    except Exception:  # noqa: BLE001 - annotations are code of the user's
        hints = _resolvable(of)
    return {name: _usable(hint) for name, hint in hints.items()}


def _resolvable(of: Any) -> dict[str, Any]:
    """Return those declared types that can be resolved, each for itself."""
    found: dict[str, Any] = {}
    for each in reversed(of.__mro__) if isinstance(of, type) else [of]:
        names = vars(sys.modules.get(each.__module__, typing))
        for name, annotation in inspect.get_annotations(each).items():
            alone = type("Alone", (), {"__annotations__": {name: annotation}})
            try:
                found |= typing.get_type_hints(alone, globalns=names)
            except Exception:  # noqa: BLE001 - see above
                found[name] = Any
    return found


def _usable(hint: Any) -> Any:
    """Return a type that values can be converted to, `Any` for all others."""
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return Any
    try:
        msgspec.msgpack.Decoder(hint)
    except (TypeError, ValueError):
        return Any
    return hint


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
