"""The errors of the engine."""

from __future__ import annotations

from actorflow.runtime.errors import ActorflowError
from behaviours.errors import brief

__all__ = [
    "Cancelled",
    "EngineClosed",
    "NotStorable",
    "StoreBroken",
    "StoreBusy",
    "StoreConflict",
    "StoreFull",
    "StoreRefused",
    "TaskFailed",
    "TaskTimeout",
    "UnknownExecution",
    "UnknownKind",
    "WaitTimeout",
    "text_of",
]


def text_of(error: BaseException) -> str:
    """Return the text of an error of the user's, even if its `str` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error counts, whatever it looks like
        return brief(error)


class StoreBusy(ActorflowError):
    """Another process has the store open for writing."""


class StoreBroken(ActorflowError):
    """The store cannot be trusted: torn, not ours, or of a newer version. Nothing was changed."""


class StoreRefused(ActorflowError):
    """The store could not take it now; nothing of it is stored. It may work later."""


class StoreConflict(ActorflowError):
    """A change can never be committed, because of the id that the message names."""


class StoreFull(StoreRefused):
    """There is no room on the disk: what was not acknowledged is not stored. Make room."""


class NotStorable(ActorflowError, TypeError):
    """A message or state cannot be stored: only plain data (JSON-like values) can."""


class EngineClosed(ActorflowError):
    """The engine has been closed."""


class Cancelled(ActorflowError):
    """The execution has ended, so what arrived after was not processed."""


class TaskFailed(ActorflowError):
    """A tasker elsewhere said that it could not do a task."""


class TaskTimeout(ActorflowError, TimeoutError):
    """A tasker gave no answer and no heartbeat in time. The task counts as failed."""


class UnknownExecution(ActorflowError, KeyError):
    """There is no execution of that id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown execution"


class UnknownKind(ActorflowError, KeyError):
    """The store holds an execution of a kind that this engine does not know: register it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown kind"


class WaitTimeout(ActorflowError, TimeoutError):
    """The execution did not get there in time. It goes on."""
