"""Child specifications, flags, the limit of restarts and exit reasons, each by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.exits import Crash, Killed, Shutdown
from actorflow.runtime.restarts import BadFlags
from actorflow.runtime.supervision.actions import (
    ChildStarted,
    RequestDenied,
    RequestRefusal,
    StartChild,
)
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import BadChild, Child, Flags
from tests.runtime.supervision.family.family_shell import child, start, up

# Child specifications


def test_s1_ids_are_unique_and_hashable() -> None:
    with pytest.raises(BadChild, match=r"two children have the id 'a'"):
        Family([child("a"), child("b"), child("a")])
    with pytest.raises(BadChild, match=r"the id \['a'\] .* cannot be hashed"):
        child(["a"])  # type: ignore[arg-type]
    assert len(Family([child("a"), child(("a", 1)), child(None)])) == 3


def test_s2_start_is_called_with_its_arguments_and_may_give_an_extra() -> None:
    shell = up()
    shell.hold = True
    shell.ask("start_child", child("a", 1, 2, kwargs={"x": 3}))
    (action,) = shell.held
    assert isinstance(action, StartChild)
    assert (action.child.args, action.child.kwargs) == ((1, 2), {"x": 3})
    shell.release()
    assert list(shell.replies.values()) == [ChildStarted("a1", "extra")]


def test_s2_start_must_be_callable() -> None:
    with pytest.raises(BadChild, match=r"child 'a': start=7 cannot be called"):
        Child("a", 7)  # type: ignore[arg-type]
    with pytest.raises(BadChild, match=r"child 'a': kwargs=\[\] is not a dict"):
        Child("a", start, kwargs=[])  # type: ignore[arg-type]


def test_s2_a_start_that_returns_the_ref_of_another_child_has_failed() -> None:
    shell = up(child("a"))
    shell.hold = True
    shell.ask("start_child", child("b"))
    shell.perform(shell.family.started("b", "a1", now=0.0))
    (answer,) = shell.replies.values()
    assert isinstance(answer, RequestDenied)
    assert answer.why is RequestRefusal.START_FAILED
    assert isinstance(answer.reason, Crash)
    assert "is child 'a' already" in str(answer.reason.exception)
    assert shell.refs() == ["a1"]


def test_s3_restart_is_permanent_unless_said() -> None:
    assert child("a").restart == "permanent"
    assert [child("a", restart=kind).restart for kind in ("transient", "temporary")] == [
        "transient",
        "temporary",
    ]
    with pytest.raises(BadChild, match="restart='always': restart must be one of"):
        child("a", restart="always")


@pytest.mark.parametrize("bad", [-1, -0.5, math.nan, True, "kill", [], -math.inf])
def test_s4_shutdown_is_seconds_infinity_or_brutal_kill(bad: Any) -> None:
    for good in (0, 2.5, math.inf, "brutal_kill"):
        assert child("a", shutdown=good).shutdown == good
    with pytest.raises(BadChild, match=r"child 'a': shutdown=.* 'brutal_kill'"):
        child("a", shutdown=bad)


def test_s4_s5_the_default_of_shutdown_depends_on_the_type() -> None:
    assert child("a").shutdown == 5.0
    assert child("a", type="supervisor").shutdown == math.inf
    assert child("a", type="supervisor", shutdown=1).shutdown == 1
    with pytest.raises(BadChild, match=r"child 'a': type='thread': type must be one of 'worker'"):
        child("a", type="thread")


def test_s6_significant_goes_with_neither_permanent_nor_never_nor_dynamic() -> None:
    assert not child("a").significant
    with pytest.raises(BadChild, match=r"child 'a': a permanent child cannot be significant"):
        child("a", significant=True)
    with pytest.raises(BadChild, match="significant=1: significant must be True or False"):
        child("a", restart="transient", significant=1)
    significant = child("a", restart="transient", significant=True)
    with pytest.raises(BadChild, match=r"'a' is significant, but .* auto_shutdown='never'"):
        Family([significant])
    with pytest.raises(BadChild, match=r"'a' is significant"):
        up().family.requests.start_child(significant)
    with pytest.raises(BadFlags, match=r"auto_shutdown='any_significant' cannot be combined with"):
        Flags(strategy="dynamic", auto_shutdown="any_significant")
    Family([significant], Flags(auto_shutdown="any_significant"))


def test_s8_unknown_keys_are_errors_here() -> None:
    with pytest.raises(TypeError):
        child("a", intensity=3)
    with pytest.raises(TypeError):
        Flags(intensity=3)  # type: ignore[call-arg]


def test_child_is_a_value() -> None:
    assert child("a", [1]) == child("a", [1])
    assert hash(child("a", [1], kwargs={"x": []})) == hash(child("a", [1], kwargs={"x": []}))
    with pytest.raises(AttributeError):
        child("a").restart = "temporary"  # type: ignore[misc, assignment]
    with pytest.raises(BadChild, match="'a' is not a child"):
        Family(["a"])  # type: ignore[list-item]
    assert issubclass(BadChild, ActorflowError)


# Flags


def test_s9_defaults() -> None:
    flags = Flags()
    assert (flags.strategy, flags.max_restarts, flags.within) == ("one_for_one", 3, 5.0)
    assert (flags.auto_shutdown, flags.max_children, flags.backoff) == ("never", None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strategy", "simple_one_for_one"),
        ("max_restarts", -1),
        ("max_restarts", 1.5),
        ("max_restarts", True),
        ("within", 0),
        ("within", math.nan),
        ("within", math.inf),
        ("within", "5"),
        ("auto_shutdown", "always"),
        ("auto_shutdown", None),
        ("max_children", -1),
        ("backoff", 1.0),
    ],
)
def test_s9_a_bad_flag_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(BadFlags, match=rf"^{name}={value!r}: {name} must be "):
        Flags(**{name: value})  # type: ignore[arg-type]


def test_s9_max_children_is_for_dynamic_supervisors() -> None:
    with pytest.raises(BadFlags, match=r"max_children=3 needs strategy='dynamic'"):
        Flags(max_children=3)
    with pytest.raises(BadChild, match=r"takes one child, the template .* 'a' and 'b'"):
        Family([child("a"), child("b")], Flags(strategy="dynamic"))


# Reasons


def test_reasons_describe_themselves_whatever_they_hold() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert Crash(Rude()).describe() == "crash: Rude: <Rude that cannot be printed>"
    assert Crash(KeyError()).describe() == "crash: KeyError"
    assert Crash(ValueError("two\nlines")).describe() == "crash: ValueError: two lines"
    assert Shutdown().describe() == "shutdown"
    assert Killed().describe() == "killed"
