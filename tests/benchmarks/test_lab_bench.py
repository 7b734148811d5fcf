"""The benchmark of the lab runs and writes its own section alone. No figure is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import lab

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_quick_run_fills_its_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\n<!-- workers: begin -->\nkept\n", encoding="utf-8")
    assert lab.main(["--quick", "--markdown", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        "# Results\n\n<!-- workers: begin -->\nkept\n\n<!-- lab: begin -->\n\n## The policy lab"
    )
    assert text.endswith("<!-- lab: end -->\n")
    printed = capsys.readouterr().out
    assert all(policy in printed for policy in (*lab.SPEEDS, *lab.AGREEMENT))
