"""The errors of the engine."""

from __future__ import annotations

from typing import Any

from actorflow.runtime.errors import ActorflowError, BadOption, text_of

__all__ = [
    "BadId",
    "Cancelled",
    "CodeElsewhere",
    "EngineClosed",
    "ExecutionActive",
    "ExecutionCancelled",
    "ExecutionEnded",
    "ExecutionExists",
    "ExecutionFailed",
    "KindMismatch",
    "NoStore",
    "NotStorable",
    "OutcomeUnknown",
    "ProcessEnded",
    "StateUnreadable",
    "StoreBroken",
    "StoreBusy",
    "StoreConflict",
    "StoreFull",
    "StoreMoved",
    "StoreRefused",
    "TaskCrashed",
    "TaskFailed",
    "TaskTimeout",
    "TaskWithdrawn",
    "UnknownExecution",
    "UnknownKind",
    "UnknownLetter",
    "WaitTimeout",
]


class StoreBusy(ActorflowError):
    """Another process has the store open for writing."""


class StoreBroken(ActorflowError):
    """The store cannot be trusted: torn, not ours, or of a newer version. Nothing was changed."""


class NoStore(StoreBroken):
    """There is no store of that name, and it was opened for reading only."""


class StoreRefused(ActorflowError):
    """The store could not take it now: it is not stored, and never will be. Try again later."""


class StoreMoved(ActorflowError):
    """The database of a store is a copy, or was moved: nothing runs until somebody says which.

    See `actorflow cluster adopt`.
    """


class StoreConflict(ActorflowError):
    """A change can never be committed, because of the id that the message names."""


class StoreFull(StoreRefused):
    """There is no room on the disk: it is not stored, and never will be. Make room."""


class OutcomeUnknown(ActorflowError):
    """Nobody can say yet whether it is stored. `engine.outcome(id)` answers later.

    Repeating a message may store it twice, unless it has a key: of messages with the same key only
    the first counts.
    """

    def __init__(self, message: str, id: str = "") -> None:  # noqa: A002 - what it is
        super().__init__(message)
        self.id = id


class NotStorable(ActorflowError, TypeError):
    """A message or state cannot be stored: only plain data (JSON-like values) can."""


class EngineClosed(ActorflowError):
    """The engine has been closed."""


class Cancelled(BaseException):
    """Raised in a workflow that is cancelled, at the step where a method waits.

    Not an `Exception`, so that `except Exception` lets it pass. `except af.Cancelled` and `finally`
    may execute more steps, such as refunds, within the `cancel_timeout` of the class.
    """


class ExecutionCancelled(ActorflowError, Cancelled):
    """The execution was cancelled, so it has no result. For callers of `result`."""


class ExecutionEnded(ActorflowError):
    """The execution has ended, so what arrived after was not processed."""


class ExecutionActive(BadOption):
    """The execution cannot be deleted, because it or one of its children has not ended."""


class ExecutionExists(ActorflowError):
    """There is an execution of that id already, and `on_conflict="refuse"` was given."""


class ExecutionFailed(ActorflowError):
    """The execution is stuck, and has no result until it is repaired or retried; or it has failed.

    `failure` says why. If it has failed, `ended` is true, and `data` is what its code has said.
    """

    def __init__(
        self, message: str, failure: Any = None, *, ended: bool = False, data: Any = None
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.ended = ended
        self.data = data


class BadId(ActorflowError, ValueError, TypeError):
    """An id cannot be stored: it is not text, empty, too long, or not printable."""


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


class NoAnswer(ActorflowError):
    """A message was processed, and its job gave no answer."""


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


class BadResult(ActorflowError, TypeError):
    """The result of a task is not of the type that its function declares."""


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
