"""OTP's supervisor_SUITE on running supervisors: the strategies and the limit of restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.actions import RequestRefusal
from actorflow.runtime.supervision.children import ChildState
from tests.runtime.supervision.kit import FAIL, STATIC, counts, gave_up, names, ref, refusal, state

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_multiple_restarts_s19(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), max_restarts=1, within=1.0)
    for _ in range(4):
        stage.crash(supervisor, "a")
        stage.run(1.1)
    assert names(supervisor) == "a5"
    stage.crash(supervisor, "a")
    stage.clock.advance(1.0)  # exactly as old as the window is long: still counts
    stage.crash(supervisor, "a")
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1


def test_intensity_zero_s19(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), max_restarts=0)
    stage.crash(supervisor, "a")
    assert stage.take() == "-b1"
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1


def test_one_for_one_s21(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), max_restarts=2)
    stage.crash(supervisor, "a")
    assert names(supervisor) == "a2 b1"  # it keeps its place
    stage.crash(supervisor, "a", "a")
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1
    assert stage.take() == "+a2 +a3 -b1"


def test_one_for_one_escalation_s18(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), max_restarts=4)
    stage.outcomes["a"].extend([FAIL] * 9)
    stage.crash(supervisor, "a")
    assert stage.take() == "!a !a !a !a -b1"
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1


def test_one_for_all_s23(stage: Stage) -> None:
    supervisor = stage.up(*map(stage.child, "abc"), strategy="one_for_all", max_restarts=2)
    stage.crash(supervisor, "b")
    assert stage.take() == "-c1 -a1 +a2 +b2 +c2"
    stage.crash(supervisor, "a", "c")
    assert stage.take() == "-c2 -b2 +a3 +b3 +c3 -b3 -a3"
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1


def test_one_for_all_escalation_s18(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("a"), stage.child("b"), strategy="one_for_all", max_restarts=4
    )
    stage.outcomes["b"].extend([FAIL] * 9)
    stage.crash(supervisor, "a")
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1
    assert stage.take() == "-b1 " + " ".join(f"+a{n} !b -a{n}" for n in (2, 3, 4, 5))


def test_one_for_all_other_child_fails_restart_s26(stage: Stage) -> None:
    supervisor = stage.up(*map(stage.child, "abc"), strategy="one_for_all", max_restarts=9)
    stage.outcomes["b"].append(FAIL)
    stage.crash(supervisor, "a")
    assert stage.take() == "-c1 -b1 +a2 !b -a2 +a3 +b2 +c2"
    assert supervisor.statistics().restarts == 2


def test_rest_for_one_s22(stage: Stage) -> None:
    supervisor = stage.up(*map(stage.child, "abc"), strategy="rest_for_one", max_restarts=2)
    stage.crash(supervisor, "b")
    assert stage.take() == "-c1 +b2 +c2"
    assert names(supervisor) == "a1 b2 c2"
    stage.crash(supervisor, "c", "c")
    assert stage.take() == "+c3 -b2 -a1"
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1


def test_rest_for_one_escalation_s18(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("a"), stage.child("b"), strategy="rest_for_one", max_restarts=4
    )
    stage.outcomes["b"].extend([FAIL] * 9)
    stage.crash(supervisor, "a")
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1
    assert stage.take() == "-b1 +a2 !b !b !b !b -a2"


def test_rest_for_one_other_child_fails_restart_s26(stage: Stage) -> None:
    supervisor = stage.up(*map(stage.child, "abc"), strategy="rest_for_one", max_restarts=9)
    stage.outcomes["b"].append(FAIL)
    stage.crash(supervisor, "a")
    assert stage.take() == "-c1 -b1 +a2 !b +b2 +c2"
    assert supervisor.statistics().restarts == 2


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("one_for_all", "-c1 +a2 +b1 +c2"), ("rest_for_one", "-c1 +a2 +b1 +c2")],
)
def test_all_kept_children_in_range_come_to_life_s24(
    stage: Stage, strategy: str, expected: str
) -> None:
    stage.outcomes["b"].append(af.IGNORE)
    children = [stage.child("a"), stage.child("b"), stage.child("c", restart="transient")]
    supervisor = stage.up(*children, strategy=strategy)
    stage.crash(supervisor, "a")
    assert stage.take() == expected
    stage.ends(ref(supervisor, "c"), af.Normal())
    supervisor.terminate_child("b")
    stage.take()
    stage.crash(supervisor, "a")
    assert stage.take() == "+a3 +b2 +c3"


def test_simple_one_for_one_s32(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic", max_restarts=2)
    first, second = supervisor.start_copy().ref, supervisor.start_copy().ref
    stage.ends(first)
    assert second.is_alive()
    assert names(supervisor) == "a3 a2"
    assert counts(supervisor) == [1, 2, 0, 2]
    for _ in range(2):
        stage.ends(supervisor.which_children()[-1].ref)
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1
    assert not second.is_alive()


def test_simple_one_for_one_restart_ignore_s13(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic")
    first = supervisor.start_copy().ref
    stage.outcomes["a"].append(af.IGNORE)
    stage.ends(first)
    assert counts(supervisor) == [1, 0, 0, 0]


def test_simple_one_for_one_shutdown_s32(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    for name in "abc":
        supervisor.start_child(stage.stubborn(name, shutdown=5.0))
    supervisor.stop(block=False)
    stage.run(4.9)
    assert supervisor.is_alive()
    stage.run(0.1)  # all are stopped at once: in parallel, not 15 s
    assert not supervisor.is_alive()


def test_simple_one_for_one_extra_s2(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a", "extra"), strategy="dynamic")
    answer = supervisor.start_copy()
    assert answer.extra == "extra"
    stage.ends(answer.ref)
    assert names(supervisor) == "a2"


def test_simple_one_for_one_escalation_s18(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic", max_restarts=4)
    first, second = supervisor.start_copy().ref, supervisor.start_copy().ref
    stage.outcomes["a"].extend([FAIL] * 9)
    stage.ends(first)
    assert gave_up(supervisor).restarts == gave_up(supervisor).max_restarts + 1
    assert not second.is_alive()
    assert stage.take() == "+a1 +a2 !a !a !a !a -a2"


def test_simple_one_for_one_corruption_s16(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a", restart="temporary"), strategy="dynamic")
    first, second = supervisor.start_copy().ref, supervisor.start_copy(lane=stage.lane).ref
    stage.ends(first)
    assert supervisor.get_childspec(second).kwargs == {}
    stage.ends(second)
    assert supervisor.start_copy().ref.is_alive()


@pytest.mark.parametrize("strategy", STATIC)
def test_hanging_restart_loop_s25(stage: Stage, strategy: str) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), strategy=strategy, max_restarts=10**6)
    stage.outcomes["a"].extend([FAIL] * 10**4)
    ref(supervisor, "a").tell(ValueError("boom"))
    for _ in range(50):
        assert stage.lane.step()
    assert state(supervisor, "a") is ChildState.RESTARTING  # it answers in the loop
    assert refusal(supervisor.restart_child, "a") is RequestRefusal.RESTARTING
    assert refusal(supervisor.delete_child, "a") is RequestRefusal.RESTARTING
    assert refusal(supervisor.start_child, stage.child("a")) is RequestRefusal.ALREADY_PRESENT
    supervisor.terminate_child("a")  # cancels it; the late retry does nothing: S27
    stage.run()
    assert state(supervisor, "a") is ChildState.STOPPED
    stage.outcomes["a"].clear()
    supervisor.restart_child("a")
    assert supervisor.stop()


def test_hanging_restart_loop_simple_s25(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic", max_restarts=10**6)
    first = supervisor.start_copy().ref
    stage.outcomes["a"].extend([FAIL] * 10**4)
    first.tell(ValueError("boom"))
    for _ in range(50):
        assert stage.lane.step()
    assert counts(supervisor) == [1, 0, 0, 1]
    supervisor.terminate_child(first)  # known by its last ref while it is being restarted
    stage.run()
    assert counts(supervisor) == [1, 0, 0, 0]


@pytest.mark.parametrize("strategy", [*STATIC, "dynamic"])
def test_shutdown_in_the_restart_loop_s25(stage: Stage, strategy: str) -> None:
    supervisor = stage.up(stage.child("a"), strategy=strategy, max_restarts=10**6)
    child = supervisor.start_copy().ref if strategy == "dynamic" else ref(supervisor, "a")
    stage.outcomes["a"].extend([FAIL] * 10**4)
    child.tell(ValueError("boom"))
    for _ in range(50):
        assert stage.lane.step()
    before = len(stage.outcomes["a"])
    assert supervisor.stop()
    assert before - len(stage.outcomes["a"]) < 100


def test_restarting_worker_that_is_terminated_leaves_nothing_s27(stage: Stage) -> None:
    class Sick(af.Executor):
        starts = 0

        def on_start(self) -> None:
            Sick.starts += 1
            if Sick.starts > 1:
                raise OSError("sick")

        def handle(self, batch: Any) -> None:
            raise ValueError(batch)

    supervisor = stage.up(stage.worker("w", Sick), max_restarts=10**6)
    worker = supervisor.worker("w")
    worker.push(1)
    for _ in range(30):
        stage.lane.step()
    worker.push(2)
    assert worker.status is af.PairState.ALONE
    supervisor.terminate_child("w")
    assert worker.exit_reason is not None
    assert worker.statistics().dropped == 1
    supervisor.delete_child("w")


def test_order_of_children_s22(stage: Stage) -> None:
    order = [5, 1, 4, 2, 3]  # ids are not sorted
    supervisor = stage.up(*map(stage.child, order), strategy="rest_for_one")
    stage.crash(supervisor, 4)
    assert stage.take() == "-31 -21 +42 +22 +32"
    supervisor.stop()
    assert stage.take() == "-32 -22 -42 -11 -51"


def test_workers_under_one_for_all_keep_their_refs_and_messages_s23(stage: Stage) -> None:
    seen: list[Any] = []

    def job(batch: Any, count: int) -> int:
        seen.append((batch, count))
        return count + 1

    supervisor = stage.up(
        stage.child("a"), stage.worker("w", job, state=0, throttle=10.0), strategy="one_for_all"
    )
    worker = supervisor.worker("w")
    worker.push("first")
    stage.run()
    worker.push("second")  # held back by the throttle
    stage.crash(supervisor, "a")
    assert supervisor.worker("w") is worker
    stage.run(20.0)
    assert seen == [(["first"], 0), (["second"], 0)]  # the state begins again
    assert worker.statistics().restarts == 1


def test_backoff_waits_longer_each_time(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("a"), stage.child("b"),
        strategy="rest_for_one", backoff=af.Backoff(initial=1.0, factor=2.0), max_restarts=10,
    )  # fmt: skip
    stage.outcomes["a"].extend([FAIL, FAIL])
    stage.crash(supervisor, "a")
    assert stage.take() == "-b1"  # what depends on it is stopped before the wait
    stage.run(0.9)
    assert stage.take() == ""
    stage.run(0.1)
    assert stage.take() == "!a"
    stage.run(2.0)
    assert stage.take() == "!a"
    stage.run(4.0)
    assert stage.take() == "+a2 +b2"


def test_exits_of_strangers_and_of_the_replaced_do_not_count_s17(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), max_restarts=1)
    first = ref(supervisor, "a")
    before = supervisor.actor.handles.known(first)
    stage.ends(first)
    supervisor.actor._child_ended(before, af.Crash(ValueError("late")))
    stranger = stage.start("z")
    supervisor.actor._child_ended(stranger, af.Crash(ValueError("unknown")))
    stage.run()
    assert names(supervisor) == "a2"
    stranger.kill()
