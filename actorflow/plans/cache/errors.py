"""The errors of the cache."""

from __future__ import annotations

from actorflow.runtime.errors import ActorflowError

__all__ = ["BadCache"]


class BadCache(ActorflowError):
    """A folder cannot be used as a cache: it holds something else, or its index is damaged."""
