"""Turn functions, arguments and results into bytes and large buffers, and back.

Pickle, protocol 5: buffers of at least `LARGE` bytes (arrays, `PickleBuffer`) are kept out of the
bytes, so that they can travel through shared memory without a copy. What pickle cannot send by
name (lambdas, closures, functions of a session without a file) goes by value, with cloudpickle.
"""

from __future__ import annotations

import io
import pickle
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadJob, install_hint, kind_and_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "LARGE",
    "Packed",
    "by_value_pickler",
    "main_is_importable",
    "pack",
    "pack_value",
    "unpack",
]

LARGE = 64 * 1024
"""Bytes from which on a buffer travels through shared memory."""


class Packed:
    """A pickled value: its bytes, and the large buffers that belong to it."""

    __slots__ = ("buffers", "data")

    def __init__(self, data: bytes, buffers: Sequence[pickle.PickleBuffer] = ()) -> None:
        self.data = data
        self.buffers = buffers

    @property
    def size(self) -> int:
        """How many bytes it takes, buffers included."""
        return len(self.data) + sum(each.raw().nbytes for each in self.buffers)


def pack(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Packed:
    """Pack a call of a function.

    Raises:
        BadJob: the function or an argument cannot be sent to another process.

    """
    call = (function, args, kwargs) if kwargs else (function, args)
    try:
        return pack_value(call)
    except Exception as error:
        msg = (
            f"{brief(function)} cannot run in another process: it or its arguments cannot be sent "
            f"there ({kind_and_text(error)}); give a function at the top of a module that can be "
            "imported, and arguments that can be pickled; lambdas and closures need cloudpickle: "
            f"{install_hint('plans')}"
        )
        raise BadJob(msg) from error


def pack_value(value: Any) -> Packed:
    """Pack a value; by name where pickle can, else by value.

    Raises:
        Exception: whatever the classes of the value raise.

    """
    buffers: list[pickle.PickleBuffer] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        """Return whether a buffer stays in the bytes."""
        if buffer.raw().nbytes < LARGE:
            return True
        buffers.append(buffer)
        return False

    try:
        data = pickle.dumps(value, 5, buffer_callback=keep)
        if b"__main__" not in data or main_is_importable():
            return Packed(data, buffers)
    except Exception:  # raised by a user's class; cloudpickle may know more
        if _cloudpickle() is None:
            raise
    else:
        if _cloudpickle() is None:
            return Packed(data, buffers)
    buffers.clear()
    file = io.BytesIO()
    by_value_pickler()(file, 5, buffer_callback=keep).dump(value)
    return Packed(file.getvalue(), buffers)


def by_value_pickler() -> Any:
    """Return the class of picklers for code that cannot be imported.

    Raises:
        ImportError: cloudpickle is not installed.

    """
    cloudpickle: Any = import_module("cloudpickle")  # an extra
    from actorflow.runtime.processes.struct_classes import (  # noqa: PLC0415 - only for such code
        is_struct_class,
        reduce_struct,
    )

    class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            reduced = super().reducer_override(value)
            if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) > _STATE:
                if is_struct_class(value):
                    return reduce_struct(value)
                return _without_cache(reduced)
            return reduced

    return ByValuePickler


_STATE = 2  # the place of the state in what a reducer returns


def _without_cache(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Drop what msgspec has found out about a class, which cannot be pickled."""
    state = reduced[_STATE]
    if isinstance(state, tuple) and state and isinstance(state[0], dict):
        state[0].pop("__msgspec_cache__", None)
    return reduced


def unpack(data: bytes | memoryview, buffers: Sequence[Any] = ()) -> Any:
    """Return the value. The buffers become part of it.

    Raises:
        Exception: whatever the classes of the value raise.

    """
    return pickle.loads(data, buffers=buffers)  # noqa: S301 - from our own parent or child


def main_is_importable() -> bool:
    """Return whether another process can import the main module: it comes from a file."""
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:
        return True
    path = getattr(main, "__file__", None)
    return path is not None and not path.startswith("<")


def _cloudpickle() -> Any:
    """Return the module cloudpickle; `None` where it is not installed."""
    try:
        return import_module("cloudpickle")  # an extra, and only for what pickle cannot send
    except ImportError:
        return None
