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
        "# Results\n\n<!-- workers: begin -->\nkept\n\n<!-- lab -->\n\n## The policy lab"
    )
    assert text.endswith("<!-- /lab -->\n")
    printed = capsys.readouterr().out
    assert all(policy in printed for policy in (*lab.SPEEDS, *lab.AGREEMENT))


def test_only_what_stands_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("before\n<!-- lab -->old<!-- /lab -->\nafter\n", encoding="utf-8")
    lab.put_between_markers(page, "new")
    assert page.read_text(encoding="utf-8") == (
        "before\n<!-- lab -->\n\nnew\n\n<!-- /lab -->\nafter\n"
    )
    lab.put_between_markers(tmp_path / "other.md", "new")
    assert "# Results\n\n<!-- lab -->" in (tmp_path / "other.md").read_text(encoding="utf-8")
