"""Dead letters: messages that could not be processed, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine import bodies
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import DeadRow

__all__ = ["Letter", "Letters"]


class Letter(NamedTuple):
    """A message that could not be processed, and why."""

    id: int
    execution: str
    message: Any
    error: str
    at: float


class Letters:
    """The dead letters of an engine, or of one execution. Safe in any thread."""

    def __init__(self, engine: Engine, execution: str | None = None) -> None:
        self._engine = engine
        self._execution = execution

    def _rows(self, chosen: tuple[Letter, ...]) -> list[DeadRow]:
        wanted = {letter.id for letter in chosen}
        rows = self._engine.store.rows("dead", self._execution)
        return [row for row in rows if not chosen or row.id in wanted]

    def __iter__(self) -> Iterator[Letter]:
        for row in self._rows(()):
            yield Letter(row.id, row.execution, bodies.decode(row.body), row.error, row.at)

    def __len__(self) -> int:
        return len(self._rows(()))

    def retry(self, *letters: Letter) -> int:
        """Send these again, or all if none is named; tell how many. What fails comes back.

        One commit takes them from the dead letters and makes messages of them.
        """
        return self._move(self._rows(letters), again=True)

    def purge(self, *letters: Letter) -> int:
        """Throw these away, or all if none is named; tell how many."""
        return self._move(self._rows(letters), again=False)

    def _move(self, rows: list[DeadRow], *, again: bool) -> int:
        if not rows:
            return 0
        engine = self._engine
        change = Change(
            "",
            at=float(engine.clock.now()),
            buried=[row.id for row in rows],
            messages=[(row.execution, row.body) for row in rows] if again else (),
        )
        done = ThreadTicket()

        def committed(change: Change, error: Exception | None) -> None:
            if error is None:
                engine.host.deliver_rows(change.rows)
            done.resolve(error)

        engine.submit(change, committed)
        engine.await_ticket(done, None, rows)
        return len(rows)
