"""User values as plain data, and back.

Where a type is declared (an annotation of a property, an argument or a result), dataclasses,
msgspec structs, pydantic models, datetimes, enums, numpy arrays and the like are stored as plain
data and come back as what they were. Without a declared type only plain data can be stored, because
nothing else would come back.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine import bodies
from actorflow.engine.errors import NotStorable

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["freeze", "hints_of", "is_plain", "thaw"]

_SCALARS = frozenset((type(None), bool, int, float, str, bytes))


def freeze(value: Any, hint: Any, what: str, *names: str) -> Any:
    """Return a copy of a value as plain data.

    Args:
        value: anything that can be stored.
        hint: its declared type; `Any` for none.
        what: names it in errors.
        names: fill the gaps of `what`, which is only formatted for an error.

    Raises:
        NotStorable: the value, or a part of it, is not plain data.

    """
    if type(value) in _SCALARS and _fits(value):
        return value
    explain = getattr(type(value), "explain_not_storable", None)
    if explain is not None:
        raise NotStorable(f"{what.format(*names) if names else what}: {explain(value)}")
    try:
        plain = value
        if hint is not Any:
            plain = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_plain)
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
        return msgspec.convert(copy, hint, dec_hook=_made)
    except msgspec.ValidationError as error:
        named = what.format(*names) if names else what
        raise TypeError(f"{named} is not {_named(hint)}, as it is declared: {error}") from None
    except TypeError:
        # A type that msgspec cannot make: a protocol, a user's class.
        return copy


def _plain(value: Any) -> Any:
    """Return what msgspec cannot encode as something that it can.

    Raises:
        TypeError: it is of no type that is known here.

    """
    kind = type(value)
    if _is_model(kind):
        return value.model_dump()
    if _is_array(kind):
        if value.dtype.hasobject:
            raise TypeError(f"an array of objects ({value.dtype}) cannot be stored")
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": value.tobytes()}
    if kind.__module__ == "numpy" and hasattr(value, "item"):  # a number of numpy
        return value.item()
    raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")


def _made(kind: type, value: Any) -> Any:
    """Return plain data as a value of a type that msgspec cannot make.

    Values of other types are returned unchanged: msgspec rejects them.
    """
    if _is_model(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    if _is_array(kind):
        import numpy as np  # noqa: PLC0415 - the user has it, if there is such a type

        return np.frombuffer(value["data"], value["dtype"]).reshape(value["shape"]).copy()
    if kind.__module__ == "numpy":
        return kind(value)
    return value


def _is_model(kind: Any) -> bool:
    """Return whether a class is a model of pydantic, which need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def _is_array(kind: Any) -> bool:
    return getattr(kind, "__name__", "") == "ndarray" and kind.__module__ == "numpy"


def is_plain(hint: Any) -> bool:
    """Return whether values of a declared type are stored as they are, and come back the same."""
    if hint is Any or hint is None or hint in _SCALARS or hint in (dict, list):
        return True
    origin = typing.get_origin(hint)
    if origin in (dict, list, typing.Union, types.UnionType):
        return all(is_plain(each) for each in typing.get_args(hint))
    return False


def hints_of(of: Any) -> dict[str, Any]:
    """Return the declared types of a class or function, `Any` for unresolvable ones.

    They cannot where a name is local to a function, or only imported for type checkers.
    """
    return _hints_of(of)


@lru_cache(maxsize=4096)
def _hints_of(of: Hashable) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(of)
    except Exception:  # noqa: BLE001 - annotations are user code
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
    if _is_array(typing.get_origin(hint)):
        return typing.get_origin(hint)
    try:
        msgspec.msgpack.Decoder(hint)
    except (TypeError, ValueError):
        return Any
    return hint


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
