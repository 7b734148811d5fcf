"""Values in few letters, for logs: ``[task,[[_att,[[_sqs,alpha,3]],3],[_att,[[_sqs,"s...``."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.flows.node import Tree

__all__ = ["brief", "digest"]

WIDTH = 48
_ENOUGH = 200  # letters of a text that tell whether it needs quotes
_PLAIN = re.compile(r"[^\s\"'\\\[\]{}(),:;|#.0-9+-][^\s\"'\\\[\]{}(),:;|#]*")
_WORDS = frozenset(("null", "true", "false"))
_KNOWN = 4096
_known: dict[int, tuple[Any, list[Any]]] = {}


def brief(value: Any, width: int | None = WIDTH) -> str:
    """Return a value as text without spaces, cut after ``width`` letters; words without quotes.

    Costs O(width), however big the value is.

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
    """Add a value to ``pieces``; return how many letters are left, less than none when cut.

    Each level takes a letter, so that the nesting is limited by what is left.
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
    """Return the head of a tree, its line, and its children or its value in few letters.

    Those of the trees used lately are remembered, for trees never change.
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
