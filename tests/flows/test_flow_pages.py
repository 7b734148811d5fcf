"""Every flow on a page of the documentation does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from actorflow.flows.procedures.registry import all_procedures
from tests.flow_pages import FlowBlock, flow_blocks

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(ROOT.glob("docs/flows/*.md"))
BLOCKS = [block for page in PAGES for block in flow_blocks(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_the_flow_does_what_the_page_says(block: FlowBlock) -> None:
    block.check()


def test_every_procedure_is_on_the_page() -> None:
    inner = {"begin"}  # none of these is written in a flow by hand
    page = (ROOT / "docs/flows/language.md").read_text(encoding="utf-8")
    names = {name for name in all_procedures() if not name.startswith("_")} - inner
    missing = sorted(name for name in names if f"`{name}`" not in page)
    assert missing == []
