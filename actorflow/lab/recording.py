"""Record the messages and batches of a live worker, as a trace to replay and to fit."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours.errors import brief
from actorflow.lab.models.trace import FIELDS
from actorflow.runtime.errors import BadOption, WorkerStopped
from actorflow.runtime.log import log
from actorflow.runtime.worker.latency import observe_batches
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["PushTap", "Recorder", "record"]


def record(
    worker: WorkerRef,
    path: Path | str,
    *,
    key: Callable[[Any], Any] | None = None,
    priority: Callable[[Any], float] | None = None,
    size: Callable[[Any], float] | None = None,
) -> Recorder:
    """Write a trace of the messages and batches of a live worker, until the recorder is closed.

    Use it as `with af.record(worker, "trace.jsonl", key=lambda m: m.id): ...`. Workers that are
    not recorded pay nothing for it. The batches, of which the lab can `fit` a service model, are
    in `.jsonl` files only.

    Args:
        worker: the worker to record; its pushes work as before.
        path: a `.jsonl` or `.csv` file that does not exist yet.
        key: returns the key of a message, for the trace; likewise `priority` and `size`.

    """
    return Recorder(worker, Path(path), (key, priority, size))


_PUSHES = (
    "push", "push_ack", "push_block", "ask", "apush", "apush_ack", "apush_block", "aask",
)  # fmt: skip


class _Batch(NamedTuple):
    at: float
    size: int
    took: float


class PushTap:
    """Sees the messages of all pushes through one ref, by wrapping its methods, until `close`."""

    def __init__(self, worker: WorkerRef, note: Callable[[Sequence[Any]], None]) -> None:
        self._worker = worker
        self._note = note
        # Some of the methods call others: those of a second ref do so without being seen.
        untapped = type(worker)(worker.actor)
        for name in _PUSHES:
            setattr(worker, name, self._noting(getattr(untapped, name)))
        worker.push_many = self._noting_many(untapped.push_many)  # type: ignore[method-assign]

    @staticmethod
    def check(worker: WorkerRef) -> None:
        """Check that nobody else sees the pushes of this ref.

        Raises:
            BadOption: somebody does.

        """
        if "push" in vars(worker):
            msg = f"{worker!r} is being recorded or shadowed already; close that first"
            raise BadOption(msg)

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

    def close(self) -> None:
        """Let the pushes go their usual way again. Idempotent."""
        for name in (*_PUSHES, "push_many"):
            vars(self._worker).pop(name, None)


class Recorder:
    """Records pushes by wrapping the methods of one ref, until `close`.

    Recording never prevents a push: where `key`, `priority` or `size` raises, the trace has the
    default instead, `failures` counts it, and the first one is logged.
    """

    def __init__(self, worker: WorkerRef, path: Path, fields: tuple[Any, Any, Any]) -> None:
        if path.exists():
            msg = f"{str(path)!r} exists already; a trace does not overwrite, choose another name"
            raise BadOption(msg)
        if not callable(getattr(worker, "push", None)):
            msg = f"record({worker!r:.80}) needs a worker, as in af.record(worker, 'trace.jsonl')"
            raise BadOption(msg)
        PushTap.check(worker)
        self.path = path
        self.recorded = 0
        """Messages written so far."""
        self.failures = 0
        """Values for which the trace has the default, because `key` or another raised."""
        self._worker = worker
        self._fields = tuple(zip(fields, (None, 0, 1), strict=True))
        self._csv = path.suffix.lower() == ".csv"
        self._begin = monotonic()
        self._latest = 0.0
        self._file = path.open("w", encoding="utf-8", newline="")
        if self._csv:
            self._file.write(",".join(FIELDS) + "\n")
        self.batches = 0
        """Batches written so far."""
        self._writer = spawn(self._write)
        self._tap = PushTap(worker, self._note)
        self._stop_batches = None if self._csv else observe_batches(worker.actor, self._note_batch)

    def _note_batch(self, size: int, began: float, done: float) -> None:
        """Pass the record of a batch to the writer. Runs under the lock of the worker."""
        at = monotonic() - self._begin
        with suppress(WorkerStopped):
            self._writer.push(_Batch(at, size, done - began))

    def _note(self, messages: Sequence[Any]) -> None:
        """Pass the records of some messages to the writer. Runs in the pusher's thread."""
        at = monotonic() - self._begin
        rows = [
            (at, *(self._value(*field, message) for field in self._fields)) for message in messages
        ]
        with suppress(WorkerStopped):  # the writer failed: `close` raises, pushes go on
            self._writer.push_many(rows)

    def _value(self, function: Callable[[Any], Any] | None, default: Any, message: Any) -> Any:
        if function is None:
            return default
        try:
            return function(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must be pushed
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "cannot record a value of a message; further ones are only counted",
                    path=str(self.path), message=brief(message), error=brief(error),
                )  # fmt: skip
            return default

    def _write(self, rows: list[tuple[Any, ...]], _state: None) -> None:
        """Write rows. In the writer's thread, one batch at a time."""
        batches = [row for row in rows if type(row) is _Batch]
        ordered = []
        for at, *values in (row for row in rows if type(row) is not _Batch):
            # Two threads may read the clock in one order and arrive here in the other.
            self._latest = max(self._latest, at)
            ordered.append((round(self._latest, 6), *values))
        if self._csv:
            csv.writer(self._file, lineterminator="\n").writerows(ordered)
        else:
            self._file.writelines(
                json.dumps(dict(zip(FIELDS, row, strict=True)), default=str) + "\n"
                for row in ordered
            )
            self._file.writelines(
                json.dumps({"time": round(at, 6), "batch": size, "took": round(took, 9)}) + "\n"
                for at, size, took in batches
            )
        self.recorded += len(ordered)
        self.batches += len(batches)

    def close(self) -> None:
        """Stop recording and finish the file. Harmless if it is closed already.

        Raises:
            WorkerCrashed: the file could not be written to its end; the cause says why.

        """
        self._tap.close()
        if self._stop_batches is not None:
            self._stop_batches()
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
