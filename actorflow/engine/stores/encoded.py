"""A store that encodes all bodies, states, results and errors for another store behind it.

An encoded piece is a mark with which plain data never begins, its length, and the bytes that the
codec returned. A state that grows is several pieces, one after the other, because a store adds
bytes to it without knowing their meaning.
"""

from __future__ import annotations

from base64 import b85decode, b85encode
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from actorflow.engine.errors import OutcomeUnknown
from actorflow.engine.stores.protocol import (
    DeadRow,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    Page,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.engine.stores.protocol import Change, DuplicateKey, Store

__all__ = ["Codec", "EncodedStore", "check_encoding", "encoded_store"]

_MARK = b"\xc1AE"  # no msgpack begins with \xc1; what behaviours save begins with \xc1\x00
_HEAD = len(_MARK) + 4
_EXECUTION = ExecutionRow._fields
_BODIES = {
    "executions": tuple(map(_EXECUTION.index, ("state", "result", "error"))),
    "messages": (MessageRow._fields.index("body"),),
    "timers": (TimerRow._fields.index("body"),),
    "tasks": (TaskRow._fields.index("body"),),
    "watches": (WatchRow._fields.index("body"),),
    "history": (HistoryRow._fields.index("body"),),
    "dead": (DeadRow._fields.index("body"),),
}
"""The places of bodies in the rows of a snapshot."""
_DEAD_ERROR = DeadRow._fields.index("error")


class Codec(Protocol):
    """What makes bytes other bytes, and back. Thread-safe."""

    def encode(self, data: bytes) -> bytes:
        """Return bytes as they are stored."""

    def decode(self, data: bytes) -> bytes:
        """Return bytes as they were before `encode`."""


def encoded_store(store: Store, codec: Codec | None) -> Any:
    """Return a store with a codec in front, if there is one.

    Raises:
        BadOption: it is not a codec.

    """
    if codec is None:
        return store
    for name in ("encode", "decode"):
        if not callable(getattr(codec, name, None)):
            msg = f"codec={codec!r:.80} has no {name}: give af.Encrypted(key)"
            raise BadOption(msg)
    return EncodedStore(store, codec)


def check_encoding(store: Any) -> None:
    """Check that the stored data is encoded if the store has a codec, and plain if it has none.

    Raises:
        BadOption: the stored data is not encoded and should be, or the other way round.
        StoreRefused: the store cannot be read now.
        Exception: the codec cannot decode the stored data.

    """
    codec = isinstance(store, EncodedStore)
    inner: Store = store.inner if codec else store
    found = [row.state for row in inner.listing(limit=1).rows if row.state is not None]
    found = found or [row.body for row in inner.pending(limit=1).rows]
    if not found:
        return
    encoded = bytes(found[0][: len(_MARK)]) == _MARK
    if encoded and not codec:
        msg = "the store is encrypted: open it with codec=af.Encrypted(key)"
        raise BadOption(msg)
    if codec and not encoded:
        msg = (
            "codec=: the store has plain data already. Encryption begins with a new store: copy "
            "what you need into one"
        )
        raise BadOption(msg)
    if codec:
        store.decoded(found[0])


class EncodedStore:
    """See the module. All that it does not change goes to the store behind it."""

    def __init__(self, inner: Store, codec: Codec) -> None:
        self.inner: Any = inner
        self._codec = codec
        self._undecided: list[tuple[Change, Change]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name == "commit_within":
            return partial(self._commit_within, found)
        return found

    # Pieces.

    def encoded(self, data: bytes) -> bytes:
        """Return a piece."""
        sealed = self._codec.encode(data)
        return _MARK + len(sealed).to_bytes(_HEAD - len(_MARK), "big") + sealed

    def decoded(self, data: bytes) -> bytes:
        """Return what some pieces stand for."""
        parts = []
        at = 0
        while at < len(data):
            head = bytes(data[at : at + _HEAD])
            if not head.startswith(_MARK):
                msg = "the store has data that are not encrypted"
                raise ValueError(msg)
            end = at + _HEAD + int.from_bytes(head[len(_MARK) :], "big")
            parts.append(self._codec.decode(bytes(data[at + _HEAD : end])))
            at = end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _may(self, data: bytes | None) -> bytes | None:
        return None if data is None else self.encoded(data)

    def _may_not(self, data: bytes | None) -> bytes | None:
        return None if data is None else self.decoded(data)

    def _with(self, rows: Sequence[Any]) -> list[Any]:
        """Return rows with their bodies encoded."""
        return [row._replace(body=self.encoded(row.body)) for row in rows]

    def _without(self, rows: Sequence[Any]) -> list[Any]:
        """Return rows with their bodies decoded."""
        return [row._replace(body=self.decoded(row.body)) for row in rows]

    # Writing.

    def commit(self, changes: Sequence[Change]) -> Future[None] | None:
        """Commit changes with everything encoded."""
        pairs = [(change, self._encode(change)) for change in changes]
        try:
            future = self.inner.commit([encoded for _, encoded in pairs])
        except OutcomeUnknown:
            self._leave_undecided(pairs)
            raise
        if future is None:
            self._finish(pairs)
            return None
        made: Future[None] = Future()

        def decided(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                self._finish(pairs)
                made.set_result(None)
                return
            if isinstance(error, OutcomeUnknown):
                self._leave_undecided(pairs)
            made.set_exception(error)

        future.add_done_callback(decided)
        return made

    def _commit_within(self, commit: Any, connection: Any, changes: Sequence[Change]) -> None:
        """Commit changes in the transaction of a user, with everything encoded."""
        pairs = [(change, self._encode(change)) for change in changes]
        commit(connection, [encoded for _, encoded in pairs])
        self._finish(pairs)

    def _leave_undecided(self, pairs: list[tuple[Change, Change]]) -> None:
        if self.inner.traits.decides:
            self._undecided += pairs

    def _finish(self, pairs: list[tuple[Change, Change]]) -> None:
        """Report to the engine the outcome of its changes, and of earlier ones."""
        undecided, self._undecided = self._undecided, []
        for change, encoded in (*undecided, *pairs):
            change.committed = encoded.committed
            change.refusal = encoded.refusal
            change.revision = encoded.revision
            change.rows = [
                row._replace(body=self.decoded(row.body)) if type(row) is MessageRow else row
                for row in encoded.rows
            ]
            change.resulting_messages = self._without(encoded.resulting_messages)

    def _encode(self, change: Change) -> Change:
        return structs.replace(
            change,
            state=self._may(change.state),
            result=self._may(change.result),
            error=self._may(change.error),
            messages=self._with(change.messages),
            timers=self._with(change.timers),
            fired_timers=[(timer, *self._with((sent,))) for timer, sent in change.fired_timers],
            tasks=self._with(change.tasks),
            retried=self._with(change.retried),
            task_results=[
                TaskResult(task, *self._with((message,))) for task, message in change.task_results
            ],
            watches=self._with(change.watches),
            history=[self.encoded(body) for body in change.history],
            dead=[row._replace(error=self._text(row.error)) for row in self._with(change.dead)],
        )

    def _text(self, text: str) -> str:
        return b85encode(self.encoded(text.encode("utf-8", "surrogatepass"))).decode()

    def _plain_text(self, text: str) -> str:
        return self.decoded(b85decode(text)).decode("utf-8", "surrogatepass")

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment, decoded."""
        for table, row in self.inner.snapshot():
            yield table, self._converted(table, row, self._may_not, self._plain_text)

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store with a snapshot, encoded."""
        found: int = self.inner.restore(
            (table, self._converted(table, row, self._may, self._text)) for table, row in rows
        )
        return found

    def _converted(
        self,
        table: str,
        row: tuple[Any, ...],
        body: Callable[[bytes | None], bytes | None],
        text: Callable[[str], str],
    ) -> tuple[Any, ...]:
        """Return a row of a snapshot, with each body and text converted."""
        fields = _BODIES.get(table)
        if fields is None:
            return row
        made: list[Any] = [body(value) if at in fields else value for at, value in enumerate(row)]
        if table == "dead":
            made[_DEAD_ERROR] = text(made[_DEAD_ERROR])
        return tuple(made)

    # Reading.

    def _execution(self, row: ExecutionRow) -> ExecutionRow:
        return row._replace(
            state=self._may_not(row.state),
            result=self._may_not(row.result),
            error=self._may_not(row.error),
        )

    def execution(self, execution: str) -> ExecutionRow | None:
        """Return one execution."""
        row = self.inner.execution(execution)
        return None if row is None else self._execution(row)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions."""
        return {name: self._execution(row) for name, row in self.inner.executions(ids).items()}

    def listing(self, **wanted: Any) -> Page[ExecutionRow]:
        """Return executions in the order of their ids."""
        page = self.inner.listing(**wanted)
        return Page([self._execution(row) for row in page.rows], page.after)

    def _page(self, page: Page[Any]) -> Page[Any]:
        return Page(self._without(page.rows), page.after)

    def pending(self, **wanted: Any) -> Page[MessageRow]:
        """Return messages that are not consumed."""
        return self._page(self.inner.pending(**wanted))

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first."""
        return self._without(self.inner.due(limit, execution=execution))

    def open(self, **wanted: Any) -> Page[TaskRow]:
        """Return tasks that have not ended."""
        return self._page(self.inner.open(**wanted))

    def task(self, task: str) -> TaskRow | None:
        """Return one task that has not ended."""
        row = self.inner.task(task)
        return None if row is None else row._replace(body=self.decoded(row.body))

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return lent tasks."""
        return self._without(self.inner.lent(worker))

    def watches(self, **wanted: Any) -> Page[WatchRow]:
        """Return all watches."""
        return self._page(self.inner.watches(**wanted))

    def history(self, execution: str, **wanted: Any) -> Page[HistoryRow]:
        """Return what happened to an execution."""
        return self._page(self.inner.history(execution, **wanted))

    def _dead(self, row: DeadRow) -> DeadRow:
        return row._replace(body=self.decoded(row.body), error=self._plain_text(row.error))

    def dead(self, **wanted: Any) -> Page[DeadRow]:
        """Return dead letters."""
        page = self.inner.dead(**wanted)
        return Page([self._dead(row) for row in page.rows], page.after)

    def dead_letter(self, id: Any) -> DeadRow | None:  # noqa: A002 - as in the protocol
        """Return one dead letter."""
        row = self.inner.dead_letter(id)
        return None if row is None else self._dead(row)

    def keyed(self, execution: str, key: str) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one."""
        found: DuplicateKey | None = self.inner.keyed(execution, key)
        return found
