"""Messages as bytes: plain data only, so that they can be read by anything, at any time."""

from __future__ import annotations

from typing import Any

import msgspec

from actorflow.engine.errors import NotStorable

__all__ = ["decode", "encode"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


def encode(value: Any) -> bytes:
    """Make bytes of plain data.

    Raises:
        NotStorable: there is something in it that is not plain data.

    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = (
            f"{value!r:.200} cannot be stored: {error}; use plain data: None, bool, int, float, "
            "str, bytes, lists and dicts of these"
        )
        raise NotStorable(msg) from None


def decode(data: bytes) -> Any:
    """Make the data of what `encode` has made. Tuples come back as lists."""
    return _decoder.decode(data)
