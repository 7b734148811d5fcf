"""Tables of the benchmarks, for the terminal and for RESULTS.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Rows", "piped", "plain", "put_between_markers"]

Rows: TypeAlias = list[list[str]]
"""The cells of a table, the heading first. The first and the last column hold text."""


def plain(table: Rows) -> str:
    """Return a table for the terminal."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = []
    for row in table:
        first, *rest = (
            cell.ljust(width) if at == 0 or at == len(row) - 1 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *rest)).rstrip())
    return "\n".join(lines)


def piped(table: Rows) -> str:
    """Return a table in Markdown."""
    head, *body = table
    rule = ["---", *("---:" for _ in head[1:-1]), "---"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def put_between_markers(page: Path, text: str, name: str) -> None:
    """Replace the text between the markers of a page; create the page if it is missing."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, after = "# Results\n\n", "\n"
    if page.exists():
        old = page.read_text(encoding="utf-8")
        if begin in old and end in old:
            before, _, rest = old.partition(begin)
            after = rest.partition(end)[2]
        else:
            before = old.rstrip() + "\n\n"
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
