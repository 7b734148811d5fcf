"""Whatever executions store, as data that JSON can show."""

from __future__ import annotations

import base64
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine import bodies
from actorflow.runtime.errors import kind_and_text

if TYPE_CHECKING:
    from actorflow.engine.handle import Execution

__all__ = ["decoded", "plain", "shown"]


def plain(value: Any) -> Any:
    """Return a value as JSON can show it; what it has no word for becomes text.

    >>> plain({1: (b"tea", float("inf"))})
    {'1': [{'base64': 'dGVh'}, 'inf']}

    A view of a kind's own may say itself what it looks like: with a method `plain()`.
    """
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part) for part in value]
    return _atom(value) if isinstance(value, _ATOMS) else _object(value)


_ATOMS = (type(None), bool, int, float, str, bytes, bytearray, memoryview)


def _atom(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, str) else value


def _object(value: Any) -> Any:
    own = getattr(value, "plain", None)
    if callable(own):
        return plain(own())
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return repr(value)


def decoded(data: bytes | None) -> Any:
    r"""Return stored bytes as JSON can show them: decoded where they are plain data, else base64.

    >>> decoded(b"\x93\x01\x02\x03"), decoded(b"\xc1")
    ([1, 2, 3], {'base64': 'wQ=='})
    """
    if data is None:
        return None
    try:
        return plain(bodies.decode(data))
    except Exception:  # noqa: BLE001 - a kind may store what it likes
        return plain(data)


def shown(execution: Execution, state: bytes | None) -> Any:
    """Return what the kind of an execution shows of it; else its state, as readable as it is."""
    try:
        view = execution.view
        return decoded(state) if view is state else plain(view)
    except Exception as error:  # noqa: BLE001 - it is looked at because something is wrong
        return {"unreadable": kind_and_text(error), "state": decoded(state)}
