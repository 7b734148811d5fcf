"""Random flow texts and trees, for the tests of the parser and of the formatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from actorflow.flows.language.tree import infix
from actorflow.flows.language.unparser import expression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.flows.language.tree import Tree

WORDS = (
    *("a", "b", "task", "f", "x-y", "a?", "sequence", "_", "case", "def", "set", "12ab", "é"),
    *("if", "unless", "and", "or", "+", "-", "*", "%", "<", ">", "==", "!=", "<>", "=", "!"),
    *("_if", "_unless", "_arr", "_obj", "_ref", "_att", "_head", "__head", "_num", "_sqs"),
    *("_dqs", "_dol", "_dmute", "_rxs", "_boo", "_nul", "rxopts", "true_ish", "nully"),
)
SLASHED = ("/", "/a", "r/a", "a/b", "rex/", "r/a/b", "/a/b/c")
OPERATORS = ("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "=", "!=", "<>", "and", "or")
ATOMS = (
    *("0", "1", "-7", "3.25", "1e3", "-1.5e-3", "00", "+5", "2.0e30", "true", "false", "null"),
    *("'it\\'s'", "''", "'a $(b)'", '"dq"', '""', '"\\u00e9 $ \\n"', "'#no'", "f.x", "a.0.b"),
    *("/a b/", "r/x/i", "1.2.3", "[]", "{}", "f.a[1:2]", "f.l[-1]"),
)


class _Writer:
    """Writes random texts after the rules of the grammar, with random blanks."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def pick(self, choices: Sequence[str]) -> str:
        return str(self._draw(st.sampled_from(choices)))

    def count(self, maximum: int) -> int:
        return int(self._draw(st.integers(0, maximum)))

    def many(self, maximum: int, write: Callable[[int], str], depth: int) -> str:
        return "".join(write(depth) for _ in range(self.count(maximum)))

    def blanks(self) -> str:
        return self.pick(["", " ", " ", "\n", " # c\n  ", "// c\n"])

    def value(self, depth: int) -> str:  # noqa: PLR0911 - one rule after the other
        kind = self.count(10) if depth > 0 else self.count(1)
        match kind:
            case 0:
                return self.pick([*WORDS, *SLASHED])
            case 1 | 2:
                return self.pick(ATOMS)
            case 3 | 4:
                return (
                    f"({self.blanks()}{self.many(3, self.line, depth - 1)}{self.node(depth - 1)})"
                )
            case 5:
                return f"({self.node(depth - 1)})"
            case 6:
                return f"[{self.blanks()}{self.many(3, self.element, depth - 1)}]"
            case 7:
                return f"{{{self.blanks()}{self.many(3, self.entry, depth - 1)}}}"
            case 8:
                return f'"{self.many(3, self.part, depth - 1)}"'
            case 9:
                return f"r/{self.part(depth - 1)}{self.part(depth - 1)}/{self.pick(['', 'mi'])}"
            case _:
                name = self.pick(["a", "f.b", "x-y.0", *WORDS])
                return f"{name}[{self.index(depth - 1)}{self.many(2, self.next_index, depth - 1)}]"

    def expression(self, depth: int) -> str:
        return self.value(depth) + (self.many(2, self.operation, depth) if self.count(1) else "")

    def operation(self, depth: int) -> str:
        before, after = self.pick([" ", "  ", "\t"]), self.pick([" ", " # c\n ", "\n"])
        return before + self.pick(OPERATORS) + after + self.value(depth)

    def element(self, depth: int) -> str:
        return self.expression(depth) + self.pick([" ", ", ", ",\n ", " ,, ", " # c\n"])

    def entry(self, depth: int) -> str:
        key = self.pick(["a", "'b c'", "f.x", '"k$(i)"'])
        return f"{key}{self.pick(['', ' '])}:{self.blanks()}{self.element(depth)}"

    def part(self, depth: int) -> str:
        if self.count(2):
            return self.pick(["a", " b", "$", "\\\\", "(", ".)", "é"])
        more = self.many(2, lambda d: self.pick(["|", "||", ";", " || "]) + self.node(d), depth)
        return f"$({self.pick(['', ' '])}{self.node(depth)}{more})"

    def index(self, depth: int) -> str:
        match self.count(3):
            case 0:
                return f"{self.expression(depth)},{self.pick(['', ' '])}{self.expression(depth)}"
            case 1:
                return ":".join(
                    self.expression(depth) if self.count(1) else ""
                    for _ in range(2 + self.count(1))
                )
            case _:
                return self.expression(depth)

    def next_index(self, depth: int) -> str:
        return ";" + self.index(depth)

    def node(self, depth: int) -> str:
        return self.expression(depth) + self.many(3, self.attribute, depth)

    def attribute(self, depth: int) -> str:
        separator = self.pick([" ", " ", ", ", ",\n  ", " , ", ", # c\n\n   "])
        match self.count(5):
            case 0:
                return f"{separator}{self.pick(['if', 'unless'])} {self.expression(depth)}"
            case 1:
                key = self.pick(["tag", "'k'", "f.x", "a"])
                colon = self.pick([":", " : ", ":\n  "])
                return f"{separator}{key}{colon}{self.expression(depth)}"
            case _:
                return separator + self.expression(depth)

    def line(self, depth: int) -> str:
        ends = [
            "\n",
            "\n\n",
            " # c\n",
            " ; ",
            " | ",
            " \\ ",
            "\n\\ ",
            "\n  | ",
            ";;",
            "\n# c\n  \n",
        ]
        return self.pick(["", "  ", "    ", " ", "\t"]) + self.node(depth) + self.pick(ends)


