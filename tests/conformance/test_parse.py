"""Texts read as recorded: every parse case, and the tree of every recorded flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actorflow.flows.language.formatter import format_tree
from actorflow.flows.language.parser import FlowSyntaxError, parse
from actorflow.flows.language.tree import same

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT.parent / "shared" / "conformance" / "flows"
DATA = SHARED if SHARED.is_dir() else Path(__file__).parent / "data" / "flows"
CASES: list[dict[str, Any]] = json.loads((DATA / "parse_cases.json").read_text(encoding="utf-8"))
FLOWS = sorted(path for path in DATA.glob("*.json") if path.name != "parse_cases.json")

# What the recorded parser got wrong, and what these texts read as here.
SOUND = {
    "1 - 2 + 3": ["+", [["-", [["_num", 1, 1], ["_num", 2, 1]], 1], ["_num", 3, 1]], 1],
    "a <> b": ["<>", [["a", [], 1], ["b", [], 1]], 1],
}


def _flow(path: Path) -> dict[str, Any]:
    flow: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return flow


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['topic']}:{case['flow']!r}")
def test_parse_case(case: dict[str, Any]) -> None:
    expected = SOUND.get(case["flow"], case.get("tree"))
    if expected is not None:
        assert same(parse(case["flow"]), expected, lines=True)
        return
    with pytest.raises(FlowSyntaxError, match="syntax error") as caught:
        parse(case["flow"])
    error = case["error"]
    assert (caught.value.line, caught.value.column) == (error["line"], error["column"])
    assert error["message"] in str(caught.value)


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.stem)
def test_tree_of_recorded_flow(path: Path) -> None:
    flow = _flow(path)
    assert same(parse(flow["flow"]), flow["tree"], lines=True)


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.stem)
def test_recorded_flow_survives_formatting(path: Path) -> None:
    tree = _flow(path)["tree"]
    text = format_tree(tree)
    assert same(parse(text), tree)
    assert format_tree(parse(text)) == text


@pytest.mark.parametrize(
    "tree",
    [case["tree"] for case in CASES if "tree" in case],
    ids=[repr(case["flow"]) for case in CASES if "tree" in case],
)
def test_parse_case_survives_formatting(tree: list[Any]) -> None:
    text = format_tree(tree)
    assert same(parse(text), tree)
    assert format_tree(parse(text)) == text


def test_the_copy_of_the_recorded_data_is_that_data() -> None:
    copy = Path(__file__).parent / "data" / "flows"
    assert {path.name for path in copy.iterdir()} == {path.name for path in DATA.iterdir()}
    for path in DATA.iterdir():
        assert (copy / path.name).read_bytes() == path.read_bytes()
