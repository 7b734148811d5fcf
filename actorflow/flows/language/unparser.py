r"""From tree to text on one line, in the usual notation.

The *notation* of a tree is what people write: ``1 + 2``, ``f.x``, ``[ 1 ]``, ``stall _ if f.late``.
A tree that the notation cannot express (say an ``_arr`` whose elements are attributes) is written
*plainly*: its head as a word, followed by its children.

All functions recurse and are meant for trees of at most `MAX_HEIGHT`, except for `headline`, which
looks at the attributes of a node and not at the children on lines of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from actorflow.flows.language.literals import escaped, literal, regex_text, word
from actorflow.flows.language.parser import Parser
from actorflow.flows.language.source import FlowSyntaxError, Source
from actorflow.flows.language.tokens import (
    DIGITS,
    NUMBER,
    OPERATOR,
    POSTFIX,
    SYMBOL,
)
from actorflow.flows.language.tree import RANK, Tree, is_number, is_symbol, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_HEIGHT: Final = 24
"""How high a tree may be to be written on one line."""

_CONDITIONS: Final = {"_if": "if", "_unless": "unless"}
BRACKETS: Final = {"_arr": ("[", "]"), "_obj": ("{", "}")}
_SLICES: Final = (["start", "count"], ["start", "end", "step"])
_OPTION_LETTERS: Final = tuple("imxouesn")


class Piece(NamedTuple):
    """A piece of a line: its head, an attribute or its condition."""

    text: str
    prefix: str = ""
    tree: Tree | None = None
    """The tree whose text follows the prefix, if that could be broken into lines."""


class Headline(NamedTuple):
    """The line of a node, and the children that are left for lines of their own."""

    pieces: list[Piece]
    children: Sequence[Tree] = ()

    @property
    def text(self) -> str:
        """The whole line."""
        return " ".join(piece.text for piece in self.pieces)


# -- expressions ---------------------------------------------------------------------------------


def expression(tree: Tree) -> str:
    """Return a tree as an expression: a formula, or a value."""
    if not is_formula(tree):
        return value(tree)
    (_, first), *others = formula(tree)
    return first + "".join(f" {operator} {text}" for operator, text in others)


def argument(tree: Tree) -> str:
    """Return a tree as an attribute: an expression that cannot be mistaken for an operator."""
    return _guarded(expression(tree))


def _guarded(text: str) -> str:
    return f"({text})" if OPERATOR.match(text + " ") or POSTFIX.match(text) else text


def is_formula(tree: Tree) -> bool:
    """Return whether a tree is written with operators between its children."""
    operands = tree[1]
    if tree[0] not in RANK or not isinstance(operands, list) or len(operands) < 2:  # noqa: PLR2004
        return False
    return all(operand[0] != "_att" for operand in operands)


def formula(tree: Tree) -> list[tuple[str, str]]:
    """Return the operands of a formula, each with the operator before it."""
    operator, operands = tree[0], tree[1]
    rank = RANK[operator]
    pairs = [("", _operand(operands[0], rank)), (operator, _operand(operands[1], rank))]
    for operand in operands[2:]:
        positive = _positive(operand) if operator == "+" else None
        if positive is None:
            pairs.append((operator, _operand(operand, rank)))
        else:
            pairs.append(("-", _operand(positive, rank)))
    return pairs


def _positive(tree: Tree) -> Tree | None:
    """Return the tree of which this one is the negation, or None."""
    if is_number(tree):
        return ["_num", -tree[1], tree[2]] if tree[1] < 0 else None
    if tree[0] == "-" and isinstance(tree[1], list) and len(tree[1]) == 1:
        (operand,) = tree[1]
        return None if is_number(operand) or operand[0] == "_att" else operand
    return None


def _operand(tree: Tree, rank: int) -> str:
    """Return an operand; one that binds less tightly than its operator gets parentheses."""
    return expression(tree) if RANK.get(tree[0], rank) < rank else value(tree)


def value(tree: Tree) -> str:
    """Return a tree as one value: a literal, a word, or something in brackets."""
    if not isinstance(tree[1], list):
        return literal(tree)
    if is_symbol(tree):
        name = word(tree[0])
        return f"({name})" if OPERATOR.match(name + " ") else name
    text = _notation(tree)
    return f"({node(tree)})" if text is None else text


def _notation(tree: Tree) -> str | None:
    """Return a reference, a collection, a string or a regex; None for other trees."""
    match tree[0]:
        case "_ref":
            return _path(tree[1])
        case "_arr" | "_obj":
            items = elements(tree)
            if items is None:
                return None
            opening, closing = BRACKETS[tree[0]]
            inner = ", ".join(item.text for item in items)
            return f"{opening} {inner} {closing}" if items else opening + closing
        case "_dqs":
            return _string(tree[1])
        case "_rxs":
            return _regex(tree[1])
    return None


def elements(tree: Tree) -> list[Piece] | None:
    """Return the elements or entries of a collection; None when it has attributes."""
    content = tree[1]
    if not isinstance(content, list) or not content:
        return None
    if len(content) == 1 and _is_nothing(content[0]):
        return []
    if tree[0] not in BRACKETS or _is_attribute(content[0]):
        return None
    if tree[0] == "_arr":
        return [Piece(expression(element), tree=element) for element in content]
    if len(content) % 2:
        return None
    return [_keyed(expression(key), entry) for key, entry in _pairs(content)]


def _keyed(key: str, tree: Tree) -> Piece:
    return Piece(f"{key}: {expression(tree)}", f"{key}: ", tree)


def _pairs(trees: Sequence[Tree]) -> Iterator[tuple[Tree, Tree]]:
    return zip(trees[::2], trees[1::2], strict=True)


# -- references ----------------------------------------------------------------------------------


def _path(content: Sequence[Tree]) -> str | None:
    if len(content) < 2:  # noqa: PLR2004 - one element is a word
        return None
    first = _name(content[0])
    if first is None:
        return None
    names = [_name(element) for element in content[1:]]
    dotted = ".".join([first, *(name or "" for name in names)])
    if NUMBER.fullmatch(dotted):
        names[0] = None
    steps = zip(names, content[1:], strict=True)
    return first + "".join(
        f"[{_indexes(element)}]" if name is None else f".{name}" for name, element in steps
    )


def _name(tree: Tree) -> str | None:
    """Return an element of a path as written after a dot, or None if it needs brackets."""
    match tree[0], tree[1]:
        case "_num", int(number) if number >= 0 and not isinstance(number, bool):
            return str(number)
        case "_sqs", str(name) if SYMBOL.fullmatch(name) and not DIGITS.fullmatch(name):
            return name
    return None


def _indexes(tree: Tree) -> str:
    content = tree[1]
    if tree[0] != "_arr" or not isinstance(content, list) or len(content) == 1:
        return _index(tree)
    if not content or _is_attribute(content[0]):
        return _index(tree)
    return ";".join(_index(element) for element in content)


def _index(tree: Tree) -> str:
    if tree[0] == "_obj" and isinstance(tree[1], list):
        keys = [key[1] for key in tree[1][::2] if key[0] == "_sqs"]
        if keys in _SLICES and len(tree[1]) == 2 * len(keys):
            bounds = tree[1][1::2]
            texts = [expression(bound) for bound in bounds]
            if len(texts) == 2:  # noqa: PLR2004 - start and count
                return ",".join(texts)
            one = is_number(bounds[2]) and same(bounds[2], ["_num", 1, 0])
            return ":".join(texts[:2] if one else texts)
    return expression(tree)


# -- strings and regexes -------------------------------------------------------------------------


def _string(parts: Sequence[Tree]) -> str | None:
    if not _alternate(parts) or all(part[0] == "_sqs" for part in parts):
        return None
    texts = [
        escaped(part[1]).replace('"', '\\"').replace("$(", "\\u0024(")
        if part[0] == "_sqs"
        else _dollar(part)
        for part in parts
    ]
    return '"' + "".join(texts) + '"'


def _regex(parts: Sequence[Tree]) -> str | None:
    options: str | None = ""
    if parts and _is_attribute(parts[0]) and len(parts[0][1]) == 2:  # noqa: PLR2004 - key, value
        key, given = parts[0][1]
        if key[0] != "rxopts" or not is_symbol(key):
            return None
        options = _options(given)
        parts = parts[1:]
    if options is None or not _alternate(parts):
        return None
    texts = [_dollar(part) if part[0] == "_dol" else regex_text(part[1]) for part in parts]
    if None in texts:
        return None
    return f"r/{''.join(text or '' for text in texts)}/{options}"


def _options(given: Tree) -> str | None:
    """Return the options of a regex: letters, each a tree of its own, and dollars."""
    letters = given[1] if given[0] == "_dqs" and isinstance(given[1], list) else [given]
    if not letters or (given[0] == "_dqs" and len(letters) == 1 and not _is_dollar(letters[0])):
        return None
    text = ""
    for letter in letters:
        if _is_dollar(letter):
            text += _dollar(letter)
        elif letter[0] == "_sqs" and letter[1] in _OPTION_LETTERS:
            text += letter[1]
        else:
            return None
    return text


def _alternate(parts: Sequence[Tree]) -> bool:
    """Return whether parts are those of a string: texts and dollars, no two texts in a row."""
    after_text = False
    for part in parts:
        is_text = part[0] == "_sqs" and isinstance(part[1], str) and part[1] != ""
        if not (is_text and not after_text) and not _is_dollar(part):
            return False
        after_text = is_text
    return bool(parts)


def _is_dollar(tree: Tree) -> bool:
    if tree[0] != "_dol" or not isinstance(tree[1], list) or not tree[1]:
        return False
    return all(mute[0] == "_dmute" and isinstance(mute[1], list) for mute in tree[1])


def _dollar(tree: Tree) -> str:
    alternatives = (" | ".join(_unbranched(child) for child in mute[1]) for mute in tree[1])
    return f"$({'||'.join(alternatives)})"


# -- nodes ---------------------------------------------------------------------------------------


def node(tree: Tree) -> str:
    r"""Return a node with all its children, joined by ``\`` and ``;``."""
    return _joined(headline(tree))


def _joined(line: Headline) -> str:
    if not line.children:
        return line.text
    *others, last = line.children
    texts = [_unbranched(child) for child in others] + [node(last)]
    return line.text + " \\ " + " ; ".join(texts)


def _unbranched(tree: Tree) -> str:
    """Return a node that others may follow on the line: in parentheses if it has children."""
    line = headline(tree)
    return f"({_joined(line)})" if line.children else line.text


def headline(tree: Tree, is_low: Callable[[Tree], bool] = lambda _: True) -> Headline:
    """Return the line of a node. Attributes that are not ``is_low`` are left to other lines."""
    if not isinstance(tree[1], list):
        return Headline([Piece(literal(tree))])
    if not tree[1]:
        return Headline([Piece(word(tree[0]))])
    found = _conditional(tree, is_low) or _applied(tree, is_low)
    if found is None and is_low(tree):
        found = _expressed(tree)
    return found or _plain(tree, is_low)


def _conditional(tree: Tree, is_low: Callable[[Tree], bool]) -> Headline | None:
    """``node if condition``."""
    if tree[0] not in _CONDITIONS or len(tree[1]) != 2:  # noqa: PLR2004 - condition and node
        return None
    condition, body = tree[1]
    if "_att" in (condition[0], body[0]) or not is_low(condition):
        return None
    if body[0] not in _CONDITIONS:
        line = headline(body, is_low)
    elif is_low(body):
        line = Headline([Piece(value(body))])
    else:
        return None
    prefix = _CONDITIONS[tree[0]] + " "
    return Headline(
        [*line.pieces, Piece(prefix + argument(condition), prefix, condition)], line.children
    )


def _applied(tree: Tree, is_low: Callable[[Tree], bool]) -> Headline | None:
    """Write a head that is an expression by its source text, which is part of the tree."""
    if tree[0] != "_head" or [child[0] for child in tree[1][::2]] != ["_sqs", "__head"]:
        return None
    (_, source, _), head, (_, below, _) = (child[:3] for child in tree[1])
    if not isinstance(source, str) or not isinstance(below, list) or not below:
        return None
    merges = head[0] in BRACKETS and all(_is_attribute(child) for child in below)
    if is_symbol(head) or merges or not _reads_as(source, head):
        return None
    pieces, rest = _attributes(below, is_low)
    return Headline([Piece(source), *pieces], rest)


def _reads_as(source: str, tree: Tree) -> bool:
    if source != source.strip(" \t"):
        return False
    try:
        found = Parser(Source(source)).expression()
    except FlowSyntaxError:
        return False
    return found is not None and same(found, tree)


def _expressed(tree: Tree) -> Headline | None:
    """Write a formula or a value; a collection may have attributes after it."""
    if is_formula(tree):
        return Headline([Piece(expression(tree), tree=tree)])
    text = _notation(tree)
    if text is not None:
        return Headline([Piece(text, tree=tree)])
    if tree[0] not in BRACKETS:
        return None
    content = tree[1]
    count = next((i for i, child in enumerate(content) if not _is_attribute(child)), len(content))
    inner, given = content[count:], content[:count]
    if not inner and given and _is_nothing(given[0]):
        inner, given = given[:1], given[1:]
    collection = [tree[0], inner, tree[2]]
    text = _notation(collection) if inner else None
    if text is None:
        return None
    pieces, _ = _attributes(given, lambda _: True)
    return Headline([Piece(text, tree=collection), *pieces])


def _plain(tree: Tree, is_low: Callable[[Tree], bool]) -> Headline:
    """Write the head as a word, then as many of the attributes as fit on the line."""
    head = Piece(word(tree[0]))
    if tree[0] not in ("+", "-"):
        pieces, rest = _attributes(tree[1], is_low)
        return Headline([head, *pieces], rest)
    pieces, rest = _attributes(tree[1], is_low, keyed=True)
    number = tree[0] == "-" and not pieces and len(rest) == 1 and is_number(rest[0])
    if number or not all(operand[0] != "_att" and is_low(operand) for operand in rest):
        return Headline([head, *pieces], rest)
    operands = [Piece(_guarded(value(operand)), tree=operand) for operand in rest]
    return Headline([head, *pieces, *operands])


def _attributes(
    content: Sequence[Tree], is_low: Callable[[Tree], bool], *, keyed: bool = False
) -> tuple[list[Piece], Sequence[Tree]]:
    """Return the pieces of the leading (``keyed``) attributes, and the remaining children."""
    pieces: list[Piece] = []
    for index, child in enumerate(content):
        if not _is_attribute(child) or not is_low(child) or (keyed and len(child[1]) == 1):
            return pieces, content[index:]
        *key, given = child[1]
        if key:
            pieces.append(_keyed(argument(key[0]), given))
        else:
            pieces.append(Piece(argument(given), tree=given))
    return pieces, ()


def _is_attribute(tree: Tree) -> bool:
    return tree[0] == "_att" and isinstance(tree[1], list) and len(tree[1]) in (1, 2)


def _is_nothing(tree: Tree) -> bool:
    """Return whether this is the placeholder of an empty collection."""
    return _is_attribute(tree) and len(tree[1]) == 1 and same(tree[1][0], ["_", [], 0])
