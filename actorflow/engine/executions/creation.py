"""The wait of a creator for the commit that creates its execution.

Problem
    An execution whose first run is quick is created by the commit of that run: one commit instead
    of two. But nobody knows beforehand that the run is quick. If it blocks, its creator would wait
    for all of it, and the execution would be lost if the process ends meanwhile.

Approach
    The creator waits at most `PATIENCE` for the first run. Then the execution is stored with its
    first message, as any other, and the creator continues. The commit of the run finds that the
    execution exists; its outcome is discarded, and the stored message begins it once more.

Invariants
    1. The creator learns of success as soon as one of the two commits succeeds.
    2. It learns of an error only when neither commit can succeed any more.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine.errors import EngineClosed, OutcomeUnknown, StoreRefused
from actorflow.engine.executions.outcomes import AlreadyThere

if TYPE_CHECKING:
    from actorflow.engine.executions.loaded import LoadedExecution

__all__ = ["PATIENCE", "CreationTicket"]

PATIENCE = 0.2
"""Seconds that a creator waits for the first run of its execution."""

_REFUSALS = (StoreRefused, OutcomeUnknown, EngineClosed)


class Creator(Protocol):
    """Stores executions for their creators: the sender."""

    def store_apart(self, created: CreationTicket) -> None:
        """Store an execution whose first run is still under way. Thread-safe."""

    def resolve_existing(self, execution: str, kind: str, done: Any) -> None:
        """Resolve the ticket of a creator who found an execution of that id."""


class CreationTicket:
    """Passes the first commit of an execution on to its creator. Thread-safe."""

    __slots__ = ("_commits", "_creator", "_error", "_lock", "body", "done", "live")

    def __init__(self, creator: Creator, live: LoadedExecution, body: bytes, done: Any) -> None:
        self._creator = creator
        self.live = live
        self.body = body
        """The message that begins the execution, encoded."""
        self.done = done
        """The ticket of the creator. What it is resolved with first counts."""
        self._lock = allocate_lock()
        self._commits = 1  # that may still create it
        self._error: BaseException | None = None

    def store_apart(self) -> None:
        """Store the execution by another commit, unless the one of its run is settled."""
        with self._lock:
            if not self._commits:
                return
            self._commits += 1
        self._creator.store_apart(self)

    def settle(self) -> None:
        """Let no other commit begin to create it."""
        with self._lock:
            self._commits = 0

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass it on. An error of the run is the execution's: it is stuck, but it exists."""
        if isinstance(error, _REFUSALS):
            self.refuse(error)
            return
        self.settle()
        if isinstance(error, AlreadyThere):
            self._creator.resolve_existing(self.live.id, self.live.kind.name, self.done)
        else:
            self.done.resolve(answer=True)

    def refuse(self, error: BaseException) -> None:
        """Pass on that a commit has failed, unless another one may still create it."""
        with self._lock:
            if self._error is None or isinstance(error, OutcomeUnknown):
                self._error = error
            self._commits -= 1
            if self._commits > 0:
                return
        self.done.resolve(self._error)
