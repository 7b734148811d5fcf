"""All requests to a supervisor, and all the answers."""

from __future__ import annotations

import pytest

from actorflow.runtime.exits import Killed, Normal
from actorflow.runtime.supervision.actions import (
    ChildStarted,
    Exit,
    Ignored,
    RequestDenied,
    RequestDone,
    RequestRefusal,
    Why,
)
from actorflow.runtime.supervision.children import (
    ChildCounts,
    ChildInfo,
    ChildState,
    ImpossibleReport,
    Phase,
)
from actorflow.runtime.supervision.family import Family
from tests.runtime.supervision.family.family_shell import BOOM, REFUSED, child, up


def test_s34_start_child() -> None:
    shell = up(child("a"))
    assert shell.ask("start_child", child("b")) == ChildStarted("b1", "extra")
    assert shell.refs() == ["a1", "b1"]
    assert shell.ask("start_child", child("b")) == RequestDenied(
        RequestRefusal.ALREADY_STARTED, ref="b1"
    )
    shell.ask("terminate_child", "b")
    assert shell.ask("start_child", child("b")) == RequestDenied(RequestRefusal.ALREADY_PRESENT)
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    assert shell.ask("start_child", child("a")) == RequestDenied(RequestRefusal.ALREADY_PRESENT)


def test_s34_a_child_that_does_not_start_is_discarded_and_not_retried() -> None:
    shell = up()
    shell.outcomes["a"].append("fail")
    assert shell.ask("start_child", child("a")) == RequestDenied(
        RequestRefusal.START_FAILED, reason=REFUSED
    )
    assert len(shell.family) == 0
    assert shell.retries == []
    assert shell.kinds() == []


def test_s34_dynamic_arguments_are_appended_to_those_of_the_template() -> None:
    shell = up(child("a", 1, kwargs={"x": 1}), strategy="dynamic")
    assert shell.ask("start_copy", 2, kwargs={"y": 2}) == ChildStarted("a1", "extra")
    assert shell.ask("start_copy") == ChildStarted("a2", "extra")
    assert shell.family.requests.get_childspec("a1") == child("a", 1, 2, kwargs={"x": 1, "y": 2})
    assert shell.family.requests.get_childspec("a2") is shell.family.template
    assert shell.ask("start_child", child("b")) == RequestDenied(RequestRefusal.TEMPLATE)
    assert up(strategy="dynamic").ask("start_copy") == RequestDenied(RequestRefusal.NO_TEMPLATE)
    assert up().ask("start_copy") == RequestDenied(RequestRefusal.NO_TEMPLATE)


def test_s34_max_children() -> None:
    shell = up(strategy="dynamic", max_children=2)
    shell.ask("start_child", child("a"))
    shell.ask("start_child", child("a"))
    assert shell.ask("start_child", child("a")) == RequestDenied(RequestRefusal.MAX_CHILDREN)
    shell.outcomes["a"].append("fail")
    shell.exits("a1")  # being restarted, it keeps its place
    assert shell.ask("start_child", child("a")) == RequestDenied(RequestRefusal.MAX_CHILDREN)
    assert shell.ask("terminate_ref", "a2") == RequestDone()
    assert shell.ask("start_child", child("a")) == ChildStarted("a3", "extra")


def test_s35_terminate_child() -> None:
    shell = up(child("a"), child("t", restart="temporary"), max_restarts=0)
    assert shell.ask("terminate_child", "a") == RequestDone()
    assert shell.ask("terminate_child", "a") == RequestDone()
    assert shell.state("a") is ChildState.STOPPED
    assert shell.ask("terminate_child", "t") == RequestDone()
    assert shell.ask("terminate_child", "t") == RequestDenied(RequestRefusal.NOT_FOUND)
    assert shell.ask("terminate_child", "nobody") == RequestDenied(RequestRefusal.NOT_FOUND)
    assert shell.take_trace() == "-a1 -t1"
    assert shell.family.requests.statistics().restarts == 0


def test_s35_terminate_child_cancels_a_restart() -> None:
    shell = up(child("a"))
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    assert shell.ask("terminate_child", "a") == RequestDone()
    shell.retry()
    assert shell.state("a") is ChildState.STOPPED
    assert shell.take_trace() == "!a"


def test_s35_dynamic_children_are_terminated_by_ref() -> None:
    shell = up(child("a"), strategy="dynamic")
    shell.ask("start_copy")
    shell.ask("start_copy")
    assert shell.ask("terminate_child", "a") == RequestDenied(RequestRefusal.DYNAMIC)
    assert shell.ask("terminate_ref", "a1") == RequestDone()
    assert shell.ask("terminate_ref", "a1", alive=False) == RequestDone()
    assert shell.ask("terminate_ref", "stranger") == RequestDenied(RequestRefusal.NOT_FOUND)
    assert shell.refs() == ["a2"]
    assert up(child("a")).ask("terminate_ref", "a1") == RequestDenied(RequestRefusal.NOT_DYNAMIC)


