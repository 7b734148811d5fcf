"""The store of an engine that was copied into the child of a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import EngineClosed

if TYPE_CHECKING:
    from actorflow.engine.stores.protocol import Store

__all__ = ["AbandonedStore"]


class AbandonedStore:
    """Stands in for a store that belongs to the parent of a fork: each use raises."""

    def __init__(self, store: Store, why: str) -> None:
        self._store = store  # kept, because to close it is up to the parent
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise EngineClosed(self._why)
