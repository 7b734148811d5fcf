"""The audit log: one line of JSON for each action of an operator, in a file beside the store.

A store that is not a file has no such file: its last thousand entries are kept in memory. All
entries go to the log.
"""

from __future__ import annotations

import getpass
import json
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from actorflow.api.plain import plain
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine

__all__ = ["entries", "note"]

_KEPT = 1_000
_WIDEST = 2_000
_TAIL = 1 << 20  # bytes of the file that are read back

_memory: WeakKeyDictionary[BareEngine, deque[dict[str, Any]]] = WeakKeyDictionary()


def note(engine: BareEngine, verb: str, parameters: dict[str, Any], result: Any) -> None:
    """Record the call of a verb that changes something."""
    given = {name: value for name, value in parameters.items() if value is not None}
    entry = {
        "at": engine.parts.clock.now(),
        "by": f"{_user()}, process {os.getpid()}",
        "verb": verb,
        "parameters": json.dumps(plain(given))[:_WIDEST],
        "result": json.dumps(plain(result))[:_WIDEST],
    }
    log.info("audit", **entry)
    path = _path(engine)
    if path is None:
        _memory.setdefault(engine, deque(maxlen=_KEPT)).append(entry)
        return
    line = (json.dumps(entry) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)  # at once, so that lines of several processes do not mix
    finally:
        os.close(descriptor)


def entries(engine: BareEngine, limit: int) -> list[dict[str, Any]]:
    """Return the last entries, newest first."""
    path = _path(engine)
    if path is None:
        return list(reversed(_memory.get(engine, ())))[:limit]
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in reversed(lines[-limit:]):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # the first line of the tail is cut, or a full disk has cut the last
    return found


def _path(engine: BareEngine) -> Path | None:
    path = getattr(engine.parts.store, "path", None)
    return None if path is None or str(path) == ":memory:" else Path(f"{path}.audit")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
