"""Stored runs and executions can be read again, even in the format of earlier versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actorflow.engine import bodies
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.environment import NoLoader, NoTaskers, Observer
from actorflow.flows.execution.loop import process
from actorflow.flows.execution.payloads import SharedParts, restored
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.run import FlowRun
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.language.parser import parse
from actorflow.flows.procedures.registry import all_procedures
from actorflow.flows.service.history import HistoryRecorder, messages_of
from actorflow.flows.values.text import digest

if TYPE_CHECKING:
    from actorflow.flows.execution.literal_messages import Literals

Message = dict[str, Any]

FLOW = """
sequence vars: { a: 1 }
  noret 1 'two' true null
  set b 2
  push f.l b
  concurrence
    sequence 'tagged'
    noret 3 4
  "$(b) and $(f.n)"
  task 'nobody' 'nothing'
"""


class _Eye(Observer):
    """Keeps what a reader of the history has to find there."""

    def __init__(self, run: FlowRun, other: HistoryRecorder) -> None:
        self.run = run
        self.other = other
        self.seen: list[Message] = []

    def observe(self, message: Message, emitted: list[Message], nodes: int) -> None:
        """Keep one message."""
        self.other.observe(message, emitted, nodes)
        self._keep(message, nodes)

    def observe_literals(self, literals: Literals, nodes: int) -> None:
        """Keep those of plain attributes."""
        self.other.observe_literals(literals, nodes)
        for place, message in enumerate(literals.messages()[:-1]):
            self._keep(message, nodes + (1, 2, 1, 0)[place % 4])

    def _keep(self, message: Message, nodes: int) -> None:
        kept = {key: value for key, value in message.items() if key != "accept_symbol"}
        del kept["exid"]
        node = self.run.nodes.get(kept.get("nid") or "")
        if "tree" in kept:
            kept["heap"] = kept["tree"][0] if node is None else node.heap
            kept["tree"] = digest(kept["tree"])
        if node is not None and node.vars:
            kept["seen"] = list(node.vars)
        self.seen.append({**kept, "nodes": nodes})


def _record(flow: str, payload: Message, room: int) -> tuple[list[Message], list[Message]]:
    """Run a flow; return its messages, and the same as read from the records of its runs."""
    seen: list[Message] = []
    read: list[Message] = []
    state, inbox = ExecutionState("x"), [launch_message("x", parse(flow), payload=payload)]
    while inbox:
        run = FlowRun(
            state,
            procedures=all_procedures(),
            now=0.0,
            loader=NoLoader(),
            taskers=NoTaskers(),
            rng=None,
        )
        recorder = HistoryRecorder(run)
        eye = _Eye(run, recorder)
        out = process(run, inbox, room, lambda: True, eye)
        state, inbox = out.state, out.leftover
        stored = recorder.record(counters=state.counters)
        seen += eye.seen
        read += messages_of(bodies.decode(stored))
    return seen, read


PLAIN = """
sequence
  noret 1 'two'
  set f.a 2
  "$(f.a) and $(f.n)"
  sequence
    3
  task 'nobody' 'nothing'
"""


@given(
    st.integers(1, 77),
    st.sampled_from([(FLOW, {"l": [[1]], "o": {"a": [2]}, "n": 1}, 60), (PLAIN, {"n": 1}, 30)]),
)
def test_every_message_is_read_as_it_was(room: int, case: tuple[str, Message, int]) -> None:
    flow, payload, least = case
    seen, read = _record(flow, payload, room)
    assert len(seen) > least
    assert [message["m"] for message in read] == list(range(1, len(seen) + 1))
    for expected, found in zip(seen, read, strict=True):
        given_keys = {key for key, value in expected.items() if value is not None}
        assert {key: found.get(key) for key in given_keys} == {
            key: expected[key] for key in given_keys
        }
        assert all(value is None for key, value in found.items() if key not in expected)


def test_a_record_of_the_first_format_is_read() -> None:
    entry = {
        "run": 2,
        "counters": {"runs": 2, "msgs": 12},
        "messages": [
            {"point": "return", "nid": "0", "tasker": "a", "payload": 0, "m": 11, "pr": 2},
            {"point": "receive", "nid": "0", "payload": 1, "m": 12, "pr": 2, "er": 2, "nodes": 1},
        ],
        "payloads": [["n", 0, 1, "l", 1, 0], []],
        "values": [[1, 2]],
    }
    first, second = messages_of(bodies.decode(bodies.encode(entry)))
    assert (first["point"], first["tasker"], first["m"], first["pr"]) == ("return", "a", 11, 2)
    assert first["payload"] == {"n": 1, "l": [1, 2]}
    assert second["payload"] == {}
    assert second["m"] == 12


def test_a_state_of_the_first_format_is_read() -> None:
    tree = ["stall", [["_att", [["_", [], 1]], 1]], 1]
    node = {"nid": "0", "payload": {"#": 0}, "heat0": "stall", "heap": "stall", "tree": ["#", 0]}
    old = msgspec.msgpack.encode(
        [
            {"exid": "x", "nodes": {"0": node}, "counters": {"runs": 1, "msgs": 3}},
            [["n", 0, 1, "l", 1, 0]],
            [[1, 2]],
            [msgspec.msgpack.encode(tree)],
        ]
    )
    state = decode(old)
    assert state.nodes["0"].payload == {"n": 1, "l": [1, 2]}
    assert state.nodes["0"].tree == tree
    assert decode(encode(state)) == state


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(max_size=2), VALUES, max_size=4), max_size=5))
def test_payloads_are_read_as_they_were_and_stored_once(payloads: list[dict[str, Any]]) -> None:
    shared = [{**payload, "same": payload} for payload in payloads] + payloads
    gathered = SharedParts()
    places = [gathered.place(payload) for payload in (*shared, *shared)]
    assert len(gathered.payloads) == len(shared)
    assert all(value for value in gathered.values)
    assert len({id(value) for value in gathered.values}) == len(gathered.values)
    read = restored(
        *msgspec.msgpack.decode(msgspec.msgpack.encode([gathered.payloads, gathered.values]))
    )
    assert [read[place] for place in places] == [*shared, *shared]