@st.composite
def flow_texts(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Return texts that are mostly flows."""
    writer = _Writer(draw)
    return writer.many(3, writer.line, 2)


noise = st.lists(
    st.sampled_from(list("ab1 \n\t\r.:;|\\\"'()[]{}#/$,+-*%<>=!_é\x00\b\f\ud800"))
    | st.sampled_from(["if ", "or ", "$(", "||", "//", "null", "r/", "\\u00e9", "\n  "]),
    max_size=60,
).map("".join) | st.text(max_size=40)
"""Texts that are mostly none."""

_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(max_size=8) | st.sampled_from(
    ["f", "0", "a b", "$(x)", "it's", '"', "start", "end", "step", "count", "a$", "\n"]
)


class _Builder:
    """Builds random trees, of the shapes that the parser builds (or of any shape)."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], words: Sequence[str]) -> None:
        self._draw = draw
        self._words = words

    def _count(self, maximum: int) -> int:
        return int(self._draw(st.integers(0, maximum)))

    def _word(self) -> str:
        return str(self._draw(st.sampled_from(self._words)))

    def leaf(self) -> Tree:
        match self._count(5):
            case 0:
                return ["_num", self._draw(_NUMBERS), 1]
            case 1:
                return ["_boo", self._draw(st.booleans()), 1]
            case 2:
                return ["_nul", None, 1]
            case 3:
                return ["_sqs", self._draw(_TEXTS), 1]
            case _:
                return [self._word(), [], 1]

    def any(self, depth: int) -> Tree:
        """Return a tree of words and literals, whether or not a notation fits it."""
        if depth <= 0 or not self._count(3):
            return self.leaf()
        return [self._word(), [self.any(depth - 1) for _ in range(self._count(3))], self._count(1)]

    def _trees(self, minimum: int, maximum: int, depth: int) -> list[Tree]:
        return [self.produced(depth) for _ in range(minimum + self._count(maximum - minimum))]

    def _attributes(self, depth: int) -> list[Tree]:
        return [["_att", self._trees(1, 2, depth), 1] for _ in range(self._count(3))]

    def _parts(self, depth: int) -> list[Tree]:
        parts: list[Tree] = []
        for _ in range(1 + self._count(1)):
            if self._count(1):
                parts.append(["_sqs", self._draw(st.sampled_from(["a ", "$", "x(", "é"])), 1])
            mutes = [["_dmute", self._trees(1, 2, depth), 1] for _ in range(1 + self._count(1))]
            parts.append(["_dol", mutes, 1])
        return parts

    def _collection(self, depth: int, content: list[Tree]) -> list[Tree]:
        attributes = self._attributes(depth)
        return attributes + content if content else [["_att", [["_", [], 1]], 1], *attributes]

    def produced(self, depth: int) -> Tree:  # noqa: C901, PLR0911 - one shape after the other
        """Return a tree as texts are read into."""
        if depth <= 0:
            return self.leaf()
        depth -= 1
        match self._count(9):
            case 0:
                return self.leaf()
            case 1 | 2:
                return [self._word(), self._attributes(depth) + self._trees(0, 2, depth), 1]
            case 3:
                return ["_arr", self._collection(depth, self._trees(0, 3, depth)), 1]
            case 4:
                entries = self._trees(0, 2, depth)
                entries = [tree for key in entries for tree in (key, self.produced(depth))]
                return ["_obj", self._collection(depth, entries), 1]
            case 5:
                return ["_ref", [["_sqs", "f", 1], *self._trees(1, 2, depth)], 1]
            case 6:
                operands = self._trees(2, 4, depth)
                return infix(
                    operands, [self._draw(st.sampled_from(OPERATORS)) for _ in operands[1:]]
                )
            case 7:
                options: Tree = ["_att", [["rxopts", [], 1], ["_sqs", "i", 1]], 1]
                if self._count(1):
                    return ["_dqs", self._parts(depth), 1]
                return ["_rxs", [options] * self._count(1) + self._parts(depth), 1]
            case 8:
                word = self._draw(st.sampled_from(["_if", "_unless"]))
                return [word, self._trees(2, 2, depth), 1]
            case _:
                head = self.produced(depth)
                below = self._attributes(depth) + self._trees(0, 2, depth)
                return ["_head", [["_sqs", expression(head), 1], head, ["__head", below, 1]], 1]


@st.composite
def any_trees(draw: Callable[[st.SearchStrategy[Any]], Any], words: Sequence[str] = WORDS) -> Tree:
    """Return trees of all shapes whose heads are words."""
    return _Builder(draw, words).any(4)


@st.composite
def produced_trees(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Tree:
    """Return trees of the shapes that the parser builds."""
    return _Builder(draw, WORDS).produced(3)
