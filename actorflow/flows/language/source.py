"""A flow text, positions in it, and the syntax error that points at one."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from actorflow.runtime.errors import ActorflowError

_SHOWN: Final = 100
"""How many characters of a long line an error shows, half of them before the caret."""


class FlowSyntaxError(ActorflowError, ValueError):
    """The text is not a flow.

    `line` and `column` (from 1) say where parsing stopped: at the start of the outermost construct
    that could not be read. `source` is that line. `expected` lists the possible continuations at
    the furthest position that was reached, and `at` is that position (line, column), inside or at
    the start of the construct that could not be read. `problem` is the message without it.

    It is not raised for a flow that parses but cannot run: an unknown word fails the execution.
    """

    def __init__(
        self,
        problem: str,
        *,
        line: int,
        column: int,
        source: str,
        file: str | None = None,
        expected: tuple[str, ...] = (),
        at: tuple[int, int] | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        self.source = source
        self.expected = expected
        self.at = at or (line, column)
        super().__init__(self._message())

    def _message(self) -> str:
        place = f"syntax error at line {self.line} column {self.column}"
        if self.file is not None:
            place += f" of {self.file}"
        return f"{place}: {self.problem}\n{_pointed(self.source, self.column)}"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the fields when the error travels to another process."""
        return _rebuilt, (self.problem, self.__dict__.copy())


def _rebuilt(problem: str, fields: dict[str, object]) -> FlowSyntaxError:
    error = FlowSyntaxError(problem, line=0, column=0, source="")
    error.__dict__.update(fields)
    error.args = (error._message(),)  # noqa: SLF001
    return error


def _pointed(line: str, column: int) -> str:
    """Return the line with a caret below the column; of a long line, the part around it."""
    start = max(0, column - 1 - _SHOWN // 2)
    shown = "".join(
        c if c.isprintable() or c == "\t" else "?" for c in line[start : start + _SHOWN]
    )
    before = "".join("\t" if c == "\t" else " " for c in shown[: column - 1 - start])
    return f"  {shown}\n  {before}^"


class Source:
    """A text that knows the lines of its offsets. Built in one pass over the text."""

    __slots__ = ("_starts", "file", "text")

    def __init__(self, text: str, file: str | None = None) -> None:
        self.text = text
        self.file = file
        self._starts = list(
            accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0)
        )

    def line(self, offset: int) -> int:
        """Return the line of an offset: 1 + the newlines before it. Takes O(log lines)."""
        return bisect_right(self._starts, offset)

    def place(self, offset: int) -> tuple[int, int]:
        r"""Return line and column of an offset, both from 1.

        >>> Source("a\n  b").place(4)
        (2, 3)
        """
        line = self.line(offset)
        return line, offset - self._starts[line - 1] + 1

    def error(
        self, offset: int, problem: str, *, expected: tuple[str, ...] = (), at: int | None = None
    ) -> FlowSyntaxError:
        """Return (do not raise) the error at an offset; ``at`` is the furthest offset reached."""
        line, column = self.place(offset)
        start = self._starts[line - 1]
        return FlowSyntaxError(
            problem,
            file=self.file,
            line=line,
            column=column,
            source=self.text[start:].split("\n", 1)[0].rstrip("\r"),
            expected=expected,
            at=None if at is None else self.place(at),
        )
