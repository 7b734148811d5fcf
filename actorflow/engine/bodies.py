"""Messages as bytes: plain data only, so that they can be read by anything, at any time."""

from __future__ import annotations

import json
import math
from collections import deque
from itertools import islice
from typing import Any, NoReturn

import msgspec

from actorflow.engine.errors import NotStorable
from actorflow.runtime import tracing

__all__ = [
    "EXTENSIONS",
    "MAX_BYTES",
    "MAX_DEPTH",
    "decode",
    "encode",
    "from_json",
    "split_context",
    "with_context",
    "with_context_of",
]

MAX_DEPTH = 200
"""How deep lists and dicts of one message may be nested."""
MAX_BYTES = 64 * 1024 * 1024
"""How large one message or state may be."""

_LOOKED_AT = 10_000  # parts of a message that is too large
_FEW, _SHORT = 16, 10_000  # parts of a small message, and the length of each
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
_encoder = msgspec.msgpack.Encoder()
_CARRIED = 2  # code of the extension that holds a context of tracing and a body
_CONTEXT = 25  # bytes of that context
EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
"""The first bytes of extensions."""


def _decode_extension(code: int, data: memoryview) -> Any:
    """Return the body that is stored with a context."""
    if code != _CARRIED:
        return msgspec.msgpack.Ext(code, bytes(data))
    return decode(data[_CONTEXT:])


_decoder = msgspec.msgpack.Decoder(ext_hook=_decode_extension)
_ext_decoder = msgspec.msgpack.Decoder(msgspec.msgpack.Ext)
_REMEDY = "use plain data: None, bool, int, float, str, bytes, and lists and dicts of these"


def encode(value: Any) -> bytes:
    """Return plain data as bytes. `msgspec.Raw` is such data that was encoded already.

    >>> encode({"rows": [1, {2}]})
    Traceback (most recent call last):
    ...
    actorflow.engine.errors.NotStorable: a set at ['rows'][1] cannot be stored: use plain data: ...

    Raises:
        NotStorable: a part of it is not plain data, is nested too deeply, or all is too large; the
            message names the path to that part, and the limit.

    """
    if type(value) is msgspec.Raw:
        data = bytes(value)
        if len(data) > MAX_BYTES:
            _refuse_large(decode(data), len(data))
        return data
    if type(value) not in _PLAIN:
        if type(value) is not dict or not _is_small(value):
            _refuse_strangers(value)
    elif type(value) in (str, bytes):
        _refuse_large(value, len(value))
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        path = _path_to(value, _is_encodable)
        msg = f"{_shown(value, path)} cannot be stored: {error}; {_REMEDY}"
        raise NotStorable(msg) from None
    if len(data) > MAX_BYTES:
        _refuse_large(value, len(data))
    return data


decode = _decoder.decode
"""Return the data that `encode` made bytes of. Tuples come back as lists."""


def with_context(data: bytes) -> bytes:
    """Return a body together with the context of the caller, if spans are made in this process."""
    tracer = tracing.TRACER
    return data if tracer is None else _carrying(tracer.carry(), data)


def with_context_of(other: bytes, data: bytes) -> bytes:
    """Return a body together with the context that another body carries."""
    return _carrying(split_context(other)[0], data)


def split_context(data: bytes) -> tuple[bytes, bytes]:
    """Return the context that a body carries, which may be none, and the body alone."""
    if not data or data[0] not in EXTENSIONS:
        return b"", data
    found = _ext_decoder.decode(data)
    if found.code != _CARRIED:
        return b"", data
    both = bytes(found.data)
    return both[:_CONTEXT], both[_CONTEXT:]


def _carrying(context: bytes, data: bytes) -> bytes:
    if not context:
        return data
    return _encoder.encode(msgspec.msgpack.Ext(_CARRIED, context + data))


def from_json(text: str) -> Any:
    """Return the value of a JSON string, without the numbers that Python adds to JSON.

    >>> from_json("1e999")
    Traceback (most recent call last):
    ...
    ValueError: 1e999 is not a JSON number

    Raises:
        ValueError: it is not JSON, or has `NaN`, `Infinity` or a number that no float can hold.

    """
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    msg = f"{text:.40} is not a JSON number"
    raise ValueError(msg)


