"""The store in memory."""

from __future__ import annotations

from typing import Any

from actorflow.engine.stores.memory.store import MemoryStore

__all__ = ["MemoryStore", "from_url"]


def from_url(url: str, *, name: str | None = None, **_options: Any) -> MemoryStore:
    """Open the store that `memory://name` names; `memory://` alone is a new one each time."""
    if url.split("://", 1)[1] == "":
        return MemoryStore()
    from actorflow.engine.stores.memory.shared import (  # noqa: PLC0415 - only where it is used
        open_shared,
    )

    return open_shared(url, name=name)
