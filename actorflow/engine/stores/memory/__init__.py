"""The store in memory."""

from __future__ import annotations

from actorflow.engine.stores.memory.store import MemoryStore, from_url

__all__ = ["MemoryStore", "from_url"]
