"""The rules of supervision, one by one, on the pure strategy: starts, restarts and limits."""

from __future__ import annotations

import math
import sys

import pytest

from actorflow.runtime.exits import ExitReason, FailedToStart, GaveUp, Normal, Shutdown
from actorflow.runtime.restarts import RestartWindow
from actorflow.runtime.supervision.actions import (
    ChildStarted,
    Exit,
    Ignored,
    LogKind,
    Ready,
    RequestDone,
    RequestRefusal,
    StartChild,
    Why,
)
from actorflow.runtime.supervision.children import ChildCounts, ChildInfo, ChildState, Phase
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import Child
from tests.runtime.supervision.family.family_shell import (
    BOOM,
    CLEAN,
    REFUSED,
    UNCLEAN,
    Shell,
    abc,
    child,
    up,
)

# Start


def test_s10_children_start_left_to_right_one_at_a_time() -> None:
    shell = Shell(*abc())
    shell.hold = True
    shell.begin()
    for name in "abc":
        assert [a.key for a in shell.held if isinstance(a, StartChild)] == [name]
        assert not shell.is_ready()
        shell.release()
    assert shell.is_ready()
    assert shell.family.phase is Phase.UP
    assert shell.trace == ["+a1", "+b1", "+c1"]


def test_s10_without_children_it_is_ready_at_once() -> None:
    assert Family().begin(now=0.0) == [Ready()]


def test_s11_a_failing_start_rolls_back_in_reverse() -> None:
    shell = Shell(*abc(), child("d"))
    shell.outcomes["c"].append("fail")
    shell.begin()
    assert shell.take_trace() == "+a1 +b1 !c -b1 -a1"
    assert shell.ending() == Exit(Shutdown(FailedToStart("c", REFUSED)), Why.START_FAILED)
    assert not shell.is_ready()
    assert not shell.retries
    assert shell.kinds() == [LogKind.START_ERROR]
    assert shell.family.requests.count_children().active == 0


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_s13_an_ignored_child_is_kept_unless_temporary(strategy: str) -> None:
    shell = Shell(child("a"), child("t", restart="temporary"), child("b"), strategy=strategy)
    shell.outcomes["a"].append("ignore")
    shell.outcomes["t"].append("ignore")
    shell.begin()
    assert shell.take_trace() == "?a ?t +b1"
    assert shell.is_ready()
    assert shell.refs() == [None, "b1"]
    assert shell.state("a") is ChildState.STOPPED
    assert shell.family.requests.count_children() == ChildCounts(
        specs=2, active=1, supervisors=0, workers=2
    )


def test_s13_the_same_through_start_child() -> None:
    shell = up()
    shell.outcomes["a"].append("ignore")
    shell.outcomes["t"].append("ignore")
    assert shell.ask("start_child", child("a")) == Ignored()
    assert shell.ask("start_child", child("t", restart="temporary")) == Ignored()
    assert shell.family.requests.which_child("t") is RequestRefusal.NOT_FOUND
    assert shell.state("a") is ChildState.STOPPED


def test_s13_dynamic_children_that_ignore_are_never_kept() -> None:
    shell = up(child("a"), strategy="dynamic")
    shell.outcomes["a"].append("ignore")
    assert shell.ask("start_copy") == Ignored()
    assert len(shell.family) == 0
    shell.perform(shell.family.shutdown(Shutdown()))
    assert shell.ending() is not None


# Exits


@pytest.mark.parametrize("reason", CLEAN + UNCLEAN)
def test_s14_permanent_children_always_come_back(reason: ExitReason) -> None:
    shell = up(child("a"))
    shell.exits("a1", reason)
    assert shell.take_trace() == "+a2"
    assert shell.kinds() == [LogKind.CHILD_TERMINATED]


@pytest.mark.parametrize("reason", CLEAN)
def test_s15_transient_children_stay_ended_after_a_clean_exit(reason: ExitReason) -> None:
    assert reason.is_clean
    shell = up(child("a", restart="transient"))
    shell.exits("a1", reason)
    assert shell.take_trace() == ""
    info = shell.family.requests.which_child("a")
    assert isinstance(info, ChildInfo)
    assert (info.state, info.ref, info.last_exit) == (ChildState.STOPPED, None, reason)
    assert shell.kinds() == []


@pytest.mark.parametrize("reason", UNCLEAN)
def test_s15_transient_children_come_back_after_any_other(reason: ExitReason) -> None:
    assert not reason.is_clean
    shell = up(child("a", restart="transient"))
    shell.exits("a1", reason)
    assert shell.take_trace() == "+a2"
    assert shell.kinds() == [LogKind.CHILD_TERMINATED]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one", "dynamic"])
