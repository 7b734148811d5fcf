"""Maintenance of a store: the retention of ended executions, purges and backups."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from threading import Event
from typing import TYPE_CHECKING

from actorflow.behaviours.arguments import number
from actorflow.engine.errors import ExecutionActive, WaitTimeout
from actorflow.engine.ids import check_id
from actorflow.engine.kind import ENDED
from actorflow.runtime.errors import BadOption
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Store

__all__ = ["Retention", "Upkeep"]

_PURGED = 500  # executions deleted in one pass
_PURGE_EVERY = 3_600.0  # seconds between two passes
_TRY_EVERY = 0.01  # seconds between two attempts to delete an execution
_TRIES = 3_000


class Retention:
    """Deletes executions that ended long ago, with all their data, in bounded passes.

    Args:
        store: to purge.
        clock: says how old an execution is.
        writer: in whose thread it is purged.
        state: of the engine.
        seconds: how long ended executions are kept; `None`: until a call of `purge`.
        keys_for: seconds that idempotency keys are kept, however much is purged.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        seconds: float | None,
        keys_for: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._state = state
        self._seconds = seconds
        self._keys_for = keys_for

    def begin(self) -> None:
        """Delete ended executions of sufficient age, now and once an hour. Thread-safe."""
        if self._seconds is not None:
            self._writer.call(partial(self._purge_old, self._seconds))

    def purge(self, before: float) -> int:
        """Delete executions that ended before a moment, in passes; return how many."""
        count = 0
        while True:
            gone: int = self._writer.call_and_wait(lambda: self._purge_pass(before))
            count += gone
            if gone < _PURGED:
                return count

    def delete(self, executions: Sequence[str], evict: Callable[[Sequence[str]], bool]) -> int:
        """Delete executions that have ended, with their keys; return how many.

        `evict` removes them from memory, in the writer's thread, and returns whether all are idle.

        Raises:
            WaitTimeout: one of them is busy for too long.

        """

        def delete() -> int | None:
            if not evict(executions):
                return None
            return self._store.purge(before=inf, keys_before=-inf, only=executions)

        pause = Event()
        for _ in range(_TRIES):
            count: int | None = self._writer.call_and_wait(delete)
            if count is not None:
                return count
            pause.wait(_TRY_EVERY)  # it is about to stop
        msg = (
            f"{executions[0]!r:.80} has ended, and is still busy with its last messages: try again"
        )
        raise WaitTimeout(msg)

    def _purge_pass(self, before: float) -> int:
        keys_before = min(before, self._clock.now() - self._keys_for)
        return self._store.purge(before=before, keys_before=keys_before, limit=_PURGED)

    def _purge_old(self, seconds: float) -> None:
        """Delete executions that ended `seconds` ago or earlier. In the writer's thread."""
        if self._state.closed:
            return
        now = self._clock.now()
        try:
            gone = self._purge_pass(now - seconds)
        except Exception as error:  # noqa: BLE001 - it is tried again
            outage_of(self._store).failed(error, "purge failed; trying again")
            gone = 0
        if gone == _PURGED:  # others have their turn first
            self.begin()
        else:
            self._clock.call_at(now + _PURGE_EVERY, self.begin)


class Upkeep:
    """Purges and backups of one engine's store, for users: `engine.upkeep`. Thread-safe."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        state: EngineState,
        evict: Callable[[Sequence[str]], bool],
    ) -> None:
        self._store = store
        self._evict = evict
        self._state = state
        self._retention = retention

    def purge(self, *, before: float) -> int:
        """Delete executions that ended before a moment, with their history; return how many.

        Raises:
            BadOption: `before` is not a point in time, as `time.time()` returns it.

        """
        number(before, "before", "before=time.time() - 86_400", error=BadOption)
        return self._retention.purge(before)

    async def apurge(self, *, before: float) -> int:
        """Like `purge`, from a task of any event loop."""
        return await asyncio.to_thread(self.purge, before=before)

    def delete(self, execution: str) -> bool:
        """Delete an execution that has ended, with its children and all that is stored of them.

        After that, its id and the keys of its messages can be used again. Return whether it was
        there.

        Raises:
            ExecutionActive: it has not ended, or one of its children has not.
            WaitTimeout: its last messages are not processed in time.

        """
        self._state.require_open()
        if self._store.execution(check_id(execution, "an execution")) is None:
            return False
        family = self.family(execution)
        for each, row in self._store.executions(family).items():
            if row.status not in ENDED:
                what = f"execution {each!r}"
                if each != execution:
                    what += f", which {execution!r} has started,"
                msg = f"{what} has not ended ({row.status}): cancel or kill it first"
                raise ExecutionActive(msg)
        return self._retention.delete(family, self._evict) > 0

    def family(self, execution: str) -> list[str]:
        """Return the id of an execution, then those of its children, and of theirs."""
        found = [execution]
        for each in found:  # grows meanwhile
            after = None
            while True:
                page = self._store.listing(parent=each, after=after)
                found += [child.id for child in page.rows]
                after = page.after
                if after is None:
                    break
        return found

    async def adelete(self, execution: str) -> bool:
        """Like `delete`, from a task of any event loop."""
        return await asyncio.to_thread(self.delete, execution)

    def backup(self, path: str | Path) -> None:
        """Copy the store to a new file while the engine runs."""
        self._state.require_own_process()
        store = self._store
        if not store.traits.backup:
            msg = f"{type(store).__name__} has no backup; export it instead"
            raise BadOption(msg)
        store.backup(path)  # type: ignore[attr-defined] # its trait says so

    async def abackup(self, path: str | Path) -> None:
        """Like `backup`, from a task of any event loop."""
        await asyncio.to_thread(self.backup, path)
