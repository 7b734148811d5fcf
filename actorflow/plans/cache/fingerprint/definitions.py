"""What functions and classes are, and what they hold; whatever they claim to be."""

from __future__ import annotations

import _abc  # type: ignore[import-not-found] # the part of `abc` in C
import abc
import sys
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from actorflow.plans.cache.fingerprint.ownership import home_of, is_own, module_name

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Mapping

__all__ = [
    "cells", "class_label", "defaults", "function_label", "is_a", "is_made_up", "is_own_function",
    "members", "registered",
]  # fmt: skip

_T = TypeVar("_T")
_HEAP_TYPE = 1 << 9  # of `type.__flags__`: made when the program runs
# Of a class: what the interpreter keeps there, and what does not change what the class does.
_LEFT_OUT = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__abstractmethods__",
    "_abc_impl", "__firstlineno__", "__static_attributes__",
}  # fmt: skip


def is_a(thing: Any, cls: type[_T]) -> TypeGuard[_T]:
    """Like `isinstance`, but without a look at `thing.__class__`, which may lie or raise."""
    return issubclass(type(thing), cls)


def is_own_function(function: types.FunctionType) -> bool:
    """Return whether the user has written a function.

    Not by its `__module__`, which `functools.wraps` copies, but by where its names are looked up.
    """
    return is_own(str(function.__globals__.get("__name__") or function.__module__))


def function_label(function: types.FunctionType) -> str:
    """Return the name of a function: `module:qualname`."""
    home = str(function.__globals__.get("__name__") or function.__module__)
    # functools.wraps copies `__qualname__` as well.
    wraps = "__wrapped__" in vars(function)
    name = function.__code__.co_qualname if wraps else function.__qualname__
    return f"{module_name(home)}:{name}"


def class_label(cls: type) -> str:
    """Return the name of a class: `module:qualname`."""
    return f"{module_name(home_of(cls))}:{cls.__qualname__}"


def cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the closure values of a function with their names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, "not bound yet"


def defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the default values of a function with the names of their parameters."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    # A decorator may have copied the defaults of another function: then there are too many.
    spare = [str(at) for at in range(len(values) - len(names))]
    yield from zip((*spare, *names)[-len(values) :], values, strict=bool(values))
    yield from (function.__kwdefaults__ or {}).items()


def members(cls: type) -> Mapping[str, Any]:
    """Return what counts for what a class is, in the order of the definition: a job can see it."""
    return {name: each for name, each in vars(cls).items() if _counts(name)}


def _counts(name: str) -> bool:
    if name.startswith("__pydantic_"):
        return name == "__pydantic_fields__"  # the others are made of these, and hold addresses
    return name not in _LEFT_OUT


def registered(cls: type) -> list[str]:
    """Return the classes that count as subclasses of an abstract class by `register`."""
    if not is_a(cls, abc.ABCMeta):
        return []
    registry = _abc._get_dump(cls)[0]  # noqa: SLF001 - nothing public tells
    return sorted(class_label(each) for one in registry if (each := one()) is not None)


def is_made_up(cls: type) -> bool:
    """Return whether a class is not one of the library whose name it bears.

    What `make_dataclass` makes for the user says that its module is `types`.
    """
    found: Any = sys.modules.get(home_of(cls))
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not cls and bool(cls.__flags__ & _HEAP_TYPE)
