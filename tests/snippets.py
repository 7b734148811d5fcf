"""Run the Python of a Markdown page: ``python -m tests.snippets page.md``.

The blocks of a page that open with three backticks and ``python`` run in order, in one namespace,
as a reader would type them; ``await`` is allowed at the top level. With ``--alone`` each block is a
program and runs in a process of its own. A block that opens with ``python no-run`` is compiled
only: use it for code that needs a server, or modules that do not exist.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def compile(self, flags: int = 0) -> types.CodeType:
        """Compile the block, so that tracebacks name the page and the line on it."""
        padded = "\n" * (self.line - 1) + self.source
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


def run(page: Path) -> int:
    """Run a page; return how many blocks it has. What a block raises is raised here."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # so that classes defined on a page are found by their name
    count = 0
    for count, snippet in enumerate(snippets(page), start=1):  # noqa: B007 - the last one is the result
        code = snippet.compile(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if not snippet.runs:
            continue
        result = eval(code, module.__dict__)  # noqa: S307 - our own pages
        if inspect.iscoroutine(result):
            asyncio.run(result)
    return count


def run_alone(page: Path) -> None:
    """Run each block of a page in a process of its own; exit with its code if one fails."""
    for snippet in snippets(page):
        code = snippet.compile(0 if snippet.runs else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if not snippet.runs:
            continue
        if os.fork() == 0:
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(code, module.__dict__)  # noqa: S102 - our own pages
            return  # this process ends as any program does
        _, status = os.wait()
        if status:
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if sys.argv[1] == "--alone":
        run_alone(Path(sys.argv[2]).resolve())
    else:
        run(Path(sys.argv[1]).resolve())
