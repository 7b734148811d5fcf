"""Every promise on the page names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_the_tests_that_the_page_on_durability_names_are_there() -> None:
    text = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
    named = NAMED.findall(text)
    assert len(named) > 25
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert f"def {function}" in (ROOT / path).read_text(encoding="utf-8"), (path, function)


def test_each_row_of_that_table_names_one() -> None:
    text = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
    table = text[text.index("| promise | test |") :].split("\n\n")[0]
    rows = table.splitlines()[2:]
    assert [row for row in rows if not NAMED.search(row)] == []
