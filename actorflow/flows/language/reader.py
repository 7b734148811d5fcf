"""What all rules of the grammar build on: nesting without recursion, blanks, expectations."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, TypeAlias

from actorflow.flows.language.tokens import COMMENT
from actorflow.flows.language.tree import Tree

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from actorflow.flows.language.source import FlowSyntaxError, Source

MAX_DEPTH: Final = 200
"""How deeply brackets, braces, parentheses and ``$(`` may nest."""

A_VALUE: Final = "a value"

Found: TypeAlias = tuple[Tree, int]
"""What a rule has read, and the offset of its end."""

Step: TypeAlias = Generator[int, Found | None, Found | None]
"""A rule in progress: it yields the offsets of nested values and receives those values."""


class TextReader:
    """The state of parsing one text."""

    __slots__ = ("_expected", "_far", "_memo", "comments", "source", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.comments: dict[int, str] = {}
        """The comments that were passed, by offset."""
        self._memo: dict[int, Found | None] = {}
        self._far = 0
        self._expected: list[str] = []

    def run(self, rule: Step, nested: Callable[[int], Step]) -> Found | None:
        """Run a rule, and the rules for the nested values it asks for, on an explicit stack.

        ``nested`` returns the rule for the value at an offset. Nested values are memoised by
        offset, including failures.
        """
        memo = self._memo
        stack = [(-1, rule)]
        answer: Found | None = None
        while True:
            offset, rule = stack[-1]
            try:
                wanted = rule.send(answer)
            except StopIteration as stop:
                answer = stop.value
                stack.pop()
                if not stack:
                    return answer
                memo[offset] = answer
                continue
            if wanted in memo:
                answer = memo[wanted]
                continue
            if len(stack) > MAX_DEPTH:
                raise self.source.error(
                    wanted,
                    f"nested deeper than {MAX_DEPTH} levels; give the inner parts a name with "
                    "define or set",
                )
            stack.append((wanted, nested(wanted)))
            answer = None

    def forget(self) -> None:
        """Drop memoised values before an offset that no rule will go back to."""
        self._memo.clear()

    def expect(self, offset: int, what: str) -> None:
        """Record the expected text at an offset; the error reports the furthest offset."""
        if offset > self._far:
            self._far = offset
            self._expected = [what]
        elif offset == self._far and what not in self._expected:
            self._expected.append(what)

    def stuck(self, offset: int) -> FlowSyntaxError:
        """Return the error for a text that could not be parsed beyond `offset`."""
        self.expect(offset, A_VALUE)
        self.expect(offset, "the end of the line")
        *others, last = self._expected
        problem = f"expected {', '.join(others)} or {last}" if others else f"expected {last}"
        if self._far > offset:
            line, column = self.source.place(self._far)
            problem = f"cannot read this: {problem} at line {line} column {column}"
        return self.source.error(offset, problem, expected=(*others, last), at=self._far)

    def skip(self, pattern: re.Pattern[str], start: int) -> int:
        """Return the end of the pattern's match, which may be empty."""
        match = pattern.match(self.text, start)
        return start if match is None else match.end()

    def skip_blanks(self, pattern: re.Pattern[str], start: int) -> int:
        """Return the end of blanks that may hold comments."""
        end = self.skip(pattern, start)
        if end > start + 1:
            self.note_comments(start, end)
        return end

    def note_comments(self, start: int, end: int) -> None:
        """Keep the comments of a stretch of blanks."""
        for comment in COMMENT.finditer(self.text, start, end):
            self.comments[comment.start()] = comment[0]
