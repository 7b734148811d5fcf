"""A flow text cannot stop the process: what it asks for too much of is an error of the flow."""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.errors import BadPayload, FlowError, LimitExceeded, check_payload
from actorflow.flows.language.checking import EmptyFlow, check_text, check_tree
from actorflow.flows.language.parser import FlowSyntaxError, parse
from actorflow.flows.limits import LIMITS, Limits


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# -- texts and trees -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\n", "# nothing\n", "  // a\n\n# b", "\t\n", ";"])
def test_an_empty_flow_is_refused(text: str) -> None:
    with pytest.raises(EmptyFlow, match="the flow is empty") as caught:
        check_text(text, file="a.flo")
    assert isinstance(caught.value, FlowSyntaxError)
    assert caught.value.file == "a.flo"


def test_a_flow_of_one_word_is_not_empty() -> None:
    assert check_text("# a\nsequence") == ["sequence", [], 2]
    assert check_text("1") == ["_num", 1, 1]


def test_a_long_text_is_refused() -> None:
    with pytest.raises(LimitExceeded, match=r"11 characters, and may have 10"):
        check_text("sequence\n 1", limits=Limits(text=10))


def test_deep_lines_are_refused_however_they_are_nested() -> None:
    most = LIMITS.tree_depth
    check_text("\n".join(" " * depth + "sequence" for depth in range(most)))
    for text in (
        "\n".join(" " * depth + "sequence" for depth in range(most + 1)),
        " \\ ".join(["sequence"] * 5_000),
        "(a " * (most - 1) + "b" + ")" * (most - 1),
    ):
        with pytest.raises(LimitExceeded, match=f"deeper than {most} levels"):
            check_text(text)


def test_a_tree_is_checked_like_a_text() -> None:
    tree = parse("sequence\n  trace 'a'")
    assert check_tree(tree) is tree
    with pytest.raises(LimitExceeded, match="deeper than 2 levels"):
        check_tree(tree, limits=Limits(tree_depth=2))
    for stray in (7, "sequence", ["sequence", [7], 1], ["a"], None, {}):
        with pytest.raises(FlowError, match="a flow is a tree"):
            check_tree(stray)  # type: ignore[arg-type]


# -- payloads from outside -----------------------------------------------------------------------


def test_a_large_payload_is_refused() -> None:
    with pytest.raises(BadPayload, match=f"may have {LIMITS.payload:,}"):
        check_payload({"text": "x" * LIMITS.payload})


def test_a_deep_payload_is_refused() -> None:
    check_payload({"a": nested(LIMITS.depth - 1)})
    for levels in (LIMITS.depth, 400):
        with pytest.raises(BadPayload, match=f"deeper than {LIMITS.depth} levels"):
            check_payload({"a": nested(levels)})