@pytest.mark.parametrize("reason", CLEAN + UNCLEAN)
def test_s16_temporary_children_are_forgotten(strategy: str, reason: ExitReason) -> None:
    shell = up(strategy=strategy, max_restarts=0)
    shell.ask("start_child", child("t", restart="temporary"))
    shell.take_trace()
    shell.exits("t1", reason)
    assert shell.take_trace() == ""
    assert len(shell.family) == 0
    assert shell.kinds() == ([] if reason.is_clean else [LogKind.CHILD_TERMINATED])


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_s16_a_temporary_bystander_does_not_come_back(strategy: str) -> None:
    shell = up(child("a"), child("t", restart="temporary"), child("b"), strategy=strategy)
    shell.exits("a1")
    assert shell.take_trace() == "-b1 -t1 +a2 +b2"
    assert shell.family.requests.which_child("t") is RequestRefusal.NOT_FOUND
    assert shell.family.requests.statistics().restarts == 1


def test_s16_start_arguments_of_temporary_children_are_not_retained() -> None:
    class Big:
        pass

    big = Big()
    before = sys.getrefcount(big)
    shell = up(child("t", big, kwargs={"big": big}, restart="temporary"))
    spec = shell.family.requests.get_childspec("t")
    assert isinstance(spec, Child)
    assert (spec.args, spec.kwargs) == ((), {})
    shell.logs.clear()
    assert sys.getrefcount(big) == before
    kept = up(child("p", big))
    assert sys.getrefcount(big) == before + 1
    kept.family.check()


def test_s16_start_arguments_of_dynamic_temporary_children_are_not_retained() -> None:
    class Big:
        pass

    big = Big()
    before = sys.getrefcount(big)
    shell = up(child("t", "own", restart="temporary"), strategy="dynamic")
    shell.ask("start_copy", big, kwargs={"big": big})
    assert shell.family.requests.get_childspec("t1") == child("t", "own", restart="temporary")
    shell.logs.clear()
    assert sys.getrefcount(big) == before


def test_s17_exits_of_strangers_and_of_replaced_children_are_ignored() -> None:
    shell = up(child("a"), max_restarts=1)
    shell.exits("a1")
    shell.exits("a1")
    shell.exits("nobody")
    assert shell.take_trace() == "+a2"
    assert shell.family.requests.statistics().restarts == 1
    assert shell.ending() is None


# The limit of restarts


def test_s18_a_restart_of_many_counts_one_and_a_failed_attempt_one_more() -> None:
    shell = up(*[child(n) for n in range(10)], strategy="one_for_all", max_restarts=3)
    shell.outcomes[4].extend(["fail", "fail"])
    shell.exits("71")
    assert shell.family.requests.statistics().restarts == 1
    shell.retry()
    assert shell.family.requests.statistics().restarts == 2
    shell.retry()
    assert shell.family.requests.statistics().restarts == 3
    assert shell.family.requests.count_children().active == 10
    shell.exits(shell.refs()[0])
    assert shell.gave_up().child == 0


@pytest.mark.parametrize(("limit", "survived"), [(0, 0), (1, 1), (3, 3)])
def test_s19_the_restart_after_the_last_allowed_one_ends_it(limit: int, survived: int) -> None:
    shell = up(child("a"), max_restarts=limit, within=5.0)
    for n in range(1, survived + 1):
        shell.exits(f"a{n}")
        assert shell.ending() is None
    shell.exits(f"a{survived + 1}")
    assert shell.gave_up() == GaveUp(
        child="a", reason=BOOM, restarts=limit + 1, max_restarts=limit, within=5.0
    )


def test_s19_a_restart_exactly_within_old_still_counts() -> None:
    for later, survives in ((5.0, False), (math.nextafter(5.0, 6.0), True)):
        shell = up(child("a"), max_restarts=1, within=5.0)
        shell.exits("a1")
        shell.now = later
        shell.exits("a2")
        assert (shell.ending() is None) is survives


def test_s19_exactness_survives_large_times() -> None:
    base = 123_456_789.3
    window = RestartWindow(1, 0.25)
    assert window.admit(base)
    assert not window.admit(base + 0.25)
    assert window.recent(base + 0.25) == 1
    assert window.recent(base + 0.2501) == 0


def test_s19_spaced_restarts_survive() -> None:
    shell = up(child("a"), max_restarts=1, within=1.0)
    for n in range(1, 5):
        shell.exits(f"a{n}")
        shell.now += 2.1
    assert shell.ending() is None


def test_s20_past_the_limit_all_are_stopped_in_reverse_and_it_exits_with_shutdown() -> None:
    shell = up(*abc(), max_restarts=0)
    shell.exits("b1")
    assert shell.take_trace() == "-c1 -a1"
    assert shell.gave_up() == GaveUp(child="b", reason=BOOM, restarts=1, max_restarts=0, within=5.0)
    assert shell.kinds() == [LogKind.CHILD_TERMINATED, LogKind.TOO_MANY_RESTARTS]
    assert shell.family.phase is Phase.GONE


# Strategies


def test_s21_one_for_one_leaves_the_others_alone_and_the_order_as_it_is() -> None:
    shell = up(*abc())
    shell.exits("b1")
    assert shell.take_trace() == "+b2"
    assert shell.refs() == ["a1", "b2", "c1"]


