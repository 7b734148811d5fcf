"""One bad message does not take the rest of its batch with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.errors import FlowMessageRefused
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import ScriptedTaskers
from tests.flows.driving import run

if TYPE_CHECKING:
    from actorflow.flows.execution.run import RunOutcome

FLOW = """
concurrence
  task 'alice' 'a'
  task 'alice' 'b'
  sequence tag: 'x'
    on 'ping' \\ push f.l sig
    stall _
  map [ 1 2 ]
    def x \\ task 'alice' 'c'
  concurrence
    stall _
"""
TASKERS = ScriptedTaskers({"alice": "hold"})
LAUNCH = launch_message("x", parse(FLOW), payload={"l": []})


def after(state: ExecutionState, messages: list[Any]) -> RunOutcome:
    return run(state, messages, now=0.0, taskers=TASKERS, max_messages=1_000)


WAITING = after(ExecutionState("x"), [LAUNCH]).state
STORED = encode(WAITING)
TASK = "0_0"

GOOD = (
    {"point": "return", "nid": "0_0", "payload": {"ret": 1}, "tasker": "alice"},
    {"point": "return", "exid": "x", "nid": "0_1", "payload": {"ret": 2}, "tasker": "alice"},
    {"point": "signal", "exid": "x", "name": "ping", "payload": {}},
    {"point": "signal", "name": "nobody listens"},
    {"point": "cancel", "nid": "0_2"},
    {"point": "cancel", "exid": "x", "nid": "0_4", "flavour": "kill"},
    {"point": "add", "nid": "0_3", "elements": [3]},
    {"point": "add", "nid": "0_4", "tnid": "0_4_1", "trees": [["_num", 1, 1]]},
    {"point": "failed", "nid": "0_1", "error": {"kla": "E", "msg": "no"}},
)

BAD: tuple[Any, ...] = (
    7,
    None,
    [],
    "cancel",
    {},
    {"point": None},
    {"point": 7, "nid": "0"},
    {"point": ["cancel"], "nid": "0"},
    {"point": "explode", "nid": "0"},
    {"point": "end"},
    {"point": "terminated"},
    {"point": "ceased", "nid": "0"},
    {"point": "cancel"},
    {"point": "cancel", "nid": None},
    {"point": "cancel", "nid": 0},
    {"point": "cancel", "nid": ["0"]},
    {"point": "cancel", "nid": "0", "exid": "another"},
    {"point": "cancel", "nid": "0", "exid": 7},
    {"point": "cancel", "nid": "0", "payload": 7},
    {"point": "cancel", "nid": "0", "flavour": {}},
    {"point": "cancel", "nid": "0", "cause": 7},
    {"point": "cancel", "nid": "0", "on_receive_last": 7},
    {"point": "cancel", "nid": "0", "on_receive_last": [7]},
    {"point": "cancel", "nid": "0", "on_receive_last": [{"point": "execute"}]},
    {
        "point": "cancel",
        "nid": "0",
        "on_receive_last": [{"point": "execute", "nid": "0", "tree": ["a", [7], 1]}],
    },
    {"point": "execute"},
    {"point": "execute", "nid": "0", "tree": ["_num", 1, 1]},
    {"point": "execute", "nid": "0_7", "tree": 7},
    {"point": "execute", "nid": "0_7", "tree": ["a", [7], 1]},
    {"point": "execute", "nid": "0_7"},
    {"point": "execute", "nid": "a b", "tree": ["_num", 1, 1]},
    {"point": "execute", "nid": "0_7", "tree": ["_num", 1, 1], "from": "8"},
    {"point": "execute", "nid": "0_7", "tree": ["_num", 1, 1], "vars": []},
    {"point": "execute", "nid": "0_7", "tree": ["_num", 1, 1], "payload": []},
    {"point": "receive"},
    {"point": "receive", "nid": 7},
    {"point": "receive", "nid": "0", "from": "0_99", "payload": {}},
    {"point": "receive", "nid": "0", "from": "0_0", "payload": 7},
    {"point": "return"},
    {"point": "return", "nid": "9", "payload": {}},
    {"point": "return", "nid": "9", "payload": {}, "tasker": "alice"},
    {"point": "return", "nid": {}, "payload": {}},
    {"point": "task", "nid": "0_0"},
    {"point": "detask", "nid": "9", "tasker": "alice"},
    {"point": "failed", "nid": "0_0"},
    {"point": "failed", "nid": "9", "error": {}},
    {"point": "signal"},
    {"point": "signal", "name": 7},
    {"point": "signal", "name": "ping", "payload": "x"},
    {"point": "schedule", "nid": "0"},
    {"point": "schedule", "nid": "0", "string": "1s", "message": 7},
    {"point": "trigger"},
    {"point": "trigger", "nid": "0", "message": 7},
    {"point": "trigger", "nid": "0", "message": {"point": "execute"}},
    {"point": "trigger", "nid": "0", "message": {"point": "execute", "nid": "0_7"}},
    {"point": "trigger", "nid": "0", "message": {"point": "trap", "nid": "0", "trap": {}}},
    {"point": "trigger", "nid": "0", "message": {"point": "cancel", "nid": 7}},
    {"point": "trap", "nid": "0", "trap": {}},
    {"point": "trap", "nid": "0"},
    {"point": "trap", "nid": "0", "trap": 7},
    {"point": "add", "nid": "0_3"},
    {"point": "add", "nid": "0_3", "elements": 7},
    {"point": "add", "nid": "0_4", "trees": [7], "tnid": "0_4_1"},
    {"point": "add", "nid": "0_4", "trees": [["_num", 1, 1]]},
    {"point": "add", "nid": "9", "elements": [1]},
    {"point": "entered", "nid": "0"},
    {"point": "left", "tags": 7},
)


@pytest.mark.parametrize("message", BAD, ids=repr)
def test_a_bad_message_is_refused_and_changes_nothing(message: Any) -> None:
    outcome = after(WAITING, [message])
    (refusal,) = outcome.refused
    assert isinstance(refusal.error, FlowMessageRefused)
    assert {one["point"] for one in outcome.messages} <= {"receive", "return"}
    assert not outcome.leftover
    assert outcome.state.nodes == WAITING.nodes
    assert outcome.state.status == WAITING.status


@pytest.mark.parametrize("message", GOOD, ids=repr)
def test_a_good_message_is_not_refused(message: Any) -> None:
    outcome = after(WAITING, [message])
    assert not outcome.refused
    assert outcome.messages


def test_a_refused_launch_leaves_nothing() -> None:
    outcome = after(ExecutionState("x"), [{**LAUNCH, "tree": None}, {**LAUNCH, "tree": 7}])
    assert len(outcome.refused) == 2
    assert not outcome.state.nodes


def effects(outcome: RunOutcome) -> tuple[Any, ...]:
    state = decode(encode(outcome.state))
    return outcome.messages, state, outcome.tasks, outcome.leftover, outcome.payload


SILENT = [
    one for one in BAD if not (type(one) is dict and one.get("point") in ("receive", "return"))
]
"""Malformed messages without a number."""

FIELDS = re.findall(
    r"\w+",
    "point nid from exid payload tree tasker name error message trap trees tnid elements string"
    " on_receive_last flavour cause vars arguments sm timer trap_id tags",
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["0", "0_0", "x", "execute"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.lists(st.sampled_from(range(len(GOOD))), unique=True), st.data())
def test_good_messages_have_the_effect_they_have_alone(
    places: list[int], data: st.DataObject
) -> None:
    good = [GOOD[place] for place in places]
    mixed: list[Any] = list(good)
    bad = data.draw(st.lists(st.sampled_from(SILENT), max_size=5))
    for one in bad:
        mixed.insert(data.draw(st.integers(0, len(mixed))), one)
    alone, together = after(WAITING, good), after(WAITING, mixed)
    assert effects(together) == effects(alone)
    assert len(together.refused) == len(alone.refused) + len(bad)
    assert encode(WAITING) == STORED


mutated = st.builds(
    lambda message, changes, gone: {
        field: value for field, value in {**message, **changes}.items() if field not in gone
    },
    st.sampled_from([*GOOD, *(one for one in BAD if type(one) is dict)]),
    st.dictionaries(st.sampled_from(FIELDS), anything, max_size=2),
    st.sets(st.sampled_from(FIELDS), max_size=1),
)
made_up = st.dictionaries(
    st.sampled_from(FIELDS),
    anything | st.sampled_from(["cancel", "return", "add", "trigger", "trap", "receive"]),
)


@given(st.lists(mutated | made_up | anything, max_size=6))
def test_no_batch_makes_a_run_raise(messages: list[Any]) -> None:
    outcome = after(WAITING, messages)
    decode(encode(outcome.state)).check()
    again = after(outcome.state, [*outcome.leftover, *GOOD])
    decode(encode(again.state)).check()
    assert encode(WAITING) == STORED
