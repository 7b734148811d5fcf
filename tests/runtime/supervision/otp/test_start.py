"""OTP's supervisor_SUITE on running supervisors: how they start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.exits import FailedToStart
from actorflow.runtime.supervision.actions import ChildStarted, RequestRefusal
from actorflow.runtime.supervision.children import ChildState
from tests.runtime.supervision.kit import FAIL, counts, ids, names, ref, refusal, state

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_sup_start_normal_s10(stage: Stage) -> None:
    supervisor = stage.up()
    assert supervisor.is_alive()
    assert counts(supervisor) == [0, 0, 0, 0]
    assert supervisor.stop(af.Shutdown())
    assert supervisor.exit_reason == af.Shutdown()
    assert not supervisor.stop()


def test_children_are_up_left_to_right_when_start_returns_s10(stage: Stage) -> None:
    supervisor = stage.tree(*map(stage.child, "abc")).start()
    assert stage.take() == "+a1 +b1 +c1"
    supervisor.stop()
    assert stage.take() == "-c1 -b1 -a1"


def test_child_that_fails_to_start_rolls_back_s11(stage: Stage) -> None:
    stage.outcomes["c"].append(FAIL)
    tree = stage.tree(*map(stage.child, "abcd"), name="doomed")
    with pytest.raises(af.StartFailed, match="'c' failed to start: crash: OSError") as raised:
        tree.start()
    assert isinstance(raised.value.__cause__, OSError)
    assert stage.take() == "+a1 +b1 !c -b1 -a1"
    assert af.whereis("doomed") is None
    with tree as supervisor:  # the description can be used again
        assert names(supervisor) == "a2 b2 c1 d1"


def test_on_start_that_raises_rolls_back_s11(stage: Stage) -> None:
    class Broken(af.Actor):
        def on_start(self) -> None:
            raise OSError("no port")

    tree = stage.tree(stage.child("a"), af.Child("b", Broken, kwargs={"lane": stage.lane}))
    with pytest.raises(af.StartFailed) as raised:
        tree.start()
    assert str(raised.value.__cause__) == "no port"
    assert stage.take() == "+a1 -a1"


def test_worker_that_fails_to_start_rolls_back_s11(stage: Stage) -> None:
    class Broken(af.Executor):
        def on_start(self) -> None:
            raise OSError("no port")

        def handle(self, batch: Any) -> None:
            """Do nothing."""

    with pytest.raises(af.StartFailed, match="no port"):
        stage.tree(stage.child("a"), stage.worker("b", Broken, name="broken")).start()
    assert stage.take() == "+a1 -a1"
    assert af.whereis("broken") is None


def test_sup_start_ignore_init_s12(stage: Stage) -> None:
    supervisor = stage.up(af.Child("sub", lambda: af.IGNORE, type="supervisor"))
    assert counts(supervisor) == [1, 0, 1, 0]
    assert state(supervisor, "sub") is ChildState.STOPPED


def test_sup_start_ignore_child_s13(stage: Stage) -> None:
    stage.outcomes["a"].append(af.IGNORE)
    supervisor = stage.up(stage.child("a"), stage.child("b"))
    assert counts(supervisor) == [2, 1, 0, 2]
    assert ref(supervisor, "a") is None
    assert names(supervisor) == "- b1"


def test_sup_start_ignore_temporary_child_s13(stage: Stage) -> None:
    stage.outcomes["a"].append(af.IGNORE)
    supervisor = stage.up(stage.child("a", restart="temporary"), stage.child("b"))
    assert ids(supervisor) == ["b"]
    assert counts(supervisor) == [1, 1, 0, 1]


def test_sup_start_ignore_temporary_child_start_child_s13(stage: Stage) -> None:
    supervisor = stage.up()
    stage.outcomes["a"].append(af.IGNORE)
    answer = supervisor.start_child(stage.child("a", restart="temporary"))
    assert type(answer).__name__ == "Ignored"
    assert counts(supervisor) == [0, 0, 0, 0]


@pytest.mark.parametrize("restart", ["temporary", "permanent"])
def test_sup_start_ignore_child_start_child_simple_s13(stage: Stage, restart: str) -> None:
    stage.outcomes["a"].append(af.IGNORE)
    supervisor = stage.up(stage.child("a", restart=restart), strategy="dynamic")
    supervisor.start_copy()
    supervisor.start_copy()
    assert counts(supervisor) == [1, 1, 0, 1]
    supervisor.stop(af.Shutdown())
    assert stage.take() == "+a1 -a1"


@pytest.mark.parametrize("junk", [17, "ref", (1, 2), [], object()])
def test_sup_start_error_return_s12(stage: Stage, junk: Any) -> None:
    stage.outcomes["a"].append(junk)
    with pytest.raises(af.StartFailed, match="must return the ref of an actor"):
        stage.tree(stage.child("a")).start()


def test_plain_pykka_actor_is_refused_with_the_remedy_p2(stage: Stage) -> None:
    import pykka  # noqa: PLC0415 - only here

    plain = pykka.ThreadingActor.start()
    stage.outcomes["a"].append(plain)
    with pytest.raises(af.StartFailed, match="derive it from actorflow"):
        stage.tree(stage.child("a")).start()
    assert plain.is_alive()
    plain.stop()


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_sup_start_fail_s12(stage: Stage, error: BaseException) -> None:
    stage.outcomes["a"].append(error)
    with pytest.raises(af.StartFailed) as raised:
        stage.tree(stage.child("a")).start()
    assert raised.value.__cause__ is error
    assert error.__traceback__ is not None


def test_sup_start_restart_child_returns_error_s36(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    supervisor.terminate_child("a")
    stage.outcomes["a"].append(FAIL)
    with pytest.raises(af.RequestRefused) as raised:
        supervisor.restart_child("a")
    assert raised.value.why is RequestRefusal.START_FAILED
    assert isinstance(raised.value.__cause__, OSError)
    assert state(supervisor, "a") is ChildState.STOPPED
    assert supervisor.restart_child("a").ref.actor.name == "a2"


@pytest.mark.parametrize("outcome", [FAIL, "junk"])
def test_sup_start_child_returns_error_s34(stage: Stage, outcome: Any) -> None:
    supervisor = stage.up()
    stage.outcomes["a"].append(outcome)
    assert refusal(supervisor.start_child, stage.child("a")) is RequestRefusal.START_FAILED
    assert ids(supervisor) == []


@pytest.mark.parametrize("outcome", [FAIL, "junk"])
def test_sup_start_child_returns_error_simple_s34(stage: Stage, outcome: Any) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic")
    stage.outcomes["a"].append(outcome)
    assert refusal(supervisor.start_copy) is RequestRefusal.START_FAILED
    assert counts(supervisor) == [1, 0, 0, 0]


def test_sup_start_map_s38(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), af.Child("sub", stage.tree()))
    spec = supervisor.get_childspec("a")
    assert (spec.restart, spec.shutdown, spec.type, spec.significant) == (
        "permanent", 5.0, "worker", False,
    )  # fmt: skip
    assert supervisor.get_childspec(ref(supervisor, "a")) is spec
    assert supervisor.get_childspec("sub").shutdown == math.inf
    assert supervisor.get_childspec("sub").type == "supervisor"
    assert refusal(supervisor.get_childspec, "stranger") is RequestRefusal.NOT_FOUND
    assert refusal(supervisor.which_child, "stranger") is RequestRefusal.NOT_FOUND


def test_sup_start_map_simple_s38(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic")
    started = supervisor.start_copy()
    assert supervisor.get_childspec(started.ref).shutdown == 5.0
    assert refusal(supervisor.get_childspec, "a") is RequestRefusal.NOT_FOUND


def test_workers_are_known_by_their_own_refs_s38(stage: Stage) -> None:
    supervisor = stage.up(stage.worker("w", lambda batch, state: None))
    worker = supervisor.worker("w")
    assert ref(supervisor, "w") is worker
    assert [info.ref for info in supervisor.which_children()] == [worker]
    assert supervisor.which_child(worker).id == "w"
    assert supervisor.get_childspec(worker).id == "w"
    with pytest.raises(af.RequestRefused) as raised:
        supervisor.start_child(stage.worker("w", lambda batch, state: None))
    assert raised.value.ref is worker


def test_sup_start_map_faulty_specs_s8(stage: Stage) -> None:
    with pytest.raises(TypeError):
        af.Child("a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        af.Child("a", stage.start, colour="red")  # type: ignore[call-arg]
    for junk in (17, "a", None, ("a", stage.start)):
        with pytest.raises(af.BadChild, match="is not a child"):
            stage.tree(junk)  # type: ignore[arg-type]
    supervisor = stage.up()
    with pytest.raises(af.BadChild, match="is not a child"):
        supervisor.start_child("a")  # type: ignore[arg-type]
    with pytest.raises(af.BadChild, match="two children have the id 'a'"):
        stage.tree(stage.child("a"), stage.child("a"))


def test_already_started_outside_supervisor(stage: Stage) -> None:
    outside = af.spawn(lambda batch, state: None, name="me", executor=stage.lane)
    supervisor = stage.up()
    with pytest.raises(af.RequestRefused) as raised:
        supervisor.start_child(stage.worker("w", lambda batch, state: None, name="me"))
    cause = raised.value.__cause__
    assert isinstance(cause, af.AlreadyStarted)
    assert cause.ref is outside
    assert outside.is_alive()
    outside.stop()


def test_faulty_application_shutdown_s11(stage: Stage) -> None:
    stage.outcomes["leaf"].append(FAIL)
    inner = stage.tree(stage.child("leaf"), name="inner")
    middle = stage.tree(stage.child("a"), af.Child("inner", inner), name="middle")
    with pytest.raises(af.StartFailed) as raised:
        stage.tree(stage.child("b"), af.Child("middle", middle), name="outer").start()
    text = str(raised.value)
    assert text == (
        "supervisor 'outer' did not start: shutdown: child 'middle' failed to start: "
        "shutdown: child 'inner' failed to start: shutdown: child 'leaf' failed to start: "
        "crash: OSError: refused"
    )
    assert isinstance(raised.value.__cause__, OSError)
    assert stage.take() == "+b1 +a1 !leaf -a1 -b1"


def test_two_supervisors_of_one_name(stage: Stage) -> None:
    first = stage.up(name="me")
    assert af.whereis("me") is first
    with pytest.raises(af.AlreadyStarted) as raised:
        stage.tree(name="me").start()
    assert raised.value.ref is first
    first.stop()
    assert af.whereis("me") is None


def test_extra_return_s2(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a", "extra"))
    assert supervisor.start_child(stage.child("b", "more")).extra == "more"
    stage.crash(supervisor, "a")
    assert names(supervisor) == "a2 b1"
    supervisor.terminate_child("a")
    answer = supervisor.restart_child("a")
    assert answer == ChildStarted(ref(supervisor, "a"), "extra")
    assert refusal(supervisor.restart_child, "a") is RequestRefusal.RUNNING
    assert refusal(supervisor.restart_child, "z") is RequestRefusal.NOT_FOUND


def test_exit_reason_of_a_failed_start_names_the_child(stage: Stage) -> None:
    stage.outcomes["a"].append(FAIL)
    sub = stage.tree(stage.child("a"))
    supervisor = stage.up()
    with pytest.raises(af.RequestRefused) as raised:
        supervisor.start_child(af.Child("sub", sub))
    reason = raised.value.reason
    assert isinstance(reason, af.Shutdown)
    assert isinstance(reason.detail, FailedToStart)
    assert reason.detail.id == "a"


def test_start_that_returns_a_running_child_again_is_refused_s2(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    stage.outcomes["b"].append(ref(supervisor, "a"))
    with pytest.raises(af.RequestRefused, match="which is child 'a' already"):
        supervisor.start_child(stage.child("b"))
    stage.crash(supervisor, "a")
    assert names(supervisor) == "a2"
