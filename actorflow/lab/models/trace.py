"""Traces: your own traffic, read from CSV or JSON lines.

A trace has a `time` in seconds for each message and, optionally, `key`, `priority` and `size`.
As CSV it begins with a line of these names; as JSON lines each line is an object with them.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.traffic import CHUNK
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.lab.models.traffic import Message

__all__ = ["FIELDS", "BadTrace", "Trace"]

FIELDS = ("time", "key", "priority", "size")
"""The columns of a trace, in the order in which they are recorded."""


class BadTrace(ActorflowError, ValueError):
    """A trace cannot be read; the message names the file, the line and the fault."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path}, line {line}: {why}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Trace:
    """Traffic as it was: the messages of a file. The first one arrives at time 0.

    `speed` replays it faster (2.0: twice the rate) or slower.
    """

    path: Path | str
    speed: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a missing file, and a speed that is not a positive number."""
        if not Path(self.path).is_file():
            msg = f"there is no trace {str(self.path)!r}; record one with af.record(worker, path)"
            raise BadOption(msg)
        if type(self.speed) not in (int, float) or not 0 < self.speed < math.inf:
            msg = f"speed={self.speed!r} must be a positive number, as in Trace(path, speed=2.0)"
            raise BadOption(msg)

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Yield the messages, some thousands at a time.

        Raises:
            BadTrace: a line cannot be read, or goes back in time.

        """
        path = Path(self.path)
        chunk: list[Message] = []
        first = last = None
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = _csv(path, file) if path.suffix.lower() == ".csv" else _json_lines(path, file)
            for number, row in lines:
                at, message = _message(path, number, row)
                if first is None:
                    first = at
                if last is not None and at < last:
                    raise BadTrace(path, number, f"time {at} is before {last}, the line before")
                last = at
                chunk.append((*message, (at - first) / self.speed))
                if len(chunk) == CHUNK:
                    yield chunk
                    chunk = []
        if first is None:
            raise BadTrace(path, 1, "there is not one message in it")
        if chunk:
            yield chunk


def _csv(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(file)
    header = next(reader, None)
    if header is None or "time" not in (names := [name.strip() for name in header]):
        shown = ",".join(header or [])
        raise BadTrace(path, 1, f"expected a header with a column 'time', not {shown!r:.100}")
    for row in _rows(path, reader):
        if not row:
            continue
        if len(row) != len(names):
            raise BadTrace(path, reader.line_num, f"{len(row)} columns instead of {len(names)}")
        yield reader.line_num, dict(zip(names, row, strict=True))


def _rows(path: Path, reader: Any) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise BadTrace(path, reader.line_num, f"not CSV: {error}") from None


def _json_lines(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadTrace(path, number, f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise BadTrace(
                path, number, f'expected an object like {{"time": 0.5}}, not {row!r:.50}'
            )
        if "batch" not in row:  # what `fit` reads
            yield number, row


def _message(path: Path, line: int, row: dict[str, Any]) -> tuple[float, tuple[Any, Any, float]]:
    try:
        at = float(row["time"])
        priority = float(row.get("priority") or 0)
        size = float(row.get("size") or 1)
    except KeyError:
        raise BadTrace(path, line, f"no 'time' in {row!r:.100}") from None
    except (TypeError, ValueError) as error:
        raise BadTrace(path, line, f"not a number: {error}") from None
    if not (math.isfinite(at) and math.isfinite(priority) and 0 <= size < math.inf):
        raise BadTrace(path, line, f"time, priority and size must be finite: {row!r:.100}")
    key = _tuples(row.get("key", 0))
    try:
        hash(key)
    except TypeError:
        raise BadTrace(path, line, f"an object cannot be a key: {key!r:.100}") from None
    return at, (key, priority, size)


def _tuples(value: Any) -> Any:
    """Return lists as tuples, so that they can be keys."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
