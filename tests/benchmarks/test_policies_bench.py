"""The benchmark of policies for inference runs. No figure is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import policies

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_quick_run_fills_its_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n", encoding="utf-8")
    assert policies.main(["--quick", "--markdown", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "## Policies for inference" in text
    printed = capsys.readouterr().out
    for scene in policies.SCENES:
        assert scene.name in printed
    for peer in ("actorflow", "hand-written", "Ray Serve's rule"):
        assert printed.count(peer) == len(policies.SCENES)
