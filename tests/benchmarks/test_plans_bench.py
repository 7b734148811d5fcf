"""The benchmark of plans runs, and writes its section."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.plans import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300)
def test_a_quick_run_writes_its_section_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nmine\n", encoding="utf-8")
    tables = tmp_path / "page.md"
    assert main(["--quick", "--markdown", str(page), "--tables", str(tables)]) == 0
    assert "| actorflow |" in tables.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "error" not in text
    assert "mine" in text
    assert text.count("## Plans") == 1
    assert "| 10,000 no-ops in 100 layers / bare pool and graphlib |" in text
