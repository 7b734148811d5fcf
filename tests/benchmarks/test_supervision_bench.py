"""The supervision benchmark runs, and writes its section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.supervision import main

if TYPE_CHECKING:
    from pathlib import Path


def test_a_quick_run_writes_its_section_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nmine\n", encoding="utf-8")
    assert main(["--quick", "--markdown", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "mine" in text
    assert "## Supervision" in text
    assert "| restart |" in text
    assert main(["--quick", "--markdown", str(page)]) == 0
    assert page.read_text(encoding="utf-8").count("## Supervision") == 1
