"""What can go wrong while a flow is executed.

These errors never leave a run: the executor turns each of them into a ``failed`` message, which an
``on_error`` handler may catch by class name or text, or which marks the node as failed until
someone repairs it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

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


class MessageRefused(FlowError):
    """A message without effect: a task given back twice, an answer from a node that is gone."""


ERROR_NAMES: Final = frozenset(
    each.__name__
    for each in (
        FlowError,
        UnknownWord,
        NotFound,
        UnknownProcedure,
        UnknownTasker,
        BadPayload,
        MessageRefused,
    )
)
"""The classes of the flow's own errors, as ``failed`` messages name them."""


def check_payload(payload: Any) -> dict[str, Any]:
    """Return ``payload`` when it is a JSON object.

    Raises BadPayload, which names what is wrong, when it is not.
    """
    if type(payload) is not dict:
        raise BadPayload(f"a payload is a JSON object, not {type(payload).__name__}: {payload!r}")
    try:
        checked = msgspec.json.decode(msgspec.json.encode(payload), type=dict[str, Any])
        msgspec.msgpack.encode(checked)  # refuses whole numbers that cannot be stored
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadPayload(f"the payload is not JSON: {error}") from error
    return checked


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
