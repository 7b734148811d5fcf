"""Launching flows: ids, idempotence, asyncio; and taskers shared with other kinds."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionEnded, ExecutionFailed, KindMismatch
from actorflow.engine.kind import NewTask, Options, Outcome, Status, TaskEnded
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.tasks.task import TaskAttempt
from actorflow.flows.errors import BadPayload, FlowMessageRefused
from actorflow.flows.language.checks import EmptyFlow
from actorflow.flows.service.exids import BadName, ExidMaker
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.testing import VirtualClock
from tests.engine.tasks import chores
from tests.flows.engines import PATIENCE, Desk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actorflow.engine.kind import Context, Envelope
    from actorflow.flows.service.flows import Flows

START = 1_600_000_000.0


# --- ids -----------------------------------------------------------------------------------------


def test_the_same_id_again_starts_nothing(engine: af.Engine) -> None:
    assert engine.launch("set f.a 1", payload={"n": 1}, id="order-7") == "order-7"
    assert engine.result("order-7", PATIENCE) == {"n": 1, "ret": None, "a": 1}
    assert engine.launch("set f.b 2", payload={"n": 2}, id="order-7") == "order-7"
    assert engine.result("order-7", PATIENCE) == {"n": 1, "ret": None, "a": 1}
    assert engine.execution("order-7").view.counters["runs"] == 1
    assert len(list(engine.executions())) == 1


def test_of_many_launches_with_one_id_one_counts(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    gate = threading.Barrier(8)

    def launch(number: int) -> None:
        gate.wait(PATIENCE)
        engine.launch("sequence\n  desk 'x'\n  desk 'y'", payload={"by": number}, id="order-7")

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    (task,) = desk.wait_for(1)
    engine.return_task(task.id, task.payload)
    assert [task.name for task in desk.wait_for(2)] == ["x", "y"]


def test_an_id_of_another_kind_is_refused(engine: af.Engine) -> None:
    engine.worker("orders", lambda batch, state: state, state=0).push_block(1)
    with pytest.raises(KindMismatch, match="orders"):
        engine.launch("1", id="orders")
    with pytest.raises((TypeError, ValueError), match="id of an execution"):
        engine.launch("1", id="")


def test_an_execution_with_an_id_of_its_own_belongs_to_its_domain(engine: af.Engine) -> None:
    engine.tasker("alice", lambda _task: "rome", domain="org.rome")
    engine.launch("alice _", domain="org.rome", unit="u7", id="order-7")
    done = engine.wait("order-7", PATIENCE).view
    assert (done.ret, done.domain, done.unit) == ("rome", "org.rome", "u7")


def test_ids_differ_between_engines_at_the_same_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = ExidMaker(), ExidMaker()
    made = {maker.make("main", "u0", START) for maker in (one, other) for _ in range(100)}
    assert len(made) == 200
    rolls = iter([7, 7, 7, 8])  # random ids may still collide
    monkeypatch.setattr("secrets.randbelow", lambda _limit: next(rolls))
    clock = VirtualClock(START)
    store = MemoryStore()
    with af.Engine(store, clock=clock) as engine:
        first = engine.launch("set f.a 1")
        engine.flows._exids = ExidMaker()  # as in another process
        second = engine.launch("set f.a 2")
        assert first != second
        assert [engine.result(exid, PATIENCE)["a"] for exid in (first, second)] == [1, 2]


def test_a_clock_that_is_set_back_leads_to_no_id_twice(tmp_path: Path) -> None:
    made: set[str] = set()
    for _ in range(3):
        clock = VirtualClock(START)
        with af.Engine(tmp_path / "f.db", durability="off", clock=clock) as engine:
            made |= {*engine.flows.launch_many("1", [{}] * 100), engine.launch("1")}
    assert len(made) == 303
    with af.Engine(tmp_path / "f.db", durability="off", retention=None) as engine:
        for exid in made:
            assert engine.wait(exid, PATIENCE).view.counters["msgs"] > 0


@pytest.mark.parametrize("flow", ["", "\n", "   ", "# a comment\n"])
def test_an_empty_flow_is_refused(engine: af.Engine, flow: str) -> None:
    with pytest.raises(EmptyFlow, match="empty"):
        engine.launch(flow)
    with pytest.raises(EmptyFlow, match="empty"):
        engine.flows.subflow("nothing", flow)
    assert list(engine.executions()) == []


# --- results -------------------------------------------------------------------------------------


def test_the_result_of_a_flow(engine: af.Engine) -> None:
    assert engine.result(engine.launch("set f.a 1"), PATIENCE) == {"ret": None, "a": 1}
    exid = engine.launch("sequence\n  nada 1")
    with pytest.raises(ExecutionFailed, match=r"node 0_0: .*nada"):
        engine.result(exid, PATIENCE)
    failure = engine.execution(exid).failure
    assert failure is not None
    assert failure.type == "UnknownProcedure"


def test_what_is_no_message_of_a_flow_does_no_harm(engine: af.Engine) -> None:
    exid = engine.launch("sequence\n  on 'go'\n  set f.went true")
    nonsense: list[Any] = [7, {}, {"point": "cancel", "nid": []}, {"point": "signal", "vars": 1}]
    for body in nonsense:
        with pytest.raises(FlowMessageRefused, match="refused"):
            engine.send(exid, body)
    for body in (*nonsense[:3], {"point": "execute", "tree": "x"}):
        engine.parts.sender.append(exid, None, (body,))  # as an older sender may have stored it
    engine.flows.signal(exid, "go", {})
    done = engine.wait(exid, PATIENCE)
    assert done.result["went"] is True
    assert sum(len(run["refused"]) for run in done.view.runs()) == 4
    assert len(engine.dead_letters()) == 0
    with pytest.raises(ExecutionEnded):
        engine.flows.signal(exid, "go", {})


def test_an_execution_that_was_never_launched_has_failed(engine: af.Engine) -> None:
    failed = engine.wait(engine.start("flow", 7).id, PATIENCE)
    assert failed.status == "stuck"
    assert failed.failure is not None
    assert "use the verbs of engine.flows" in failed.failure.message


def test_flows_in_asyncio(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)

    async def main() -> Any:
        exid = await engine.alaunch("sequence\n  desk 'x'\n  set f.a 1", id="order-7")
        task = await engine.flows.await_for(exid, "0_0 task", PATIENCE)
        assert task["taskname"] == "x"
        waiting = asyncio.ensure_future(engine.flows.await_for(exid, "0_1 execute; terminated"))
        await asyncio.sleep(0)
        engine.return_task(desk.wait_for(1)[0].id, {})
        await waiting
        with pytest.raises(af.ActorflowError, match="did not happen"):
            await engine.flows.await_for(await engine.alaunch("stall _"), "terminated", 0.01)
        return await engine.aresult(await engine.alaunch("unused", id=exid), PATIENCE)

    assert asyncio.run(main())["a"] == 1


# --- taskers -------------------------------------------------------------------------------------


class Asking:
    """A kind that gives one task to alice, and ends with what she returns."""

    name = "asking"

    def options(self, _execution: str) -> Options:
        return Options()

    def decode(self, _data: bytes | None) -> None:
        return None

    def encode(self, _state: None) -> bytes:
        return b""

    def run(self, _context: Context, _state: None, batch: Sequence[Envelope]) -> Outcome:
        (envelope,) = batch
        if isinstance(envelope, TaskEnded):
            return Outcome(state=None, status=Status.DONE, result=envelope.value)
        return Outcome(state=None, tasks=[NewTask("t", "alice", {"a": 1})])


def test_a_tasker_serves_flows_and_other_kinds(engine: af.Engine) -> None:
    seen: list[Any] = []

    def alice(task: Any) -> list[int]:
        seen.append(task)
        return [1]

    engine.tasker("alice", alice)
    engine.register(Asking())
    engine.start("asking", id="other")
    assert engine.result("other", PATIENCE) == [1]
    assert engine.result(engine.launch("alice 'x'"), PATIENCE) == {"ret": [1]}
    other, flow = seen
    assert (type(other), other.body) == (TaskAttempt, {"a": 1})
    assert (type(flow), flow.name) == (af.FlowTask, "x")


def test_on_cancel_is_shown_the_task_of_a_flow(engine: af.Engine) -> None:
    cancelled: list[Any] = []
    told = threading.Event()

    def on_cancel(task: Any) -> None:
        cancelled.append((task.nid, task.name))
        told.set()

    desk = Desk()
    engine.tasker("desk", desk, on_cancel=on_cancel)
    exid = engine.launch("sequence\n  desk 'x'")
    desk.wait_for(1)
    engine.cancel(exid)
    engine.wait(exid, PATIENCE)
    assert told.wait(PATIENCE)
    assert cancelled == [("0_0", "x")]


def test_a_tasker_that_is_refused_is_not_known(engine: af.Engine) -> None:
    with pytest.raises(BadOption):
        engine.tasker("alice", lambda _task: None, retries=-1)
    with pytest.raises(BadJob):
        engine.tasker("alice", 7)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="http"):
        engine.tasker("alice", "ftp://example.com")
    with pytest.raises(ExecutionFailed, match="alice"):
        engine.result(engine.launch("task 'alice'"), PATIENCE)
    engine.tasker("alice", lambda _task: "first", cancellable=False)
    with pytest.raises(BadOption, match="already"):
        engine.tasker("alice", lambda _task: "second")
    assert engine.result(engine.launch("task 'alice'"), PATIENCE)["ret"] == "first"


def test_a_tasker_is_known_before_its_waiting_tasks_are_handed_out(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "f.db", durability="off") as engine:
        desk = Desk()
        engine.tasker("desk", desk)
        exid = engine.launch("sequence\n  desk 'x'\n  desk 'y'")
        desk.wait_for(1)
    with af.Engine(tmp_path / "f.db", durability="off") as engine:
        engine.resume()
        seen: list[bool] = []
        flows: Flows = engine.flows

        def work(task: Any) -> None:
            seen.append(flows._directory.knows("main", task.tasker))

        engine.tasker("desk", work)
        assert engine.wait(exid, PATIENCE).status == "done"
    assert seen == [True, True]


def test_tasks_of_flows_run_in_other_processes() -> None:
    with af.Engine() as engine:
        engine.tasker("t", chores.tell_process, executor="process")
        payload = engine.result(engine.launch("task 't' 'chore'", payload={"order": 7}), PATIENCE)
    assert payload["order"] == 7
    assert payload["ret"][0] != os.getpid()


@pytest.mark.parametrize("wrong", [None, 7, b"x", ["a"], True], ids=repr)
def test_a_domain_and_a_unit_that_are_no_texts_are_refused(wrong: Any) -> None:
    with af.Engine(":memory:") as engine:
        for options in ({"domain": wrong}, {"unit": wrong}):
            with pytest.raises(BadName) as refused:
                engine.launch("stall _", **options)
            assert repr(wrong) in str(refused.value)
        assert list(engine.executions()) == []


def test_a_signal_needs_a_name_and_an_object() -> None:
    nothing: Any = []
    with af.Engine(":memory:") as engine:
        exid = engine.launch("stall _")
        for wrong in ("", 7, None):
            with pytest.raises((TypeError, ValueError), match="the id of a signal must"):
                engine.flows.signal(exid, wrong)  # type: ignore[arg-type] # wrong on purpose
        with pytest.raises(BadPayload):
            engine.flows.signal(exid, "go", nothing)
