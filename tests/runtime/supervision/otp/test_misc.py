"""OTP's supervisor_SUITE on running supervisors: trees, names, logs, pictures, scale."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import actorflow as af
from tests.runtime.supervision.kit import BOOM, FAIL, counts, ids, names, ref, state
from tests.runtime.worker.probe import PATIENCE, Caller

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_child_unlink_s29(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    child = ref(supervisor, "a")
    child.watch(print)
    child.unwatch(print)  # removes the watcher of this test, not the supervisor's
    supervisor.stop()
    assert not child.is_alive()


def test_tree_s46(stage: Stage) -> None:
    first = stage.tree(stage.child("a"), stage.child("b"), max_restarts=0)
    second = stage.tree(stage.child("c"))
    third = stage.tree(stage.child("d"))
    supervisor = stage.up(
        af.Child("first", first), af.Child("second", second),
        af.Child("third", third, restart="transient"),
        strategy="one_for_all",
    )  # fmt: skip
    before = ref(supervisor, "second")
    before.start_child(stage.child("dynamic"))
    supervisor.terminate_child("third")
    stage.take()
    stage.crash(ref(supervisor, "first"), "a")  # which escalates
    assert stage.take() == "-b1 -dynamic1 -c1 +a2 +b2 +c2 +d2"
    assert ids(ref(supervisor, "second")) == ["c"]  # dynamic children do not come back
    assert names(ref(supervisor, "third")) == "d2"  # the terminated transient one does: S24
    assert ref(supervisor, "second") is not before


@pytest.mark.parametrize(
    ("restart", "again"), [("permanent", True), ("transient", False), ("temporary", False)]
)
def test_supervisor_that_gives_up_ends_with_shutdown_s20(
    stage: Stage, restart: Any, again: Any
) -> None:
    inner = stage.tree(stage.child("a"), max_restarts=0)
    supervisor = stage.up(af.Child("inner", inner, restart=restart))
    stage.crash(ref(supervisor, "inner"), "a")
    assert supervisor.is_alive()
    assert (counts(supervisor)[1] == 1) is again


def test_escalation_is_a_product_along_the_path_s47(stage: Stage) -> None:
    inner = stage.tree(stage.child("a"), max_restarts=2)
    supervisor = stage.up(af.Child("inner", inner), max_restarts=1)
    crashes = 0
    while supervisor.is_alive():
        stage.crash(ref(supervisor, "inner"), "a")
        crashes += 1
    assert crashes == (2 + 1) * (1 + 1)


def test_simple_global_supervisor_names_are_registered_again(stage: Stage) -> None:
    def start() -> Any:
        return af.spawn(lambda batch, state: None, name="worker", executor=stage.lane)

    inner = stage.tree(af.Child("w", start), name="inner")
    supervisor = stage.up(af.Child("inner", inner), max_restarts=10)
    for victim in ("inner", "worker", "inner", "worker"):
        before = af.whereis(victim)
        assert before is not None
        before.kill()
        stage.run()
        assert af.whereis(victim) is not before
        assert af.whereis(victim).is_alive()  # type: ignore[union-attr]
    supervisor.stop()
    assert af.whereis("inner") is None is af.whereis("worker")


@pytest.mark.parametrize("count", [1_000])
def test_scale_start_stop_many_children_s49(stage: Stage, count: int) -> None:
    supervisor = stage.up(stage.child("a", restart="temporary"), strategy="dynamic")
    started = [supervisor.start_copy().ref for _ in range(count)]
    steps = 0
    supervisor.terminate_child(started[count // 2])
    stage.ends(started[0])
    while stage.lane.step():
        steps += 1
    assert steps <= 2  # nothing was done for the others
    assert counts(supervisor)[1] == count - 2
    supervisor.stop()


def test_ids_of_dynamic_workers_are_not_kept_s49(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    for number in range(10):
        worker = supervisor.start_child(stage.worker(number, lambda batch, state: None)).ref
        supervisor.terminate_child(worker)
    handles = supervisor.actor.handles
    assert (len(handles), handles._by_ref, handles._newest) == (0, {}, {})


# Waiting for oneself: S41.


@pytest.mark.parametrize("depth", [1, 2])
def test_stop_of_an_ancestor_from_within_a_child_s41(stage: Stage, depth: int) -> None:
    inner = stage.tree(stage.child("a"))
    outer = stage.up(af.Child("inner", inner))
    direct = ref(outer, "inner")
    child = ref(direct, "a")
    target = {1: direct, 2: outer}[depth]
    caught: list[Any] = []

    def stop() -> None:
        try:
            target.stop()
        except af.WouldDeadlock as error:
            caught.append(error)

    child.tell(stop)
    stage.run()
    assert "would wait for itself" in str(caught[0])
    assert target.is_alive()
    child.tell(lambda: target.stop(block=False) and None)
    stage.run()
    assert target.exit_reason == af.Normal()


def test_child_may_ask_its_own_supervisor_for_anything_else_s41(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"))
    seen: list[Any] = []

    def busy() -> None:
        seen.append(counts(supervisor))
        supervisor.start_child(stage.child("c"))
        supervisor.terminate_child("b")
        supervisor.delete_child("b")
        for itself in ("a", ref(supervisor, "a")):
            with pytest.raises((af.WouldDeadlock, af.RequestRefused)) as raised:
                supervisor.terminate_child(itself)
            seen.append(raised.type)

    ref(supervisor, "a").tell(busy)
    stage.run()
    assert seen == [[2, 2, 0, 2], af.WouldDeadlock, af.WouldDeadlock]
    assert names(supervisor) == "a1 c1"


def test_job_may_not_terminate_its_own_worker_s41(stage: Stage) -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        for itself in ("w", supervisor.worker("w")):
            try:
                supervisor.terminate_child(itself)
            except af.WouldDeadlock as error:
                seen.append(error)
        try:
            supervisor.stop()
        except af.WouldDeadlock as error:
            seen.append(error)

    supervisor = stage.up(stage.worker("w", job))
    supervisor.worker("w").push(1)
    stage.run()
    assert len(seen) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda supervisor: supervisor.stop(),
        lambda supervisor: supervisor.which_children(),
        lambda supervisor: supervisor.terminate_child("other"),
        lambda supervisor: supervisor.start_child(af.Child("x", lambda: af.IGNORE)),
    ],
    ids=["stop", "view", "terminate", "start"],
)
@pytest.mark.parametrize("where", ["on_start", "start function", "executor", "grandchild"])
@pytest.mark.timeout(20)
def test_calls_from_within_a_start_are_refused_s41(call: Any, where: str) -> None:
    supervisor = af.Supervisor().start()

    class Early(af.Actor):
        def on_start(self) -> None:
            call(supervisor)

    class EarlyJob(af.Executor):
        def on_start(self) -> None:
            call(supervisor)

        def handle(self, batch: Any) -> None:
            """Do nothing."""

    child = {
        "on_start": af.Child("e", Early),
        "start function": af.Child("e", lambda: call(supervisor)),
        "executor": af.Child("e", af.Worker("e", EarlyJob)),
        "grandchild": af.Child("e", af.Supervisor([af.Child("e", Early)])),
    }[where]
    caller = Caller(supervisor.start_child, child).wait()
    assert isinstance(caller.error, af.RequestRefused)
    view = where == "start function" and caller.error.__cause__ is None
    assert view or isinstance(caller.error.__cause__, af.WouldDeadlock | af.BadChild)
    assert supervisor.stop()


# Logs: S48.


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.message for record in caplog.records if f"event={event!r}" in record.message]


def test_format_log_each_kind_s48(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    supervisor = stage.up(
        stage.child("a"), stage.stubborn("b", shutdown=1.0), name="boss", max_restarts=2
    )
    stage.outcomes["a"].append(FAIL)
    stage.crash(supervisor, "a")
    stage.crash(supervisor, "a")
    stage.run(1.0)
    assert not supervisor.is_alive()
    facts = {
        "child started": ["child='a'", "restarts=2", "ref='<ActorRef for a2>'"],
        "child terminated": [
            "child='a'",
            "reason='crash: ValueError: boom'",
            "ref='<ActorRef for a2>'",
        ],
        "child did not start": ["child='a'", "reason='crash: OSError: refused'"],
        "too many restarts": ["child='a'", "restarts=2", "reason='crash: ValueError: boom'"],
        "child did not stop as expected": ["child='b'", "killed (its thread was abandoned)"],
    }
    for event, words in facts.items():
        line = records(caplog, event)[-1]
        for word in [*words, "supervisor=\"supervisor 'boss'\"", "restart='permanent'"]:
            assert word in line


def test_clean_ends_of_children_that_stay_ended_are_not_logged_s48(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = stage.up(
        stage.child("a", restart="transient"), stage.child("b", restart="temporary")
    )
    stage.ends(ref(supervisor, "a"), af.Normal())
    stage.ends(ref(supervisor, "b"), af.Normal())
    supervisor.stop()
    assert not caplog.records


def test_child_that_cannot_be_printed_is_supervised_all_the_same(stage: Stage) -> None:
    class Rude(af.Actor):
        def __repr__(self) -> str:
            raise RuntimeError("no name")

        def on_receive(self, message: Any) -> None:
            raise message

    supervisor = stage.up(af.Child("a", Rude, kwargs={"lane": stage.lane}))
    stage.ends(ref(supervisor, "a"))
    assert ref(supervisor, "a") is not None
    assert supervisor.which_child("a").restarts == 1


# Pictures.


def test_tree_shows_state_restarts_uptime_and_depth(stage: Stage) -> None:
    def job(batch: Any, state: Any) -> None:
        if batch == ["bad"]:
            raise BOOM

    inner = stage.tree(stage.child("b"), strategy="one_for_all")
    supervisor = stage.up(
        stage.child("a"), af.Child("inner", inner),
        stage.worker("w", job, throttle=60.0), stage.child("off"), name="app",
    )  # fmt: skip
    supervisor.terminate_child("off")
    stage.run(5.0)
    stage.crash(supervisor, "a")
    stage.run(2.5)
    worker = supervisor.worker("w")
    worker.push(1)
    stage.run()
    worker.push(2)
    assert (
        str(supervisor.tree())
        == (
            "supervisor 'app' one_for_one: up, 1 restart\n"
            "├─ 'a': running, 1 restart, up 2.5 s\n"
            "├─ 'inner' supervisor 'inner' one_for_all: running, up 7.5 s\n"
            "│  └─ 'b': running, up 7.5 s\n"
            "├─ 'w': waiting, up 7.5 s, 1 waiting\n"
            "└─ 'off': stopped"
        )
        or worker.status is not af.PairState.WAITING
    )
    stage.run(3600.0)
    assert "up 1:00:" in str(supervisor.tree())


def test_tree_in_rich(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), af.Child("sub", stage.tree(stage.child("b"))))
    supervisor.terminate_child("a")
    console = Console(width=100, record=True, file=open_null())
    console.print(supervisor.tree())
    text = console.export_text()
    assert "'a': stopped" in text
    assert "'b': running" in text
    assert "└──" in text


def open_null() -> Any:
    import io  # noqa: PLC0415 - only here

    return io.StringIO()


@pytest.mark.timeout(30)
def test_tree_can_be_looked_at_while_it_changes() -> None:
    supervisor = af.Supervisor(strategy="dynamic").start()
    done = threading.Event()

    def churn() -> None:
        try:
            for number in range(300):
                worker = supervisor.start_child(af.Worker(number, lambda batch, state: None)).ref
                if number % 2:
                    supervisor.terminate_child(worker)
        finally:
            done.set()

    caller = Caller(churn)
    while not done.is_set():
        assert "dynamic" in str(supervisor.tree())
        supervisor.which_children()
    caller.value()
    assert supervisor.stop(timeout=PATIENCE)


def test_tree_while_a_child_is_being_stopped(stage: Stage) -> None:
    supervisor = stage.up(stage.stubborn("a"))
    supervisor.stop(block=False)
    stage.run()
    assert state(supervisor, "a").name == "STOPPING"
    assert "'a': stopping" in str(supervisor.tree())
    assert ": leaving" in str(supervisor.tree())
    stage.run(5.0)
    assert not supervisor.is_alive()
