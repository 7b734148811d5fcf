"""Values in few letters, for logs: ``[task,[[_att,[[_sqs,alpha,3]],3],[_att,[[_sqs,"s...``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.flows.node import Tree

__all__ = ["brief", "brief_children"]

WIDTH = 48
_PLAIN = re.compile(r"[^\s\"'\\\[\]{}(),:;|#.0-9+-][^\s\"'\\\[\]{}(),:;|#]*")
_WORDS = frozenset(("null", "true", "false"))
_KNOWN = 4096
_known: dict[int, tuple[Any, str]] = {}


def brief(value: Any, width: int | None = WIDTH) -> str:
    """Return a value as text without spaces, cut after ``width`` letters; words without quotes.

    Costs O(width), however big the value is.

    >>> brief(["task", {"a": 1}, "stage a", None])
    '[task,{a:1},"stage a",null]'
    >>> brief(list(range(1000)), 10)
    '[0,1,2,3,4...'
    """
    text, size = [], 0
    for piece in _pieces(value):
        text.append(piece)
        size += len(piece)
        if width is not None and size > width:
            return "".join(text)[:width] + "..."
    return "".join(text)


def _pieces(value: Any) -> Iterator[str]:
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack:
        one = next(stack[-1], stack)
        if one is stack:
            stack.pop()
        elif type(one) is _Sign:
            yield one
        elif type(one) is list:
            stack.append(_list(one))
        elif type(one) is dict:
            stack.append(_dict(one))
        else:
            yield _atom(one)


class _Sign(str):
    """A letter of the notation, not of the value."""

    __slots__ = ()


_OPEN, _SHUT, _BEGIN, _END, _COMMA, _COLON = map(_Sign, "[]{},:")


def _list(values: list[Any]) -> Iterator[Any]:
    yield _OPEN
    for position, value in enumerate(values):
        if position:
            yield _COMMA
        yield value
    yield _SHUT


def _dict(values: dict[str, Any]) -> Iterator[Any]:
    yield _BEGIN
    for position, (key, value) in enumerate(values.items()):
        if position:
            yield _COMMA
        yield key
        yield _COLON
        yield value
    yield _END


def _atom(value: Any) -> str:
    if type(value) is str and _PLAIN.fullmatch(value) and value not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def brief_children(tree: Tree) -> str:
    """Return what follows the head of a tree: its children, or its value.

    The texts of trees used lately are remembered, for trees never change.
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
    _known[id(tree)] = (tree, text)
    return text