def _is_small(value: dict[Any, Any]) -> bool:
    """Return whether a dict is like most messages: of a few short parts, which are all plain."""
    if len(value) > _FEW:
        return False
    for key, part in value.items():
        kind = type(part)
        if type(key) is not str or kind not in _PLAIN:
            return False
        if (kind is str or kind is bytes) and len(part) > _SHORT:
            return False
    return True


def _refuse_large(whole: Any, size: int) -> None:
    if size > MAX_BYTES:
        msg = (
            f"{size:,} bytes are too many for one message: at most {MAX_BYTES:,} can be stored; "
            f"the largest part is {_largest(whole)}: store it elsewhere and send a reference"
        )
        raise NotStorable(msg)


def _refuse_strangers(value: Any) -> None:
    """Check every part without recursion; limit depth and size."""
    plain = _PLAIN
    size = 0
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for each in level:
            parts = each.values() if type(each) is dict else each
            if parts is each and type(each) is not list and type(each) is not tuple:
                _refuse(value, each)
            elif parts is not each and not plain.issuperset(map(type, each)):
                _refuse_key(value, each)
            size += len(each)
            for part in parts:
                kind = type(part)
                if kind not in plain:
                    deeper.append(part)
                elif kind is str or kind is bytes:
                    size += len(part)
        if size > MAX_BYTES:
            _refuse_large(value, size)
        if not deeper:
            return
        level = deeper
    msg = (
        f"the part at {_deepest(value)} is nested deeper than {MAX_DEPTH} levels, which cannot be "
        "stored: flatten it, or send it as text"
    )
    raise NotStorable(msg)


def _refuse_key(whole: Any, container: dict[Any, Any]) -> None:
    key = next(key for key in container if type(key) not in _PLAIN)
    path = _path_to(whole, lambda each: each is not container)
    msg = f"the key {key!r:.80} at {path} cannot be stored: {_REMEDY}"
    raise NotStorable(msg)


def _refuse(whole: Any, part: Any) -> None:
    """Raise for a part whose type would come back as another one, or not at all."""
    path = _path_to(whole, lambda each: each is not part)
    name = type(part).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    where = "" if part is whole else f" at {path}"
    msg = f"{article} {name}{where} cannot be stored: {_REMEDY}"
    raise NotStorable(msg)


def _is_encodable(part: Any) -> bool:
    if type(part) in (dict, list, tuple):
        return True
    try:
        _encoder.encode(part)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _path_to(whole: Any, is_fine: Any) -> str:
    """Return the path to the first part that is not fine: `message` where that is all of it."""
    waiting = [(whole, "")]
    while waiting:
        each, path = waiting.pop()
        if not is_fine(each):
            return path or "the message itself"
        if type(each) is dict:
            waiting += [(part, f"{path}[{key!r:.40}]") for key, part in reversed(each.items())]
        elif type(each) in (list, tuple):
            waiting += [(part, f"{path}[{at}]") for at, part in reversed(list(enumerate(each)))]
    return "the message itself"


def _largest(whole: Any) -> str:
    """Return the path to the longest text, bytes, list or dict among the first parts."""
    longest, found = -1, ""
    waiting = deque([(whole, "")])
    for _ in range(_LOOKED_AT):
        if not waiting:
            break
        each, path = waiting.popleft()
        if type(each) in (str, bytes, dict, list, tuple) and len(each) > longest:
            longest, found = len(each), path
        if type(each) is dict:
            some = islice(each.items(), _LOOKED_AT)
            waiting += [(part, f"{path}[{key!r:.40}]") for key, part in some]
        elif type(each) in (list, tuple):
            waiting += [(part, f"{path}[{at}]") for at, part in enumerate(each[:_LOOKED_AT])]
    return f"at {found}" if found else "the message itself"


def _shown(whole: Any, path: str) -> str:
    return f"{whole!r:.200}" if path == "the message itself" else f"the part at {path}"


def _deepest(value: Any) -> str:
    """Return the beginning of a path that is too deep."""
    path, each = "", value
    for _ in range(3):
        if type(each) is dict:
            key, each = max(each.items(), key=lambda item: _depth(item[1]))
            path += f"[{key!r:.40}]"
        elif type(each) in (list, tuple):
            at = max(range(len(each)), key=lambda at: _depth(each[at]))
            each = each[at]
            path += f"[{at}]"
    return f"{path}..."


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            part
            for each in level
            if type(each) in (dict, list, tuple)
            for part in (each.values() if type(each) is dict else each)
        ]
    return depth