def test_s22_rest_for_one() -> None:
    shell = up(*[child(n) for n in "edcba"], strategy="rest_for_one")
    shell.exits("c1")
    assert shell.take_trace() == "-a1 -b1 +c2 +b2 +a2"
    assert shell.refs() == ["e1", "d1", "c2", "b2", "a2"]


def test_s23_one_for_all() -> None:
    shell = up(*abc(), strategy="one_for_all")
    shell.exits("b1")
    assert shell.take_trace() == "-c1 -a1 +a2 +b2 +c2"


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_s24_stopped_children_come_back_to_life_with_the_others(strategy: str) -> None:
    shell = Shell(
        child("a"),
        child("finished", restart="transient"),
        child("terminated"),
        child("ignored"),
        child("t", restart="temporary"),
        strategy=strategy,
    )
    shell.outcomes["ignored"].append("ignore")
    shell.begin()
    shell.exits("finished1", Normal())
    shell.ask("terminate_child", "terminated")
    shell.take_trace()
    shell.exits("a1")
    assert shell.take_trace() == "-t1 +a2 +finished2 +terminated2 +ignored1"


def test_s25_a_failing_restart_waits_for_its_retry_and_others_are_served_meanwhile() -> None:
    shell = up(child("a"), child("b"), max_restarts=5)
    shell.outcomes["a"].extend(["fail", "fail"])
    shell.exits("a1")
    assert shell.state("a") is ChildState.RESTARTING
    assert [retry.after for retry in shell.retries] == [0.0]
    assert shell.kinds() == [LogKind.CHILD_TERMINATED, LogKind.START_ERROR]
    assert shell.ask("terminate_child", "b") == RequestDone()
    assert shell.ask("restart_child", "b") == ChildStarted("b2", "extra")
    shell.retry()
    shell.retry()
    assert shell.refs() == ["a2", "b2"]
    assert shell.family.requests.statistics().restarts == 3


def test_s25_shutdown_between_attempts() -> None:
    shell = up(*abc())
    shell.outcomes["b"].append("fail")
    shell.exits("b1")
    shell.perform(shell.family.shutdown(Shutdown("parent")))
    assert shell.take_trace() == "!b -c1 -a1"
    assert shell.ending() == Exit(Shutdown("parent"), Why.REQUESTED)
    shell.retry()
    assert shell.take_trace() == ""


def test_s26_one_for_all_stops_those_already_started_and_retries_the_lot() -> None:
    shell = up(*abc(), strategy="one_for_all")
    shell.outcomes["b"].append("fail")
    shell.exits("c1")
    assert shell.take_trace() == "-b1 -a1 +a2 !b"
    assert [shell.state(n) for n in "abc"] == [
        ChildState.RUNNING,
        ChildState.RESTARTING,
        ChildState.STOPPED,
    ]
    shell.retry()
    assert shell.take_trace() == "-a2 +a3 +b2 +c2"


def test_s26_rest_for_one_retries_from_the_failed_child_on() -> None:
    shell = up(*abc(), child("d"), strategy="rest_for_one")
    shell.outcomes["c"].append("fail")
    shell.exits("b1")
    assert shell.take_trace() == "-d1 -c1 +b2 !c"
    shell.retry()
    assert shell.take_trace() == "+c2 +d2"
    assert shell.refs() == ["a1", "b2", "c2", "d2"]


@pytest.mark.parametrize("meanwhile", ["terminate", "delete", "restart", "other_attempt"])
def test_s27_a_stale_retry_does_nothing(meanwhile: str) -> None:
    shell = up(child("a"), child("b"), strategy="one_for_all", max_restarts=9)
    shell.outcomes["b"].append("fail")
    shell.exits("b1")
    (stale,) = shell.retries
    if meanwhile == "other_attempt":
        shell.exits("a2")
    else:
        assert shell.ask("terminate_child", "b") == RequestDone()
    if meanwhile == "delete":
        assert shell.ask("delete_child", "b") == RequestDone()
    if meanwhile == "restart":
        assert shell.ask("restart_child", "b") == ChildStarted("b2", "extra")
    shell.take_trace()
    before = (shell.family.requests.which_children(), shell.family.requests.statistics())
    shell.perform(shell.family.retry(stale, now=0.0))
    assert (shell.family.requests.which_children(), shell.family.requests.statistics()) == before
    assert shell.take_trace() == ""


def test_s27_a_retry_of_an_earlier_crash_is_stale_too() -> None:
    shell = up(child("a"), max_restarts=9)
    shell.outcomes["a"].extend(["fail", "ok", "fail"])
    shell.exits("a1")
    stale = shell.retries.pop()
    shell.ask("terminate_child", "a")
    shell.ask("restart_child", "a")
    shell.exits("a2")
    assert shell.state("a") is ChildState.RESTARTING
    assert shell.family.retry(stale, now=0.0) == []
    shell.retry()
    assert shell.refs() == ["a3"]
