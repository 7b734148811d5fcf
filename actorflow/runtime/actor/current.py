"""Which actor is running: how a call finds out that it would wait for the actor that makes it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["CURRENT"]

CURRENT: ContextVar[Any] = ContextVar("actorflow_current", default=None)
"""Whose code runs in this thread or task: the lifespan of an actor, or the seat of a worker."""
