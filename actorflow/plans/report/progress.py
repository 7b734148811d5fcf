"""Progress on a terminal while a plan runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from actorflow.plans.report.table import seconds_text
from actorflow.runtime.errors import MissingExtra

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

__all__ = ["Counts", "Progress", "remaining_seconds", "shown_on", "status_line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
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


def remaining_seconds(counts: Counts) -> float | None:
    """Return how long the rest may take; `None` as long as nobody can say.

    The jobs that were run say how fast it goes: those from the cache cost next to nothing.

    >>> remaining_seconds(Counts(total=100, done=20, cached=30, seconds=10.0))
    25.0
    """
    ran = counts.done + counts.failed
    left = counts.total - counts.settled
    if not left:
        return 0.0
    return left * counts.seconds / ran if ran else None


def status_line(counts: Counts) -> str:
    """Return the counts in words, those of zero left out.

    >>> status_line(Counts(total=9, running=2, done=3, failed=1, seconds=4.0))
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


def shown_on(stream: Any = None) -> bool:
    """Return whether progress would be seen: the stream is a terminal, and rich is installed."""
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        return False
    try:
        import rich  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        return False
    return True


class Progress:
    """A bar on a terminal, with what runs and what is left. Needs rich.

    `update` may be called from any one thread, as often as one likes: rich draws it ten times a
    second, in a thread of its own.
    """

    def __init__(self, console: Console | None = None) -> None:
        try:
            from rich.console import Console  # noqa: PLC0415 - an extra, and slow to import
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
            )
            from rich.progress import Progress as Bar  # noqa: PLC0415
        except ImportError as error:
            msg = "progress needs rich: pip install 'actorflow[cli]', or progress=False"
            raise MissingExtra(msg) from error
        self._bar = Bar(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console or Console(stderr=True),
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, counts: Counts) -> None:
        """Show new counts."""
        self._bar.update(
            self._task,
            total=counts.total,
            completed=counts.settled,
            description=status_line(counts),
        )
