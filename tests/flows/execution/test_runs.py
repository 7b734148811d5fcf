"""A run: pure, bounded, resumable; what it leaves and what it refuses."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest

from actorflow.flows.errors import BadPayload, FlowMessageRefused
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.node import child_id, child_nid, suffix_of
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState, FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.flows.service.payload_check import check_payload
from actorflow.testing.flow_driver import FlowDriver, ScriptedTaskers
from tests.flows.driving import run

TWO_TASKS = "sequence\n  task 'alice' 'a'\n  task 'bob' 'b'\n"


def launch(text: str, **options: object) -> FlowDriver:
    return FlowDriver(parse(text), **options).drive()  # type: ignore[arg-type]


def test_a_run_does_not_change_the_state_it_was_given() -> None:
    driver = FlowDriver(
        parse(
            "sequence\n  set a [ 1 ]\n  define f x \\ + x 1\n"
            "  task 'alice' 'a'\n  f 1\n  push a 2\n"
        ),
        taskers={"alice": "hold"},
    ).drive()
    before = driver.state
    kept = copy.deepcopy(msgspec.to_builtins(before))
    message = {"point": "return", "exid": "EXID", "nid": "0_2", "tasker": "alice", "payload": {}}
    taskers = ScriptedTaskers({"alice": "hold"})
    first = run(before, [message], now=0.0, taskers=taskers)
    second = run(before, [message], now=0.0, taskers=taskers)
    assert msgspec.to_builtins(before) == kept
    assert encode(first.state) == encode(second.state)
    assert first.status is FlowStatus.TERMINATED


def test_a_run_stops_after_its_number_of_messages_and_hands_on_the_rest() -> None:
    state = ExecutionState("x")
    tree = parse("sequence\n  1\n  2\n  3\n")
    outcome = run(state, [launch_message("x", tree)], now=0.0, max_messages=3)
    assert [message["m"] for message in outcome.messages] == [1, 2, 3]
    assert [message["nid"] for message in outcome.leftover] == ["0_1"]
    assert outcome.leftover[0]["er"] == 1
    outcome = run(outcome.state, outcome.leftover, now=0.0)
    assert outcome.messages[0]["m"] == 4
    assert outcome.messages[0]["er"], outcome.messages[0]["pr"] == (1, 2)
    assert outcome.status is FlowStatus.TERMINATED
    assert outcome.payload == {"ret": 3}


def test_a_run_stops_when_its_time_is_up_but_always_does_one_message() -> None:
    state = ExecutionState("x")
    tree = parse("loop\n  1\n")
    outcome = run(state, [launch_message("x", tree)], now=0.0, keep_going=lambda: False)
    assert len(outcome.messages) == 1
    assert len(outcome.leftover) == 1


def test_a_loop_without_an_end_yields_after_every_run() -> None:
    state, inbox = ExecutionState("x"), [launch_message("x", parse("loop\n  1\n"))]
    for _ in range(20):
        outcome = run(state, inbox, now=0.0)
        assert len(outcome.messages) == 77
        state, inbox = outcome.state, outcome.leftover
    assert len(inbox) == 1


def test_tasks_go_out_after_the_run_not_inside_it() -> None:
    outcome = run(
        ExecutionState("x", "d"),
        [launch_message("x", parse(TWO_TASKS))],
        now=0.0,
        taskers=ScriptedTaskers({"alice": "hold", "bob": "hold"}),
    )
    assert [(task["point"], task["tasker"], task["nid"]) for task in outcome.tasks] == [
        ("task", "alice", "0_0")
    ]
    assert outcome.status is FlowStatus.ACTIVE


def test_a_task_returned_twice_takes_effect_once_and_the_second_is_refused() -> None:
    driver = launch(TWO_TASKS, taskers={"alice": "hold", "bob": "hold"})
    for ret in ("first", "second"):
        driver.put("return", nid="0_0", tasker="alice", payload={"ret": ret})
    outcome = driver.run_once()
    assert [node.nid for node in driver.state.nodes.values()] == ["0", "0_1"]
    assert [task["tasker"] for task in outcome.tasks] == ["bob"]
    assert len(outcome.refused) == 1
    refusal = outcome.refused[0]
    assert isinstance(refusal.error, FlowMessageRefused)
    assert "0_0 was already returned" in str(refusal.error)
    assert refusal.message["payload"] == {"ret": "second"}


def test_a_late_return_is_refused_too() -> None:
    driver = launch(TWO_TASKS, taskers={"alice": "hold", "bob": "hold"})
    driver.give_back("0_0")
    driver.drive()
    driver.put("return", nid="0_0", tasker="alice", payload={"ret": "again"})
    outcome = driver.run_once()
    assert len(outcome.refused) == 1
    assert driver.state.nodes.keys() == {"0", "0_1"}


def test_a_receive_from_a_node_that_is_no_live_child_is_refused() -> None:
    driver = launch(TWO_TASKS, taskers={"alice": "hold", "bob": "hold"})
    driver.put("receive", nid="0", payload={}, **{"from": "0_7"})
    outcome = driver.run_once()
    assert "0_7 is not a live child of node 0" in str(outcome.refused[0].error)
    assert driver.state.nodes["0"].cnodes == ["0_0"]


def test_an_ended_root_cannot_terminate_again() -> None:
    driver = launch("sequence\n  1\n")
    driver.put("receive", nid=None, payload={}, **{"from": "0"})
    outcome = driver.run_once()
    assert outcome.refused
    assert [message["point"] for message in outcome.messages] == ["receive"]


def test_messages_to_other_executions_are_left_to_the_engine() -> None:
    driver = launch("signal 'go' exid: 'another'\n")
    outcome = driver.outcomes[0]
    assert [(one["point"], one["exid"], one["name"]) for one in outcome.signals] == [
        ("signal", "another", "go")
    ]
    assert driver.state.counters["omsgs"] == 1
    assert driver.status() is FlowStatus.TERMINATED


def test_chance_comes_from_outside() -> None:
    tree = parse("rand 1000\n")
    launched = [launch_message("x", tree)]
    first = run(ExecutionState("x"), launched, now=0.0, rng=random.Random(7)).payload
    second = run(ExecutionState("x"), launched, now=0.0, rng=random.Random(7)).payload
    assert first == second
    assert run(ExecutionState("x"), launched, now=0.0).status is FlowStatus.FAILED


def test_start_and_end_come_from_the_given_time() -> None:
    outcome = run(ExecutionState("x"), [launch_message("x", parse("1\n"))], now=12.0)
    assert (outcome.state.start, outcome.state.end, outcome.state.duration) == (12.0, 12.0, 0.0)


@pytest.mark.parametrize("payload", [[1], "a", 3])
def test_a_launch_with_a_payload_that_is_no_object_is_refused(payload: object) -> None:
    message = launch_message("x", parse("1\n"))
    message["payload"] = payload
    outcome = run(ExecutionState("x"), [message], now=0.0)
    assert "a payload is a JSON object" in str(outcome.refused[0].error)
    with pytest.raises(BadPayload, match="JSON object"):
        check_payload(payload)


def test_a_payload_that_is_not_json_is_told_apart() -> None:
    with pytest.raises(BadPayload, match="not JSON"):
        check_payload({"a": object()})
    assert check_payload({"a": (1, 2)}) == {"a": [1, 2]}


def test_unknown_things_have_their_own_errors() -> None:
    for text, kla, words in (
        ("nosuch\n", "UnknownWord", 'cannot find "nosuch"'),
        ("nosuch 1\n", "UnknownProcedure", 'don\'t know how to apply "nosuch"'),
        ("task 'nemo'\n", "UnknownTasker", 'tasker "nemo" not found'),
    ):
        driver = launch(text)
        error = driver.seen[-1].message["error"]
        assert (error["kla"], error["msg"]) == (kla, words)
        assert driver.status() is FlowStatus.FAILED


def test_the_state_survives_storage_and_shares_what_was_shared() -> None:
    driver = launch(
        "sequence\n  sequence\n    sequence\n      task 'alice' 'a'\n",
        payload={"big": [{"id": i} for i in range(1000)]},
        taskers={"alice": "hold"},
    )
    data = encode(driver.state)
    again = decode(data)
    assert msgspec.to_builtins(again) == msgspec.to_builtins(driver.state)
    bigs = {id(node.payload["big"]) for node in again.nodes.values()}
    assert len(again.nodes) == 4
    assert len(bigs) == 1
    assert len(data) < 2 * len(msgspec.msgpack.encode(driver.state.nodes["0"].payload))


def test_statistics_count_what_is_there() -> None:
    driver = launch("sequence timeout: '1h'\n  task 'alice' 'a'\n", taskers={"alice": "hold"})
    numbers = driver.state.statistics()
    assert (numbers.runs, numbers.nodes, numbers.tasks, numbers.timers) == (1, 2, 1, 1)


def test_nids() -> None:
    assert child_nid("0_1-3", 2) == "0_1_2-3"
    assert child_nid("0", 4, 2) == "0_4-2"
    assert child_id("0_1_12-3") == 12
    assert suffix_of("0_1") == ""
