"""Values as text: in error messages, and where a flow adds a value to a string."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.flows.values import Value

_WHOLE_MANTISSA = re.compile(r"\A(-?\d+)e")


def shown(value: Value) -> str:
    """Return a value as it is quoted in messages.

    >>> print(shown(["a", None, {"b": 1.5}]))
    ["a", nil, {"b"=>1.5}]
    """
    if value is None:
        return "nil"
    if type(value) is list:
        return f"[{', '.join(map(shown, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{shown(key)}=>{shown(one)}' for key, one in value.items())}}}"
    if type(value) is float:
        return _WHOLE_MANTISSA.sub(r"\1.0e", repr(value))
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Value) -> str:
    """Return a value as it reads once it is part of a string: null is empty, strings are bare.

    >>> as_text("a"), as_text(None), as_text([1, "b"])
    ('a', '', '[1, "b"]')
    """
    if type(value) is str:
        return value
    return "" if value is None else shown(value)
