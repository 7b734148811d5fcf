"""Only files that have changed are read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.pipeline import app

if TYPE_CHECKING:
    from pathlib import Path


def test_only_what_has_changed_runs_again(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("tea and cake and tea", encoding="utf-8")
    words, ran = app.main(tmp_path)
    assert words == [("and", 8), ("tea", 8), ("cake", 4)]
    assert len(ran) == 6
    assert app.main(tmp_path) == (words, [])
    (tmp_path / "2.txt").write_text("cake " * 10, encoding="utf-8")
    words, ran = app.main(tmp_path)
    assert words == [("cake", 13), ("and", 6), ("tea", 6)]
    assert sorted(ran) == ["count 2.txt", "merge", "most_common"]
