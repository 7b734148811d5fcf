"""From lines to trees: the parts of a line become a node, and indents nest the nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from actorflow.flows.language.tree import Tree, attribute, is_number, is_symbol, negated

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LINE_DEPTH: Final = 10_000
"""How deeply lines may be nested by their indents."""

_JOIN_INDENT: Final = 2
_COLLECTIONS: Final = ("_arr", "_obj")


class Part(NamedTuple):
    """A part of a line: its head, an attribute, or the word ``if`` or ``unless`` after them."""

    tree: Tree
    """The expression; for a keyed attribute its value."""
    line: int
    source: str = ""
    key: Tree | None = None
    chain: bool = False
    """Written as a chain of operators, without parentheses around it."""
    postfix: bool = False
    """An ``if`` or ``unless`` that may begin a condition; its tree is that word."""

    def attribute(self) -> Tree:
        """Return the part as an attribute."""
        return attribute(self.tree) if self.key is None else attribute(self.key, self.tree)


@dataclass(slots=True)
class SourceLine:
    """A line that is to become a node."""

    indent: int
    parts: list[Part]
    children: list[Tree] = field(default_factory=list)
    join: str | None = None

    def tree(self) -> Tree:
        """Return the node of the line. Takes time linear in its parts and children.

        An ``if`` is a condition when an expression follows it and no keyed attribute does; else it
        is an attribute like any other word. Of several conditions the last one counts.
        """
        parts = self.parts
        words = _conditions(parts)
        if not words:
            return _node(parts, self.children)
        node = _node(parts[: words[0]], self.children)
        condition = _node(parts[words[-1] + 1 :], [])
        return ["_" + parts[words[-1]].tree[0], [condition, node], parts[0].line]


def _conditions(parts: Sequence[Part]) -> list[int]:
    """Return the positions of the words that begin a condition."""
    found: list[int] = []
    expression_follows = False
    for index in range(len(parts) - 1, 0, -1):
        part = parts[index]
        if part.key is not None:
            break
        if part.postfix and expression_follows:
            found.append(index)
        expression_follows = not part.postfix
    return found[::-1]


def _node(parts: Sequence[Part], children: list[Tree]) -> Tree:
    head, *rest = parts
    tree = head.tree
    if is_symbol(tree):
        if tree[0] in ("+", "-"):
            return _sum(tree[0], head.line, rest, children)
        return [tree[0], [part.attribute() for part in rest] + children, head.line]
    attributes = [part.attribute() for part in rest]
    if not attributes and not children:
        return tree
    if tree[0] in _COLLECTIONS and not children:
        return [tree[0], _attributes_first(tree[1], attributes), tree[2]]
    line = head.line
    return [
        "_head",
        [["_sqs", head.source, line], tree, ["__head", attributes + children, line]],
        line,
    ]


def _attributes_first(elements: list[Tree], attributes: list[Tree]) -> list[Tree]:
    """Return all attributes, then the elements.

    The placeholder in an empty collection is also an attribute.
    """
    is_attribute = [one[0] == "_att" and bool(one[1]) for one in elements]
    count = next((i for i, one in enumerate(is_attribute) if not one), len(elements))
    return [*elements[:count], *attributes, *elements[count:]]


def _sum(operator: str, line: int, parts: Sequence[Part], children: list[Tree]) -> Tree:
    """Return a node whose head is ``+`` or ``-``; its unkeyed attributes are operands.

    ``- 4`` is a number, and in ``- a + b`` the minus belongs to ``a`` alone.
    """
    keyed = [part.attribute() for part in parts if part.key is not None]
    plain = [part for part in parts if part.key is None]
    if operator == "-" and len(plain) == 1 and not children:
        (part,) = plain
        if is_number(part.tree) and not keyed:
            return ["_num", -part.tree[1], line]
        if part.chain and part.tree[0] in ("+", "-"):
            first, *others = part.tree[1]
            return [part.tree[0], [*keyed, negated(first), *others], line]
    return [operator, keyed + [part.tree for part in plain] + children, line]


class Outline:
    """Lines nested by their indents, in order.

    A line is the child of the nearest line above it, going outwards, that has a smaller indent. The
    lines still open are kept on a stack, so depth costs no recursion and all lines take linear
    time together.
    """

    __slots__ = ("_open", "_roots")

    def __init__(self) -> None:
        self._open: list[SourceLine] = []
        self._roots: list[Tree] = []

    def add(self, line: SourceLine) -> int:
        r"""Add the next line; return its depth, from 1.

        A join before it sets its indent: ``\`` makes it a child of the line before, ``;`` and ``|``
        a sibling.
        """
        if self._open and self._open[-1].join is not None:
            before = self._open[-1]
            line.indent = before.indent + (_JOIN_INDENT if before.join == "\\" else 0)
        while self._open and self._open[-1].indent >= line.indent:
            self._close()
        self._open.append(line)
        return len(self._open)

    def join(self, mark: str) -> None:
        """Record a join that follows the last line. The first of several joins counts."""
        if self._open and self._open[-1].join is None:
            self._open[-1].join = mark

    def tree(self) -> Tree:
        """Return the only root, or a sequence of all of them."""
        while self._open:
            self._close()
        if len(self._roots) == 1:
            return self._roots[0]
        return ["sequence", self._roots, 0]

    def _close(self) -> None:
        tree = self._open.pop().tree()
        (self._open[-1].children if self._open else self._roots).append(tree)
