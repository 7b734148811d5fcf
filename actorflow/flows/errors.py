"""The errors of flows.

Inside a run they become ``failed`` messages, which an ``on_error`` handler may catch by class name
or text; unhandled, the node stays failed until somebody repairs it.
"""

from __future__ import annotations

from typing import Any, Final

from actorflow.behaviours.errors import kind_of
from actorflow.runtime.errors import ActorflowError, text_of

__all__ = [
    "ERROR_NAMES",
    "BadPayload",
    "FlowError",
    "FlowMessageRefused",
    "LimitExceeded",
    "NotFound",
    "PointMissed",
    "UnknownProcedure",
    "UnknownTasker",
    "UnknownWord",
    "error_dict",
    "not_an_object",
]


class FlowError(ActorflowError):
    """An error caused by the flow itself, or by one of its procedures."""


class UnknownWord(FlowError):
    """A word that names no variable, procedure, domain variable or tasker."""


class NotFound(FlowError):
    """A path that leads nowhere."""


class PointMissed(ActorflowError):
    """The execution has ended before the awaited point was reached."""


class UnknownProcedure(FlowError):
    """A head with arguments that cannot be applied."""


class UnknownTasker(FlowError):
    """A task for a tasker that is not known in the domain of the execution."""


class BadPayload(FlowError):
    """A payload that is not a JSON object."""


class LimitExceeded(FlowError):
    """More than a limit allows was asked for; its text names the limit."""


class FlowMessageRefused(FlowError):
    """A message without effect, such as a task returned twice or an answer from a removed node."""


ERROR_NAMES: Final = frozenset(
    each.__name__
    for each in (
        FlowError,
        UnknownWord,
        NotFound,
        UnknownProcedure,
        UnknownTasker,
        BadPayload,
        FlowMessageRefused,
    )
)
"""The classes of the flow's own errors, as ``failed`` messages name them."""


def not_an_object(payload: Any) -> BadPayload:
    """Return the error for a payload that is not a JSON object."""
    kind = type(payload).__name__
    return BadPayload(f"a payload must be a JSON object, not {kind}: {payload!r:.200}")


def error_dict(error: BaseException, *, procedure: str | None, line: int | None) -> dict[str, Any]:
    """Return kla and msg for a ``failed`` message, and prc and lin for the flow's own errors."""
    described: dict[str, Any] = {"kla": kind_of(error), "msg": text_of(error)}
    if isinstance(error, UnknownTasker) or not isinstance(error, FlowError):
        return described
    if procedure is not None:
        described["prc"] = procedure
    if line is not None:
        described["lin"] = line
    return described
