"""What messages look like in corners of cancels, branches and functions, as flor has them."""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.flows.service.library import Library
from tests.flows.driving import drive, shown

POINTS = ("execute", "receive", "cancel", "task", "detask", "return", "failed")

TRACKS: list[tuple[str, str, list[tuple[Any, ...]], list[str]]] = [
    (
        "a tasker that broke is asked for its task",
        "sequence\n  bert 'x'\n  2\n",
        [("cancel", "0_0")],
        ["cancel 0_0 None", "detask 0_0 0_0", "return 0_0 None", "receive 0_0 None"],
    ),
    (
        "a task nobody can have is not asked for",
        "sequence\n  task 'nobody'\n  2\n",
        [("cancel", "0_0")],
        ["cancel 0_0 None", "receive 0 0_0", "execute 0_1 0", "receive 0 0_1"],
    ),
    (
        "a second cancel brings its handler, too",
        "sequence\n  on cancel\n    sue 'x'\n  alice _\n",
        [("cancel",), ("cancel",), ("return",)],
        ["return 0_0_0_1-1 None", "receive 0_0_0_1-1 None", "receive 0_0_0-1 0_0_0_1-1"],
    ),
]


@pytest.mark.parametrize(("rule", "text", "steps", "track"), TRACKS, ids=str)
def test_tracks(rule: str, text: str, steps: list[tuple[Any, ...]], track: list[str]) -> None:
    driver = drive(text, *steps, taskers={"alice": "hold", "bert": "boom", "sue": "stubborn"})
    lines = shown(driver, *POINTS)
    place = lines.index(track[0])
    assert lines[place : place + len(track)] == track


def test_a_cancel_handler_runs_for_each_cancel() -> None:
    taskers = {"alice": "hold", "sue": "stubborn"}
    text = "sequence\n  on cancel\n    sue 'x'\n  alice _\n"
    driver = drive(text, ("cancel",), ("cancel",), ("return",), ("return",), taskers=taskers)
    tasks = shown(driver, "task")
    assert tasks == ["task 0_1 0_1", "task 0_0_0_1-1 0_0_0_1-1", "task 0_0_0_1-2 0_0_0_1-2"]
    assert driver.status() == FlowStatus.TERMINATED


def test_a_killed_error_handler_does_not_answer_as_one() -> None:
    text = "sequence\n  sequence on_error: (def err \\ alice 'x')\n    fail 'y'\n"
    driver = drive(text, ("kill", "0_0"), taskers={"alice": "hold"})
    answer = next(seen.message for seen in driver.seen if seen.message.get("nid") == "0_0_0_1-1")
    assert answer["point"] == "execute"
    assert not any("from_on_error" in seen.message for seen in driver.seen)


def test_what_a_parent_has_for_its_children_is_for_applications_too() -> None:
    driver = drive("cmap [ 1 2 ] child_on_error: (def err \\ err.msg) (def x \\ fail 'no')\n")
    assert driver.payload == {"ret": ["no", "no"]}


def test_a_trailing_cancel_tells_that_it_is_one() -> None:
    driver = drive(
        "flank\n  sequence on_cancel: (def msg \\ trace msg.cancel_trailing)\n    stall _\n1\n"
    )
    trailing = [seen.message for seen in driver.seen if seen.message.get("cancel_trailing")]
    assert [message["nid"] for message in trailing] == ["0_0"]


def test_a_repair_at_once_shows_what_it_executes() -> None:
    driver = drive("stall _\n2\n", ("re_apply", "0_0", "'again'", {"a": 1}))
    cancel = next(seen.message for seen in driver.seen if seen.message["point"] == "cancel")
    assert [(one["nid"], one["from"]) for one in cancel["on_receive_last"]] == [("0_0", "0")]


SHOWN: list[tuple[str, str, str, Any]] = [
    (
        (
            "define r reply from replies\n  set reply.ret 7\n  replies\n  true\n"
            "concurrence on_receive: r\n  1\n"
        ),
        "execute",
        "0_0_5-1",
        {"0_1_1": {"ret": 7}},
    ),
    ("concurrence ret: 'R' expect: 1\n  1\n", "receive", "0", None),
    ("cmap [ 1 2 ] on_merge: (def rets \\ 'x') (def x \\ x + 1)\n", "receive", "0", [2, 3]),
    ("concurrence\n  [ 1 2 ]\n  define f \\ 3\n", "receive", "None", [1, 2, 3]),
]


@pytest.mark.parametrize(("text", "point", "nid", "ret"), SHOWN, ids=lambda value: repr(value)[:40])
def test_shown_rets(text: str, point: str, nid: str, ret: Any) -> None:
    driver = drive(text)
    rets = [
        seen.message["payload"].get("ret")
        for seen in driver.seen
        if (seen.message["point"], str(seen.message.get("nid"))) == (point, nid)
    ]
    assert ret in rets


def test_functions_applied_at_once_find_what_the_first_left_in_the_tree() -> None:
    driver = drive("ccollect [ 1 2 ]\n  { p: 7 }\n")
    assert driver.payload == {"ret": [{"p": 7}, {"p": 7}]}
    assert shown(driver, "execute")[-2:] == [
        "execute 0_1_0_0-1 0_1_0-1",
        "execute 0_1_0_1-1 0_1_0-1",
    ]


def test_a_graft_in_a_function_takes_root() -> None:
    loader = Library(subflows={"plus": parse("set f.n (f.n + 1)\n")})
    driver = drive("each [ 1 2 3 ]\n  graft 'plus'\n", payload={"n": 0}, loader=loader)
    heads = [seen.message["tree"][0] for seen in driver.seen if seen.message["point"] == "execute"]
    assert heads.count("graft") == 1
    assert driver.payload is not None
    assert driver.payload["n"] == 3
