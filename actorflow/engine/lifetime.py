"""Engines that nobody closes: closed when the interpreter ends, abandoned in a forked child."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.engine.engine import Engine

__all__ = ["OPEN"]

OPEN: set[Engine] = set()
"""The engines that are open. A worker's handle may be all that a user keeps of one."""

_AT_EXIT = 5.0  # seconds for an engine that nobody has closed


def _close_all() -> None:
    for engine in list(OPEN):
        engine.close(_AT_EXIT)


def _abandon_all() -> None:
    """Abandon what belongs to the parent of a fork."""
    for engine in list(OPEN):
        engine.core.abandon()
    OPEN.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
