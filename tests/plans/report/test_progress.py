"""Progress on a terminal: what it says, and where it stays silent."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from actorflow.plans.report.progress import ProgressBar, shown_on
from actorflow.plans.report.text import JobCounts, remaining_seconds, status_line
from actorflow.runtime.errors import install_hint

ROOT = Path(__file__).parents[3]
some = st.integers(0, 50)


@given(st.integers(0, 50), st.tuples(some, some, some, some), st.floats(0, 1000))
def test_the_time_left_goes_by_what_was_run(
    left: int, settled: tuple[int, int, int, int], seconds: float
) -> None:
    done, cached, failed, skipped = settled
    counts = JobCounts(
        total=left + sum(settled),
        done=done,
        cached=cached,
        failed=failed,
        skipped=skipped,
        seconds=seconds,
    )
    found = remaining_seconds(counts)
    if not left:
        assert found == 0
    elif not done + failed:
        assert found is None
    else:
        assert found is not None
        assert abs(found / left - seconds / (done + failed)) < 1e-6


def test_the_line_leaves_out_what_is_zero() -> None:
    assert status_line(JobCounts(total=5)) == ""
    counts = JobCounts(total=2000, running=4, done=1000, cached=5, failed=1, skipped=2, seconds=60)
    assert status_line(counts) == (
        "4 running, 1,000 done, 5 cached, 1 failed, 2 skipped, about 59.5 s left"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal() -> None:
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=100)
    with ProgressBar(console) as progress:
        progress.update(JobCounts(total=10, running=2, done=3, seconds=3.0))
    text = stream.getvalue()
    assert "3/10" in text
    assert "2 running, 3 done, about 7 s left" in text


def test_progress_is_shown_on_terminals_only() -> None:
    assert shown_on(Terminal())
    assert not shown_on(io.StringIO())


def test_without_rich_a_terminal_stays_quiet() -> None:
    program = (
        "import sys; sys.modules['rich'] = None\n"
        "from actorflow.plans.report.progress import ProgressBar, shown_on\n"
        "from actorflow.runtime.errors import MissingExtra\n"
        "class Terminal:\n    def isatty(self): return True\n"
        "print(shown_on(Terminal()))\n"
        "try: ProgressBar()\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        f"False\nprogress needs rich: {install_hint('cli')}, or progress=False\n"
    )
