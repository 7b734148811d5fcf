"""The check of payloads that users pass to flows: a JSON object, not too large and not too deep."""

from __future__ import annotations

from typing import Any

import msgspec

from actorflow.flows.errors import BadPayload, not_an_object
from actorflow.flows.limits import LIMITS

__all__ = ["check_payload", "pack_payload"]

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
