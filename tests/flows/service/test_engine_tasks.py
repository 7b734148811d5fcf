"""Tasks of flows on an engine: handed out, answered, taken back, routed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import StoreFull, UnknownExecution
from actorflow.engine.stores.memory import MemoryStore
from actorflow.flows.errors import BadPayload, FlowMessageRefused
from actorflow.runtime.errors import BadOption, PushTimeout
from tests.engine.kinds import until
from tests.engine.tasks import chores
from tests.flows.engines import PATIENCE, Desk
from tests.flows.service.running import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actorflow.engine.stores.protocol import Change
    from actorflow.flows.service.taskers import FlowTask

SEQUENCE = "sequence\n  task 'alice' 'stage a'\n  task 'bob' 'stage b'"


class Full(MemoryStore):
    """A store that has no room when the test says so."""

    full = False

    def commit(self, changes: Sequence[Change]) -> None:
        if self.full:
            raise StoreFull("no room")
        super().commit(changes)


# --- tasks ---------------------------------------------------------------------------------------


def test_a_task_is_returned_when_its_result_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actorflow.engine.engine._STORED", 0.0)
    store = Full()
    with af.Engine(store) as engine:
        desk = Desk()
        engine.tasker("alice", desk)
        exid = engine.launch("alice 'stage a'")
        desk.wait_for(1)
        store.full = True
        with pytest.raises((StoreFull, PushTimeout)):
            engine.flows.return_task(exid, "0", {"by": "alice"})
        store.full = False
        assert engine.result(exid, PATIENCE) == {"by": "alice"}


@pytest.mark.parametrize(
    "options", [{"max_messages": "x"}, {"max_messages": 0}, {"history": "x"}], ids=str
)
def test_bad_options_of_flows_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=next(iter(options))):
        af.Engine(tmp_path / "s.db", **options)
    assert not (tmp_path / "s.db").exists()


def test_two_tasks_one_after_the_other(engine: af.Engine) -> None:
    engine.tasker("alice", lambda task: {**task.payload, "seen": task.name})
    engine.tasker("bob", lambda task: f"{task.name} by bob")
    done = run(engine, SEQUENCE, payload={"order": 7})
    assert done.status == "done"
    assert done.payload == {"order": 7, "seen": "stage a", "ret": "stage b by bob"}
    assert done.counters == {"runs": 3, "msgs": 29, "omsgs": 0}
    assert [message["m"] for message in done.history()] == list(range(1, 30))
    assert done.failures == []


def test_a_task_shows_what_the_flow_says(engine: af.Engine) -> None:
    seen: list[FlowTask] = []
    engine.tasker("alice", seen.append, include_vars=True)
    run(engine, "sequence tag: 'x' vars: { v: 1 }\n  alice 'a' 2 tag: 'y' k: 3", payload={"p": 1})
    (task,) = seen
    assert (task.name, task.attl, task.attd) == ("a", ["a", 2], {"k": 3}) or task.attd["k"] == 3
    assert task.tags == ["y", "x"]
    assert task.vars["v"] == 1
    assert task.payload["p"] == 1
    assert task.nid == "0_2"
    assert task.attempt == 1
    assert task.id.startswith(f"{task.exid}/0_2#")


@pytest.mark.parametrize(
    ("answer", "payload"),
    [
        (None, {"a": 1, "ret": "x"}),
        ({"b": 2}, {"b": 2}),
        ([1, 2], {"a": 1, "ret": [1, 2]}),
        (False, {"a": 1, "ret": False}),
        ("text", {"a": 1, "ret": "text"}),
    ],
)
def test_what_a_tasker_returns(engine: af.Engine, answer: Any, payload: dict[str, Any]) -> None:
    engine.tasker("alice", lambda _task: answer)
    assert run(engine, "task 'alice' 'x'", payload={"a": 1}).payload == payload


def test_a_payload_changed_in_place_is_given_back_so(engine: af.Engine) -> None:
    engine.tasker("alice", lambda task: task.payload.update(done=True))
    assert run(engine, "task 'alice'").payload["done"] is True


def test_an_asynchronous_tasker(engine: af.Engine) -> None:
    async def alice(task: FlowTask) -> str:
        return f"async {task.name}"

    engine.tasker("alice", alice)
    assert run(engine, "task 'alice' 'x'").ret == "async x"


def test_a_tasker_that_raises_fails_the_node(engine: af.Engine) -> None:
    def alice(_task: FlowTask) -> None:
        msg = "no ink"
        raise ValueError(msg)

    engine.tasker("alice", alice)
    failed = run(engine, "sequence\n  task 'alice'")
    assert failed.status == "stuck"
    assert [(one.nid, one.kind, one.text) for one in failed.failures] == [
        ("0_0", "ValueError", "no ink")
    ]
    assert failed.tasks == []
    handled = run(engine, "sequence on_error: (def msg err \\ err.msg)\n  task 'alice'")
    assert handled.payload == {"ret": "no ink"}
    assert handled.failures == []


def test_an_answer_that_is_not_json_fails_the_node(engine: af.Engine) -> None:
    engine.tasker("alice", lambda _task: {"a": object()})
    failed = run(engine, "task 'alice'")
    assert failed.status == "stuck"
    assert failed.failures[0].kind == "BadPayload"


def test_a_task_returned_twice_counts_once(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  set f.l []\n  desk 'x'\n  push f.l 1\n  desk 'y'")
    desk.wait_for(1)
    engine.flows.return_task(exid, "0_1", {"l": ["first"]})
    with pytest.raises(FlowMessageRefused, match=r"0_1.*returned"):
        engine.flows.return_task(exid, "0_1", {"l": ["second"]})
    desk.wait_for(2)
    with pytest.raises(FlowMessageRefused, match="0_1"):
        engine.flows.return_task(exid, "0_1", {"l": ["third"]})
    assert engine.return_task(desk.tasks[0].id, {"l": ["fourth"]}) is False
    assert engine.return_task(desk.tasks[1].id, desk.tasks[1].payload) is True
    done = engine.wait(exid, PATIENCE).view
    assert done.payload["l"] == ["first", 1]


def test_of_many_who_return_a_task_one_wins(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  desk 'x'\n  desk 'y'")
    desk.wait_for(1)
    gate, fates = threading.Barrier(8), []

    def give_back(number: int) -> None:
        gate.wait(PATIENCE)
        try:
            engine.flows.return_task(exid, "0_0", {"by": number})
        except FlowMessageRefused:
            fates.append("refused")
        else:
            fates.append("taken")

    threads = [threading.Thread(target=give_back, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(fates) == ["refused"] * 7 + ["taken"]
    assert len(desk.wait_for(2)) == 2


def test_a_task_is_given_back_as_it_was(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("desk 'x'", payload={"a": 1})
    desk.wait_for(1)
    engine.flows.return_task(exid, "0", None)
    assert engine.wait(exid, PATIENCE).view.payload == {"a": 1, "ret": "x"}


def test_what_cannot_be_given_back_says_why(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  desk 'x'")
    desk.wait_for(1)
    with pytest.raises(FlowMessageRefused, match="no such task"):
        engine.flows.return_task(exid, "0", {})
    with pytest.raises(FlowMessageRefused, match="gone"):
        engine.flows.return_task(exid, "0_7", {})
    with pytest.raises(BadPayload, match="JSON object"):
        engine.flows.return_task(exid, "0_0", [1])  # type: ignore[arg-type]
    with pytest.raises(UnknownExecution, match="nosuch"):
        engine.flows.return_task("nosuch", "0_0", {})
    engine.flows.return_task(exid, "0_0", {"fine": True})
    assert engine.wait(exid, PATIENCE).view.payload == {"fine": True}


def test_a_cancelled_task_is_taken_back(engine: af.Engine) -> None:
    desk, cancelled = Desk(), []
    engine.tasker("desk", desk, on_cancel=lambda task: cancelled.append(task.id))
    exid = engine.launch("sequence\n  desk 'x'\n  set f.next true")
    (task,) = desk.wait_for(1)
    assert engine.cancel(exid, "0_0") is True
    done = engine.wait(exid, PATIENCE).view
    assert done.status == "done"
    assert done.payload["next"] is True
    until(engine, lambda: cancelled == [task.id])  # called in a lane, after the commit
    assert engine.return_task(task.id, {}) is False
    points = [message["point"] for message in done.history()]
    assert points.count("detask") == 1
    assert points.count("return") == 1
    assert len(engine.parts.tasks) == 0


def test_a_tasker_may_insist_on_answering(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk, cancellable=False)
    exid = engine.launch("desk 'x'")
    (task,) = desk.wait_for(1)
    assert engine.cancel(exid) is True
    assert engine.execution(exid).status == "active"
    assert engine.return_task(task.id, {"done": True}) is True
    assert engine.wait(exid, PATIENCE).view.payload == {"done": True}


def test_a_killed_flow_leaves_no_task(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("concurrence\n  desk 'x'\n  desk 'y'")
    desk.wait_for(2)
    assert engine.flows.kill(exid) is True
    assert engine.wait(exid, PATIENCE).status == "cancelled"
    assert len(engine.parts.tasks) == 0
    assert engine.parts.store.open().rows == []
    assert engine.flows.kill(exid) is False
    with pytest.raises(FlowMessageRefused):
        engine.flows.return_task(exid, "0_0", {})


def test_concurrence_that_has_enough_takes_the_other_tasks_back(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("concurrence expect: 1\n  desk 'x'\n  desk 'y'")
    first, second = desk.wait_for(2)
    engine.return_task(first.id, {"by": first.name})
    done = engine.wait(exid, PATIENCE).view
    assert done.status == "done"
    assert done.payload["by"] == first.name
    assert engine.return_task(second.id, {}) is False


def test_domains_the_deepest_wins(engine: af.Engine) -> None:
    engine.tasker("alice", lambda _task: "root")
    engine.tasker("alice", lambda _task: "org", domain="org")
    engine.tasker("bob", lambda _task: "bob", domain="org.rome")
    assert run(engine, "alice _", domain="main").ret == "root"
    assert run(engine, "alice _", domain="org").ret == "org"
    assert run(engine, "alice _", domain="org.rome").ret == "org"
    assert run(engine, "bob _", domain="org.rome.x").ret == "bob"
    assert run(engine, "task 'bob'", domain="org").status == "stuck"


def test_a_router_chooses(engine: af.Engine) -> None:
    engine.tasker("nato", lambda task: f"{task.body['original_tasker']} is nato")
    engine.tasker("bob", lambda _task: "bob")

    def route(message: dict[str, Any]) -> Any:
        name = message["tasker"]
        return {"alpha": "nato", "nobody": False, "odd": 7}.get(name, True)

    engine.flows.router(route)
    assert run(engine, "task 'alpha'").ret == "alpha is nato"
    assert run(engine, "task 'bob'").ret == "bob"
    refused = run(engine, "task 'nobody'")
    assert "not found" in refused.failures[0].text
    assert "7" in run(engine, "task 'odd'").failures[0].text


def test_tasks_of_flows_run_in_other_processes() -> None:
    with af.Engine() as engine:
        engine.tasker("t", chores.tell_process, executor="process")
        exid = engine.launch("task 't' 'chore'", payload={"order": 7})
        payload = engine.result(exid, timeout=PATIENCE)
    assert payload["order"] == 7
    assert payload["ret"][0] != os.getpid()


def test_a_tasker_that_is_refused_leaves_the_one_of_that_name() -> None:
    with af.Engine() as engine:
        engine.tasker("alice", lambda task: {"by": "first"})
        refused: list[BaseException] = []

        def register() -> None:
            try:
                engine.tasker("bob", lambda task: {"by": "bob"})
            except af.BadOption as error:
                refused.append(error)

        threads = [threading.Thread(target=register) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 7
        with pytest.raises(af.BadOption):
            engine.tasker("alice", print)
        assert run(engine, "alice 'x'").payload["by"] == "first"
        assert run(engine, "bob 'x'").payload["by"] == "bob"
