"""What a script that takes a decision is answered, request by request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.workflows.agent.cursor import DecisionCursor
from actorflow.workflows.agent.wire import read_answer, task_hash
from actorflow.workflows.errors import InvalidStep, OutOfTurn
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import StepType

TASK: dict[str, Any] = {"name": "charge", "input": {"order": 7}, "position": "0.0"}
PAIR: list[dict[str, Any]] = [TASK, {"name": "reserve", "input": None, "position": "0.1"}]


class Agency:
    """An instance whose decisions are taken by hand."""

    def __init__(self, **properties: Any) -> None:
        self.now = 0.0
        self.instance, self.sent = Instance.start("i", "Order", properties, at=0)

    @property
    def state(self) -> Any:
        return self.instance.state

    def receive(self, *received: m.Received) -> list[m.Outgoing]:
        self.now += 1
        self.sent = self.instance.receive(received, now=self.now)
        return self.sent

    def cursor(self) -> DecisionCursor:
        assert self.state.decision_ongoing
        return DecisionCursor(self.instance)

    def complete(self, cursor: DecisionCursor) -> None:
        assert cursor.next_branch() == {}
        self.receive(read_answer(cursor.completed(), cursor.uuid, self.now))

    def pass_over(self) -> None:
        """Take the ongoing decision as code that does nothing."""
        cursor = self.cursor()
        while given := cursor.next_branch():
            cursor.finish_branch(given["properties"])
        self.receive(read_answer(cursor.completed(), cursor.uuid, self.now))

    def succeed(self, work: str, output: Any = None) -> None:
        self.receive(m.Succeeded(self.now + 1, work, output))


def begun(works: list[dict[str, Any]], **properties: Any) -> Agency:
    """Return an instance whose handle has executed works at its begin."""
    agency = Agency(**properties)
    cursor = agency.cursor()
    given = cursor.next_branch()
    cursor.execute(works)
    cursor.finish_branch(given["properties"])
    agency.complete(cursor)
    return agency


def test_z53_branches_come_in_order_of_executions_then_nothing() -> None:
    agency = begun(PAIR, total=1)
    agency.receive(
        m.Succeeded(2, "0/0.0", "a"), m.Succeeded(3, "0/0.1", "b"), m.EventSent(4, "paid", 5)
    )
    cursor = agency.cursor()
    found = []
    while given := cursor.next_branch():
        found.append((given["branch"]["key"], given["branch"]["type"], given["properties"]))
        cursor.finish_branch(given["properties"])
    first = {"total": 1}
    assert found == [
        (1, "onSuccess", first),
        (0, "handle", first),
        (2, "onSuccess", first),
        (0, "handle", first),
        (3, "onEvent", first),
    ]
    assert cursor.next_branch() == {}


def test_r9_a_branch_is_found_by_its_key_not_by_the_index() -> None:
    agency = begun([TASK])
    agency.succeed("0/0.0")
    cursor = agency.cursor()
    keys = []
    while given := cursor.next_branch():
        keys.append(given["branch"]["key"])
        cursor.finish_branch({})
    assert keys == agency.state.executions[1:] == [1, 0]


def test_r21_a_branch_has_the_names_of_the_seed() -> None:
    agency = begun([TASK])
    agency.receive(m.EventSent(1, "paid", {"amount": 4}), m.Started(2, "0/0.0"))
    cursor = agency.cursor()
    event = cursor.next_branch()
    assert event["branch"] == {
        "key": 1,
        "type": "onEvent",
        "event_name": "paid",
        "event_input": {"amount": 4},
    }
    cursor.finish_branch({})
    assert cursor.next_branch()["branch"] == {
        "key": 2,
        "type": "onStart",
        "task_name": "charge",
        "task_input": {"order": 7},
    }
    cursor.finish_branch({})
    agency.complete(cursor)
    agency.receive(m.StepHasFailed(3, "0/0.0", {"name": "IOError", "message": "no", "code": 5}))
    assert agency.cursor().next_branch()["branch"] == {
        "key": 3,
        "type": "onFailure",
        "task_name": "charge",
        "task_input": {"order": 7},
        "error_name": "IOError",
        "error_input": {"message": "no", "code": 5},
    }


def test_z53_a_branch_that_was_not_finished_is_handed_out_again() -> None:
    agency = Agency(total=1)
    cursor = agency.cursor()
    first = cursor.next_branch()
    cursor.execute([TASK])
    first["properties"]["total"] = 99
    again = cursor.next_branch()
    assert again["properties"] == {"total": 1}
    assert cursor.execute([TASK]) == {"status": "scheduled"}
    cursor.finish_branch({"total": 2})
    agency.complete(cursor)
    assert [status.name for status in agency.state.statuses] == ["charge"]
    assert agency.instance.properties_at(1) == {"total": 2}


def test_z54_properties_are_stored_when_they_changed_and_the_output_when_it_is_there() -> None:
    agency = Agency(total=1)
    cursor = agency.cursor()
    cursor.next_branch()
    assert cursor.finish_branch({"total": 1}) == {}
    assert cursor.completed() == {"completed": []}

    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({"total": 2}, None)
    assert cursor.completed() == {
        "completed": [
            ["update_properties", {"key": 1, "values": {"total": 2}}],
            ["set_output", {"branch_key": 0, "output": None}],
        ]
    }
    agency.complete(cursor)
    assert agency.sent == [m.Ended(None)]


def test_r4_properties_are_those_at_the_begin_of_the_next_index() -> None:
    agency = begun([TASK], total=1)
    agency.receive(m.EventSent(1, "a"), m.EventSent(2, "b"))
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({"total": 2})
    assert cursor.next_branch()["properties"] == {"total": 2}
    cursor.finish_branch({"total": 3})
    agency.complete(cursor)
    assert [(each.key, each.values["total"]) for each in agency.state.properties] == [
        (0, 1),
        (2, 2),
        (3, 3),
    ]


def test_r5_after_execute_come_the_properties_that_on_success_has_left() -> None:
    agency = begun([TASK], total=1)
    agency.succeed("0/0.0", "held")
    cursor = agency.cursor()
    assert cursor.next_branch()["branch"]["type"] == "onSuccess"
    cursor.finish_branch({"total": 7})
    assert cursor.next_branch()["properties"] == {"total": 1}
    assert cursor.execute([TASK]) == {
        "status": "completed",
        "outputs": ["held"],
        "properties": {"total": 7},
    }


def test_r6_a_replay_that_stops_where_the_last_one_did_reverts_nothing() -> None:
    agency = begun(PAIR, total=1)
    agency.receive(m.EventSent(1, "more"))
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({"total": 5})
    agency.complete(cursor)
    agency.succeed("0/0.0")
    cursor = agency.cursor()
    given = cursor.next_branch()
    cursor.finish_branch(given["properties"])
    given = cursor.next_branch()
    assert cursor.execute(PAIR) == {"status": "scheduled"}
    cursor.finish_branch(given["properties"])  # those of its start
    agency.complete(cursor)
    assert agency.state.properties[-1].values == {"total": 5}


def test_z55_all_fields_of_a_work_are_stored() -> None:
    works: list[dict[str, Any]] = [
        {**TASK, "timeout": 5, "sync": False, "type": "task", "event": None},
        {"name": "Invoice", "input": {"of": 7}, "position": "0.1", "type": "flow"},
        {"name": "Wait", "position": "0.2", "type": "wait", "event": "paid"},
        {"name": "Wait", "position": "0.3", "type": "wait", "timeout": {"duration": 60}},
        {"name": "Wait", "position": "0.4", "type": "wait", "timeout": {"timestamp": 99.5}},
    ]
    statuses = begun(works).state.statuses
    assert [(each.type, each.name, each.sync, each.timeout) for each in statuses] == [
        (StepType.TASK, "charge", False, 5.0),
        (StepType.FLOW, "Invoice", True, None),
        (StepType.WAIT, "Wait", True, None),
        (StepType.WAIT, "Wait", True, None),
        (StepType.WAIT, "Wait", True, None),
    ]
    # What it waits for is part of its hash, and so of its input.
    assert [each.input for each in statuses[2:]] == [
        {"event": "paid"},
        {"duration": 60.0},
        {"timestamp": 99.5},
    ]


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ({"name": "Wait", "position": "0.0", "type": "wait"}, "would never end"),
        ({"name": "Wait", "position": "0.0", "type": "wait", "timeout": 5}, "'duration': 60"),
        ({**TASK, "timeout": {"duration": 5}}, "a number of seconds"),
        ({**TASK, "event": "paid"}, "only a wait has one"),
    ],
)
def test_z55_a_work_that_makes_no_sense_is_refused_and_changes_nothing(
    work: dict[str, Any], says: str
) -> None:
    agency = Agency()
    cursor = agency.cursor()
    cursor.next_branch()
    with pytest.raises(InvalidStep, match=says):
        cursor.execute([{**TASK, "position": "0.1"}, work])
    assert cursor.completed() == {"completed": []}


def test_z55_two_works_at_the_same_position_are_refused() -> None:
    cursor = Agency().cursor()
    cursor.next_branch()
    with pytest.raises(InvalidStep, match=r"position '0\.0'"):
        cursor.execute([TASK, TASK])


def test_z56_an_unknown_position_is_scheduled() -> None:
    agency = Agency()
    cursor = agency.cursor()
    cursor.next_branch()
    assert cursor.execute([TASK]) == {"status": "scheduled"}
    ((name, schedule),) = cursor.completed()["completed"]
    assert name == "schedule_step"
    assert (schedule["branch_key"], schedule["position"], schedule["name"]) == (0, "0.0", "charge")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "refund"},
        {"input": {"order": 8}},
        {"sync": False},
        {"type": "flow"},
        {"type": "wait", "event": "paid"},
    ],
)
def test_z57_another_work_at_a_known_position_is_modified(change: dict[str, Any]) -> None:
    agency = begun([TASK])
    agency.succeed("0/0.0")
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({})
    cursor.next_branch()
    assert cursor.execute([{**TASK, **change}]) == {"status": "modified"}


def test_z58_a_work_is_complete_only_from_its_completion_index_on() -> None:
    agency = begun([TASK])
    agency.receive(m.EventSent(1, "first"))
    agency.pass_over()
    agency.receive(m.EventSent(2, "second"), m.Succeeded(3, "0/0.0", 5))
    cursor = agency.cursor()
    answers = []
    while given := cursor.next_branch():
        if given["branch"]["key"] == 0:
            answers.append(cursor.execute([TASK])["status"])
        cursor.finish_branch(given["properties"])
    assert answers == ["completed"]

    agency = begun(PAIR)
    agency.receive(m.Succeeded(2, "0/0.0", "a"), m.Succeeded(3, "0/0.1", "b"))
    cursor = agency.cursor()
    answers = []
    while given := cursor.next_branch():
        if given["branch"]["key"] == 0:
            answers.append(cursor.execute(PAIR)["status"])
        cursor.finish_branch(given["properties"])
    assert answers == ["scheduled", "completed"]


def test_z59_modified_before_scheduled_before_completed_and_outputs_in_call_order() -> None:
    agency = begun(PAIR)
    agency.receive(m.Succeeded(2, "0/0.1", "second"), m.Succeeded(3, "0/0.0", "first"))
    cursor = agency.cursor()
    for _ in range(3):
        cursor.next_branch()
        cursor.finish_branch({})
    cursor.next_branch()
    assert cursor.execute(PAIR)["outputs"] == ["first", "second"]
    new = {"name": "ship", "position": "1.0"}
    assert cursor.execute([*PAIR, new]) == {"status": "scheduled"}
    wrong = {**TASK, "name": "refund"}
    assert cursor.execute([wrong, PAIR[1], {**new, "position": "2.0"}]) == {"status": "modified"}


def test_r16_a_failure_is_told_to_code_that_wants_to_know() -> None:
    works = [{**TASK, "raises": True}]
    agency = begun(works, total=1)
    error = {"name": "IOError", "message": "no"}
    agency.receive(m.StepHasFailed(2, "0/0.0", error))
    cursor = agency.cursor()
    assert cursor.next_branch()["branch"]["type"] == "onFailure"
    cursor.finish_branch({"total": 2})
    cursor.next_branch()
    assert cursor.execute(works) == {
        "status": "failed",
        "error": error,
        "properties": {"total": 2},
    }


def test_r16_an_interrupted_work_is_told_to_the_code() -> None:
    agency = begun([TASK])
    agency.receive(m.EventSent(2, "stop", interrupts=True))
    cursor = agency.cursor()
    answers = []
    while given := cursor.next_branch():
        if given["branch"]["type"] == "handle":
            answers.append(cursor.execute([TASK]))
        cursor.finish_branch({})
    assert [(each["status"], each["error"]["name"]) for each in answers] == [
        ("failed", "Interrupted")
    ]


def test_r12_the_whole_array_is_checked_before_anything_is_scheduled() -> None:
    agency = begun([TASK])
    agency.succeed("0/0.0")
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({})
    cursor.next_branch()
    new = {"name": "ship", "position": "0.1"}
    assert cursor.execute([new, {**TASK, "name": "refund"}]) == {"status": "modified"}
    assert cursor.completed() == {"completed": []}


def test_r13_a_modified_decision_is_discarded_whole() -> None:
    agency = begun([TASK], total=1)
    agency.succeed("0/0.0")
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({"total": 2})
    cursor.next_branch()
    cursor.execute([{**TASK, "name": "refund"}])
    for ask in (
        cursor.next_branch,
        lambda: cursor.execute([TASK]),
        lambda: cursor.finish_branch({}),
    ):
        with pytest.raises(OutOfTurn, match="POST error"):
            ask()
    answer = cursor.broken({"kind": "modified"})
    agency.receive(read_answer(answer, cursor.uuid, 9))
    assert agency.state.decision_mode == "modified"
    assert "recorded execute of the task charge" in agency.state.error["message"]
    assert agency.state.error["branch_key"] == 0
    assert agency.state.properties[-1].values == {"total": 1}
    (job,) = agency.receive(m.Resume(10))
    assert isinstance(job, m.DecisionJob)
    assert job.ongoing_executions == [1, 0]


def test_r13_an_error_is_kept_as_the_script_tells_it() -> None:
    agency = Agency()
    cursor = agency.cursor()
    cursor.next_branch()
    error = {"kind": "failed", "name": "TypeError", "message": "no", "stacktrace": "a.js:7"}
    agency.receive(read_answer(cursor.broken(error), cursor.uuid, 9))
    assert agency.state.decision_mode == "failed"
    assert agency.state.error == {**error, "branch_key": 0}


def test_z54_requests_out_of_turn_are_refused_and_change_nothing() -> None:
    cursor = Agency().cursor()
    with pytest.raises(OutOfTurn, match="GET branch first"):
        cursor.finish_branch({"total": 9})
    with pytest.raises(OutOfTurn, match="GET branch first"):
        cursor.execute([TASK])
    cursor.next_branch()
    cursor.finish_branch({})
    with pytest.raises(OutOfTurn):
        cursor.finish_branch({"total": 9})
    assert cursor.next_branch() == {}
    assert cursor.completed() == {"completed": []}


def test_r14_an_answer_to_a_decision_of_before_is_dropped() -> None:
    agency = Agency()
    cursor = agency.cursor()
    cursor.next_branch()
    cursor.finish_branch({}, "done")
    agency.receive(m.Restore(1))
    agency.receive(read_answer(cursor.completed(), cursor.uuid, 2))
    assert agency.state.decision_ongoing
    assert agency.state.dropped == 1


json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    name=st.text(min_size=1, max_size=5).filter(str.isprintable),
    value=json_data,
    key=st.integers(0, 99),
    sync=st.booleans(),
)
def test_z61_the_hash_of_a_task_job_is_that_of_its_status(
    name: str, value: Any, key: int, *, sync: bool
) -> None:
    agency = begun([{"name": name, "input": value, "position": f"{key}.1", "sync": sync}])
    (status,) = agency.state.statuses
    assert task_hash(name, status.step, value, sync=sync) == status.hash
