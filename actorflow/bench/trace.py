"""Your own traffic: traces read from CSV or JSON lines, and a recorder that writes one.

A trace has a `time` in seconds for each message and, optionally, `key`, `priority` and `size`.
As CSV it begins with a line of these names; as JSON lines each line is an object with them.
"""

from __future__ import annotations

import csv
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.bench.traffic import CHUNK
from actorflow.runtime.errors import ActorflowError, BadOption, WorkerStopped
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from actorflow.bench.traffic import Message
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["BadTrace", "Recorder", "Trace", "record"]

_FIELDS = ("time", "key", "priority", "size")


class BadTrace(ActorflowError, ValueError):
    """A trace cannot be read; the message names the file, the line and what is wrong with it."""

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
        """Refuse a file that is not there, and a speed that is none."""
        if not Path(self.path).is_file():
            msg = f"there is no trace {str(self.path)!r}; record one with af.record(worker, path)"
            raise BadOption(msg)
        if not 0 < self.speed < math.inf:
            msg = f"speed={self.speed!r} must be a positive number, as in Trace(path, speed=2.0)"
            raise BadOption(msg)

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Give the messages, some thousands at a time.

        Raises:
            BadTrace: a line cannot be read, or goes back in time.

        """
        path = Path(self.path)
        chunk: list[Message] = []
        first = last = None
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = _csv(path, file) if path.suffix == ".csv" else _json_lines(path, file)
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
    """Give lists as tuples, so that they can be keys."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def record(
    worker: WorkerRef,
    path: Path | str,
    *,
    key: Callable[[Any], Any] | None = None,
    priority: Callable[[Any], float] | None = None,
    size: Callable[[Any], float] | None = None,
) -> Recorder:
    """Write a trace of what is pushed to a live worker, until the recorder is closed.

    Args:
        worker: whose pushes are recorded; they go on as they are.
        path: a `.jsonl` or `.csv` file; one that is there is refused.
        key: gives the key of a message, for the trace; likewise `priority` and `size`.

    Use it as `with af.record(worker, "trace.jsonl", key=lambda m: m.id): ...`. Workers that are
    not recorded pay nothing for it.

    """
    return Recorder(worker, Path(path), (key, priority, size))


_PUSHES = (
    "push", "push_ack", "push_block", "ask", "apush", "apush_ack", "apush_block", "aask",
)  # fmt: skip


class Recorder:
    """Records pushes by standing in front of the methods of one ref; `close` steps aside.

    Recording never keeps a message from being pushed: where `key`, `priority` or `size` raises,
    the trace has the default instead. `recorded` counts the messages.
    """

    def __init__(self, worker: WorkerRef, path: Path, fields: tuple[Any, Any, Any]) -> None:
        if path.exists():
            msg = f"{str(path)!r} is there already; a trace does not overwrite, choose another name"
            raise BadOption(msg)
        if "push" in vars(worker):
            msg = f"{worker!r} is being recorded already; close that recorder first"
            raise BadOption(msg)
        self.path = path
        self.recorded = 0
        self._worker = worker
        self._fields = tuple(zip(fields, (None, 0, 1), strict=True))
        self._csv = path.suffix == ".csv"
        self._begin = monotonic()
        self._latest = 0.0
        self._file = path.open("w", encoding="utf-8", newline="")
        if self._csv:
            self._file.write(",".join(_FIELDS) + "\n")
        self._writer = spawn(self._write)
        # Some of the methods call others: those of a second ref do so without being recorded.
        unrecorded = type(worker)(worker.actor)
        for name in _PUSHES:
            setattr(worker, name, self._noting(getattr(unrecorded, name)))
        worker.push_many = self._noting_many(unrecorded.push_many)  # type: ignore[method-assign]

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def push(message: Any, *args: Any, **options: Any) -> Any:
            self._note((message,))
            return method(message, *args, **options)

        return push

    def _noting_many(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def push_many(messages: Any) -> Any:
            messages = list(messages)
            self._note(messages)
            return method(messages)

        return push_many

    def _note(self, messages: Sequence[Any]) -> None:
        """Hand over what is recorded of some messages. In the pusher's thread."""
        at = monotonic() - self._begin
        rows = [
            (at, *(self._value(*field, message) for field in self._fields)) for message in messages
        ]
        with suppress(WorkerStopped):  # the writer failed: `close` says so, pushes go on
            self._writer.push_many(rows)

    def _value(self, function: Callable[[Any], Any] | None, default: Any, message: Any) -> Any:
        if function is None:
            return default
        try:
            return function(message)
        except Exception:  # noqa: BLE001 - whatever it is, the message must be pushed
            return default

    def _write(self, rows: list[tuple[Any, ...]], _state: None) -> None:
        """Write rows. In the writer's thread, one batch at a time."""
        ordered = []
        for at, *values in rows:
            # Two threads may look at the clock in one order and be noted in the other.
            self._latest = max(self._latest, at)
            ordered.append((round(self._latest, 6), *values))
        if self._csv:
            csv.writer(self._file, lineterminator="\n").writerows(ordered)
        else:
            self._file.writelines(
                json.dumps(dict(zip(_FIELDS, row, strict=True)), default=str) + "\n"
                for row in ordered
            )
        self.recorded += len(ordered)

    def close(self) -> None:
        """Stop recording and finish the file. Harmless when it is closed.

        Raises:
            WorkerCrashed: the file could not be written to its end; the cause says why.

        """
        for name in (*_PUSHES, "push_many"):
            vars(self._worker).pop(name, None)
        if self._file.closed:
            return
        try:
            self._writer.stop()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
