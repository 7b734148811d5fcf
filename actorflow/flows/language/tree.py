"""Trees: what a flow text is parsed into, and small functions on them.

A tree is a list ``[head, content, line]``. The content is a list of trees (the children), or, for a
literal, its value: ``["_num", 1, 4]``. Lines count from 1; the ``sequence`` around several
lines without a common root has line 0. The root of a flow that was read from a file has a fourth
element, the name of the file.

Trees are plain lists, so that they can be stored and sent as JSON. Nothing here changes one in
place. Lines may nest thousands deep, and so do trees: nothing here recurses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Tree: TypeAlias = list[Any]

MAX_SWITCHES: Final = 200
"""How often an operator may change to another of the same rank in one chain.

Each change is one more level of the tree.
"""

_RANKS: Final = (
    ("%",),
    ("*", "/"),
    ("+", "-"),
    ("<", ">", "<=", ">="),
    ("==", "=", "!=", "<>"),
    ("and",),
    ("or",),
)

RANK: Final = {operator: rank for rank, operators in enumerate(_RANKS) for operator in operators}
"""How tightly an operator binds: 0 is the tightest."""


_WITH_VALUE: Final = frozenset(
    ("_num", "_boo", "_sqs", "_nul", "_func", "_proc", "_tasker", "_val")
)  # fmt: skip
_LEAST: Final = {"_att": 1, "_ref": 1, "_head": 3}
"""How many children some trees have at least."""


class LongChain(ValueError):
    """A chain of operators changes its operator more than `MAX_SWITCHES` times."""


def children(tree: Tree) -> Sequence[Tree]:
    """Return the children of a tree, none for a literal. Constant time."""
    content: object = tree[1]
    return content if isinstance(content, list) else ()


def is_symbol(tree: Tree) -> bool:
    """Return whether a tree is a bare word.

    >>> is_symbol(["a", [], 1]), is_symbol(["_sqs", "a", 1])
    (True, False)
    """
    return isinstance(tree[1], list) and not tree[1]


def is_number(tree: Tree) -> bool:
    """Return whether a tree is a literal number."""
    return tree[0] == "_num" and not isinstance(tree[1], list)


def attribute(*trees: Tree) -> Tree:
    """Return the attribute of a value, or of a key and a value. Its line is that of its first part.

    >>> attribute(["a", [], 3])
    ['_att', [['a', [], 3]], 3]
    """
    return ["_att", list(trees), trees[0][2]]


def negated(tree: Tree) -> Tree:
    """Return minus the tree: a number changes its sign, all else is wrapped in a unary ``-``."""
    if is_number(tree):
        return ["_num", -tree[1], tree[2]]
    return ["-", [tree], tree[2]]


def infix(operands: Sequence[Tree], operators: Sequence[str]) -> Tree:
    """Return the tree of ``operands[0] operators[0] operands[1] ...``, by rank, left to right.

    A run of one operator is one n-ary node. After a ``+``, each ``-`` of the same run negates its
    operand. Any other change of operator starts a new node, whose first operand is the part on its
    left: ``1 - 2 + 3`` is ``(1 - 2) + 3`` and ``8 / 4 * 2`` is ``(8 / 4) * 2``.

    Takes time linear in the number of operands. Raises `LongChain` beyond `MAX_SWITCHES` changes.

    >>> one, two, three = (["_num", n, 1] for n in (1, 2, 3))
    >>> infix([one, two, three], ["+", "*"])
    ['+', [['_num', 1, 1], ['*', [['_num', 2, 1], ['_num', 3, 1]], 1]], 1]
    >>> infix([one, two, three], ["-", "+"])
    ['+', [['-', [['_num', 1, 1], ['_num', 2, 1]], 1], ['_num', 3, 1]], 1]
    >>> infix([one, two, three], ["+", "-"])
    ['+', [['_num', 1, 1], ['_num', 2, 1], ['_num', -3, 1]], 1]
    """
    for rank in sorted({RANK[operator] for operator in operators}):
        operands, operators = _fold_rank(operands, operators, rank)
    return operands[0]


def _fold_rank(
    operands: Sequence[Tree], operators: Sequence[str], rank: int
) -> tuple[list[Tree], list[str]]:
    """Replace each run of operators of one rank by its tree."""
    trees = [operands[0]]
    left: list[str] = []
    run: list[tuple[str, Tree]] = []
    for operator, operand in zip(operators, operands[1:], strict=True):
        if RANK[operator] == rank:
            run.append((operator, operand))
            continue
        if run:
            trees[-1] = _fold_run(trees[-1], run)
            run = []
        left.append(operator)
        trees.append(operand)
    if run:
        trees[-1] = _fold_run(trees[-1], run)
    return trees, left


def _fold_run(first: Tree, run: Sequence[tuple[str, Tree]]) -> Tree:
    current = run[0][0]
    line = first[2]
    operands = [first]
    switches = 0
    for operator, operand in run:
        if operator == current:
            operands.append(operand)
        elif current == "+" and operator == "-":
            operands.append(negated(operand))
        else:
            switches += 1
            operands = [[current, operands, line], operand]
            current = operator
    if switches > MAX_SWITCHES:
        raise LongChain(switches)
    return [current, operands, line]


def walk(tree: Tree) -> Iterator[Tree]:
    """Yield the tree and everything below it, parents before children."""
    stack = [tree]
    while stack:
        tree = stack.pop()
        yield tree
        stack.extend(reversed(children(tree)))


def strays(tree: object) -> Iterator[object]:
    """Yield the parts of a presumed tree that are not ``[head, content, line]``.

    >>> list(strays(["sequence", [["_num", 1, 2], ["_att"], 7], 1]))
    [7, ['_att']]
    """
    left = [tree]
    while left:
        part = left.pop()
        if (
            type(part) is not list
            or len(part) < 3  # noqa: PLR2004 - head, content, line
            or type(part[0]) not in {str, list}
            or type(part[2]) is not int
        ):
            yield part
            continue
        for place in part[:2]:
            if type(place) is list:
                left.extend([place] if place is part[0] else place)


def misshapen(tree: Tree) -> Iterator[Tree]:
    """Yield the trees below ``tree``, itself included, whose head or content no text gives them.

    Somebody may write such a tree by hand. Linear time.

    >>> list(misshapen(["sequence", [["_att", [], 1], ["set", 7, 1], ["_num", 7, 1]], 1]))
    [['set', 7, 1], ['_att', [], 1]]
    """
    left = [tree]
    while left:
        part = left.pop()
        head, content = part[:2]
        if type(head) is str and head in _WITH_VALUE:
            continue
        if (
            type(head) is not str
            or type(content) is not list
            or len(content) < _LEAST.get(head, 0)
            or (head == "_head" and content[0][0] != "_sqs")
        ):
            yield part
        else:
            left.extend(content)


def same(one: Tree, other: Tree, *, lines: bool = False) -> bool:
    """Return whether two trees are equal, up to line and file unless ``lines``.

    Unlike ``==`` it works for trees of any depth, and distinguishes 1, 1.0 and true. Linear time.

    >>> same(["a", [], 1], ["a", [], 7]), same(["_num", 1, 1], ["_num", 1.0, 1])
    (True, False)
    """
    stack = [(one, other)]
    while stack:
        one, other = stack.pop()
        if one[0] != other[0] or (lines and one[2:] != other[2:]):
            return False
        if isinstance(one[1], list) and isinstance(other[1], list):
            if len(one[1]) != len(other[1]):
                return False
            stack.extend(zip(one[1], other[1], strict=True))
        elif not _same_value(one[1], other[1]):
            return False
    return True


def _same_value(one: object, other: object) -> bool:
    if type(one) is not type(other) or one != other:
        return False
    return not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)  # type: ignore[arg-type]


def measure(tree: Tree, of: Callable[[Tree, Sequence[int]], int]) -> dict[int, int]:
    """Return a number for each tree below ``tree`` (by identity), from those of its children.

    Takes linear time.

    >>> tree = ["a", [["b", [], 2]], 1]
    >>> measure(tree, lambda tree, below: 1 + max(below, default=0))[id(tree)]
    2
    """
    numbers: dict[int, int] = {}
    for below in reversed(list(walk(tree))):
        numbers[id(below)] = of(below, [numbers[id(child)] for child in children(below)])
    return numbers
