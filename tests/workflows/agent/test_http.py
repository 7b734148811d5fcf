"""The agent over a real socket: every route, rule by rule."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Unique
from actorflow.engine.errors import ExecutionFailed, WaitTimeout
from actorflow.runtime.errors import BadOption
from actorflow.workflows.errors import InvalidStep, InvalidWorkflow
from tests.engine.kinds import until
from tests.workflows.agent.orders import ORDER, ended, refused, start, statuses, waits
from tests.workflows.agent.worker import PATIENCE, Agency, Worker

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock


def test_z66_a_workflow_is_run_by_a_worker_that_only_knows_http(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    worker.work_until(lambda: waits(handle))
    handle.send("paid", amount=5)
    worker.work_until(lambda: ended(handle))
    paid = {"event_name": "paid", "event_input": {"amount": 5}}
    assert handle.result(PATIENCE) == [[{"order": 7}, 3], paid, 1]
    state = handle.query().state
    assert state.programming_language == "test"
    assert state.workflow_name == "Order"
    assert [each.type for each in state.branches[:2]] == ["handle", "onStart"]


def test_z66_time_passes_and_answers_come_for_those_who_ask(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    handle, worker = start(engine, agency)
    worker.work_until(lambda: waits(handle))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(handle.ask, "hello", timeout=PATIENCE)
        while not asked.done():
            worker.work(wait=0.01)
        assert asked.result() == 1
    clock.advance(61)
    worker.work_until(lambda: ended(handle))
    assert handle.result(PATIENCE) == [[{"order": 7}, 3], None, 1]


def test_a_question_waits_while_a_decision_is_taken_elsewhere(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    with pytest.raises(WaitTimeout, match="has not answered 'hello'"):
        handle.ask("hello", id="first", timeout=0.05)
    with pytest.raises(WaitTimeout, match="has not answered 'hello'"):
        handle.ask("hello", timeout=0.05)
    assert [each.data["event_name"] for each in handle.query().state.buffer] == ["hello"] * 2
    worker.work_until(lambda: waits(handle))


def test_z51_jobs_have_the_fields_of_the_seed(engine: af.Engine, agency: Agency) -> None:
    handle, worker = start(engine, agency)
    decision = agency.job()
    assert set(decision) == {"action", "uuid", "name"}
    assert (decision["action"], decision["name"]) == ("DecisionScheduled", "Order")
    worker.decide(decision)
    task = worker.next_tasks(2)["charge"]
    assert set(task) == {"action", "uuid", "name", "input", "hash"}
    assert (task["action"], task["name"]) == ("TaskScheduled", "charge")
    assert task["input"] == {"order": 7}
    assert task["hash"] == handle.query().state.statuses[0].hash


def test_z51_none_where_nothing_waits_or_for_another_language(
    engine: af.Engine, agency: Agency
) -> None:
    start(engine, agency)
    for place in ("env/default/lang/php", "env/prod/lang/test", "env/%C3%A9/lang/%20"):
        assert agency.request("GET", f"/{place}/job?wait=0") == {"action": "None"}
    assert agency.job(wait=0)["action"] == "DecisionScheduled"
    assert agency.job(wait=0) == {"action": "None"}


def test_z60_a_failed_task_is_told_to_the_workflow(engine: af.Engine, agency: Agency) -> None:
    handle, worker = start(engine, agency)
    worker.workflows["Order"] = {
        **ORDER,
        "onFailure": [{"op": "set", "prop": "why", "value": {"arg": "error_input"}}],
    }
    error = {"code": 402, "name": "CardDeclined", "message": "no", "stacktrace": "pay.js:7"}
    agency.task(worker.next_task()["uuid"], status="failed", error=error)
    worker.work_until(lambda: ended(handle))
    (failed,) = handle.query().failed
    assert failed.error == error
    assert handle.query().properties["why"] == {
        "code": 402,
        "message": "no",
        "stacktrace": "pay.js:7",
    }
    with pytest.raises(ExecutionFailed, match="CardDeclined"):
        handle.result(PATIENCE)
    handle.retry()
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    worker.work_until(lambda: handle.status == "done")
    assert handle.result(PATIENCE)[0] == [{"order": 7}, 3]


def test_r16_a_branch_that_asked_for_it_is_told_of_a_failure(
    engine: af.Engine, agency: Agency
) -> None:
    order = engine.workflows.remote("Order", lang="test", tasks=["charge", "reserve"])
    handle = engine.start(order(tried=0), id="o-7")
    error = {"code": 402, "name": "CardDeclined", "message": "no", "stacktrace": "pay.js:7"}
    works = [
        {"name": "charge", "position": "0.0", "raises": True},
        {"name": "reserve", "position": "0.1", "raises": True},
    ]

    replies: list[Any] = []

    def decide(uuid: str) -> None:
        while given := agency.next_branch(uuid):
            finished = {"properties": given["properties"]}
            if given["branch"]["type"] == "handle":
                replies.append(agency.execute(uuid, works))
                if replies[-1]["status"] == "failed":
                    finished = {"properties": {"tried": 1}, "output": "given up"}
            agency.finish_branch(uuid, finished)

    while not ended(handle):
        job = agency.job(wait=0.05)
        if job["action"] == "DecisionScheduled":
            decide(job["uuid"])
        elif job["action"] == "TaskScheduled" and job["name"] == "charge":
            agency.task(job["uuid"], status="failed", error=error)
        elif job["action"] == "TaskScheduled":
            agency.task(job["uuid"], status="completed", output=3)
    assert replies[0] == {"status": "scheduled"}
    assert replies[-1] == {"status": "failed", "error": error, "properties": {"tried": 0}}
    assert handle.result(PATIENCE) == "given up"
    assert handle.query().properties == {"tried": 1}


@af.task(lang="test", retries=2, backoff=1.0)
def guess(number: int) -> int:
    raise NotImplementedError


class Guess(af.Workflow[int]):
    def handle(self) -> int:
        return self.execute(guess(7))


def test_z60_retries_come_before_on_failure(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    """A task of another language in a workflow of Python: typed, with the options of tasks."""
    handle = engine.start(Guess())
    uuids = set()
    for _ in range(2):
        job = agency.job()
        assert (job["name"], job["input"]) == ("guess", {"number": 7})
        uuids.add(job["uuid"])
        agency.task(job["uuid"], status="failed", error={"name": "Wrong"})
        refused(410, agency.task, job["uuid"], status="failed", error={"name": "Wrong"})
        until(engine, lambda: engine.parts.writer.quiet)
        clock.advance(5)
    job = agency.job()
    uuids.add(job["uuid"])
    agency.task(job["uuid"], status="completed", output=42)
    assert handle.result(PATIENCE) == 42
    assert len(uuids) == 1


class Invoice(af.RemoteWorkflow[str], lang="test"):
    def __init__(self, order: int) -> None:
        self.order = order


class _Undescribed(af.RemoteWorkflow[str], lang="php"): ...


class Parent(af.Workflow[str]):
    def handle(self) -> str:
        return self.execute(Invoice(7))


def test_a_declared_workflow_of_another_language_is_a_work(
    engine: af.Engine, agency: Agency
) -> None:
    handle = engine.start(Parent(), id="p")
    worker = Worker(agency, {"Invoice": {"handle": [{"op": "return", "value": {"prop": "order"}}]}})
    worker.work_until(lambda: ended(handle))
    with pytest.raises(ExecutionFailed, match="is not str"):
        handle.result(PATIENCE)
    other = engine.start(Invoice(8), id="i")
    worker.work_until(lambda: ended(other))
    with pytest.raises(TypeError, match="is not str"):
        other.result(PATIENCE)
    assert engine.workflows.get(Invoice, "i").query().properties == {"order": 8}


def test_a_workflow_of_another_language_has_children_and_dispatched_tasks(
    engine: af.Engine, agency: Agency
) -> None:
    parent = engine.workflows.remote("P", lang="test", tasks=["note"])
    engine.workflows.register(Guess)
    methods = {
        "handle": [
            {"op": "dispatch", "works": [{"task": "note", "input": "begun"}]},
            {"op": "execute", "works": [{"flow": "Guess", "input": {}}], "as": "got"},
            {"op": "return", "value": {"var": "got"}},
        ]
    }
    noted = []

    def do(name: str, given: Any) -> Any:
        noted.append((name, given))
        return 5

    handle = engine.start(parent(), id="p")
    worker = Worker(agency, {"P": methods}, do)
    worker.work_until(lambda: ended(handle) and noted)
    assert handle.result(PATIENCE) == 5
    assert sorted(noted) == [("guess", {"number": 7}), ("note", "begun")]
    hashes = {job["hash"] for job in worker.done if job.get("name") == "note"}
    assert hashes == {handle.query().state.statuses[0].hash}


def test_z65_the_last_branch_completes_the_decision(engine: af.Engine, agency: Agency) -> None:
    handle, _ = start(engine, agency)
    uuid = agency.job()["uuid"]
    branch = agency.next_branch(uuid)
    assert branch == {"branch": {"key": 0, "type": "handle"}, "properties": {"order": 7, "seen": 0}}
    assert agency.finish_branch(uuid, {"properties": {"order": 7}, "output": None}) == {}
    assert handle.query().state.decision_ongoing
    assert agency.next_branch(uuid) == {}
    assert handle.result(PATIENCE) is None
    refused(410, agency.next_branch, uuid)


def test_z52_decisions_of_several_instances_do_not_mix(engine: af.Engine, agency: Agency) -> None:
    order = engine.workflows.remote("Order", lang="test")
    for number in range(2):
        engine.start(order(number=number), id=f"o-{number}")
    jobs = [agency.job() for _ in range(2)]
    branches = [agency.next_branch(job["uuid"]) for job in jobs]
    assert [each["properties"]["number"] for each in branches] == [0, 1]
    for number, job in reversed(list(enumerate(jobs))):
        agency.finish_branch(job["uuid"], {"properties": {}, "output": number})
        agency.next_branch(job["uuid"])
    assert [engine.result(f"o-{number}", PATIENCE) for number in range(2)] == [0, 1]


def test_z52_one_decision_is_asked_by_many_threads_at_once(
    engine: af.Engine, agency: Agency
) -> None:
    handle, _ = start(engine, agency)
    uuid = agency.job()["uuid"]
    agency.next_branch(uuid)
    works = [{"name": "charge", "position": "0.0"}]
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: agency.execute(uuid, works), range(40)))
    assert replies == [{"status": "scheduled"}] * 40
    agency.finish_branch(uuid, {"properties": {}})
    agency.next_branch(uuid)
    until(engine, lambda: statuses(handle) == ["charge"])


def test_z54_requests_out_of_turn_are_409(engine: af.Engine, agency: Agency) -> None:
    start(engine, agency)
    uuid = agency.job()["uuid"]
    assert "GET branch first" in refused(409, agency.execute, uuid, [])["message"]
    refused(409, agency.finish_branch, uuid, {"properties": {}})


def test_z57_modified_code_waits_for_a_fix(engine: af.Engine, agency: Agency) -> None:
    handle, worker = start(engine, agency)
    tasks = worker.next_tasks(2)
    agency.task(tasks["charge"]["uuid"], status="completed", output=1)
    other = json.loads(json.dumps(ORDER).replace("charge", "refund"))
    worker.workflows["Order"] = other
    worker.work_until(lambda: handle.query().mode == "modified")
    assert "recorded execute of the task charge" in handle.query().error["message"]
    with pytest.raises(ExecutionFailed, match="WorkflowModified"):
        handle.result(PATIENCE)
    worker.workflows["Order"] = ORDER
    agency.task(tasks["reserve"]["uuid"], status="completed", output=3)
    handle.resume()
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    worker.work_until(lambda: ended(handle))
    assert handle.result(PATIENCE)[0] == [1, 3]


def test_r13_an_error_of_the_code_fails_the_instance_until_it_is_resumed(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    uuid = agency.job()["uuid"]
    agency.next_branch(uuid)
    agency.execute(uuid, [{"name": "charge", "position": "0.0"}])
    agency.error(uuid, {"name": "TypeError", "message": "undefined", "stacktrace": "order.js:3"})
    refused(410, agency.next_branch, uuid)
    with pytest.raises(ExecutionFailed, match="undefined") as found:
        handle.result(PATIENCE)
    assert found.value.failure.traceback == "order.js:3"
    assert handle.query().state.statuses == []
    handle.send("paid")  # is kept
    handle.resume()
    worker.work_until(lambda: handle.query().properties["seen"] == 1)


def test_r13_a_rewind_makes_the_decision_that_is_out_stale(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    stale = agency.job()
    agency.next_branch(stale["uuid"])
    handle.rewind("0/0.0")
    # Its worker may go on, to no avail; another one gets the new plan.
    agency.finish_branch(stale["uuid"], {"properties": {"order": 99}, "output": "lost"})
    while agency.next_branch(stale["uuid"]):
        agency.finish_branch(stale["uuid"], {"properties": {}})
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    worker.work_until(lambda: ended(handle))
    paid = {"event_name": "paid", "event_input": {}}
    # The first event has happened again, before there was a wait for it.
    assert handle.result(PATIENCE) == [[{"order": 7}, 3], paid, 2]


def test_r13_a_decision_of_a_past_that_was_rewound_is_not_handed_out_twice(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    until(engine, lambda: handle.query().state.decision_ongoing)
    handle.rewind("0/0.0")
    refused(410, agency.next_branch, agency.job()["uuid"])
    worker.work_until(lambda: waits(handle))
    assert handle.query().properties == {"order": 7, "seen": 1}


def test_a_fork_of_a_workflow_of_another_language_goes_on_by_itself(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    worker.work_until(lambda: waits(handle))
    fork = handle.fork("0/1.0", id="fork")
    worker.work_until(lambda: waits(fork))
    fork.send("paid")
    worker.work_until(lambda: ended(fork))
    assert fork.result(PATIENCE)[0] == [{"order": 7}, 3]
    assert handle.status == "active"


def test_r14_what_arrives_for_an_ended_instance_is_410(engine: af.Engine, agency: Agency) -> None:
    handle, worker = start(engine, agency)
    task = worker.next_task()
    while (decision := agency.job())["action"] != "DecisionScheduled":
        pass
    handle.cancel()
    refused(410, agency.next_branch, decision["uuid"])
    refused(410, agency.task, task["uuid"], status="completed")
    assert agency.job(wait=0) == {"action": "None"}


def test_r14_a_uuid_of_the_other_sort_is_410(engine: af.Engine, agency: Agency) -> None:
    _, worker = start(engine, agency)
    decision = agency.job()
    refused(410, agency.task, decision["uuid"], status="completed")
    worker.decide(decision)
    task = worker.next_task()
    refused(410, agency.next_branch, task["uuid"])
    refused(410, agency.task, "no-such-task", status="completed")


def test_z60_malformed_ends_of_a_task_are_422_and_change_nothing(
    engine: af.Engine, agency: Agency
) -> None:
    handle, worker = start(engine, agency)
    uuid = worker.next_tasks(2)["charge"]["uuid"]
    bodies: list[Any] = [
        None,
        [],
        {},
        {"status": "done"},
        {"status": "failed"},
        {"status": "failed", "error": {"code": [1]}},
        {"status": "failed", "error": {"code": 2**70}},
        {"status": "completed", "outptu": 1},
        {"status": "completed", "output": 2**70},
        {"status": "completed", "output": "\ud800"},
        {"status": "completed", "output": float("nan")},
        {"status": "completed", "output": [{"a": float("-inf")}]},
    ]
    for body in bodies:
        refused(422, agency.request, "POST", f"/tasks/{uuid}", body)
    agency.task(uuid, status="completed", output=1)
    worker.work_until(lambda: handle.query().state.statuses[0].status == "successful")
    assert handle.query().state.statuses[0].output == 1


def test_z55_malformed_works_are_422_and_change_nothing(engine: af.Engine, agency: Agency) -> None:
    handle, _ = start(engine, agency)
    uuid = agency.job()["uuid"]
    agency.next_branch(uuid)
    good = {"name": "reserve", "position": "7.0"}
    bad: list[Any] = [
        {"name": "charge"},
        {"position": "0.0"},
        {"name": "", "position": "0.0"},
        {"name": "a\x00", "position": "0.0"},
        {"name": "charge", "position": "first"},
        {"name": "charge", "position": "0.0\n"},
        {"name": "charge", "position": "0.0", "type": "job"},
        {"name": "charge", "position": "0.0", "sync": "yes"},
        {"name": "charge", "position": "0.0", "timeout": 0},
        {"name": "charge", "position": "0.0", "timeout": {"duration": 5}},
        {"name": "charge", "position": "0.0", "event": "paid"},
        {"name": "charge", "position": "0.0", "input": 2**70},
        {"name": "charge", "position": "0.0", "input": float("inf")},
        {"name": "Order", "position": "0.0", "type": "flow", "input": 5},
        {"name": "Order", "position": "0.0", "type": "flow", "input": [1]},
        {"name": "Wait", "position": "0.0", "type": "wait"},
        {"name": "Wait", "position": "0.0", "type": "wait", "timeout": {"duration": -1}},
        {"name": "Wait", "position": "0.0", "type": "wait", "timeout": {"timestamp": 1e300}},
        good,
    ]
    for work in bad:
        refused(422, agency.execute, uuid, [good, work])
    assert agency.execute(uuid, [good]) == {"status": "scheduled"}
    agency.finish_branch(uuid, {"properties": {}})
    agency.next_branch(uuid)
    until(engine, lambda: statuses(handle) == ["reserve"])


def test_z54_malformed_ends_of_a_branch_are_422_and_change_nothing(
    engine: af.Engine, agency: Agency
) -> None:
    handle, _ = start(engine, agency)
    uuid = agency.job()["uuid"]
    agency.next_branch(uuid)
    bodies: list[Any] = [
        None,
        {},
        {"properties": []},
        {"properties": {}, "x": 1},
        {"properties": {"a": 2**70}},
        {"properties": {"a": float("nan")}},
        {"properties": {}, "output": float("inf")},
    ]
    for body in bodies:
        refused(422, agency.finish_branch, uuid, body)
    agency.finish_branch(uuid, {"properties": {"seen": 1}, "output": "done"})
    agency.next_branch(uuid)
    assert handle.result(PATIENCE) == "done"
    assert handle.query().properties == {"seen": 1}


def test_what_json_cannot_hold_reaches_a_worker_all_the_same(
    engine: af.Engine, agency: Agency
) -> None:
    order = engine.workflows.remote("Order", lang="test")
    engine.start(order(raw=b"\xff", odd=float("nan")), id="o")
    given = agency.next_branch(agency.job()["uuid"])
    assert given["properties"] == {"raw": {"base64": "/w=="}, "odd": "nan"}


def test_bad_declarations_are_named(engine: af.Engine) -> None:
    with pytest.raises(InvalidWorkflow, match="does not say where its code is"):

        class _Nowhere(af.RemoteWorkflow[str]): ...

    engine.workflows.remote("Order", lang="test", tasks=["charge"])
    with pytest.raises(BadOption, match="'Order' already"):
        engine.workflows.remote("Order", lang="php")
    with pytest.raises(BadOption, match="'charge' already"):
        engine.workflows.remote_tasks("charge", lang="php")
    with pytest.raises(InvalidStep, match="leave out"):
        af.task(lang="php", executor="process")
    with pytest.raises(InvalidWorkflow, match="is in php"):
        _Undescribed().handle()
    engine.start(Invoice(7), id="i")
    with pytest.raises(InvalidWorkflow, match="is not here"):
        engine.workflows.check("i", Invoice)


def test_an_inbox_acts_while_a_worker_has_the_decision(engine: af.Engine, agency: Agency) -> None:
    order = engine.workflows.remote(
        "Order",
        lang="test",
        tasks=["charge", "reserve"],
        inbox=lambda: Unique(key=lambda event: event.name),
    )
    handle = engine.start(order(order=7, seen=0), id="o-7")
    worker = Worker(agency, {"Order": ORDER})
    decision = agency.job()
    for number in range(3):
        handle.send("note", number=number)
    assert handle.query().state.buffer == []
    worker.decide(decision)
    worker.work_until(lambda: handle.query().properties["seen"] == 1)
    worker.work_until(lambda: waits(handle))
    branches = [each for each in handle.query().state.branches if each.type == "onEvent"]
    assert [each.event_input for each in branches] == [{"number": 2}]
