"""Handlers that end, or are ended by, what is around them: a flow never waits for itself."""

from __future__ import annotations

import pytest

from actorflow.flows.execution.state import Status
from tests.flows.driving import drive

HOLDING = {"alice": "hold"}
HEADS = (
    *("sequence", "concurrence", "cursor", "loop", "until false", "noret", "if true", "cond"),
    *("map [ 1 ]", "each [ 1 ]", "ccollect [ 1 ]", "set f.x", "+"),
)
ENDING = ("abort _", "cancel ref: 'main'", "kabort _", "kill ref: 'main'", "cancel '0'")


@pytest.mark.parametrize("head", HEADS)
def test_a_cancel_ends_the_error_handler_of_any_procedure(head: str) -> None:
    text = f"sequence\n  {head} on_error: (def msg err \\ alice 'mend it')\n    fail 'x'\n  2"
    driver = drive(text, taskers=HOLDING)
    assert len(driver.held) == 1
    driver.cancel()
    driver.drive()
    assert driver.held == []
    assert driver.status() is Status.TERMINATED


def test_a_cancel_ends_the_error_handler_of_a_task_that_has_failed() -> None:
    text = "sequence\n  task 'bob' on_error: (def msg err \\ alice 'mend it')\n  2"
    driver = drive(text, taskers={**HOLDING, "bob": "refuse"})
    assert [task["tasker"] for task in driver.held] == ["alice"]
    driver.cancel()
    driver.drive()
    assert driver.held == []
    assert driver.status() is Status.TERMINATED


@pytest.mark.parametrize("ending", ENDING)
@pytest.mark.parametrize("head", HEADS)
def test_whatever_a_handler_ends_around_it_ends(head: str, ending: str) -> None:
    for handler, *steps in (
        ("on_error", "fail 'x'"),
        ("on_cancel", "stall _", ("cancel", "0_1")),
        ("on_cancel", "stall _", ("cancel",)),
        ("timeout: '1s' on_timeout", "stall _", ("timers",)),
    ):
        body, *acts = steps
        text = (
            "sequence tag: 'main'\n"
            f"  {head} {handler}: (def msg err \\ {ending})\n"
            f"    {body}\n"
            "  stall _"
        )
        driver = drive(text, *acts)
        assert driver.status() is Status.TERMINATED, text
        driver.state.check()


@pytest.mark.parametrize("head", ["sequence", "concurrence", "noret"])
def test_a_loop_goes_on_after_a_timeout(head: str) -> None:
    text = (
        "sequence\n"
        "  loop\n"
        f"    {head} timeout: '1s' on_timeout: (def msg \\ continue _)\n"
        "      alice 'be quick'\n"
        "    break 'quick'\n"
    )
    driver = drive(text, ("timers",), ("timers",), taskers=HOLDING)
    assert len(driver.held) == 1
    assert len([node for node in driver.state.nodes.values() if node.heat0 == head]) == (
        1 + (head == "sequence")
    )
    driver.give_back()
    driver.drive()
    assert driver.status() is Status.TERMINATED
    assert (driver.payload or {})["ret"] == "quick"


def test_a_loop_is_left_after_a_timeout() -> None:
    text = (
        "sequence\n"
        "  cursor\n"
        "    sequence timeout: '1s' on_timeout: (def msg \\ break 'slow')\n"
        "      stall _\n"
        "    push f.l 'not here'\n"
        "  push f.l f.ret\n"
    )
    driver = drive(text, ("timers",), payload={"l": []})
    assert driver.status() is Status.TERMINATED
    assert (driver.payload or {})["l"] == ["slow"]


def test_a_cursor_is_moved_after_a_timeout() -> None:
    text = (
        "sequence\n"
        "  cursor\n"
        "    sequence timeout: '1s' on_timeout: (def msg \\ move to: 'late')\n"
        "      stall _\n"
        "    push f.l 'not here'\n"
        "    push f.l 'late' tag: 'late'\n"
    )
    driver = drive(text, ("timers",), payload={"l": []})
    assert driver.status() is Status.TERMINATED
    assert (driver.payload or {})["l"] == ["late"]


def test_a_move_to_nowhere_after_a_timeout_has_failed() -> None:
    text = (
        "cursor\n"
        "  sequence timeout: '1s' on_timeout: (def msg \\ move to: 'nowhere')\n"
        "    stall _\n"
    )
    driver = drive(text, ("timers",))
    assert driver.status() is Status.FAILED
    (failed,) = driver.state.failures()
    assert failed.failure is not None
    assert "nowhere" in failed.failure["error"]["msg"]


@pytest.mark.parametrize("head", ["loop", "cursor", "until false", "while true"])
def test_a_loop_continues_from_its_own_error_handler(head: str) -> None:
    text = (
        "sequence\n"
        f"  {head} on_error: (def msg err \\ continue _)\n"
        "    alice 'x'\n"
        "    fail 'not enough' if f.tries < 2\n"
        "    break _\n"
    )
    driver = drive(text, payload={"tries": 0}, taskers=HOLDING)
    for tries in (1, 2):
        assert driver.status() is Status.ACTIVE
        driver.give_back(changes={"tries": tries})
        driver.drive()
    assert driver.status() is Status.TERMINATED
    assert not driver.held


@pytest.mark.parametrize("ending", ["abort _", "cancel ref: 'main'", "break ref: 'main'"])
def test_what_follows_in_a_handler_that_ends_what_is_around_it_is_not_done(ending: str) -> None:
    inner = (
        f"sequence timeout: '1s' on_timeout: (def msg \\ sequence \\ {ending}; push f.l 'inner')"
    )
    text = (
        "cursor tag: 'main'\n"
        f"  define after msg\n    {inner}\n      stall _\n    push f.l 'outer'\n"
        "  sequence timeout: '1s' on_timeout: after\n"
        "    stall _\n"
        "  push f.l 'main'\n"
    )
    driver = drive(text, ("timers",), ("timers",), payload={"l": []})
    assert driver.status() is Status.TERMINATED
    assert (driver.payload or {})["l"] == []


def test_a_cancel_wins_over_a_continue_in_its_handler() -> None:
    driver = drive("loop on_cancel: (def msg \\ continue _)\n  stall _", ("cancel",))
    assert driver.status() is Status.TERMINATED


def test_a_node_that_is_applied_again_waits_for_a_handler_below_it() -> None:
    text = (
        "sequence\n"
        "  sequence\n"
        "    sequence on_cancel: (def msg \\ alice 'tidy up')\n"
        "      stall _\n"
    )
    driver = drive(text, ("cancel", "0_0_0"), ("re_apply", "0_0", "7", {}), taskers=HOLDING)
    driver.state.check()
    assert len(driver.held) == 1
    driver.give_back()
    driver.drive()
    assert driver.status() is Status.TERMINATED
    assert (driver.payload or {})["ret"] == 7
