"""Which actor is running: how a call finds out that it would wait for the actor that makes it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.runtime.actor.lifespan import Lifespan

__all__ = ["CURRENT"]

CURRENT: ContextVar[Lifespan | None] = ContextVar("actorflow_current", default=None)
"""The lifespan of the actor whose code is running in this thread or task."""
