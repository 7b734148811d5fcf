"""Plain attributes are processed at once: nobody can tell, but by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.execution import literal_attributes
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.procedures.registry import all_procedures
from actorflow.testing.flow_driver import FlowDriver
from tests.flows.driving import run

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Tree = list[Any]

ATOMS: SearchStrategy[Tree] = st.sampled_from(
    [["_sqs", "alice", 1], ["_num", 1, 2], ["_boo", True, 1], ["_nul", None, 1], ["_sqs", [], 1]]
)
VALUES = st.one_of(
    ATOMS,
    st.sampled_from(
        [
            ["_ref", [["_sqs", "f", 1], ["_sqs", "x", 1]], 1],
            ["nosuch", [], 1],
            ["_", [], 1],
            ["flank", [], 1],
            ["_dqs", [["_sqs", "a", 1], ["_num", 1, 1]], 1],
        ]
    ),
)
KEYS = st.sampled_from(["tag", "vars", "ret", "by", "timeout", "on_error", "children_on_error"])
HEADS = st.sampled_from(
    [
        *(
            "task",
            "sequence",
            "concurrence",
            "noret",
            "push",
            "set",
            "if",
            "loop",
            "cursor",
            "fail",
        ),
        *("alice", "trap", "signal", "map", "_skip", "_arr", "_obj", "match", "sleep", "_apply"),
    ]
)


def _keyed(key: str, value: Tree) -> Tree:
    return ["_att", [[key, [], 1], value], 1]


ATTRIBUTES: SearchStrategy[Tree] = st.one_of(
    VALUES.map(lambda value: ["_att", [value], 1]),
    ATOMS.map(lambda value: ["_att", [value], 1]),
    st.builds(_keyed, KEYS, VALUES),
)


def _node(inner: SearchStrategy[Tree]) -> SearchStrategy[Tree]:
    parts = st.tuples(st.lists(ATTRIBUTES, max_size=4), st.lists(inner, max_size=2))
    return st.builds(lambda head, both: [head, both[0] + both[1], 1], HEADS, parts)


TREES = st.recursive(ATOMS, _node, max_leaves=8)


def _story(tree: Tree, payload: dict[str, Any], room: int, *, at_once: bool) -> list[Any]:
    """Return all that can be seen of a flow, some runs long."""
    driver = FlowDriver(tree, payload=payload, taskers={"alice": "stamp"}, max_messages=room)
    with pytest.MonkeyPatch.context() as patch:
        if not at_once:
            patch.setattr(literal_attributes, "is_literal", lambda _tree: False)
        for _ in range(30):
            if driver.inbox:
                driver.run_once()
    driver.state.check()
    return [driver.seen, driver.state, driver.payload, driver.inbox]


@given(TREES, st.sampled_from([{}, {"x": [1]}, {"ret": 7}]), st.integers(1, 20))
def test_at_once_or_one_by_one_is_the_same(tree: Tree, payload: dict[str, Any], room: int) -> None:
    root = tree if tree[0][0] != "_" else ["sequence", [tree], 1]
    assert _story(root, payload, room, at_once=True) == _story(root, payload, room, at_once=False)


def _plain(value: Any) -> Tree:
    head = {str: "_sqs", int: "_num", float: "_num"}.get(type(value), "_nul")
    return ["_att", [[head, value, 1]], 1]


PATTERNS = [
    [_plain("alice"), _plain("b"), _plain(3)],
    [_plain(1), ["_att", [["alice", [], 1]], 1], _plain("b"), _plain(None)],
    [_keyed("tag", ["_sqs", "x", 1]), _plain("a"), _plain(2.5), ["task", [_plain("alice")], 2]],
    [_keyed("on_receive", ["def", [_plain("m"), ["_num", 7, 1]], 1]), _plain("a"), _plain("b")],
    [_keyed("ret", ["_num", 5, 1]), _plain("alice"), _plain("b"), ["_num", 1, 2]],
]


@pytest.mark.parametrize("head", sorted({*all_procedures(), "alice", "nosuch"}))
def test_at_once_or_one_by_one_is_the_same_for_every_procedure(head: str) -> None:
    for pattern in PATTERNS:
        for room in (3, 5, 8, 77):
            tree = ["sequence", [[head, pattern, 1], ["trap", [_plain("a")], 2]], 1]
            whole = _story(tree, {"x": 1}, room, at_once=True)
            assert whole == _story(tree, {"x": 1}, room, at_once=False)


def test_all_attributes_of_a_task_are_one_step() -> None:
    attributes = [["_att", [["_num", number, 1]], 1] for number in range(5)]
    asked = []

    def keep_going() -> bool:
        asked.append(True)
        return True

    tree = ["noret", attributes, 1]
    done = run(ExecutionState("x"), [launch_message("x", tree)], now=0.0, keep_going=keep_going)
    assert [message["m"] for message in done.messages] == list(range(1, 24))
    assert len(asked) == 3  # the attributes with the last answer, the end of the root, that of all


@pytest.mark.parametrize("tree", [5, [], ["_att", 3, 1], ["_att", [7], 1], None, {}])
def test_what_is_not_a_tree_is_left_to_the_executor(tree: Any) -> None:
    assert not literal_attributes.is_literal(tree)
    from_inside = {**launch_message("x", ["sequence", [tree], 1]), "er": 1}
    done = run(ExecutionState("x"), [from_inside], now=0.0)
    assert done.messages[-1]["point"] == "failed"
