"""The rules of supervision, one by one, on the pure strategy: how children and families end."""

from __future__ import annotations

import gc
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.exits import ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    Exit,
    LogAction,
    LogKind,
    Release,
    StartChild,
    StopChildren,
    Why,
)
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

if TYPE_CHECKING:
    from actorflow.runtime.supervision.spec import Child

# Stopping


def test_s28_each_child_is_stopped_by_its_own_setting() -> None:
    shell = up(
        child("a", shutdown="brutal_kill"),
        child("b", shutdown=0.5),
        child("c", type="supervisor"),
    )
    stops = []
    actions = shell.family.shutdown(Shutdown())
    while stop := next((each for each in actions if isinstance(each, StopChildren)), None):
        stops.append(stop)
        actions = shell.family.exited(stop.refs[0], Shutdown(), now=0.0)
    assert stops == [
        StopChildren(("c1",), math.inf),
        StopChildren(("b1",), 0.5),
        StopChildren(("a1",), "brutal_kill"),
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
        LogAction(LogKind.PROGRESS, a, "a1"),
        LogAction(LogKind.CHILD_TERMINATED, a, "a1", BOOM),
        LogAction(LogKind.START_ERROR, a, "a1", REFUSED, restarts=1),
        LogAction(LogKind.PROGRESS, a, "a2", restarts=2),
        LogAction(LogKind.CHILD_TERMINATED, a, "a2", BOOM, restarts=2),
        LogAction(LogKind.TOO_MANY_RESTARTS, a, "a2", BOOM, restarts=2),
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
            (action,) = family.requests.start_copy()
            assert isinstance(action, StartChild)
            family.started(action.key, f"a{action.key}", now=0.0)
        count = 0

        def profile(_frame: object, _event: str, _arg: object) -> None:
            nonlocal count
            count += 1

        previous = sys.getprofile()
        gc.disable()  # else the ends of other tests' objects count
        sys.setprofile(profile)
        try:
            family.exited(f"a{size // 2}", BOOM, now=0.0)
            family.started(size // 2, "new", now=0.0)
            family.requests.count_children()
            family.requests.statistics()
            family.requests.terminate_ref("new")
            family.exited("new", Shutdown(), now=0.0)
        finally:
            sys.setprofile(previous)
            gc.enable()
        assert family.requests.count_children().active == size - 1
        return count

    assert calls(10) == calls(2_000)