def test_s35_a_dynamic_child_in_restart_is_found_by_its_last_ref() -> None:
    shell = up(child("a"), strategy="dynamic")
    shell.ask("start_copy")
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    assert shell.ask("terminate_ref", "a1") == RequestDone()
    assert len(shell.family) == 0
    shell.retry()
    assert shell.take_trace() == "+a1 !a"


def test_s36_restart_child() -> None:
    shell = up(child("a"), max_restarts=1)
    assert shell.ask("restart_child", "a") == RequestDenied(RequestRefusal.RUNNING)
    assert shell.ask("restart_child", "nobody") == RequestDenied(RequestRefusal.NOT_FOUND)
    shell.ask("terminate_child", "a")
    shell.outcomes["a"].extend(["fail", "ignore", "ok", "fail"])
    assert shell.ask("restart_child", "a") == RequestDenied(
        RequestRefusal.START_FAILED, reason=REFUSED
    )
    assert shell.ask("restart_child", "a") == Ignored()
    assert shell.ask("restart_child", "a") == ChildStarted("a2", "extra")
    assert shell.family.requests.statistics().restarts == 0
    assert shell.retries == []
    shell.exits("a2")
    assert shell.ask("restart_child", "a") == RequestDenied(RequestRefusal.RESTARTING)
    assert up(strategy="dynamic").ask("restart_child", "a") == RequestDenied(RequestRefusal.DYNAMIC)


def test_s37_delete_child() -> None:
    shell = up(child("a"))
    assert shell.ask("delete_child", "a") == RequestDenied(RequestRefusal.RUNNING)
    assert shell.ask("delete_child", "nobody") == RequestDenied(RequestRefusal.NOT_FOUND)
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    assert shell.ask("delete_child", "a") == RequestDenied(RequestRefusal.RESTARTING)
    shell.ask("terminate_child", "a")
    assert shell.ask("delete_child", "a") == RequestDone()
    assert len(shell.family) == 0
    assert up(strategy="dynamic").ask("delete_child", "a") == RequestDenied(RequestRefusal.DYNAMIC)


def test_s38_which_children_which_child_and_get_childspec() -> None:
    first, second = child("a"), child("b", type="supervisor", restart="transient")
    shell = up(first, second)
    assert [(i.id, i.ref, i.type) for i in shell.family.requests.which_children()] == [
        ("b", "b1", "supervisor"),
        ("a", "a1", "worker"),
    ]
    assert shell.family.requests.get_childspec("b") is second
    assert shell.family.requests.get_childspec("b1") is second
    assert shell.family.requests.get_childspec("c") is RequestRefusal.NOT_FOUND
    assert shell.family.requests.which_child("c") is RequestRefusal.NOT_FOUND
    shell.now = 7.0
    shell.exits("b1")
    info = shell.family.requests.which_child("b2")
    assert isinstance(info, ChildInfo)
    assert info.restarts == 1
    assert info.started_at == 7.0
    assert info.last_exit == BOOM
    shell.outcomes["b"].append("fail")
    shell.exits("b2")
    info = shell.family.requests.which_child("b")
    assert isinstance(info, ChildInfo)
    assert (info.state, info.ref, info.restarts) == (ChildState.RESTARTING, None, 2)


def test_s39_count_children() -> None:
    shell = up(child("a"), child("b"), child("s", type="supervisor"))
    assert shell.family.requests.count_children() == ChildCounts(3, 3, 1, 2)
    shell.ask("terminate_child", "s")
    shell.outcomes["a"].append("fail")
    shell.exits("a1")
    assert shell.family.requests.count_children() == ChildCounts(3, 1, 1, 2)


def test_s39_count_children_of_a_dynamic_supervisor() -> None:
    shell = up(child("a", type="supervisor"), strategy="dynamic")
    assert shell.family.requests.count_children() == ChildCounts(1, 0, 0, 0)
    for _ in range(5):
        shell.ask("start_copy")
    shell.outcomes["a"].append("fail")
    shell.exits("a3")
    assert shell.family.requests.count_children() == ChildCounts(1, 4, 5, 0)
    mixed = up(strategy="dynamic")
    mixed.ask("start_child", child("a"))
    mixed.ask("start_child", child("a", type="supervisor"))
    assert mixed.family.requests.count_children() == ChildCounts(2, 2, 1, 1)


def test_s40_a_stop_ends_with_its_reason_and_the_first_one_decides() -> None:
    shell = up(child("a"))
    shell.hold = True
    shell.perform(shell.family.shutdown(Normal()))
    assert shell.family.phase is Phase.LEAVING
    shell.perform(shell.family.shutdown(Killed()))
    assert shell.ask("start_child", child("b")) == RequestDenied(RequestRefusal.STOPPING)
    shell.release()
    assert shell.ending() == Exit(Normal(), Why.REQUESTED)
    assert shell.family.shutdown(Killed()) == []
    assert shell.ask("terminate_child", "a") == RequestDenied(RequestRefusal.STOPPING)


def test_s40_a_family_that_never_began_can_be_ended() -> None:
    family = Family([child("a"), child("t", restart="temporary")])
    assert family.shutdown(Normal()) == [Exit(Normal(), Why.REQUESTED)]
    with pytest.raises(ImpossibleReport, match="GONE"):
        family.begin(now=0.0)
