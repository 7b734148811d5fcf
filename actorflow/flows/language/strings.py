"""The rules for strings and regexes, and for the nodes inside them: ``$(...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from actorflow.flows.language.tokens import (
    DOUBLE_TEXT,
    OUTDENT,
    REGEX_OPTIONS,
    REGEX_TEXT,
    SINGLE_TEXT,
    unescape,
    unescape_regex,
)
from actorflow.flows.language.tree import Tree, attribute

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator

    from actorflow.flows.language.outline import SourceLine
    from actorflow.flows.language.reader import Found, Step, TextReader

    LineStep: TypeAlias = Generator[int, Found | None, tuple[SourceLine, int] | None]
    _PartsStep: TypeAlias = Generator[int, Found | None, tuple[list[Tree], int] | None]


class Nested:
    """The type of `NESTED`: the value at this offset needs the rules for nested values."""


NESTED: Final = Nested()


class Strings:
    """Reads strings and regexes; ``line`` is the rule for the contents of ``$(...)``."""

    __slots__ = ("_line", "_reader", "_unclosed")

    def __init__(self, reader: TextReader, line: Callable[[int], LineStep]) -> None:
        self._reader = reader
        self._line = line
        self._unclosed = 0
        """No regex that begins before this offset is closed."""

    def single(self, start: int) -> Found | None:
        """Read ``'text'``."""
        end = self._reader.skip(SINGLE_TEXT, start + 1)
        if not self._reader.text.startswith("'", end):
            self._expect_in_string(end, "'")
            return None
        return ["_sqs", self._unescaped(start + 1, end), self._reader.source.line(start)], end + 1

    def plain_double(self, start: int) -> Found | Nested | None:
        """Read a double quoted string without ``$(``."""
        end = self._reader.skip(DOUBLE_TEXT, start + 1)
        if self._reader.text.startswith("$(", end):
            return NESTED
        if not self._reader.text.startswith('"', end):
            self._expect_in_string(end, '"')
            return None
        return ["_sqs", self._unescaped(start + 1, end), self._reader.source.line(start)], end + 1

    def double(self, start: int) -> Step:
        """Read ``"text $(...) text"``."""
        found = yield from self._parts(start + 1, DOUBLE_TEXT)
        if found is None:
            return None
        parts, end = found
        if not self._reader.text.startswith('"', end):
            self._expect_in_string(end, '"')
            return None
        return ["_dqs", parts, self._reader.source.line(start)], end + 1

    def regex(self, start: int, body: int) -> Step:
        """Read ``r/text $(...) text/options``."""
        if body <= self._unclosed:
            return None  # an earlier regex found no closing slash, so this one will not either
        found = yield from self._parts(body, REGEX_TEXT, unescape_regex)
        if found is None:
            return None
        parts, end = found
        if not self._reader.text.startswith("/", end):
            self._unclosed = end
            return None
        line = self._reader.source.line(start)
        options, end = yield from self._options(end + 1)
        if options:
            one = len(options) == 1 and options[0][0] == "_sqs"
            given: Tree = options[0] if one else ["_dqs", options, options[0][2]]
            parts = [attribute(["rxopts", [], line], given), *parts]
        return ["_rxs", parts, line], end

    def _options(self, start: int) -> Generator[int, Found | None, tuple[list[Tree], int]]:
        """Letters, each on its own, and ``$(...)``."""
        options: list[Tree] = []
        line = self._reader.source.line(start)
        end = start
        while True:
            letters_end = self._reader.skip(REGEX_OPTIONS, end)
            options += [["_sqs", letter, line] for letter in self._reader.text[end:letters_end]]
            end = letters_end
            dollar = None
            if self._reader.text.startswith("$(", end):
                dollar = yield from self._dollar(end)
            if dollar is None:
                return options, end
            options.append(dollar[0])
            end = dollar[1]

    def _parts(
        self, start: int, pattern: re.Pattern[str], unescaped: Callable[[str], str] = unescape
    ) -> _PartsStep:
        """Texts and ``$(...)``, as far as they go."""
        text = self._reader.text
        parts: list[Tree] = []
        while True:
            end = self._reader.skip(pattern, start)
            if end > start:
                value = self._unescaped(start, end, unescaped)
                parts.append(["_sqs", value, self._reader.source.line(start)])
            if not text.startswith("$(", end):
                return parts, end
            dollar = yield from self._dollar(end)
            if dollar is None:
                if pattern is REGEX_TEXT:
                    self._unclosed = end
                return None
            tree, start = dollar
            parts.append(tree)

    def _dollar(self, start: int) -> Step:
        """``$( line* ("||" line*)* )``; the lines are not nested, whatever their indents."""
        text = self._reader.text
        alternatives: list[Tree] = []
        begin = start + 2
        line = self._reader.source.line(begin + text.startswith("\n", begin))
        while True:
            nodes, end = yield from self._nodes(begin)
            alternatives.append(["_dmute", nodes, line])
            if text.startswith(")", end):
                return ["_dol", alternatives, self._reader.source.line(start)], end + 1
            if not text.startswith("||", end):
                self._reader.expect(end, '")"')
                return None
            line = self._reader.source.line(end)
            begin = end + 2

    def _nodes(self, start: int) -> Generator[int, Found | None, tuple[list[Tree], int]]:
        """``( node? outdent )*``, as far as it goes."""
        nodes: list[Tree] = []
        while True:
            found = yield from self._line(start)
            end = start
            if found is not None:
                node, end = found
                nodes.append(node.tree())
            outdent = self._reader.skip_blanks(OUTDENT, end)
            if outdent == start:
                return nodes, start
            start = outdent

    def _unescaped(self, start: int, end: int, unescaped: Callable[[str], str] = unescape) -> str:
        try:
            return unescaped(self._reader.text[start:end])
        except ValueError as error:
            raise self._reader.source.error(
                start, f"{error} is half of a surrogate pair, not a character"
            ) from None

    def _expect_in_string(self, offset: int, quote: str) -> None:
        if self._reader.text.startswith("\\", offset):
            self._reader.expect(
                offset, "one of the escapes \\\" \\' \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"
            )
        else:
            self._reader.expect(offset, f"the closing {quote}")
