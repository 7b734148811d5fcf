"""The Python of a Markdown page: the blocks that open with three backticks and ``python``.

Each block is a program, which a test runs as a file of its own. A block that opens with
``python no-run`` is compiled only: use it for code that needs a server, or modules that do not
exist.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator
    from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<info>[^`\n]*)$")


class SnippetError(Exception):
    """A page that cannot be read: a block never closed, or marked with an unknown word."""


@dataclass(frozen=True)
class Snippet:
    """One block of Python on a page."""

    page: Path
    line: int  # of the first line of code, from 1
    source: str
    runs: bool

    def compile(self) -> types.CodeType:
        """Compile the block, so that tracebacks name the page and the line on it."""
        padded = "\n" * (self.line - 1) + self.source
        flags = 0 if self.runs else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: types.CodeType = compile(padded, str(self.page), "exec", flags, dont_inherit=True)
        return code


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the Python blocks of a page, in order; raise SnippetError if it cannot be read."""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        fence = FENCE.match(line)
        if not fence:
            continue
        body = []
        for _, inner in lines:
            if inner.strip().startswith(fence["ticks"]) and not inner.strip(" `~"):
                break
            body.append(inner)
        else:
            raise SnippetError(f"{page}:{number}: this block is never closed")
        language, *words = fence["info"].split() or [""]
        if language != "python":
            continue
        if words not in ([], ["no-run"]):
            raise SnippetError(f"{page}:{number}: {words} after python; only no-run is known")
        yield Snippet(page, number + 1, dedent("\n".join(body)) + "\n", runs=not words)
