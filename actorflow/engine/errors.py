"""The errors of the engine."""

from __future__ import annotations

from typing import Any

from actorflow.runtime.errors import ActorflowError
from behaviours.errors import brief

__all__ = [
    "Cancelled",
    "CodeElsewhere",
    "EngineClosed",
    "ExecutionEnded",
    "ExecutionFailed",
    "KindMismatch",
    "NotStorable",
    "ProcessEnded",
    "StateUnreadable",
    "StoreBroken",
    "StoreBusy",
    "StoreConflict",
    "StoreFull",
    "StoreRefused",
    "TaskCrashed",
    "TaskFailed",
    "TaskTimeout",
    "TaskWithdrawn",
    "UnknownExecution",
    "UnknownKind",
    "UnknownLetter",
    "WaitTimeout",
    "text_of",
]


def text_of(error: BaseException) -> str:
    """Return the text of an error of the user's, even if its `str` raises."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the error counts, whatever it looks like
        text = brief(error)
    # A lone surrogate can be written nowhere.
    return text.encode("utf-8", "backslashreplace").decode()


class StoreBusy(ActorflowError):
    """Another process has the store open for writing."""


class StoreBroken(ActorflowError):
    """The store cannot be trusted: torn, not ours, or of a newer version. Nothing was changed."""


class StoreRefused(ActorflowError):
    """The store could not take it now; unless the message says so, nothing is stored. Try later."""


class StoreConflict(ActorflowError):
    """A change can never be committed, because of the id that the message names."""


class StoreFull(StoreRefused):
    """There is no room on the disk: what was not acknowledged is not stored. Make room."""


class NotStorable(ActorflowError, TypeError):
    """A message or state cannot be stored: only plain data (JSON-like values) can."""


class EngineClosed(ActorflowError):
    """The engine has been closed."""


class Cancelled(ActorflowError):
    """The execution was cancelled, so it has no result."""


class ExecutionEnded(ActorflowError):
    """The execution has ended, so what arrived after was not processed."""


class ExecutionFailed(ActorflowError):
    """The execution has failed: it has no result until somebody repairs it.

    `failure` says why.
    """

    def __init__(self, message: str, failure: Any = None) -> None:
        super().__init__(message)
        self.failure = failure


class KindMismatch(ActorflowError, ValueError):
    """There is an execution of that id, and it is of another kind. Nothing was changed."""


class StateUnreadable(ActorflowError, ValueError):
    """The state of an execution cannot be decoded: other code wrote it, or it is damaged.

    `data` are its bytes.
    """

    def __init__(self, execution: str, kind: str, data: bytes | None, error: BaseException) -> None:
        self.execution = execution
        self.data = data
        super().__init__(
            f"the state of execution {execution!r} cannot be read as one of kind {kind!r} "
            f"({type(error).__name__}: {text_of(error)}): deploy the code that wrote it, or give "
            "its kind a version and an upgrade()"
        )


class TaskFailed(ActorflowError):
    """A tasker elsewhere said that it could not do a task.

    `failure` is what it said, if it said more than a text.
    """

    def __init__(self, message: str = "", failure: Any = None) -> None:
        super().__init__(message)
        self.failure = failure


class ProcessEnded(ActorflowError):
    """A message was given up: each time that it was processed, the process ended."""


class TaskCrashed(ActorflowError):
    """Whatever ran a task has died: its process, or the engine several times."""


class TaskTimeout(ActorflowError, TimeoutError):
    """A tasker gave no answer and no heartbeat in time: the attempt has failed."""


class TaskWithdrawn(ActorflowError):
    """A task was taken back before it had begun (`Outcome.withdrawn_tasks`)."""


class UnknownExecution(ActorflowError, KeyError):
    """There is no execution of that id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown execution"


class UnknownLetter(ActorflowError):
    """There is no dead letter of that id."""


class UnknownKind(ActorflowError, KeyError):
    """The store holds an execution of a kind that this engine does not know: register it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown kind"


class CodeElsewhere(UnknownKind):
    """Another worker of the cluster has the code of an execution; here its messages wait.

    Raised by the `run` of a kind. The next owner of the execution's partition looks again.
    """


class WaitTimeout(ActorflowError, TimeoutError):
    """The execution did not get there in time. It goes on."""
