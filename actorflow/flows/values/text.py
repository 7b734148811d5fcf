"""Values as text: in error messages, inside strings, and cut short for logs."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.values.values import Value

__all__ = ["as_text", "brief", "digest", "shown"]

_WHOLE_MANTISSA = re.compile(r"\A(-?\d+)e")
WIDTH = 48
_ENOUGH = 200  # characters of a text that are checked for the need of quotes
_PLAIN = re.compile(r"[^\s\"'\\\[\]{}(),:;|#.0-9+-][^\s\"'\\\[\]{}(),:;|#]*")
_WORDS = frozenset(("null", "true", "false"))
_KNOWN = 4096
_known: dict[int, tuple[Any, list[Any]]] = {}


def shown(value: Value) -> str:
    """Return a value as error messages quote it.

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
    """Return a value as part of a string: null is empty, strings are not quoted.

    >>> as_text("a"), as_text(None), as_text([1, "b"])
    ('a', '', '[1, "b"]')
    """
    if type(value) is str:
        return value
    return "" if value is None else shown(value)


def brief(value: Any, width: int | None = WIDTH) -> str:
    """Return a value as compact text, cut after ``width`` characters; words are not quoted.

    O(width), however large the value is.

    >>> brief(["task", {"a": 1}, "stage a", None])
    '[task,{a:1},"stage a",null]'
    >>> brief(list(range(1000)), 10)
    '[0,1,2,3,4...'
    """
    limit = sys.maxsize if width is None else width
    pieces: list[str] = []
    if _write(value, pieces, limit) >= 0:
        return "".join(pieces)
    return "".join(pieces)[:limit] + "..."


def _write(value: Any, pieces: list[str], left: int) -> int:
    """Append a value to ``pieces``; return how many characters are left, negative if it was cut.

    Each level takes a character, which limits the nesting.
    """
    kind = type(value)
    if kind is list:
        opening, closing = "[", "]"
    elif kind is dict:
        opening, closing = "{", "}"
    else:
        text = _atom(value, left)
        pieces.append(text)
        return left - len(text)
    pieces.append(opening)
    left -= 1
    comma = ""
    for one in value:
        if left < 0:
            return left
        pieces.append(comma)
        left -= len(comma)
        comma = ","
        left = _write(one, pieces, left)
        if kind is dict and left >= 0:
            pieces.append(":")
            left = _write(value[one], pieces, left - 1)
    pieces.append(closing)
    return left - 1


def _atom(value: Any, left: int) -> str:
    if type(value) is int:
        return repr(value)
    if type(value) is not str:
        return json.dumps(value, ensure_ascii=False, default=str)
    shown = value[: max(left + 1, _ENOUGH)]
    if _PLAIN.fullmatch(shown) and shown not in _WORDS:
        return shown
    return json.dumps(shown, ensure_ascii=False)


def digest(tree: Tree) -> list[Any]:
    """Return the head of a tree, its line, and its children or its value in brief.

    Cached for recently used trees; trees never change.
    """
    known = _known.get(id(tree))
    if known is not None and known[0] is tree:
        return known[1]
    inside = tree[1]
    if type(inside) is list:
        text = brief(inside, WIDTH + 1)
        cut = text.endswith("...")
        text = text[1:] if cut else text[1:-1]
    else:
        text = brief(inside)
    if len(_known) >= _KNOWN:
        _known.clear()
    found = [tree[0], tree[2], text]
    _known[id(tree)] = (tree, found)
    return found
