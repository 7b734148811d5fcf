r"""The canonical layout of flows: formats trees and flow texts.

One node per line, children indented by two spaces; long collections and attributes are broken into
several lines. The text is checked before it is returned: it parses to the same tree, except for
line numbers.

>>> print(format_flow("sequence \\ push f.l (+ 1 2) ; stall _  # wait"), end="")
sequence
  push f.l 1 + 2
  stall _  # wait
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from actorflow.flows.language.literals import FlowFormatError, literal, word
from actorflow.flows.language.parser import Parser, parse
from actorflow.flows.language.source import FlowSyntaxError, Source
from actorflow.flows.language.tree import Tree, children, is_symbol, measure, same, walk
from actorflow.flows.language.unparser import (
    BRACKETS,
    MAX_HEIGHT,
    Headline,
    Piece,
    elements,
    headline,
    is_formula,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["FlowFormatError", "format_flow", "format_tree"]

WIDTH: Final = 100
_STEP: Final = 2
_CONTINUATION: Final = 4
_PAIRED: Final = ("case", "match", "cond")


@dataclass(slots=True)
class _FormattedEntry:
    """A line of the layout (several lines if it is long), and the source lines it comes from."""

    indent: int
    text: str
    first: int
    last: int

    def ends_at(self, line: int) -> bool:
        """Return whether a comment at the end of a source line can follow this entry."""
        return "\n" not in self.text or line >= self.last

    def __str__(self) -> str:
        return " " * self.indent + self.text


def format_tree(tree: Tree) -> str:
    r"""Return the text of a tree; `parse` returns the same tree for it, except for line numbers.

    Any tree that `parse` returns can be formatted, and so can others whose heads are words.
    Raises `FlowFormatError` for all others. Takes linear time for trees that are not deeply nested;
    the indents of a tree that is d deep alone take up to d * d characters.

    >>> format_tree(["push", [["_att", [["l", [], 1]], 1], ["_num", 1, 2]], 1])
    'push l\n  1\n'
    """
    return _checked(tree, (lambda: _text(_entries(tree)), lambda: _text(_plain_entries(tree))))


def format_flow(text: str, *, file: str | None = None) -> str:
    """Return a flow text in the canonical layout, with its comments and single blank lines.

    A comment stays at the end of its line, or above the next. One inside a line (after a comma or
    in a collection) moves above that line. Raises `FlowSyntaxError` if the text is not a flow.
    """
    parser = Parser(Source(text, file))
    tree = parser.flow()
    return _checked(
        tree,
        (
            lambda: _text(_weave(tree, _entries(tree), parser)),
            lambda: _text(_weave(tree, _entries(tree), parser, trailing=False)),
            lambda: _text(_weave(tree, _plain_entries(tree), parser, trailing=False)),
        ),
    )


def _checked(tree: Tree, writers: Iterable[Callable[[], str]]) -> str:
    """Return the first text that parses to the tree.

    The plain layout is needed for symbols that hold a slash, which may read as a regex when another
    slash follows on their line.
    """
    for write in writers:
        text = write()
        try:
            if same(parse(text), tree):
                return text
        except FlowSyntaxError:
            continue
    raise FlowFormatError(f"no flow text parses to {tree!r:.80}")


def _text(lines: Iterable[object]) -> str:
    return "".join(f"{line}\n" for line in lines)


# -- layout --------------------------------------------------------------------------------------


def _roots(tree: Tree) -> Sequence[Tree]:
    """Return the unindented nodes: the root, or the lines of a flow without a single root."""
    below = children(tree)
    bare = tree[0] == "sequence" and tree[2] == 0 and isinstance(tree[1], list) and len(below) != 1
    return below if bare else [tree]


def _plain_entries(tree: Tree) -> list[_FormattedEntry]:
    """Return a line for each tree that holds only its head or literal."""
    entries: list[_FormattedEntry] = []
    stack = [(root, 0) for root in reversed(_roots(tree))]
    while stack:
        below, indent = stack.pop()
        text = word(below[0]) if isinstance(below[1], list) else literal(below)
        entries.append(_FormattedEntry(indent, text, below[2], below[2]))
        stack += [(child, indent + _STEP) for child in reversed(children(below))]
    return entries


def _entries(tree: Tree) -> list[_FormattedEntry]:
    """Return the lines of a tree in the usual notation."""
    heights = measure(tree, lambda _, below: 1 + max(below, default=0))

    def is_low(part: Tree) -> bool:
        return heights.get(id(part), 0) <= MAX_HEIGHT

    return _lay_out(_roots(tree), 0, is_low)


def _lay_out(
    trees: Sequence[Tree], indent: int, is_low: Callable[[Tree], bool]
) -> list[_FormattedEntry]:
    entries: list[_FormattedEntry] = []
    stack: list[tuple[tuple[Tree, ...], int]] = [((tree,), indent) for tree in reversed(trees)]
    while stack:
        group, indent = stack.pop()
        lines = [headline(tree, is_low) for tree in group]
        parts = [
            _FormattedEntry(indent, _filled(line, indent), tree[2], _last_line(tree, line))
            for tree, line in zip(group, lines, strict=True)
        ]
        entries += _joined(parts)
        below = lines[-1].children
        groups = _groups(group[-1][0], below, is_low)
        stack += [(each, indent + _STEP) for each in reversed(groups)]
    return entries


def _groups(
    head: str, trees: Sequence[Tree], is_low: Callable[[Tree], bool]
) -> list[tuple[Tree, ...]]:
    """Return the children of a node grouped by line: in pairs below ``case`` and the like.

    They pair when their number is even and the first of each pair has no children of its own.
    """
    firsts = trees[::2]
    if head not in _PAIRED or len(trees) % 2:
        return [(tree,) for tree in trees]
    if any(headline(tree, is_low).children for tree in firsts):
        return [(tree,) for tree in trees]
    return list(zip(firsts, trees[1::2], strict=True))


def _joined(entries: list[_FormattedEntry]) -> list[_FormattedEntry]:
    """Return a pair of entries as one line, ``case ;; branch``, if it is short enough."""
    if len(entries) == 1:
        return entries
    first, last = entries
    text = f"{first.text} ;; {last.text}"
    if "\n" in text or not _fits(text, first.indent):
        return entries
    return [_FormattedEntry(first.indent, text, first.first, last.last)]


def _last_line(tree: Tree, line: Headline) -> int:
    """Return the last source line of the contents of a layout line."""
    parts = [piece.tree for piece in line.pieces if piece.tree is not None]
    if not line.children:
        parts = [tree]
    lines = [int(below[2]) for part in parts for below in walk(part)]
    return max(lines, default=tree[2])


def _fits(text: str, indent: int) -> bool:
    return all(len(line) <= WIDTH - indent for line in text.split("\n"))


def _filled(line: Headline, indent: int) -> str:
    """Return a line, broken where it is too long for one."""
    text = line.text
    if _fits(text, indent):
        return text
    first, *others = line.pieces
    opening = " ".join(piece.text for piece in line.pieces[:-1])
    hugged = f"{opening} {_broken(line.pieces[-1], indent)}" if others else _broken(first, indent)
    if _fits(hugged, indent) or len(others) < 2:  # noqa: PLR2004 - one attribute stays on the line
        return hugged
    inner = indent + _CONTINUATION
    texts = [_fitted(piece, inner) for piece in others]
    return f"{first.text} " + (",\n" + " " * inner).join(texts)


def _fitted(piece: Piece, indent: int) -> str:
    return piece.text if _fits(piece.text, indent) else _broken(piece, indent)


def _broken(piece: Piece, indent: int) -> str:
    """Return a piece broken into several lines, if it can be broken."""
    tree = piece.tree
    if tree is None or not isinstance(tree[1], list) or is_symbol(tree):
        return piece.text
    margin = "\n" + " " * (indent + _STEP)
    if is_formula(tree):
        return piece.text  # an operand on a line of its own could not be indented
    items = elements(tree) if tree[0] in BRACKETS else None
    if items is not None:
        opening, closing = BRACKETS[tree[0]]
        inner = f",{margin}".join(_fitted(item, indent + _STEP) for item in items)
        return f"{piece.prefix}{opening}{margin}{inner}\n{' ' * indent}{closing}"
    if piece.text.startswith(piece.prefix + "(") and piece.text.endswith(")"):
        lines = _lay_out([tree], indent + _STEP, lambda _: True)
        return f"{piece.prefix}({_text(lines)[indent + _STEP : -1]})"
    return piece.text


# -- comments ------------------------------------------------------------------------------------


def _weave(
    tree: Tree, entries: Sequence[_FormattedEntry], parser: Parser, *, trailing: bool = True
) -> list[str]:
    """Return the lines of a layout with the comments and blank lines of the source inserted.

    With ``trailing``, a comment at the end of a line stays there; else all stand above their lines.
    """
    source = parser.source
    starts = list(accumulate((entry.first for entry in entries), max))
    above: dict[int, list[tuple[int, str]]] = {}
    behind: dict[int, str] = {}
    kept = _kept_lines(tree)
    for offset, comment in sorted(parser.comments.items()):
        line, column = source.place(offset)
        if line in kept:
            continue
        owner = bisect_right(starts, line) - 1
        alone = not source.text[offset - column + 1 : offset].strip(" \t")
        can_follow = owner >= 0 and owner not in behind and entries[owner].ends_at(line)
        if trailing and not alone and can_follow:
            behind[owner] = comment.rstrip()
            continue
        if owner < 0 or (alone and line > entries[owner].last):
            owner += 1
        above.setdefault(owner, []).append((line, comment.rstrip()))
    lines: list[str] = []
    blanks = _BlankLines(source.text)
    for index, entry in enumerate(entries):
        for line, comment in above.get(index, ()):
            lines += blanks.before(min(line, entry.first))
            lines.append(" " * entry.indent + comment)
        lines += blanks.before(entry.first)
        lines.append(f"{entry}  {behind[index]}" if index in behind else str(entry))
    for line, comment in above.get(len(entries), ()):
        lines += blanks.before(line)
        lines.append(comment)
    return lines


def _kept_lines(tree: Tree) -> set[int]:
    """Return the lines that end inside a head that keeps its source, comments and all."""
    kept: set[int] = set()
    for below in walk(tree):
        if below[0] == "_head" and children(below) and isinstance(below[1][0][1], str):
            kept.update(range(below[2], below[2] + below[1][0][1].count("\n")))
    return kept


class _BlankLines:
    """Finds blank lines of the source that the layout keeps."""

    def __init__(self, text: str) -> None:
        self._blank = [not line.strip(" \t\r") for line in text.split("\n")]
        self._last = 0

    def before(self, line: int) -> list[str]:
        """Return a blank line if the source has one before ``line``; once, and not at the start."""
        blank = 0 < self._last < line and self._blank[line - 2]
        self._last = max(self._last, line)
        return [""] if blank else []
