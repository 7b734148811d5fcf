"""The errors of flows.

Inside a run they become ``failed`` messages, which an ``on_error`` handler may catch by class name
or text; unhandled, the node stays failed until somebody repairs it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from actorflow.behaviours.errors import kind_of
from actorflow.flows.limits import LIMITS
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
    "check_payload",
    "error_dict",
    "not_an_object",
    "pack_payload",
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


_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(dict[str, Any]).decode
_to_bytes = msgspec.msgpack.Encoder().encode


def check_payload(payload: Any) -> dict[str, Any]:
    """Return ``payload`` if it is a JSON object.

    Raises BadPayload otherwise, and if it is larger than `LIMITS.payload` or nested deeper than
    `LIMITS.depth`.
    """
    return _checked(payload)[0]


def pack_payload(payload: Any) -> msgspec.Raw:
    """Return ``payload`` as it is stored. Raises BadPayload as `check_payload` does."""
    return msgspec.Raw(_checked(payload)[1])


def _checked(payload: Any) -> tuple[dict[str, Any], bytes]:
    """Return a payload as plain JSON, and as it is stored."""
    if type(payload) is not dict:
        raise not_an_object(payload)
    try:
        data = _to_json(payload)
        if len(data) > LIMITS.payload:
            raise BadPayload(
                f"the payload has {len(data):,} bytes, and may have {LIMITS.payload:,}: keep large"
                " data elsewhere and send its address"
            )
        checked = _from_json(data)
        stored = _to_bytes(checked)  # raises for integers that cannot be stored
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadPayload(f"the payload is not JSON: {error}") from error
    if data.count(b"[") + data.count(b"{") > LIMITS.depth:
        _check_depth(checked)
    return checked, stored


def _check_depth(payload: dict[str, Any]) -> None:
    """Refuse a payload that is nested too deep. Takes time linear in its size."""
    level: list[Any] = [payload]
    for _ in range(LIMITS.depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise BadPayload(
        f"the arrays and objects of the payload nest deeper than {LIMITS.depth} levels"
    )


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
