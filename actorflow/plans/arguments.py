"""Arguments of jobs: input files, and the other jobs whose results they take.

Jobs inside arguments are found when a plan is built, and replaced when its jobs are run.

Lists, tuples and dictionaries are searched, also inside each other. A job anywhere else is refused
when it is pickled: see `Job.__reduce__`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InputFile", "find", "replace"]

_PLAIN = frozenset((int, float, str, bytes, bool, type(None)))


def find(cls: type[Any], value: Any, found: list[Any]) -> None:
    """Append every object of a class inside a value to a list, in order.

    >>> numbers = []
    >>> find(int, ("a", [1, {"b": 2}]), numbers)
    >>> numbers
    [1, 2]
    """
    if isinstance(value, cls):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            if type(each) not in _PLAIN or cls in _PLAIN:
                find(cls, each, found)
    elif isinstance(value, dict):
        for each in value.values():
            if type(each) not in _PLAIN or cls in _PLAIN:
                find(cls, each, found)


def replace(cls: type[Any], value: Any, new: Callable[[Any], Any]) -> Any:
    """Return a value with each object of a class in it replaced; the value itself stays as it is.

    >>> replace(int, ("a", [1, {"b": 2}]), str)
    ('a', ['1', {'b': '2'}])
    """
    if isinstance(value, cls):
        return new(value)
    kind = type(value)
    if isinstance(value, (list, tuple)):
        changed = [replace(cls, each, new) for each in value]
        return kind._make(changed) if hasattr(kind, "_make") else kind(changed)
    if isinstance(value, dict):
        values = {key: replace(cls, each, new) for key, each in value.items()}
        return values if kind is dict else kind(values)
    return value


class InputFile(type(Path())):  # type: ignore[misc] # PosixPath or WindowsPath
    """A path that the cache knows by the content of the file.

    The function of the job gets a plain `Path`.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Path, (str(self),)
