"""Plans whose steps take time: back-off, and what arrives while a plan is under way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from actorflow.runtime.exits import Normal, Shutdown
from actorflow.runtime.restarts import Backoff, BadFlags
from actorflow.runtime.supervision.actions import (
    ChildStarted,
    Exit,
    LogKind,
    RequestDenied,
    RequestDone,
    RequestRefusal,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.children import ChildState, ImpossibleReport
from actorflow.runtime.supervision.family import Family
from tests.runtime.supervision.family.family_shell import BOOM, Shell, abc, child, up

# Beyond OTP: back-off


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial", -1),
        ("initial", math.nan),
        ("factor", 0.5),
        ("maximum", 0.01),
        ("maximum", math.inf),
        ("jitter", 1.1),
        ("jitter", "0.1"),
    ],
)
def test_backoff_is_validated(name: str, value: Any) -> None:
    with pytest.raises(BadFlags, match=rf"^{name}={value!r}: {name} must be a finite number"):
        Backoff(**{name: value})


def test_backoff_never_overflows() -> None:
    assert Backoff(factor=10.0, maximum=60.0).delay(10_000, 0.0) == 60.0
    assert Backoff(initial=0.0).delay(3, 0.5) == 0.0
    assert Backoff(initial=1.0, jitter=1.0).delay(0, 0.75) == 0.25


def test_backoff_waits_longer_with_each_failure_and_counts_attempts_when_made() -> None:
    shell = up(child("a"), child("b"), max_restarts=9, backoff=Backoff(initial=1.0, maximum=3.0))
    shell.exits("a1")
    assert shell.take_trace() == ""
    assert shell.state("a") is ChildState.RESTARTING
    assert shell.family.requests.statistics().restarts == 0
    shell.outcomes["a"].extend(["fail", "fail"])
    waited = []
    while shell.retries:
        waited.append(shell.retries[0].after)
        shell.retry()
    assert waited == [1.0, 2.0, 3.0]
    assert shell.family.requests.statistics().restarts == 3
    shell.exits("a2")
    assert shell.retries.pop().after == 3.0


def test_backoff_begins_anew_after_a_child_lasted() -> None:
    shell = up(child("a"), within=5.0, backoff=Backoff(initial=1.0))
    waited = []
    for n, lasted in enumerate([0.0, 5.0, 5.1, 0.0], start=1):
        shell.now += lasted
        shell.exits(f"a{n}")
        waited.append(shell.retries[0].after)
        shell.retry()
    assert waited == [1.0, 2.0, 1.0, 2.0]


def test_backoff_uses_the_random_numbers_it_is_given() -> None:
    shell = up(child("a"), draw=0.5, backoff=Backoff(initial=2.0, jitter=0.5))
    shell.exits("a1")
    assert shell.retries.pop().after == 1.5


def test_backoff_stops_the_others_before_it_waits() -> None:
    shell = up(
        child("a"),
        child("t", restart="temporary"),
        child("b"),
        strategy="one_for_all",
        backoff=Backoff(initial=1.0),
    )
    shell.exits("b1")
    assert shell.take_trace() == "-t1 -a1"
    shell.outcomes["b"].append("fail")
    shell.retry()
    assert shell.take_trace() == "+a2 !b -a2"
    shell.retry()
    assert shell.take_trace() == "+a3 +b2"


# Steps that take time


def test_exits_during_a_plan_have_their_turn_afterwards() -> None:
    shell = up(*abc())
    shell.hold = True
    shell.exits("a1")
    shell.exits("b1")
    assert shell.state("b") is ChildState.EXITED
    assert shell.family.requests.count_children().active == 1
    assert shell.family.requests.statistics().waiting == 1
    shell.release()
    shell.release()
    assert shell.take_trace() == "+a2 +b2"
    assert shell.family.requests.statistics().restarts == 2


def test_exits_of_children_that_the_plan_stops_anyway_count_once() -> None:
    shell = up(*abc(), strategy="one_for_all", max_restarts=1)
    shell.hold = True
    shell.exits("a1")
    shell.exits("b1")  # while c1 is being stopped
    while shell.held:
        shell.release()
    assert shell.take_trace() == "-c1 +a2 +b2 +c2"
    assert shell.ending() is None


def test_a_child_that_dies_right_after_its_start_is_restarted_after_the_plan() -> None:
    shell = Shell(*abc())
    shell.hold = True
    shell.begin()
    shell.release()
    shell.exits("a1")
    shell.release()
    assert not shell.is_ready()
    shell.release()
    assert shell.is_ready()
    shell.release()
    assert shell.take_trace() == "+a1 +b1 +c1 +a2"


def test_requests_during_a_plan_are_answered_in_order() -> None:
    shell = up(*abc(), strategy="one_for_all")
    shell.hold = True
    shell.exits("a1")
    assert shell.ask("terminate_child", "b") is None
    assert shell.ask("delete_child", "b") is None
    assert shell.ask("start_child", child("b")) is None
    while shell.held:
        shell.release()
    assert list(shell.replies.values()) == [
        RequestDone(),
        RequestDone(),
        ChildStarted("b3", "extra"),
    ]
    assert shell.refs() == ["a2", "c2", "b3"]


def test_shutdown_during_a_plan_waits_for_its_step_only() -> None:
    shell = up(*abc(), strategy="one_for_all")
    shell.hold = True
    shell.exits("b1")
    assert shell.ask("start_child", child("d")) is None
    shell.perform(shell.family.shutdown(Shutdown()))
    shell.release()  # the stop of c1
    assert list(shell.replies.values()) == [RequestDenied(RequestRefusal.STOPPING)]
    shell.release()
    assert shell.take_trace() == "-c1 -a1"
    assert shell.ending() is not None


@pytest.mark.parametrize("outcome", ["ok", "ignore", "fail"])
def test_shutdown_during_the_first_starts(outcome: str) -> None:
    shell = Shell(*abc())
    shell.outcomes["b"].append(outcome)
    shell.hold = True
    shell.begin()
    shell.release()
    shell.perform(shell.family.shutdown(Normal()))
    while shell.held:
        shell.release()
    assert not shell.is_ready()
    assert shell.ending() == Exit(Normal(), Why.REQUESTED)
    assert shell.trace[-1] == "-a1"
    assert ("-b1" in shell.trace) is (outcome == "ok")


def test_shutdown_during_a_request_still_answers_it() -> None:
    shell = up()
    shell.hold = True
    shell.ask("start_child", child("a"))
    shell.perform(shell.family.shutdown(Normal()))
    shell.release()
    assert list(shell.replies.values()) == [ChildStarted("a1", "extra")]
    shell.release()
    assert shell.take_trace() == "+a1 -a1"


def test_shutdown_during_a_restart_asks_for_no_retry() -> None:
    shell = up(child("a"))
    shell.outcomes["a"].append("fail")
    shell.hold = True
    shell.exits("a1")
    shell.perform(shell.family.shutdown(Normal()))
    shell.release()
    assert shell.retries == []
    assert shell.ending() is not None


def test_unexpected_reports_are_bugs_of_the_shell() -> None:
    family = Family([child("a"), child("b")])
    with pytest.raises(ImpossibleReport, match=r"call begin\(\) first"):
        family.requests.terminate_child("a")
    with pytest.raises(ImpossibleReport, match="'a' was reported, but no start is waited for"):
        family.started("a", "a1", now=0.0)
    family.begin(now=0.0)
    with pytest.raises(
        ImpossibleReport, match="'b' was reported, but the start of 'a' is waited for"
    ):
        family.start_failed("b", BOOM, now=0.0)
    with pytest.raises(ImpossibleReport, match=r"use start_ignored\('a'\)"):
        family.started("a", None, now=0.0)
    with pytest.raises(ImpossibleReport, match="is called once and first"):
        family.begin(now=0.0)
    family.check()


def test_s34_a_child_whose_exit_waits_for_its_turn_is_still_started() -> None:
    shell = up(*abc())
    shell.hold = True
    shell.exits("a1")
    for request, argument in (
        ("start_child", child("b")),
        ("restart_child", "b"),
        ("delete_child", "b"),
        ("terminate_child", "b"),
    ):
        assert shell.ask(request, argument) is None
    shell.exits("b1")
    shell.release()
    assert list(shell.replies.values()) == [
        RequestDenied(RequestRefusal.ALREADY_STARTED, ref="b1"),
        RequestDenied(RequestRefusal.RUNNING),
        RequestDenied(RequestRefusal.RUNNING),
        RequestDone(),
    ]
    assert shell.take_trace() == "+a2"  # b had died, so there was nothing left to stop
    assert shell.state("b") is ChildState.STOPPED
    assert shell.kinds() == [LogKind.CHILD_TERMINATED, LogKind.SHUTDOWN_ERROR]


def test_backoff_begins_anew_after_terminate_child() -> None:
    shell = up(
        child("a"),
        child("b"),
        strategy="one_for_all",
        max_restarts=9,
        backoff=Backoff(initial=1.0),
    )
    shell.outcomes["b"].extend(["fail", "fail"])
    shell.exits("b1")
    shell.retry()
    assert shell.retries[0].after == 2.0
    shell.ask("terminate_child", "b")
    assert shell.ask("restart_child", "a") == ChildStarted("a3", "extra")
    shell.exits("a3")
    shell.outcomes["b"].clear()
    while shell.retries:
        shell.retry()
    shell.exits("b2")
    assert shell.retries.pop().after == 1.0


def test_stops_that_make_way_for_a_restart_are_not_final() -> None:
    shell = up(*abc(), strategy="one_for_all")
    shell.hold = True
    shell.exits("a1")
    assert shell.held == [StopChildren(("c1",), 5.0, final=False)]
    while shell.held:
        shell.release()
    shell.ask("terminate_child", "c")
    assert shell.held == [StopChildren(("c2",), 5.0, final=True)]
    shell.release()
    shell.perform(shell.family.shutdown(Normal()))
    assert shell.held == [StopChildren(("b2",), 5.0, final=True)]
