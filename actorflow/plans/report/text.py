"""A run of a plan as text: tables, times, and the line of a progress bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JobCounts", "remaining_seconds", "seconds_text", "status_line", "table_text"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs of a plan there are of each kind, at one moment."""

    total: int
    running: int = 0
    done: int = 0
    cached: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    """Since the run began."""

    @property
    def settled(self) -> int:
        """Jobs with which nothing more will happen."""
        return self.done + self.cached + self.failed + self.skipped


def remaining_seconds(counts: JobCounts) -> float | None:
    """Return how long the rest may take; `None` as long as nobody can say.

    The jobs that were run say how fast it goes: those from the cache cost next to nothing.

    >>> remaining_seconds(JobCounts(total=100, done=20, cached=30, seconds=10.0))
    25.0
    """
    ran = counts.done + counts.failed
    left = counts.total - counts.settled
    if not left:
        return 0.0
    return left * counts.seconds / ran if ran else None


def status_line(counts: JobCounts) -> str:
    """Return the counts in words, those of zero left out.

    >>> status_line(JobCounts(total=9, running=2, done=3, failed=1, seconds=4.0))
    '2 running, 3 done, 1 failed, about 5 s left'
    """
    parts = [
        f"{number:,} {name}"
        for name, number in (
            ("running", counts.running),
            ("done", counts.done),
            ("cached", counts.cached),
            ("failed", counts.failed),
            ("skipped", counts.skipped),
        )
        if number
    ]
    left = remaining_seconds(counts)
    if left:
        parts.append(f"about {seconds_text(left)} left")
    return ", ".join(parts)
