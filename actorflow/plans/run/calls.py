"""What a worker process does for a plan: load inputs, call the function, keep the result.

The result comes back as its pickle if it is small. A large one is written to a file, and only the
path comes back: the master never holds it, and the next worker reads it from there (A13).

Imported by every worker process, so it imports little.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from actorflow.plans.arguments import replace
from actorflow.runtime.lanes.process.packing import pack_value

__all__ = ["INLINE", "Keep", "Slot", "Wire", "perform", "split"]

INLINE = 16 * 1024
"""Bytes up to which a pickled result travels through the master."""

Wire: TypeAlias = Any
"""A value between processes: its pickle, or (pickle, digest), or (path, size, digest), or a list
of these for the results of a map."""


class Slot:
    """Stands in the arguments of a call for one of its inputs."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place

    def __reduce__(self) -> tuple[type[Slot], tuple[int]]:
        return Slot, (self.place,)


class Keep(NamedTuple):
    """Where a large result goes, and whether results are hashed."""

    path: str
    digest: bool = False


def perform(
    code: bytes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    inputs: tuple[Wire, ...],
    keep: tuple[str, bool],
) -> Wire:
    """Call a function of the user; return its result as it travels."""
    function = _FUNCTIONS.get(code)
    if function is None:
        function = pickle.loads(code)  # noqa: S301 - from our own master
        if len(_FUNCTIONS) >= _KEPT:
            _FUNCTIONS.clear()
        _FUNCTIONS[code] = function
    if inputs:
        values = [_loaded(each) for each in inputs]
        args = replace(Slot, args, lambda slot: values[slot.place])
        if kwargs:
            kwargs = replace(Slot, kwargs, lambda slot: values[slot.place])
    result = function(*args, **kwargs) if kwargs else function(*args)
    return _kept(result, *keep)


def split(source: Wire, keep: tuple[str, bool]) -> list[Wire]:
    """Return each item of a result by itself, as it travels."""
    path, digest = keep
    return [_kept(item, f"{path}.{place}", digest) for place, item in enumerate(_loaded(source))]


_FUNCTIONS: dict[bytes, Any] = {}
_KEPT = 1_000  # functions; closures by value may be many


def _kept(result: Any, path: str, digest: bool) -> Wire:  # noqa: FBT001 - a field of `Keep`
    try:
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        if b"__main__" in data:
            data = _in_band(result)
    except Exception:  # noqa: BLE001 - by value then; what fails there is the user's to see
        data = _in_band(result)
    mark = _hash_of(data) if digest else ""
    if len(data) <= INLINE:
        return (data, mark) if digest else data
    # Renamed, so that a worker that dies while it writes leaves no half of a result.
    fresh = Path(f"{path}.new")
    fresh.write_bytes(data)
    fresh.replace(path)
    return path, len(data), mark


def _hash_of(data: bytes) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - every new worker would wait for it

    return blake2b(data, digest_size=16).hexdigest()


def _in_band(result: Any) -> bytes:
    packed = pack_value(result)
    if not packed.buffers:
        return packed.data
    return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)


def _loaded(wire: Wire) -> Any:
    if type(wire) is bytes:
        return pickle.loads(wire)  # noqa: S301 - from our own worker
    if type(wire) is list:
        return [_loaded(each) for each in wire]
    if type(wire[0]) is bytes:
        return pickle.loads(wire[0])  # noqa: S301 - from our own worker
    with Path(wire[0]).open("rb") as file:
        return pickle.load(file)  # noqa: S301 - from our own worker
