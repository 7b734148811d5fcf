"""What keeps a store in order: forgetting what ended long ago, copying what is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from actorflow.runtime.errors import BadOption
from behaviours.arguments import number

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.engine.core import Core

__all__ = ["Upkeep"]


class Upkeep:
    """The upkeep of one engine's store. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def purge(self, *, before: float) -> int:
        """Forget executions that ended before a moment, with their history; return how many.

        Raises:
            BadOption: `before` is not a point in time, as `time.time()` returns it.

        """
        number(before, "before", "before=time.time() - 86_400", error=BadOption)
        return self._core.retention.purge(before)

    async def apurge(self, *, before: float) -> int:
        """Like `purge`, from a task of any event loop."""
        return await asyncio.to_thread(self.purge, before=before)

    def backup(self, path: str | Path) -> None:
        """Copy the store to a new file while the engine runs."""
        store = self._core.store
        if not store.traits.backup:
            msg = f"{type(store).__name__} has no backup; export it instead"
            raise BadOption(msg)
        store.backup(path)  # type: ignore[attr-defined] # its trait says so

    async def abackup(self, path: str | Path) -> None:
        """Like `backup`, from a task of any event loop."""
        await asyncio.to_thread(self.backup, path)
