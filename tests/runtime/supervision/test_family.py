"""The rules of supervision, one by one, on the pure strategy: no threads, no time."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from actorflow.runtime.exits import ExitReason, FailedToStart, GaveUp, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    ChildInfo,
    ChildState,
    Counts,
    Done,
    Exit,
    Ignored,
    Log,
    LogKind,
    Phase,
    Ready,
    Release,
    RequestRefusal,
    StartChild,
    Started,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import Child
from actorflow.runtime.supervision.strategies import RestartWindow
from tests.runtime.supervision.family_shell import (
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
    assert shell.family.count_children().active == 0


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
    assert shell.family.count_children() == Counts(specs=2, active=1, supervisors=0, workers=2)


def test_s13_the_same_through_start_child() -> None:
    shell = up()
    shell.outcomes["a"].append("ignore")
    shell.outcomes["t"].append("ignore")
    assert shell.ask("start_child", child("a")) == Ignored()
    assert shell.ask("start_child", child("t", restart="temporary")) == Ignored()
    assert shell.family.which_child("t") is RequestRefusal.NOT_FOUND
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
    info = shell.family.which_child("a")
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
    assert shell.family.which_child("t") is RequestRefusal.NOT_FOUND
    assert shell.family.statistics().restarts == 1


def test_s16_start_arguments_of_temporary_children_are_not_retained() -> None:
    class Big:
        pass

    big = Big()
    before = sys.getrefcount(big)
    shell = up(child("t", big, kwargs={"big": big}, restart="temporary"))
    spec = shell.family.get_childspec("t")
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
    assert shell.family.get_childspec("t1") == child("t", "own", restart="temporary")
    shell.logs.clear()
    assert sys.getrefcount(big) == before


def test_s17_exits_of_strangers_and_of_replaced_children_are_ignored() -> None:
    shell = up(child("a"), max_restarts=1)
    shell.exits("a1")
    shell.exits("a1")
    shell.exits("nobody")
    assert shell.take_trace() == "+a2"
    assert shell.family.statistics().restarts == 1
    assert shell.ending() is None


# The limit of restarts


def test_s18_a_restart_of_many_counts_one_and_a_failed_attempt_one_more() -> None:
    shell = up(*[child(n) for n in range(10)], strategy="one_for_all", max_restarts=3)
    shell.outcomes[4].extend(["fail", "fail"])
    shell.exits("71")
    assert shell.family.statistics().restarts == 1
    shell.retry()
    assert shell.family.statistics().restarts == 2
    shell.retry()
    assert shell.family.statistics().restarts == 3
    assert shell.family.count_children().active == 10
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
    assert shell.ask("terminate_child", "b") == Done()
    assert shell.ask("restart_child", "b") == Started("b2", "extra")
    shell.retry()
    shell.retry()
    assert shell.refs() == ["a2", "b2"]
    assert shell.family.statistics().restarts == 3


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
        assert shell.ask("terminate_child", "b") == Done()
    if meanwhile == "delete":
        assert shell.ask("delete_child", "b") == Done()
    if meanwhile == "restart":
        assert shell.ask("restart_child", "b") == Started("b2", "extra")
    shell.take_trace()
    before = (shell.family.which_children(), shell.family.statistics())
    shell.perform(shell.family.retry(stale, now=0.0))
    assert (shell.family.which_children(), shell.family.statistics()) == before
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


# Stopping


def test_s28_each_child_is_stopped_by_its_own_setting() -> None:
    shell = up(
        child("a", shutdown="brutal_kill"),
        child("b", shutdown=0.5),
        child("c", type="supervisor"),
    )
    assert shell.family.plan_shutdown() == [
        (StopChildren(("c1",), math.inf),),
        (StopChildren(("b1",), 0.5),),
        (StopChildren(("a1",), "brutal_kill"),),
    ]


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("shutdown", ["brutal_kill", 5.0])
@pytest.mark.parametrize("reason", CLEAN + UNCLEAN)
def test_s30_an_unexpected_ending_is_logged_and_stops_nothing(
    restart: str, shutdown: Any, reason: ExitReason
) -> None:
    shell = up(child("z"), child("a", restart=restart, shutdown=shutdown))
    shell.endings["a1"] = reason
    shell.perform(shell.family.shutdown(Shutdown()))
    told: list[ExitReason] = [Shutdown()]
    if shutdown == "brutal_kill":
        told = [Killed(), Killed(abandoned=True)]
    expected = reason in told or (restart != "permanent" and reason.is_clean)
    assert shell.kinds() == ([] if expected else [LogKind.SHUTDOWN_ERROR])
    assert shell.take_trace() == "-a1 -z1"
    assert shell.ending() is not None


def test_s31_children_are_stopped_one_after_another_in_reverse() -> None:
    shell = up(*abc())
    shell.hold = True
    shell.perform(shell.family.shutdown(Shutdown()))
    for ref in ("c1", "b1", "a1"):
        assert shell.held == [StopChildren((ref,), 5.0)]
        assert shell.ending() is None
        shell.release()
    assert shell.ending() == Exit(Shutdown(), Why.REQUESTED)


def test_s31_children_that_end_by_themselves_do_not_disturb_it() -> None:
    shell = up(*abc())
    shell.hold = True
    shell.perform(shell.family.shutdown(Shutdown()))
    shell.exits("a1", BOOM)
    shell.release()
    assert shell.held == [StopChildren(("b1",), 5.0)]
    shell.release()
    assert shell.take_trace() == "-c1 -b1"
    assert shell.ending() is not None
    assert shell.kinds() == [LogKind.SHUTDOWN_ERROR]


def test_s32_dynamic_children_are_stopped_at_once() -> None:
    shell = up(strategy="dynamic", max_restarts=9)
    for name in "abcd":
        shell.ask("start_child", child(name, shutdown="brutal_kill" if name == "b" else 5.0))
    shell.outcomes["d"].append("fail")
    shell.exits("d1")
    expected = (StopChildren(("a1", "c1"), 5.0), StopChildren(("b1",), "brutal_kill"))
    assert shell.family.plan_shutdown() == [expected]
    actions = shell.family.shutdown(Shutdown())
    assert tuple(actions) == expected
    # Each is released when it ends, not when all have.
    assert shell.family.exited("b1", Killed(), now=0.0) == [
        Release("d1", BOOM),
        Release("b1", Killed()),
    ]
    assert shell.family.exited("c1", Shutdown(), now=0.0) == [Release("c1", Shutdown())]
    assert shell.family.exited("a1", Shutdown(), now=0.0) == [
        Release("a1", Shutdown()),
        Exit(Shutdown(), Why.REQUESTED),
    ]
    shell.family.check()
    assert len(shell.family) == 0


def test_s32_without_children_it_ends_at_once() -> None:
    shell = up(strategy="dynamic")
    assert shell.family.plan_shutdown() == []
    assert shell.family.shutdown(Normal()) == [Exit(Normal(), Why.REQUESTED)]


def test_s33_the_exit_of_the_parent_is_passed_on_after_the_children() -> None:
    shell = up(child("a"))
    shell.perform(shell.family.shutdown(Killed()))
    assert shell.take_trace() == "-a1"
    assert shell.ending() == Exit(Killed(), Why.REQUESTED)


# Automatic shutdown


def significant(name: str, restart: str = "transient") -> Child:
    return child(name, restart=restart, significant=True)


@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("reason", CLEAN + UNCLEAN)
def test_s42_any_significant(restart: str, reason: ExitReason) -> None:
    shell = up(
        child("z"),
        significant("a", restart),
        significant("b", restart),
        auto_shutdown="any_significant",
    )
    shell.exits("a1", reason)
    if restart == "transient" and not reason.is_clean:
        assert shell.take_trace() == "+a2"
        assert shell.ending() is None
    else:
        assert shell.take_trace() == "-b1 -z1"
        assert shell.ending() == Exit(Shutdown(), Why.AUTO_SHUTDOWN)


def test_s42_others_do_not_trigger() -> None:
    shell = up(
        child("a", restart="transient"),
        child("b", restart="temporary"),
        significant("c"),
        auto_shutdown="any_significant",
    )
    shell.exits("a1", Normal())
    shell.exits("b1", BOOM)
    assert shell.ending() is None


def test_s43_all_significant_waits_for_the_last_one() -> None:
    shell = up(
        child("z"),
        *[significant(n) for n in "abc"],
        significant("t", "temporary"),
        auto_shutdown="all_significant",
    )
    shell.outcomes["a"].append("fail")
    shell.exits("a1", BOOM)  # restarting: counts as running
    shell.exits("t1", BOOM)
    shell.exits("b1", Normal())
    shell.exits("c1", Normal())
    assert shell.ending() is None
    shell.retry()
    shell.exits("a2", Shutdown("done"))
    assert shell.ending() == Exit(Shutdown(), Why.AUTO_SHUTDOWN)
    assert shell.take_trace() == "!a +a2 -z1"


def test_s43_a_terminated_significant_child_is_not_waited_for() -> None:
    shell = up(significant("a"), significant("b"), auto_shutdown="all_significant")
    shell.ask("terminate_child", "a")
    shell.exits("b1", Normal())
    assert shell.ending() is not None


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
def test_s44_terminate_child_does_not_trigger(mode: str) -> None:
    shell = up(significant("a"), significant("t", "temporary"), auto_shutdown=mode)
    shell.ask("terminate_child", "a")
    shell.ask("terminate_child", "t")
    assert shell.ending() is None


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_s44_being_a_bystander_does_not_trigger(mode: str, strategy: str) -> None:
    shell = up(
        child("z"),
        significant("a"),
        significant("t", "temporary"),
        strategy=strategy,
        auto_shutdown=mode,
    )
    shell.exits("z1")
    assert shell.ending() is None


def test_s45_a_chain_of_automatic_shutdowns() -> None:
    inner = up(significant("a"), auto_shutdown="any_significant")
    inner.exits("a1", Normal())
    ended = inner.ending()
    assert ended is not None
    follows = up(significant("inner"), auto_shutdown="any_significant")
    follows.exits("inner1", ended.reason)
    assert follows.ending() == Exit(Shutdown(), Why.AUTO_SHUTDOWN)
    restarts = up(child("inner"), auto_shutdown="any_significant")
    restarts.exits("inner1", ended.reason)
    assert restarts.take_trace() == "+inner2"


# Trees


def test_s46_children_started_later_are_not_part_of_a_new_incarnation() -> None:
    first = [child("a")]
    shell = up(*first)
    shell.ask("start_child", child("later"))
    assert shell.refs() == ["a1", "later1"]
    assert up(*first).refs() == ["a1"]


def test_s47_the_limits_of_a_tree_multiply() -> None:
    crashes = 0
    root = up(child("inner"), max_restarts=1)
    while root.ending() is None:
        inner = up(child("a"), max_restarts=2)
        while inner.ending() is None:
            crashes += 1
            inner.exits(inner.refs()[0])
        ended = inner.ending()
        assert ended is not None
        root.exits(root.refs()[0], ended.reason)
    assert crashes == (1 + 1) * (2 + 1)


def test_s48_what_is_logged_names_child_ref_reason_and_restarts() -> None:
    a = child("a")
    shell = Shell(a, max_restarts=2).begin()
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    shell.retry()
    shell.exits("a2")
    assert shell.logs == [
        Log(LogKind.PROGRESS, a, "a1"),
        Log(LogKind.CHILD_TERMINATED, a, "a1", BOOM),
        Log(LogKind.START_ERROR, a, "a1", REFUSED, restarts=1),
        Log(LogKind.PROGRESS, a, "a2", restarts=2),
        Log(LogKind.CHILD_TERMINATED, a, "a2", BOOM, restarts=2),
        Log(LogKind.TOO_MANY_RESTARTS, a, "a2", BOOM, restarts=2),
    ]


def test_s48_starts_on_request_are_marked() -> None:
    shell = up(child("a"))
    shell.ask("terminate_child", "a")
    shell.logs.clear()
    shell.ask("restart_child", "a")
    shell.ask("start_child", child("b"))
    assert [log.requested for log in shell.logs] == [True, True]


def test_s49_a_restart_costs_the_same_among_many() -> None:
    def calls(size: int) -> int:
        shell = up(child("a"), strategy="dynamic")
        family = shell.family
        for _ in range(size):
            (action,) = family.start_copy()
            assert isinstance(action, StartChild)
            family.started(action.key, f"a{action.key}", now=0.0)
        count = 0

        def profile(_frame: object, _event: str, _arg: object) -> None:
            nonlocal count
            count += 1

        previous = sys.getprofile()
        sys.setprofile(profile)
        try:
            family.exited(f"a{size // 2}", BOOM, now=0.0)
            family.started(size // 2, "new", now=0.0)
            family.count_children()
            family.statistics()
            family.terminate_ref("new")
            family.exited("new", Shutdown(), now=0.0)
        finally:
            sys.setprofile(previous)
        assert family.count_children().active == size - 1
        return count

    assert calls(10) == calls(2_000)
