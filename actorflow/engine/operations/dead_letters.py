"""Dead letters: messages that could not be processed, kept in the store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine import bodies
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.errors import BadOption
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import DeadRow

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

    def __init__(self, core: Core, execution: str | None = None) -> None:
        self._core = core
        self._execution = execution

    def _rows(self) -> Iterator[DeadRow]:
        cursor = None
        while True:
            page = self._core.store.dead(execution=self._execution, after=cursor)
            yield from page.rows
            cursor = page.after
            if cursor is None:
                return

    def __iter__(self) -> Iterator[Letter]:
        for row in self._rows():
            yield Letter(
                row.id, row.execution, bodies.decode(row.body), row.error, row.at, row.type
            )

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def retry(self, *letters: Letter) -> int:
        """Send these again, or all if none is named; return how many. What fails comes back.

        One commit takes them from the dead letters and makes messages of them, so that nobody
        else can send them, too. They run after that: until then, an execution that has failed for
        want of one is still `failed`, also for `wait`.
        """
        return self._revive(self._chosen(letters))

    async def aretry(self, *letters: Letter) -> int:
        """Like `retry`, from a task of any event loop."""
        return await asyncio.to_thread(self.retry, *letters)

    def purge(self, *letters: Letter) -> int:
        """Throw these away, or all if none is named; return how many were still there."""
        chosen = self._chosen(letters)
        count = 0
        for at in range(0, len(chosen), _AT_ONCE):
            count += self._core.in_writer(partial(self._bury, chosen[at : at + _AT_ONCE]))
        return count

    def _bury(self, letters: list[Any]) -> int:
        """Throw some away. In the writer's thread, where nobody else does so meanwhile."""
        core = self._core
        there = [each for each in letters if core.store.dead_letter(each) is not None]
        if there:
            error = core.writer.commit([Change(at=core.clock.now(), buried=there)])
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

    def _revive(self, chosen: list[Any]) -> int:
        core = self._core
        count = 0
        for at in range(0, len(chosen), _AT_ONCE):
            some = chosen[at : at + _AT_ONCE]
            change = Change(at=core.clock.now(), revived=some)
            done = ThreadTicket()

            def committed(
                change: Change, error: Exception | None, done: ThreadTicket = done
            ) -> None:
                if error is None and core.resumed:
                    core.host.deliver_rows(change.extra)
                done.resolve(error)

            core.refuse_if_closed()
            core.writer.submit(change, committed, waiter=done)
            core.wait_for(done, None, some)
            count += len(change.extra)
        return count
