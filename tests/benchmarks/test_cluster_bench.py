"""The benchmark of engines on Postgres and NATS runs, and writes its section."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cluster import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Postgres


@pytest.mark.timeout(300)
@pytest.mark.parametrize("only", ["changes/s", "killed", pytest.param("", marks=pytest.mark.soak)])
def test_a_quick_run_writes_its_section(tmp_path: Path, postgres: Postgres, only: str) -> None:
    """The fixture is asked for because it skips the test where there is no server."""
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nmine\n", encoding="utf-8")
    assert main(["--quick", "--markdown", str(page), "--only", only]) == 0
    text = page.read_text(encoding="utf-8")
    assert "mine" in text
    assert text.count("## Engines on Postgres and NATS") == 1
    assert "| two-step workflows, 8 starters, on Postgres, a second / DBOS |" in text
    assert only in text
    assert "error" not in text
