"""The benchmark of engines on Postgres runs, and writes its section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cluster import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Postgres


def test_a_quick_run_writes_its_section(tmp_path: Path, postgres: Postgres) -> None:
    """The fixture is asked for because it skips the test where there is no server."""
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nmine\n", encoding="utf-8")
    assert main(["--quick", "--markdown", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "mine" in text
    assert "| group size |" in text
    assert "p50" in text
