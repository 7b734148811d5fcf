"""OTP's supervisor_SUITE on running supervisors: requests and views."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.actions import RequestRefusal
from actorflow.runtime.supervision.children import ChildState
from tests.runtime.supervision.kit import FAIL, counts, ids, names, ref, refusal, state

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_child_adm_s34_s37(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    first = ref(supervisor, "a")
    # running
    with pytest.raises(af.RequestRefused) as raised:
        supervisor.start_child(stage.child("a"))
    assert (raised.value.why, raised.value.ref) == (RequestRefusal.ALREADY_STARTED, first)
    assert refusal(supervisor.restart_child, "a") is RequestRefusal.RUNNING
    assert refusal(supervisor.delete_child, "a") is RequestRefusal.RUNNING
    assert (
        refusal(supervisor.terminate_child, first) is RequestRefusal.NOT_FOUND
    )  # by ref: dynamic only
    # stopped
    supervisor.terminate_child("a")
    supervisor.terminate_child("a")  # idempotent
    assert first.exit_reason == af.Shutdown()
    assert state(supervisor, "a") is ChildState.STOPPED
    assert refusal(supervisor.start_child, stage.child("a")) is RequestRefusal.ALREADY_PRESENT
    assert supervisor.restart_child("a").ref is ref(supervisor, "a")
    # deleted
    supervisor.terminate_child("a")
    supervisor.delete_child("a")
    for request in (supervisor.restart_child, supervisor.delete_child, supervisor.terminate_child):
        assert refusal(request, "a") is RequestRefusal.NOT_FOUND
    assert counts(supervisor) == [0, 0, 0, 0]
    assert supervisor.start_child(stage.child("a")).ref is ref(supervisor, "a")
    assert supervisor.statistics().restarts == 0  # none of this counts
    # gone
    supervisor.stop()
    for call in (
        lambda: supervisor.start_child(stage.child("b")),
        lambda: supervisor.restart_child("a"),
        lambda: supervisor.delete_child("a"),
        lambda: supervisor.terminate_child("a"),
        supervisor.which_children,
        supervisor.count_children,
    ):
        with pytest.raises(af.WorkerStopped):
            call()


def test_child_adm_simple_s35(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic")
    stranger = stage.start("z")
    first = supervisor.start_copy().ref
    for request in (supervisor.terminate_child, supervisor.restart_child, supervisor.delete_child):
        assert refusal(request, "a") is RequestRefusal.DYNAMIC
    assert refusal(supervisor.start_child, stage.child("b")) is RequestRefusal.TEMPLATE
    assert refusal(supervisor.terminate_child, stranger) is RequestRefusal.NOT_FOUND
    supervisor.terminate_child(first)
    supervisor.terminate_child(first)
    assert first.exit_reason == af.Shutdown()
    stranger.kill()
    supervisor.terminate_child(stranger)
    assert counts(supervisor) == [1, 0, 0, 0]


@pytest.mark.parametrize("kind", ["actor", "worker"])
def test_two_terminate_the_same_dynamic_child_at_once_s35(stage: Stage, kind: str) -> None:
    supervisor = stage.up(strategy="dynamic")
    job = stage.worker("w", lambda batch, state: None)
    child = supervisor.start_child(stage.child("a") if kind == "actor" else job).ref
    actor = supervisor.actor
    callers = [actor.callers.add(), actor.callers.add()]
    for caller in callers:
        actor._post(partial(actor.terminate_ref, child, caller))
    stage.run()
    assert [(caller.resolved, caller.error) for caller in callers] == [(True, None)] * 2


def test_dynamic_without_template_takes_any_child(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic", max_children=2)
    supervisor.start_child(stage.child("a"))
    supervisor.start_child(stage.child("a"))
    assert refusal(supervisor.start_child, stage.child("b")) is RequestRefusal.MAX_CHILDREN
    assert refusal(supervisor.start_copy) is RequestRefusal.NO_TEMPLATE
    assert counts(supervisor) == [2, 2, 0, 2]


def test_start_copy_appends_arguments_s34(stage: Stage) -> None:
    seen: list[Any] = []

    def start(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return stage.start("a")

    template = af.Child("a", start, 1, kwargs={"x": 1, "y": 1})
    supervisor = stage.up(template, strategy="dynamic")
    supervisor.start_copy()
    stage.ends(supervisor.start_copy(2, y=2).ref)  # started again with the same
    assert seen == [((1,), {"x": 1, "y": 1})] + 2 * [((1, 2), {"x": 1, "y": 2})]


def test_dynamic_workers_by_template_s34(stage: Stage) -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        seen.append((state, batch))

    supervisor = stage.up(af.Child("w", stage.worker("w", job)), strategy="dynamic")
    first, second = supervisor.start_copy(state=1).ref, supervisor.start_copy(state=2).ref
    assert isinstance(first, af.WorkerRef)
    first.push("a")
    second.push("b")
    stage.run()
    assert seen == [(1, ["a"]), (2, ["b"])]
    with pytest.raises(af.RequestRefused, match="but no arguments"):
        supervisor.start_copy(3)
    supervisor.terminate_child(first)
    supervisor.terminate_child(first)
    assert first.exit_reason == af.Shutdown()
    assert [info.ref for info in supervisor.which_children()] == [second]


def test_dynamic_worker_is_terminated_by_its_ref_whatever_became_of_it_s35(stage: Stage) -> None:
    class Sick(af.Executor):
        well = True

        def on_start(self) -> None:
            if not Sick.well:
                raise OSError("sick")

        def handle(self, batch: Any) -> None:
            raise ValueError(batch)

    supervisor = stage.up(strategy="dynamic", max_restarts=10**6)
    worker = supervisor.start_child(stage.worker("w", Sick)).ref
    worker.push(1)
    stage.run()  # crashed and started again: the same ref
    assert worker.is_alive()
    Sick.well = False
    worker.push(2)
    for _ in range(20):
        stage.lane.step()
    assert worker.status is af.PairState.ALONE
    supervisor.terminate_child(worker)
    assert worker.exit_reason is not None
    assert counts(supervisor) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"restart": "sometimes"}, "restart='sometimes'"),
        ({"shutdown": -1}, "shutdown=-1"),
        ({"shutdown": "later"}, "shutdown='later'"),
        ({"type": "boss"}, "type='boss'"),
        ({"significant": 1}, "significant=1"),
        ({"significant": True}, "a permanent child cannot be significant"),
        ({"restart": "transient", "significant": True}, "auto_shutdown='never'"),
    ],
    ids=str,
)
def test_child_specs_s3_s6(stage: Stage, options: dict[str, Any], words: str) -> None:
    supervisor = stage.up()
    with pytest.raises(af.BadChild, match=words):
        supervisor.start_child(stage.child("a", **options))
    assert ids(supervisor) == []
    supervisor.start_child(stage.child("a"))


def test_child_specs_map_every_valid_one_is_accepted_s3_s6(stage: Stage) -> None:
    supervisor = stage.up(auto_shutdown="any_significant")
    for number, (restart, shutdown, kind, significant) in enumerate(
        itertools.product(
            ["permanent", "transient", "temporary"],
            [0, 0.5, 5, math.inf, "brutal_kill"],
            ["worker", "supervisor"],
            [False, True],
        )
    ):
        if significant and restart == "permanent":
            continue
        options: dict[str, Any] = {"restart": restart, "shutdown": shutdown, "type": kind}
        supervisor.start_child(stage.child(number, significant=significant, **options))
    assert supervisor.count_children().active == 50


def test_child_specs_simple_needs_at_most_one(stage: Stage) -> None:
    with pytest.raises(af.BadChild, match="takes one child"):
        stage.tree(stage.child("a"), stage.child("b"), strategy="dynamic")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"strategy": "none_for_one"}, "strategy='none_for_one'"),
        ({"max_restarts": -1}, "max_restarts=-1"),
        ({"max_restarts": 1.5}, "max_restarts=1.5"),
        ({"within": 0}, "within=0"),
        ({"within": math.inf}, "within=inf"),
        ({"auto_shutdown": "maybe"}, "auto_shutdown='maybe'"),
        ({"strategy": "dynamic", "auto_shutdown": "any_significant"}, "cannot be combined with"),
        ({"max_children": 3}, "needs strategy='dynamic'"),
        ({"backoff": 3}, "backoff=3"),
    ],
    ids=str,
)
def test_sup_flags_s9(stage: Stage, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(af.BadFlags, match=words):
        stage.tree(**flags)
    # S8: unknown ones are refused, unlike in OTP.
    with pytest.raises(TypeError, match="no option 'max_restart'; did you mean 'max_restarts'"):
        stage.tree(max_restart=3)


def test_which_children_s38(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), af.Child("sub", stage.tree()))
    supervisor.start_child(stage.child("b"))
    assert [info.id for info in supervisor.which_children()] == ["b", "sub", "a"]  # newest first
    info = supervisor.which_child("sub")
    assert (info.type, info.state, info.restart) == ("supervisor", ChildState.RUNNING, "permanent")
    supervisor.terminate_child("sub")
    assert supervisor.which_child("sub").ref is None
    supervisor.delete_child("sub")
    assert ids(supervisor) == ["a", "b"]


def test_which_children_simple_one_for_one_s38(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), strategy="dynamic")
    started = [supervisor.start_copy().ref for _ in range(3)]
    assert [info.ref for info in supervisor.which_children()] == started[::-1]
    assert supervisor.which_child(started[1]).id == "a"
    assert refusal(supervisor.which_child, "a") is RequestRefusal.NOT_FOUND


def test_count_children_s39(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a", restart="temporary"), strategy="dynamic")
    first = [supervisor.start_copy().ref for _ in range(1000)]
    assert counts(supervisor) == [1, 1000, 0, 1000]
    rest = [supervisor.start_copy().ref for _ in range(1000)]
    assert counts(supervisor) == [1, 2000, 0, 2000]
    for each in first:
        supervisor.terminate_child(each)
    assert counts(supervisor) == [1, 1000, 0, 1000]
    for each in rest:
        each.kill()
    stage.run()
    assert counts(supervisor) == [1, 0, 0, 0]


def test_count_children_supervisor_s39(stage: Stage) -> None:
    supervisor = stage.up(af.Child("sub", stage.tree()), strategy="dynamic")
    started = [supervisor.start_copy().ref for _ in range(100)]
    assert counts(supervisor) == [1, 100, 100, 0]
    for each in started[:50]:
        supervisor.terminate_child(each)
    assert counts(supervisor) == [1, 50, 50, 0]


def test_count_restarting_children_s39(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("a"), strategy="dynamic", backoff=af.Backoff(initial=1.0), max_restarts=100
    )
    started = [supervisor.start_copy().ref for _ in range(3)]
    stage.outcomes["a"].append(FAIL)
    for each in started[:2]:
        stage.ends(each)
    assert counts(supervisor) == [1, 1, 0, 3]
    stage.run(1.0)  # one comes back, the other fails once more
    assert counts(supervisor) == [1, 2, 0, 3]
    stage.run(2.0)
    assert counts(supervisor) == [1, 3, 0, 3]


@pytest.mark.parametrize(
    "call",
    ["terminate_child", "restart_child", "delete_child", "which_child", "get_childspec", "worker"],
)
def test_id_that_cannot_be_hashed_is_refused(stage: Stage, call: str) -> None:
    supervisor = stage.up(stage.child("a"))
    with pytest.raises(af.BadChild, match="not hashable"):
        getattr(supervisor, call)(["a"])
    stage.crash(supervisor, "a")
    assert names(supervisor) == "a2"


def test_unknown_messages_are_harmless(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    supervisor.tell("hello")
    future = supervisor.ask("hello", block=False)
    stage.run()
    assert future.get(timeout=5.0) is None
    stage.crash(supervisor, "a")
    assert names(supervisor) == "a2"


def test_unknown_worker_names_near_ones(stage: Stage) -> None:
    supervisor = stage.up(stage.worker("writer", lambda batch, state: None), stage.child("a"))
    with pytest.raises(af.UnknownWorker, match="did you mean 'writer'"):
        supervisor.worker("writter")
    with pytest.raises(af.UnknownWorker):
        supervisor.worker("a")  # a child, but no worker


def test_statistics(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), strategy="one_for_all")
    stage.crash(supervisor, "a")
    picture = supervisor.statistics()
    assert (picture.restarts, picture.waiting, picture.phase.name) == (1, 0, "UP")
    assert picture.children == supervisor.count_children()
