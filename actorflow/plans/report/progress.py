"""Progress on a terminal while a plan runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from actorflow.plans.report.text import status_line
from actorflow.runtime.errors import MissingExtra, install_hint

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from actorflow.plans.report.text import JobCounts

__all__ = ["ProgressBar", "shown_on"]


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


class ProgressBar:
    """A bar on a terminal, with the running jobs and the remaining time. Needs rich.

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
            msg = f"progress needs rich: {install_hint('cli')}, or progress=False"
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

    def update(self, counts: JobCounts) -> None:
        """Show new counts."""
        self._bar.update(
            self._task,
            total=counts.total,
            completed=counts.settled,
            description=status_line(counts),
        )
