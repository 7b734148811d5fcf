"""The code that a pickle refers to by name.

The pickle of `Model()` holds the name of the class, not its methods. A job that takes this result
depends on the methods, so the names travel with the result and are looked up again for its key.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import types
from importlib import import_module
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.definitions import is_a
from actorflow.plans.cache.fingerprint.ownership import is_own
from actorflow.runtime.processes.packed import by_value_pickler

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BY_VALUE", "dump", "dump_by_value", "resolve"]

BY_VALUE = "*"
"""Stands for code inside the pickle: unpickle it to see what that code uses."""


class _RecordingPickler(pickle.Pickler):
    """Pickles, and notes the user's functions, classes and modules on the way."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.names: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        """Record a value; leave pickling it to pickle, unless that took a second question."""
        _note(value, self.names)
        return _reduced(value, self.names)


def dump(value: Any) -> tuple[bytes, tuple[str, ...]]:
    """Return the pickle of a value, and the names of user code in it.

    Costs a call for each object that is not a number, a string or a plain container.

    Raises:
        Exception: whatever the classes of the value raise.

    """
    file = io.BytesIO()
    pickler = _RecordingPickler(file)
    pickler.dump(value)
    return file.getvalue(), _sorted(pickler.names)


def dump_by_value(value: Any) -> tuple[bytes, tuple[str, ...]]:
    """Like `dump`, but pickle code that cannot be imported by value."""
    names: set[str] = set()

    class _NotingByValue(by_value_pickler()):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            _note(value, names)
            reduced = super().reducer_override(value)
            return _reduced(value, names) if reduced is NotImplemented else reduced

    file = io.BytesIO()
    _NotingByValue(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue(), _sorted(names)


def resolve(name: str) -> Any:
    """Return the function, class or module of a name; import its module if need be.

    Raises:
        Exception: it is gone, or its module cannot be imported.

    """
    module, _, qualname = name.partition(":")
    found: Any = import_module(module)
    for part in qualname.split(".") if qualname else ():
        found = getattr(found, part)
    return found


def _note(value: Any, names: set[str]) -> None:
    if is_a(value, types.ModuleType):
        if is_own(value.__name__):
            names.add(value.__name__)
    elif issubclass(type(value), (type, types.FunctionType)) and is_own(str(value.__module__)):
        name = f"{value.__module__}:{value.__qualname__}"
        names.add(name if _is_named(value, name) else BY_VALUE)


def _reduced(value: Any, names: set[str]) -> Any:
    """Return the `__reduce_ex__` of a value that has one of its own; note a variable that it names.

    Pickle would not show that name: `"ONE"` stands for the variable `ONE` of the module.
    """
    cls = type(value)
    registered = copyreg.dispatch_table.get(cls)
    if is_a(value, type) or not (registered or _has_reducer(cls)):
        return NotImplemented
    reduced = registered(value) if registered else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if isinstance(reduced, str):
        module = pickle.whichmodule(value, reduced)  # type: ignore[attr-defined] # not in typeshed
        if is_own(module):
            names.add(f"{module}:{reduced}")
    return reduced


def _has_reducer(cls: type) -> bool:
    """Return whether a class says itself how it is pickled, and is written in Python."""
    return any(
        isinstance(getattr(cls, name, None), types.FunctionType)
        for name in ("__reduce_ex__", "__reduce__")
    )


def _is_named(value: Any, name: str) -> bool:
    if value.__module__ not in sys.modules:
        return False
    try:
        return resolve(name) is value
    except Exception:  # noqa: BLE001 - a module with a __getattr__ of the user; then by value
        return False


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
