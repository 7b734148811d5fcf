"""OTP's supervisor_SUITE on running supervisors: which children are started again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.children import ChildState
from tests.runtime.supervision.kit import (
    BOOM,
    CLEAN,
    RESTARTS,
    STATIC,
    UNCLEAN,
    counts,
    ids,
    names,
    ref,
    state,
)

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage

every = pytest.mark.parametrize("reason", [*CLEAN, *UNCLEAN], ids=lambda reason: reason.describe())
clean = pytest.mark.parametrize("reason", CLEAN, ids=lambda reason: reason.describe())
unclean = pytest.mark.parametrize("reason", UNCLEAN, ids=lambda reason: reason.describe())


@every
def test_permanent_normal_shutdown_abnormal_s14(stage: Stage, reason: Any) -> None:
    supervisor = stage.up(stage.child("a"))
    stage.ends(ref(supervisor, "a"), reason)
    assert names(supervisor) == "a2"
    assert supervisor.which_child("a").restarts == 1
    assert type(supervisor.which_child("a").last_exit) is type(reason)


@clean
def test_transient_normal_shutdown_s15(stage: Stage, reason: Any) -> None:
    supervisor = stage.up(stage.child("a", restart="transient"))
    stage.ends(ref(supervisor, "a"), reason)
    assert state(supervisor, "a") is ChildState.STOPPED
    assert ref(supervisor, "a") is None
    assert supervisor.which_child("a").last_exit == reason


@unclean
def test_transient_abnormal_s15(stage: Stage, reason: Any) -> None:
    supervisor = stage.up(stage.child("a", restart="transient"))
    stage.ends(ref(supervisor, "a"), reason)
    assert names(supervisor) == "a2"


@every
def test_temporary_normal_shutdown_abnormal_s16(stage: Stage, reason: Any) -> None:
    supervisor = stage.up(stage.child("a", restart="temporary"), max_restarts=0)
    stage.ends(ref(supervisor, "a"), reason)
    assert ids(supervisor) == []
    assert supervisor.is_alive()


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_temporary_bystander_s16(stage: Stage, strategy: str) -> None:
    children = [stage.child("a"), stage.child("b", restart="temporary")]
    supervisor = stage.up(*children, strategy=strategy, max_restarts=1)
    stage.crash(supervisor, "a")
    assert stage.take() == "-b1 +a2"
    assert ids(supervisor) == ["a"]
    assert supervisor.statistics().restarts == 1


@pytest.mark.parametrize("message", ["stop", "boom"])
def test_worker_is_a_child_like_others_s14_s16(stage: Stage, message: str) -> None:
    def job(batch: Any, state: Any) -> Any:
        if batch == ["stop"]:
            return af.Stop("enough")
        if batch == ["boom"]:
            raise BOOM
        return state

    supervisor = stage.up(
        *(af.Child(kind, stage.worker(kind, job), restart=kind) for kind in RESTARTS)
    )
    workers = [supervisor.worker(kind) for kind in RESTARTS]
    for worker in workers:
        worker.push(message)
    stage.run()
    assert [worker.is_alive() for worker in workers] == [True, message == "boom", False]
    assert ids(supervisor) == ["permanent", "transient"]
    assert counts(supervisor) == [2, 1 + (message == "boom"), 0, 2]


def test_transient_worker_that_is_done_ends_as_a_whole_s15(stage: Stage) -> None:
    job = stage.worker("w", lambda batch, state: af.Stop())
    supervisor = stage.up(af.Child("w", job, restart="transient"))
    worker = supervisor.worker("w")
    worker.push(1)
    stage.run()
    assert worker.exit_reason == af.Normal()
    assert state(supervisor, "w") is ChildState.STOPPED
    with pytest.raises(af.UnknownWorker):
        supervisor.worker("w")
    second = supervisor.restart_child("w").ref
    assert second is supervisor.worker("w")
    assert second is not worker


def test_permanent_worker_keeps_its_ref_and_what_it_holds_s14(stage: Stage) -> None:
    seen: list[Any] = []

    def job(batch: Any, total: int) -> int:
        if "bad" in batch:
            raise BOOM
        seen.append((batch, total))
        return total + len(batch)

    supervisor = stage.up(stage.worker("w", job, state=10, name="me"), max_restarts=9)
    worker = supervisor.worker("w")
    for message in ("x", "y", "bad"):
        worker.push(message)
    stage.lane.step()
    worker.push("z")
    stage.run()
    assert seen[0] == (["x"], 10)
    assert seen[-1][1] in {10, 11}
    assert supervisor.worker("w") is worker is af.whereis("me")
    assert worker.statistics().restarts == 1


@pytest.mark.parametrize("how", ["stop", "now"])
def test_permanent_worker_that_a_user_stops_comes_back_under_a_new_ref_s14(
    stage: Stage, how: str
) -> None:
    supervisor = stage.up(stage.worker("w", lambda batch, state: None, name="me"))
    worker = supervisor.worker("w")
    worker.stop(now=how == "now")
    stage.run()
    second = supervisor.worker("w")
    assert second is not worker
    assert second is af.whereis("me")
    assert supervisor.statistics().restarts == 1


@pytest.mark.parametrize("behaviour", ["instance", "class", "factory"])
def test_worker_can_be_made_again_whatever_its_behaviour_was_given_as(
    stage: Stage, behaviour: str
) -> None:
    from actorflow.behaviours import Bounded, Queue  # noqa: PLC0415 - only here

    given: Any = {
        "instance": Bounded(Queue(), 2),
        "class": Queue,
        "factory": lambda: Bounded(Queue(), 2),
    }[behaviour]
    supervisor = stage.up(stage.worker("w", lambda batch, state: None, behaviour=given))
    for _ in range(3):
        supervisor.terminate_child("w")
        supervisor.restart_child("w").ref.push_ack(1)
        stage.run()


@pytest.mark.parametrize("strategy", STATIC)
@pytest.mark.parametrize("reason", [*CLEAN, *UNCLEAN, None], ids=str)
def test_do_not_save_child_specs_for_temporary_children_s16(
    stage: Stage, strategy: str, reason: Any
) -> None:
    supervisor = stage.up(stage.child("a", restart="temporary"), strategy=strategy)
    if reason is None:
        supervisor.terminate_child("a")
    else:
        stage.ends(ref(supervisor, "a"), reason)
    assert ids(supervisor) == []


def test_do_not_save_start_parameters_for_temporary_children_s16(stage: Stage) -> None:
    supervisor = stage.up()
    supervisor.start_child(
        af.Child("a", lambda heavy: stage.start("a"), bytes(1000), restart="temporary")
    )
    assert supervisor.get_childspec("a").args == ()


def test_external_start_no_progress_log_s48(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    supervisor = stage.up(stage.child("a"))
    supervisor.start_child(stage.child("b"))
    stage.crash(supervisor, "b")
    levels = [
        (record.levelname, "child='a'" in record.message)
        for record in caplog.records
        if "child started" in record.message
    ]
    assert levels == [("INFO", True), ("DEBUG", False), ("INFO", False)]
