"""OTP's supervisor_SUITE on running supervisors: how they stop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.children import ChildState
from tests.runtime.supervision.kit import BOOM, CLEAN, RESTARTS, UNCLEAN, ref, state

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_sup_stop_infinity_s28(stage: Stage) -> None:
    sub = af.Child("sub", stage.tree(stage.child("b")), shutdown=math.inf)
    supervisor = stage.up(stage.child("a", shutdown=math.inf), sub)
    inner = ref(supervisor, "sub")
    outer = ref(supervisor, "a")
    supervisor.stop()
    assert stage.take() == "-b1 -a1"
    assert (inner.exit_reason, outer.exit_reason) == (af.Shutdown(), af.Shutdown())


def test_child_that_does_not_obey_is_waited_for_without_limit_s28(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.stubborn("b", shutdown=math.inf))
    supervisor.stop(block=False)
    stage.run(1e9)
    assert supervisor.is_alive()
    assert stage.take() == ""
    stage.slow.run()
    stage.run()
    assert stage.take() == "-b1 -a1"
    assert supervisor.exit_reason == af.Normal()


def test_sup_stop_timeout_s28(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = stage.up(stage.child("a", shutdown=1.0), stage.stubborn("b", shutdown=1.0))
    obedient, stubborn = ref(supervisor, "a"), ref(supervisor, "b")
    supervisor.stop(block=False)
    stage.run(0.999)
    assert stubborn.is_alive()
    stage.run(0.001)
    assert stubborn.exit_reason == af.Killed(abandoned=True)
    assert obedient.exit_reason == af.Shutdown()
    assert supervisor.exit_reason == af.Normal()
    assert "child did not stop as expected" in caplog.text  # S30


def test_sup_stop_timeout_dynamic_s32(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    kinds = [stage.stubborn("a"), stage.child("b"), stage.stubborn("c", shutdown=2.0)]
    started = [supervisor.start_child(kind).ref for kind in kinds]
    supervisor.stop(block=False)
    stage.run(2.0)
    assert [each.is_alive() for each in started] == [True, False, False]
    stage.run(3.0)
    assert supervisor.exit_reason == af.Normal()
    assert started[0].exit_reason == af.Killed(abandoned=True)


@pytest.mark.parametrize("kind", ["child", "stubborn"])
def test_sup_stop_brutal_kill_s28(stage: Stage, kind: str) -> None:
    supervisor = stage.up(stage.child("a"), getattr(stage, kind)("b", shutdown="brutal_kill"))
    victim = ref(supervisor, "b")
    supervisor.stop()
    assert isinstance(victim.exit_reason, af.Killed)
    assert stage.take() == "-a1"  # no on_stop for the other


def test_sup_stop_brutal_kill_dynamic_s32(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a", shutdown="brutal_kill"), strategy="dynamic")
    started = [supervisor.start_copy().ref for _ in range(10)]
    supervisor.stop()
    assert all(isinstance(each.exit_reason, af.Killed) for each in started)


def test_brutal_kill_of_a_supervisor_takes_all_below_with_it_s28(stage: Stage) -> None:
    low = stage.tree(stage.child("c"), stage.worker("w", lambda batch, state: None))
    middle = stage.tree(stage.child("b"), af.Child("low", low))
    supervisor = stage.up(af.Child("middle", middle, shutdown="brutal_kill"))
    inner = ref(ref(supervisor, "middle"), "low")
    leaf, worker = ref(inner, "c"), inner.worker("w")
    supervisor.stop()
    assert isinstance(leaf.exit_reason, af.Killed)
    assert isinstance(worker.exit_reason, af.Killed)
    assert stage.take() == ""


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("reason", [*CLEAN, *UNCLEAN], ids=lambda reason: reason.describe())
def test_sup_stop_race_s30(
    stage: Stage, restart: Any, reason: Any, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = stage.up(stage.child("a"), stage.stubborn("b", restart=restart))
    racer = ref(supervisor, "b")
    if isinstance(reason, af.Crash):
        racer.tell(reason.exception)
    elif not isinstance(reason, af.Killed):
        racer.tell(af.Stop(reason))
    supervisor.stop(block=False)
    stage.run()
    if isinstance(reason, af.Killed):
        racer.kill()
    stage.slow.run()  # now it ends by itself, while it is being stopped
    stage.run()
    assert isinstance(racer.exit_reason, type(reason))
    assert supervisor.exit_reason == af.Normal()
    assert stage.take().endswith("-a1")
    clean = reason.is_clean and (restart != "permanent" or reason == af.Shutdown())
    assert ("child did not stop as expected" in caplog.text) is not clean


@pytest.mark.parametrize("reason", [*CLEAN, af.Crash(BOOM)], ids=lambda reason: reason.describe())
def test_sup_stop_non_shutdown_exit_dynamic_s32(stage: Stage, reason: Any) -> None:
    supervisor = stage.up(strategy="dynamic")
    for name in "abc":
        racer = supervisor.start_child(stage.stubborn(name)).ref
        crashes = isinstance(reason, af.Crash)
        racer.tell(reason.exception if crashes else af.Stop(reason))
    supervisor.stop(block=False)
    stage.run()
    stage.slow.run()
    stage.run()
    assert supervisor.exit_reason == af.Normal()


def test_sup_stop_manual_s40(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b", shutdown="brutal_kill"))
    first, second = ref(supervisor, "a"), ref(supervisor, "b")
    assert supervisor.stop()
    assert supervisor.exit_reason == af.Normal()
    assert first.exit_reason == af.Shutdown()
    assert isinstance(second.exit_reason, af.Killed)
    with pytest.raises(af.WorkerStopped):
        supervisor.which_children()


def test_sup_stop_manual_timeout_s40(stage: Stage) -> None:
    supervisor = stage.up(stage.stubborn("a", shutdown=5.0))
    child = ref(supervisor, "a")
    with pytest.raises(af.StopTimeout, match="goes on stopping"):
        supervisor.stop(af.Shutdown("slow"), timeout=0.0)
    assert supervisor.is_alive()
    stage.run(5.0)
    assert child.exit_reason == af.Killed(abandoned=True)
    assert supervisor.exit_reason == af.Shutdown("slow")


def test_children_stop_one_after_another_in_reverse_s31(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.stubborn("b"), stage.child("c"))
    supervisor.stop(block=False)
    stage.run()
    assert stage.take() == "-c1"  # "a" is not stopped before "b" has ended
    stage.run(5.0)
    assert stage.take() == "-a1"


def test_second_stop_does_not_change_the_reason(stage: Stage) -> None:
    supervisor = stage.up(stage.stubborn("a"))
    supervisor.stop(af.Shutdown("first"), block=False)
    supervisor.stop(af.Shutdown("second"), block=False)
    stage.run(5.0)
    assert supervisor.exit_reason == af.Shutdown("first")


def test_requests_during_the_stop_are_refused(stage: Stage) -> None:
    supervisor = stage.up(stage.stubborn("a"))
    supervisor.stop(block=False)
    stage.run()
    assert state(supervisor, "a") is ChildState.STOPPING
    with pytest.raises(af.RequestRefused, match="is stopping"):
        supervisor.start_child(stage.child("b"))
    stage.run(5.0)
    assert not supervisor.is_alive()


def test_pykka_stop_message_ends_it_in_order_s33(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"))
    supervisor.actor.stop()
    stage.run()
    assert stage.take() == "-b1 -a1"
    assert supervisor.exit_reason == af.Normal()


def test_kill_of_a_supervisor_ends_everything_at_once(stage: Stage) -> None:
    job: list[Any] = []
    supervisor = stage.up(stage.stubborn("a"), stage.worker("w", lambda batch, state: job))
    worker, child = supervisor.worker("w"), ref(supervisor, "a")
    supervisor.kill()
    assert supervisor.exit_reason == af.Killed()
    assert not child.is_alive()
    assert isinstance(worker.exit_reason, af.Killed)
    with pytest.raises(af.WorkerStopped):
        worker.push(1)
    with pytest.raises(af.WorkerStopped):
        supervisor.start_child(stage.child("b"))


def test_overdue_timer_of_a_child_that_stopped_in_time_kills_nothing_s28(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = stage.up(stage.child("a"), strategy="one_for_all", max_restarts=9)
    supervisor.terminate_child("a")
    supervisor.restart_child("a")
    stage.run(100.0)
    assert ref(supervisor, "a").actor.name == "a2"
    assert "abandoned" not in caplog.text


def test_stop_drains_workers_in_order_s31(stage: Stage) -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        seen.append(batch)

    supervisor = stage.up(stage.worker("first", job), stage.worker("second", job))
    for name, messages in {"first": "ab", "second": "xyz"}.items():
        for message in messages:
            supervisor.worker(name).push(message)
    supervisor.stop()
    assert sorted(seen) == [["a"], ["b"], ["x"], ["y", "z"]]


def test_worker_that_drains_too_long_is_killed_s28(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("a"),
        stage.worker("w", lambda batch, state: None, throttle=100.0),
    )
    worker = supervisor.worker("w")
    worker.push(1)
    stage.run()
    worker.push(2)
    supervisor.stop(block=False)
    stage.run()
    assert worker.status in {af.PairState.STOPPING, af.PairState.DEAD}
    stage.run(5.0)
    assert supervisor.exit_reason == af.Normal()
    assert worker.exit_reason is not None
    assert stage.take() == "-a1"
