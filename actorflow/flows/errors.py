"""What can go wrong while a flow is executed.

These errors never leave a run: the executor turns each of them into a ``failed`` message, which an
``on_error`` handler may catch by class name or text, or which marks the node as failed until
someone repairs it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actorflow.flows.limits import LIMITS
from actorflow.runtime.errors import ActorflowError


class FlowError(ActorflowError):
    """An error that the flow itself, or a procedure of it, is the cause of."""


class UnknownWord(FlowError):
    """A word that is neither a variable, a procedure, a domain variable nor a tasker."""


class NotFound(FlowError):
    """A path that leads to nothing, where something has to be."""


class UnknownProcedure(FlowError):
    """A head with arguments that names nothing that can be applied."""


class UnknownTasker(FlowError):
    """A task for somebody who is not known in the domain of the execution."""


class BadPayload(FlowError):
    """A payload that is not a JSON object."""


class LimitExceeded(FlowError):
    """More than a limit allows was asked for; its text names the limit."""


class MessageRefused(FlowError):
    """A message without effect: a task given back twice, an answer from a node that is gone."""


def check_payload(payload: Any) -> dict[str, Any]:
    """Return ``payload`` when it is a JSON object.

    Raises BadPayload, which names what is wrong, when it is not, or is larger than
    `LIMITS.payload` or deeper than `LIMITS.depth`.
    """
    if type(payload) is not dict:
        raise BadPayload(
            f"a payload is a JSON object, not {type(payload).__name__}: {payload!r:.100}"
        )
    try:
        data = msgspec.json.encode(payload)
        if len(data) > LIMITS.payload:
            raise BadPayload(
                f"the payload has {len(data):,} bytes, and may have {LIMITS.payload:,}: keep large"
                " data elsewhere and send its address"
            )
        checked = msgspec.json.decode(data, type=dict[str, Any])
        msgspec.msgpack.encode(checked)  # refuses whole numbers that cannot be stored
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadPayload(f"the payload is not JSON: {error}") from error
    if data.count(b"[") + data.count(b"{") > LIMITS.depth:
        _check_depth(checked)
    return checked


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
    """Return kla and msg for a ``failed`` message; the flow's own errors have prc and lin, too."""
    described: dict[str, Any] = {"kla": type(error).__name__, "msg": str(error)}
    if isinstance(error, UnknownTasker) or not isinstance(error, FlowError):
        return described
    if procedure is not None:
        described["prc"] = procedure
    if line is not None:
        described["lin"] = line
    return described
