"""Errors on their way through HTTP: each is a status and a body that names it."""

from __future__ import annotations

from typing import Any

from actorflow.behaviours.errors import kind_of
from actorflow.engine import errors as engine_errors
from actorflow.engine.errors import (
    EngineClosed,
    ExecutionActive,
    ExecutionEnded,
    ExecutionFailed,
    KindMismatch,
    NoStore,
    OutcomeUnknown,
    StoreBusy,
    StoreConflict,
    StoreRefused,
    UnknownExecution,
    UnknownKind,
    UnknownLetter,
    WaitTimeout,
)
from actorflow.flows import errors as flow_errors
from actorflow.runtime import errors as runtime_errors
from actorflow.runtime.errors import ActorflowError, BadOption, text_of
from actorflow.workflows import errors as workflow_errors

__all__ = [
    "NOT_FOUND",
    "REFUSED",
    "REPORTED",
    "BadParameters",
    "ControlError",
    "ControlUnreachable",
    "body_of",
    "error_from",
    "status_of",
]

REPORTED = (ActorflowError, ValueError, TypeError, OverflowError)
"""Errors caused by the request; the last three mean ids and numbers that cannot be stored."""

_STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (UnknownExecution, 404),
    (UnknownKind, 404),
    (KindMismatch, 409),
    (ExecutionActive, 409),
    (ExecutionEnded, 409),
    (ExecutionFailed, 409),
    (StoreBusy, 409),
    (StoreConflict, 409),
    (flow_errors.FlowMessageRefused, 409),
    (workflow_errors.OutOfTurn, 409),
    (workflow_errors.JobGone, 410),
    (WaitTimeout, 408),
    (EngineClosed, 503),
    (OutcomeUnknown, 504),
    (StoreRefused, 503),
    *((each, 422) for each in REPORTED),
)
_MODULES = (engine_errors, runtime_errors, flow_errors, workflow_errors)


NOT_FOUND = (UnknownExecution, UnknownKind, UnknownLetter, NoStore)
"""Errors that say that something does not exist; exit code 3."""
REFUSED = (
    KindMismatch,
    ExecutionActive,
    ExecutionEnded,
    StoreBusy,
    StoreConflict,
    StoreRefused,
    EngineClosed,
    flow_errors.FlowMessageRefused,
    workflow_errors.MessageRefused,
    workflow_errors.OutOfTurn,
    runtime_errors.Rejected,
)
"""Errors that say that something exists and does not accept this now; exit code 4."""


class BadParameters(BadOption):
    """The parameters of a verb do not have their types."""


class ControlError(ActorflowError):
    """A live engine refused a request for a reason that has no class here."""

    def __init__(self, text: str, status: int = 500) -> None:
        super().__init__(text)
        self.status = status


class ControlUnreachable(ActorflowError):
    """There is no live engine at that address."""


def status_of(error: BaseException) -> int:
    """Return the HTTP status that an error becomes.

    >>> status_of(UnknownExecution("there is no execution 'a'")), status_of(KeyError("a"))
    (404, 500)
    """
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def body_of(error: BaseException) -> dict[str, Any]:
    """Return the body of an answer that reports an error."""
    return {"error": kind_of(error), "message": text_of(error)}


def error_from(status: int, body: Any) -> ActorflowError:
    """Return the error that an answer reports, as the class that it names.

    >>> error_from(404, {"error": "UnknownExecution", "message": "there is no execution 'a'"})
    UnknownExecution("there is no execution 'a'")
    """
    if not isinstance(body, dict) or "error" not in body:
        return ControlError(f"the engine answered {status}: {body!r:.200}", status)
    name, message = str(body["error"]), str(body.get("message", ""))
    if name == BadParameters.__name__:
        return BadParameters(message)
    for module in _MODULES:
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, ActorflowError):
            try:
                return found(message)
            except TypeError:  # it needs more arguments
                break
    return ControlError(f"{name}: {message}", status)
