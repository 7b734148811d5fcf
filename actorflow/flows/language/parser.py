r"""The grammar of the flow language: text to tree.

The grammar is a PEG: choices are ordered and there is no backtracking into read text, except
for values, where the longest match wins. Each rule is a method that takes an offset and returns
what it read and where it ended, or None. Where the grammar needs a nested value (brackets, ``$(``,
an index), the rule is a generator that yields the offset of that value and is sent the answer, so
nesting grows a list and not the stack of Python. Nested values are remembered by offset, which
keeps the time linear: each bracket is read once as a value, whatever was tried around it.

What the bare grammar leaves open:

* A value takes the spaces after it, so ``f.a[1 ]`` is an index; ``f.a[ 1 ]`` is ``f.a`` and an
  array.
* Blanks after ``(`` do not indent: the first line inside has indent 0.
* A comma may be followed by several lines of comment before its attribute.
* An operator that no value follows is a symbol: ``a +`` is ``a`` with the attribute ``+``. The
  value may follow on the next line, if that is not indented.
* ``if`` and ``unless`` must end where the word ends: ``iffy`` is a symbol.
* Strings and regexes end on their line, except inside ``$(...)``. Strings have the escapes of JSON
  and ``\'``; a regex keeps its backslashes except in ``\/``, ``\n`` and the like.
* ``a <> b`` is a comparison; other chains of mixed operators: see `tree.infix`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from actorflow.flows.language.outline import MAX_LINE_DEPTH, Outline, Part, SourceLine
from actorflow.flows.language.reader import A_VALUE, MAX_DEPTH, Found, Step, TextReader
from actorflow.flows.language.source import FlowSyntaxError, Source
from actorflow.flows.language.strings import NESTED, Nested, Strings
from actorflow.flows.language.tokens import (
    BLANKS,
    COLLECTION_BLANKS,
    DIGITS,
    DOT_SYMBOL,
    LINE_END,
    MAX_DIGITS,
    OPERATOR,
    OUTDENT,
    PATH,
    POSTFIX,
    REGEX_START,
    SEPARATOR,
    SPACES,
    constant,
    read_number,
)
from actorflow.flows.language.tree import MAX_SWITCHES, LongChain, Tree, attribute, infix

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["MAX_DEPTH", "FlowSyntaxError", "parse"]


class _Expression(NamedTuple):
    tree: Tree
    start: int
    end: int
    chain: bool = False


if TYPE_CHECKING:
    from actorflow.flows.language.strings import LineStep

    _ExpressionStep: TypeAlias = Generator[int, Found | None, _Expression | None]


def parse(text: str, *, file: str | None = None) -> Tree:
    r"""Return the tree of a flow text; with ``file`` the root has that name as its fourth element.

    Raises `FlowSyntaxError`, also if brackets nest deeper than `MAX_DEPTH` or lines deeper than
    `outline.MAX_LINE_DEPTH`; nothing else, whatever the text. Pure. Takes time linear in the text,
    and the same few frames of stack for every text.

    >>> parse("sequence\n  task 'alice' 'stage a'")
    ['sequence', [['task', [['_att', [['_sqs', 'alice', 2]], 2],
      ['_att', [['_sqs', 'stage a', 2]], 2]], 2]], 1]
    """
    tree = Parser(Source(text, file)).flow()
    return tree if file is None else [*tree, file]


class Parser:
    """Parses one text. After `flow`, `comments` has the comments by offset."""

    __slots__ = ("_reader", "_strings", "_text", "comments", "source", "steps")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._text = source.text
        self._reader = TextReader(source)
        self._strings = Strings(self._reader, self._line)
        self.comments = self._reader.comments
        self.steps = 0
        """Values tried so far: a measure of work that does not depend on the machine."""

    def flow(self) -> Tree:
        """Read the whole text."""
        found = self._reader.run(self._lines(0, whole=True), self._nested)
        assert found is not None  # noqa: S101 - no line at all is a flow too
        tree, end = found
        if end < len(self._text):
            raise self._reader.stuck(end)
        return tree

    def expression(self) -> Tree | None:
        """Read the whole text as one expression, or return None. For the formatter."""
        found = self._reader.run(self._only_expression(), self._nested)
        return None if found is None or found[1] < len(self._text) else found[0]

    def _only_expression(self) -> Step:
        found = yield from self._expression(0)
        return None if found is None else (found.tree, found.end)

    def _nested(self, start: int) -> Step:
        """Return the rule for the value at an offset that may hold other values."""
        match self._text[start]:
            case "(":
                return self._parentheses(start)
            case "[":
                return self._array(start)
            case "{":
                return self._object(start)
            case '"':
                return self._strings.double(start)
            case _:
                return self._reference_or_regex(start)

    # -- lines -----------------------------------------------------------------------------------

    def _lines(self, start: int, *, whole: bool = False) -> Step:
        """``( node? outdent )*``, as far as it goes; ``whole`` for those of the whole text."""
        text = self._text
        outline = Outline()
        while True:
            found = yield from self._line(start)
            end = start
            if found is not None:
                line, end = found
                if outline.add(line) > MAX_LINE_DEPTH:
                    raise self.source.error(
                        start, f"lines nested deeper than {MAX_LINE_DEPTH} levels"
                    )
            outdent = OUTDENT.match(text, end)
            assert outdent is not None  # noqa: S101 - it matches the empty text too
            join = outdent["first"] or outdent["last"]
            if join:
                outline.join(join)
            if outdent.end() > end + 1:
                self._reader.note_comments(end, outdent.end())
            if outdent.end() == start:
                return outline.tree(), start
            if whole:
                self._reader.forget()
            start = outdent.end()

    def _line(self, start: int) -> LineStep:
        """``indent head ( sep ("if" | "unless") | att )*``."""
        text, reader = self._text, self._reader
        begin = reader.skip(SPACES, start)
        head = yield from self._expression(begin)
        if head is None:
            return None
        parts = [self._part(head)]
        end = head.end
        while end < len(text):
            at = (
                self._reader.skip_blanks(SEPARATOR, end)
                if text[end] == ","
                else self._reader.skip(SPACES, end)
            )
            word = POSTFIX.match(text, at)
            if word is not None:
                parts.append(Part([word[0], [], parts[0].line], parts[0].line, postfix=True))
                end = word.end()
                continue
            found = yield from self._expression(at)
            if found is None:
                break
            end = found.end
            if text.startswith(":", end):
                value = yield from self._expression(self._reader.skip_blanks(BLANKS, end + 1))
                if value is not None:
                    parts.append(Part(value.tree, found.tree[2], key=found.tree))
                    end = value.end
                    continue
            parts.append(self._part(found))
        return SourceLine(begin - start, parts), end

    def _part(self, found: _Expression) -> Part:
        return Part(
            found.tree,
            self.source.line(found.start),
            self._text[found.start : found.end].rstrip(" \t"),
            chain=found.chain,
        )

    # -- expressions -----------------------------------------------------------------------------

    def _expression(self, start: int) -> _ExpressionStep:
        """Read a value, or values with operators between them."""
        text = self._text
        found = self._value(start)
        if isinstance(found, Nested):
            found = yield start
        if found is None:
            self._reader.expect(start, A_VALUE)
            return None
        tree, end = found
        end = self._reader.skip(SPACES, end)
        operator = OPERATOR.match(text, end)
        if operator is None:
            return _Expression(tree, start, end)
        operands = [tree]
        operators: list[str] = []
        while operator is not None:
            at = operator.end()
            found = self._value(at)
            if isinstance(found, Nested):
                found = yield at
            if found is None:
                self._reader.expect(at, A_VALUE)
                break
            self._reader.note_comments(operator.end(1), at)
            operators.append(operator[1])
            operands.append(found[0])
            end = self._reader.skip(SPACES, found[1])
            operator = OPERATOR.match(text, end)
        if not operators:
            return _Expression(tree, start, end)
        try:
            return _Expression(infix(operands, operators), start, end, chain=True)
        except LongChain:
            raise self.source.error(
                start,
                f"an operator changes to another of the same rank more than {MAX_SWITCHES} times "
                "in one chain; use parentheses",
            ) from None

    def _value(self, start: int) -> Found | Nested | None:
        """Read a value without nested values; return `NESTED` if it has some."""
        self.steps += 1
        text = self._text
        match = PATH.match(text, start)
        if match is not None:
            word = match[0]
            end = match.end()
            if text.startswith("[", end) or ("/" in word and REGEX_START.match(word)):
                return NESTED
            if text.startswith(".", end):
                self._reader.expect(end + 1, "a name")
            return self._word(word, start), end
        match text[start : start + 1]:
            case "'":
                return self._strings.single(start)
            case '"':
                return self._strings.plain_double(start)
            case "(" | "[" | "{":
                return NESTED
            case _:
                return None

    def _word(self, word: str, start: int) -> Tree:
        """Return the tree of a path without indexes: a constant, a symbol or a reference."""
        line = self.source.line(start)
        try:
            literal = constant(word)
            if literal is not None:
                return [*literal, line]
            if "." not in word:
                return [word, [], line]
        except ValueError:
            raise self._bad_number(start) from None
        return ["_ref", self._elements(word, start), line]

    def _bad_number(self, start: int) -> FlowSyntaxError:
        return self.source.error(
            start,
            f"a number may have {MAX_DIGITS} digits; an integer must fit 64 bits, others a float",
        )

    # -- brackets --------------------------------------------------------------------------------

    def _parentheses(self, start: int) -> Step:
        """``( line* )``."""
        found = yield from self._lines(self._reader.skip_blanks(BLANKS, start + 1))
        return None if found is None else self._closed(found[0], found[1], ")")

    def _array(self, start: int) -> Step:
        """``[ exp* ]``, with commas and blanks between the elements."""
        line = self.source.line(start)
        elements: list[Tree] = []
        end = start + 1
        while True:
            end = self._reader.skip_blanks(COLLECTION_BLANKS, end)
            if self._text.startswith("]", end):
                return ["_arr", elements or [_nothing(line)], line], end + 1
            found = yield from self._expression(end)
            if found is None:
                self._reader.expect(end, '"]"')
                return None
            elements.append(found.tree)
            end = found.end

    def _object(self, start: int) -> Step:
        """``{ (exp : exp)* }``, with commas and blanks between the entries."""
        line = self.source.line(start)
        entries: list[Tree] = []
        end = start + 1
        while True:
            end = self._reader.skip_blanks(COLLECTION_BLANKS, end)
            if self._text.startswith("}", end):
                return ["_obj", entries or [_nothing(line)], line], end + 1
            key = yield from self._expression(end)
            if key is None:
                self._reader.expect(end, '"}"')
                return None
            end = self._reader.skip_blanks(BLANKS, key.end)
            if not self._text.startswith(":", end):
                self._reader.expect(end, '":"')
                return None
            value = yield from self._expression(self._reader.skip_blanks(BLANKS, end + 1))
            if value is None:
                return None
            entries += [key.tree, value.tree]
            end = value.end

    def _closed(self, tree: Tree, end: int, bracket: str) -> Found | None:
        if self._text.startswith(bracket, end):
            return tree, end + 1
        self._reader.expect(end, f'"{bracket}"')
        return None

    # -- references ------------------------------------------------------------------------------

    def _reference_or_regex(self, start: int) -> Step:
        """Read both; the longer one wins, or the regex if they are equally long."""
        text = self._text
        reference = yield from self._reference(start)
        slash = REGEX_START.match(text, start)
        regex = None if slash is None else (yield from self._strings.regex(start, slash.end()))
        if regex is None or reference[1] > regex[1]:
            return reference
        return regex

    def _reference(self, start: int) -> Generator[int, Found | None, Found]:
        """``symbol ( "." symbol | "[" index "]" )*``."""
        text = self._text
        line = self.source.line
        path = PATH.match(text, start)
        assert path is not None  # noqa: S101 - a nested value without a bracket begins with a path
        end = path.end()
        elements: list[Tree] = []
        while True:
            if text.startswith("[", end):
                index = yield from self._indexes(end)
                if index is None:
                    break
                if not elements:
                    elements = self._elements(path[0], start)
                elements.append(index[0])
                end = index[1]
                continue
            symbol = DOT_SYMBOL.match(text, end)
            if symbol is None:
                break
            elements += self._elements(symbol[1], symbol.start(1))
            end = symbol.end()
        if not elements:
            return self._word(path[0], start), end
        return ["_ref", elements, line(start)], end

    def _elements(self, path: str, start: int) -> list[Tree]:
        """Return the elements of a path without indexes; those of digits only are numbers."""
        line = self.source.line(start)
        try:
            return [
                ["_num", read_number(name), line]
                if DIGITS.fullmatch(name)
                else ["_sqs", name, line]
                for name in path.split(".")
            ]
        except ValueError:
            raise self._bad_number(start) from None

    def _indexes(self, start: int) -> Step:
        """``"[" index (";" index)* "]"``."""
        indexes: list[Tree] = []
        end = start + 1
        while True:
            index = yield from self._index(end)
            if index is None:
                return None
            indexes.append(index[0])
            end = index[1]
            if not self._text.startswith(";", end):
                break
            end = self._reader.skip_blanks(LINE_END, end + 1)
        if len(indexes) == 1:
            return self._closed(indexes[0], end, "]")
        return self._closed(["_arr", indexes, self.source.line(start)], end, "]")

    def _index(self, start: int) -> Step:
        """``exp ","? exp``, ``exp? ":" exp? (":" exp?)?`` or ``exp``."""
        text = self._text
        line = self.source.line(start)
        first = yield from self._expression(start)
        if first is not None:
            count = yield from self._expression(self._after_comma(first.end))
            if count is not None:
                return _slice(line, start=first.tree, count=count.tree), count.end
        end = start if first is None else first.end
        bounds: list[Tree | None] = [None if first is None else first.tree]
        while len(bounds) < 3 and text.startswith(":", end):  # noqa: PLR2004 - start, end, step
            end = self._reader.skip_blanks(LINE_END, end + 1)
            bound = yield from self._expression(end)
            bounds.append(None if bound is None else bound.tree)
            end = end if bound is None else bound.end
        if len(bounds) == 1:
            return None if first is None else (first.tree, end)
        begin, until, step = [*bounds, None][:3]
        return _slice(
            line,
            start=begin or ["_num", 0, line],
            end=until or ["_num", -1, line],
            step=step or ["_num", 1, line],
        ), end

    def _after_comma(self, end: int) -> int:
        """Return where the second part of an index may begin; the comma is optional."""
        return self._reader.skip_blanks(LINE_END, end + self._text.startswith(",", end))


def _nothing(line: int) -> Tree:
    """Return the placeholder of an empty array or object, which is an attribute."""
    return attribute(["_", [], line])


def _slice(line: int, **bounds: Tree) -> Tree:
    entries: list[Tree] = []
    for name, bound in bounds.items():
        entries += [["_sqs", name, bound[2]], bound]
    return ["_obj", entries, line]
