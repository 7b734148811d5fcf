"""Errors on their way through HTTP: each is a status and a body that names it."""

from __future__ import annotations

from typing import Any

from actorflow.engine import errors as engine_errors
from actorflow.engine.errors import (
    EngineClosed,
    ExecutionEnded,
    ExecutionFailed,
    KindMismatch,
    StoreBusy,
    StoreConflict,
    StoreRefused,
    UnknownExecution,
    UnknownKind,
    WaitTimeout,
)
from actorflow.flows import errors as flow_errors
from actorflow.runtime import errors as runtime_errors
from actorflow.runtime.errors import ActorflowError
from actorflow.workflows import errors as workflow_errors

__all__ = [
    "REPORTED",
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
    (ExecutionEnded, 409),
    (ExecutionFailed, 409),
    (StoreBusy, 409),
    (StoreConflict, 409),
    (flow_errors.MessageRefused, 409),
    (workflow_errors.OutOfTurn, 409),
    (workflow_errors.JobGone, 410),
    (WaitTimeout, 408),
    (EngineClosed, 503),
    (StoreRefused, 503),
    *((each, 422) for each in REPORTED),
)
_MODULES = (engine_errors, runtime_errors, flow_errors, workflow_errors)


class ControlError(ActorflowError):
    """A live engine refused a request for a reason that has no class here."""


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
    return {"error": type(error).__name__, "message": str(error)}


def error_from(status: int, body: Any) -> ActorflowError:
    """Return the error that an answer reports, as the class that it names.

    >>> error_from(404, {"error": "UnknownExecution", "message": "there is no execution 'a'"})
    UnknownExecution("there is no execution 'a'")
    """
    if not isinstance(body, dict) or "error" not in body:
        return ControlError(f"the engine answered {status}: {body!r:.200}")
    name, message = str(body["error"]), str(body.get("message", ""))
    for module in _MODULES:
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, ActorflowError):
            try:
                return found(message)
            except TypeError:  # it wants to be told more
                break
    return ControlError(f"{name}: {message}")
