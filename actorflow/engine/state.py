"""Where an engine stands: what every part of it has to know before it begins something new."""

from __future__ import annotations

import os

from actorflow.engine.errors import EngineClosed

__all__ = ["EngineState"]


class EngineState:
    """Whether an engine runs, only stores, has been closed, or belongs to another process."""

    __slots__ = ("_why_closed", "abandoned", "closed", "passive", "resumed")

    def __init__(self) -> None:
        self.resumed = False
        """Whether stored work runs. It does not before the first call that needs it."""
        self.passive = False
        """Store messages and run nothing: for tools that use a store without being its engine."""
        self.closed = False
        self.abandoned = False
        """Whether this is a copy in the child of a fork."""
        self._why_closed = "the engine has been closed"

    def abandon(self) -> EngineClosed:
        """Refuse every use from now on, and return the error that says why.

        For the child of a fork: the store and the locks belong to the parent.
        """
        self._why_closed = (
            f"this engine was opened before a fork and belongs to process {os.getppid()}: "
            "open another one in this process"
        )
        self.closed = self.abandoned = True
        return EngineClosed(self._why_closed)

    def require_open(self) -> None:
        """Raise `EngineClosed` if the engine has been closed."""
        if self.closed:
            raise EngineClosed(self._why_closed)

    def require_own_process(self) -> None:
        """Raise `EngineClosed` in the child of a fork, where no thread will release the locks."""
        if self.abandoned:
            raise EngineClosed(self._why_closed)
