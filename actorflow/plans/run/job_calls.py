"""What a worker process does for a plan: load inputs, call the function, keep the result.

The result comes back as its pickle if it is small. A large one is written to a file, and only the
path comes back: the scheduler never holds it, and the next worker reads it from there (A13).

Imported by every worker process, so it imports little.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from platform import node
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from actorflow.plans.arguments import replace
from actorflow.plans.errors import CodeMissing, ResultTooLarge
from actorflow.plans.result_files import open_file, write_file
from actorflow.runtime.errors import kind_and_text, text_of, traceback_of
from actorflow.runtime.processes.child.capture import said
from actorflow.runtime.processes.child.limits import limit, unlimit
from actorflow.runtime.processes.packed import main_is_importable, pack_value, unpack

if TYPE_CHECKING:
    from actorflow.engine.tasks.task import TaskAttempt

__all__ = ["INLINE", "STORED", "InputSlot", "ResultTarget", "Wire", "do_job", "perform", "split"]

INLINE = 16 * 1024
"""Bytes up to which a pickled result travels through the scheduler."""

STORED = 1024 * 1024
"""Bytes of a pickled result that a store takes, where there are no files."""

Wire: TypeAlias = Any
"""A value between processes: its pickle, or (pickle, digest, code), or (path, size, digest, code),
or a list of these for the results of a map."""


class InputSlot:
    """Stands in the arguments of a call for one of its inputs."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place

    def __reduce__(self) -> tuple[type[InputSlot], tuple[int]]:
        return InputSlot, (self.place,)


class ResultTarget(NamedTuple):
    """Where a large result goes, and whether results are hashed."""

    path: str
    """How the name of its file begins; empty if there are no files."""
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
        function = _function(code)
        if len(_FUNCTIONS) >= _KEPT:
            _FUNCTIONS.clear()
        _FUNCTIONS[code] = function
    if inputs:
        values = [_loaded(each) for each in inputs]
        args = replace(InputSlot, args, lambda slot: values[slot.place])
        if kwargs:
            kwargs = replace(InputSlot, kwargs, lambda slot: values[slot.place])
    result = function(*args, **kwargs) if kwargs else function(*args)
    return _kept(result, *keep)


def split(source: Wire, keep: tuple[str, bool]) -> list[Wire]:
    """Return each item of a result by itself, as it travels."""
    path, digest = keep
    return [
        _kept(item, path and f"{path}.{place}", digest)
        for place, item in enumerate(_loaded(source))
    ]


def _function(code: bytes) -> Any:
    try:
        return pickle.loads(code)  # noqa: S301 - from our own scheduler
    except (ImportError, AttributeError) as error:
        msg = (
            f"the function cannot be loaded: {text_of(error)}; worker process on {node()}, Python "
            f"path {sys.path}: install the same code there"
        )
        raise CodeMissing(msg) from error


_FUNCTIONS: dict[bytes, Any] = {}
_KEPT = 1_000  # functions; closures by value may be many


def _kept(result: Any, path: str, digest: bool) -> Wire:  # noqa: FBT001 - a field of `ResultTarget`
    code: tuple[str, ...] = ()
    if digest:
        data, code = _noted(result)
        mark = _hash_of(data)
    else:
        data, mark = _pickled(result), ""
    if len(data) <= INLINE:
        return (data, mark, code) if digest else data
    if not path:
        if len(data) <= STORED:
            return (data, mark, code) if digest else data
        msg = (
            f"the result takes {len(data):,} bytes, and a store takes {STORED:,} for one result; "
            "say where larger ones go: directory='s3://bucket/plans', or a folder that all "
            "machines share"
        )
        raise ResultTooLarge(msg)
    return write_file(path, data), len(data), mark, code


def _pickled(result: Any) -> bytes:
    try:
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - pickle by value; what fails there is the user's to see
        return _in_band(result)
    return _in_band(result) if b"__main__" in data else data


def _noted(result: Any) -> tuple[bytes, tuple[str, ...]]:
    """Return the pickle of a result, and the names of the code in it."""
    from actorflow.plans.cache.references import dump, dump_by_value  # noqa: PLC0415 - only for caches

    try:
        data, code = dump(result)
    except Exception:  # noqa: BLE001 - the same as in `_pickled`
        return _by_value(result, dump_by_value)
    if b"__main__" in data and not main_is_importable():
        return _by_value(result, dump_by_value)
    return data, code


def _by_value(result: Any, dump_by_value: Any) -> tuple[bytes, tuple[str, ...]]:
    try:
        return dump_by_value(result)  # type: ignore[no-any-return]
    except ImportError:
        return _in_band(result), ()  # without cloudpickle; says so, if pickle cannot do it


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
    with open_file(wire[0]) as file:
        return pickle.load(file)  # noqa: S301 - from our own worker


def do_job(task: TaskAttempt) -> dict[str, Any]:
    """Make the call of a job; return its result as it travels, or what it raised, with its times.

    A job that fails is an answer like others, so that its traceback gets to the scheduler. What it
    prints and warns of is part of the answer, and is printed by the engine as well.
    """
    body = task.body
    started = time.time()
    found: dict[str, Any] = {"started": started, "pid": os.getpid()}
    try:
        if body["memory"]:
            limit(body["memory"], 0)
        function, args = unpack(body["call"], body["buffers"])
        found["wire"] = function(*args)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        found["error"] = kind_and_text(error)
        found["traceback"] = traceback_of(error)
    finally:
        unlimit()
    found["ended"] = time.time()
    out, err, warned = said()
    if out or err:
        found["output"] = _last(out + err)
    if warned:
        found["warnings"] = list(warned)
    return found


_OUTPUT = 16 * 1024
"""Characters of what a job prints that are kept with the plan."""


def _last(text: str) -> str:
    """Return the end of a string that is too long to be kept."""
    left_out = len(text) - _OUTPUT
    if left_out <= 0:
        return text
    return f"... {left_out} characters were left out\n{text[-_OUTPUT:]}"
