"""Tables and times as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["seconds_text", "table_text"]

_WIDEST = 60  # characters of a cell
_LEFT = 2  # columns with words; those between them and the last hold figures


def table_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below headings, in columns. The first two and the last are words.

    >>> print(table_text(("job", "status", "ran", "why"), [("fit", "done", "1.2 s", "")]))
    job  status    ran  why
    fit  done    1.2 s
    """
    cells = [tuple(map(_shortened, row)) for row in (headings, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(headings))]
    last = len(headings) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < _LEFT or at == last else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def seconds_text(seconds: float) -> str:
    """Return a time as people read it.

    >>> [seconds_text(each) for each in (0, 0.00005, 0.0123, 1.234, 75, 3725.0)]
    ['0 s', '0.05 ms', '12.3 ms', '1.23 s', '1 min 15 s', '1 h 02 min']
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
