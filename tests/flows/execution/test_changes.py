"""A flow that is changed while it runs: nodes applied again, children added."""

from __future__ import annotations

import pytest

from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import FlowDriver
from tests.flows.driving import drive

STUBBORN = {"alice": "stubborn"}


def test_what_outlives_a_node_that_is_applied_again_keeps_its_tree() -> None:
    driver = drive(
        "sequence\n  sequence\n    1\n    sequence\n      task 'alice' 'a'\n  'end'\n",
        ("cancel", "0_0_1"),
        ("re_apply", "0_0", "stall _\n", None),
        ("return", "0_0_1_0"),
        taskers=STUBBORN,
    )
    driver.state.check()
    assert driver.status() is FlowStatus.ACTIVE
    assert list(driver.state.nodes) == ["0", "0_0"]


def test_a_child_without_a_procedure_goes_when_its_parent_is_applied_again() -> None:
    driver = drive(
        "sequence\n  sequence\n    1\n    nosuch _\n", ("re_apply", "0_0", "stall _\n", None)
    )
    assert driver.status() is FlowStatus.ACTIVE
    assert list(driver.state.nodes) == ["0", "0_0"]


def test_a_handler_of_a_child_without_a_procedure_is_cancelled_with_the_parent() -> None:
    driver = drive(
        "sequence\n"
        "  sequence children_on_error: (def msg \\ task 'alice' 'mend')\n"
        "    nosuch _\n"
        "  'end'\n",
        ("cancel", "0_0"),
        taskers=STUBBORN,
    )
    driver.state.check()
    assert driver.status() is FlowStatus.ACTIVE
    driver.give_back()
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.payload == {"ret": "end"}


def test_a_macro_whose_parent_is_left_before_it_is_entered_is_cancelled() -> None:
    tree = parse(
        "sequence\n"
        "  concurrence\n"
        "    sequence\n"
        "      _skip 9\n"
        "      each [ 1 ]\n"
        "        task 'alice' 'a'\n"
        "    sequence\n"
        "      _skip 3\n"
        "      cancel '0_0_0'\n"
    )
    driver = FlowDriver(tree, taskers=STUBBORN, max_messages=1)
    while driver.inbox:
        driver.run_once()
        driver.state.check()
    assert driver.held == []
    assert driver.status() is FlowStatus.TERMINATED


def test_children_are_not_added_before_those_that_have_begun() -> None:
    driver = drive(
        "sequence\n  trace 'a'\n  task 'alice' 'a'\n  trace 'b'\n",
        ("add_branch", "0_1", "trace 'late'\n"),
        ("add_branch", "0_2", "trace 'next'\n"),
        ("return",),
        taskers=STUBBORN,
    )
    refused = [str(one.error) for outcome in driver.outcomes for one in outcome.refused]
    assert refused == ["add refused: node 0_1 has begun, too late for a child at 1"]
    assert driver.traces == ["a", "next", "b"]
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize("element", [5, [], ["b"], [1, 2], "bc", None])
@pytest.mark.parametrize("iterator", ["each", "c-each"])
def test_what_does_not_fit_an_object_is_not_added_to_it(iterator: str, element: object) -> None:
    driver = drive(
        f"{iterator} {{ a: 1 }}\n  task 'alice' key\n",
        ("add_iteration", "0", element),
        taskers=STUBBORN,
    )
    failed = driver.seen[-1].message
    assert (failed["fpoint"], failed["error"]["kla"]) == ("add", "FlowError")
    driver.give_back()
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize(
    "aside",
    [
        "sequence flank\n    stall _",
        "flank\n    stall _",
        "part\n    stall _",
        "trap tag: 'x' (def msg \\ 1)",
        "schedule in: '1h' (def msg \\ 1)",
        "on 'x' \\ 1",
    ],
)
def test_what_goes_on_aside_answers_nobody_when_it_is_applied_again(aside: str) -> None:
    driver = drive(
        f"sequence\n  {aside}\n  trace 'a'\n  task 'alice' 'x'\n  trace 'b'\n",
        ("re_apply", "0_0", "trace 'again'\n", None),
        taskers=STUBBORN,
    )
    assert driver.traces == ["a", "again"]
    driver.give_back()
    driver.drive()
    assert driver.traces == ["a", "again", "b"]
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize("kill", [True, False])
def test_a_node_without_a_procedure_is_either_cancelled_or_applied_again(kill: bool) -> None:  # noqa: FBT001
    driver = drive("sequence\n  nosuch _\n  trace 'next'\n  stall _\n")
    driver.cancel("0_0", kill=kill)
    driver.re_apply("0_0", parse("trace 'again'\n"))
    driver.drive()
    assert driver.traces == ["next"]


def test_a_return_to_a_node_that_waits_for_no_task_is_refused() -> None:
    driver = drive("sequence\n  trace 'a'\n  stall _\n")
    for nid in ("0", "0_1"):
        driver.put("return", nid=nid, tasker="alice", payload={})
    driver.drive()
    assert driver.traces == ["a"]
    refused = [str(one.error) for outcome in driver.outcomes for one in outcome.refused]
    assert refused == [f"return refused: node {nid} waits for no task" for nid in ("0", "0_1")]


def test_a_node_is_applied_again_below_one_that_has_ended_and_is_kept() -> None:
    driver = drive(
        "sequence\n  1\n  cursor\n    sequence on_error: (def err \\ 1)\n      task 'alice' 'a'\n",
        ("re_apply", "0_1_0", "trace 'again'\n", None),
        ("re_apply", "0", "stall _\n", None),
        ("return", "0_1_0_1"),
        taskers=STUBBORN,
    )
    driver.state.check()
    assert driver.traces == ["again"]
    assert driver.state.failures() == []
