"""Dead letters: messages that could not be processed, kept in the store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine import bodies
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.errors import BadOption
from actorflow.runtime.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import DeadRow, Store

__all__ = ["Letter", "Letters"]

_AT_ONCE = 1_000  # letters that one commit moves


class Letter(NamedTuple):
    """A message that could not be processed, and why."""

    id: Any
    execution: str
    message: Any
    error: str
    at: float
    type: str = "message"


class Letters:
    """The dead letters of an engine, or of one execution. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        table: ExecutionTable,
        execution: str | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._state = state
        self._table = table
        self._execution = execution

    def _rows(self) -> Iterator[DeadRow]:
        cursor = None
        while True:
            page = self._store.dead(execution=self._execution, after=cursor)
            yield from page.rows
            cursor = page.after
            if cursor is None:
                return

    def __iter__(self) -> Iterator[Letter]:
        for row in self._rows():
            message = _decoded(row.body)
            yield Letter(row.id, row.execution, message, row.error, row.at, row.type)

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def retry(self, *letters: Letter) -> int:
        """Send these again, or all if none is named; return how many. What fails comes back.

        One commit turns them from dead letters into messages, so that no other engine can send
        them as well. They run later: until then, an execution that waits for one of them is still
        `stuck`, also for `wait`.
        """
        return self._requeue(self._chosen(letters))

    async def aretry(self, *letters: Letter) -> int:
        """Like `retry`, from a task of any event loop."""
        return await asyncio.to_thread(self.retry, *letters)

    def purge(self, *letters: Letter) -> int:
        """Throw these away, or all if none is named; return how many were still there."""
        chosen = self._chosen(letters)
        count = 0
        for at in range(0, len(chosen), _AT_ONCE):
            count += self._writer.call_and_wait(partial(self._purge, chosen[at : at + _AT_ONCE]))
        return count

    def _purge(self, letters: list[Any]) -> int:
        """Delete some letters. In the writer's thread, so that no other call deletes them."""
        there = [each for each in letters if self._store.dead_letter(each) is not None]
        if there:
            error = self._writer.commit([Change(at=self._clock.now(), purged_letters=there)])
            if error is not None:
                raise error
        return len(there)

    async def apurge(self, *letters: Letter) -> int:
        """Like `purge`, from a task of any event loop."""
        return await asyncio.to_thread(self.purge, *letters)

    def _chosen(self, letters: tuple[Any, ...]) -> list[Any]:
        for each in letters:
            if not isinstance(each, Letter):
                msg = f"{each!r:.80} is not a dead letter: give some that dead_letters yields"
                raise BadOption(msg)
        return [each.id for each in (letters or self._rows())]

    def _requeue(self, chosen: list[Any]) -> int:
        count = 0
        for at in range(0, len(chosen), _AT_ONCE):
            some = chosen[at : at + _AT_ONCE]
            change = Change(at=self._clock.now(), requeued_letters=some)
            done = ThreadTicket()

            def committed(
                change: Change, error: Exception | None, done: ThreadTicket = done
            ) -> None:
                if error is None and self._state.resumed:
                    self._table.deliver_rows(change.resulting_messages)
                done.resolve(error)

            self._state.require_open()
            self._writer.submit(change, committed, waiter=done)
            self._writer.wait_for(done, None, some)
            count += len(change.resulting_messages)
        return count


def _decoded(body: bytes) -> Any:
    """Return the message, or its bytes if it is one that cannot be decoded."""
    try:
        return bodies.decode(body)
    except ValueError:
        return body
