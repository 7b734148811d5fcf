"""The rules of instances (spec Z1-Z66, R1-R25) that need no code of a workflow."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from actorflow.workflows.errors import WorkflowModified
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.canonical import same
from actorflow.workflows.instance.decision import (
    AnswerStatus,
    BranchCursor,
    DecisionSession,
    StepCall,
    Until,
)
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import StepType


def begin(properties: dict[str, Any] | None = None, at: float = 0) -> Instance:
    instance, sent = Instance.start("i-1", "Order", properties or {}, at=at)
    assert [type(each) for each in sent] == [m.DecisionJob]
    return instance


def task(position: str, name: str = "A", **options: Any) -> StepCall:
    return StepCall(position=position, type=StepType.TASK, name=name, **options)


def wait(position: str, event: str | None = None, **options: Any) -> StepCall:
    return StepCall(position=position, type=StepType.WAIT, name="Wait", event=event, **options)


def decide(
    instance: Instance,
    *calls: StepCall,
    at: float = 0,
    key: int = 0,
    until: Until = Until.ALL,
    properties: dict[str, Any] | None = None,
) -> list[m.Outgoing]:
    """Take the ongoing decision: the branch `key` asks for steps, the others do nothing."""
    session = DecisionSession(instance)
    while (branch := session.next_branch()) is not None:
        values = session.first_properties(branch)
        if branch == key and calls:
            cursor = BranchCursor(branch, session.branch(branch))
            answer = session.execute(cursor, calls, until)
            if answer.properties is not None:
                values = answer.properties
            session.finish(properties or values)
        else:
            session.finish(values)
    return instance.receive([m.Completed(at, session.uuid, session.decisions)], now=at)


def answer(instance: Instance, *calls: StepCall, index: int | None = None) -> Any:
    """Return what the first execution of `handle` in the ongoing decision would be answered."""
    session = DecisionSession(instance)
    while session.next_branch() != 0:
        pass
    return session.execute(BranchCursor(0, session.branch(0)), calls)


def kinds(instance: Instance) -> list[str]:
    return [str(branch.type) for branch in instance.state.branches]


def test_z31_a_start_is_a_buffered_handle_that_is_decided_at_once() -> None:
    instance = begin({"n": 1})
    state = instance.state
    assert (state.executions, state.ongoing_index, state.buffer) == ([0], 0, [])
    assert [(entry.key, entry.values) for entry in state.properties] == [(0, {"n": 1})]
    assert state.decision_ongoing


def test_z40_a_batch_is_one_reception_with_one_try() -> None:
    instance = begin()
    decide(instance, task("0.0"), task("0.1"))
    sent = instance.receive(
        [m.Succeeded(1, "0/0.0", 1), m.EventSent(2, "E"), m.Succeeded(3, "0/0.1", 2)], now=4
    )
    assert [type(each) for each in sent] == [m.DecisionJob]
    assert instance.state.executions == [0, 1, 0, 2, 3, 0]


def test_z42_nothing_is_triggered_while_a_decision_is_ongoing() -> None:
    instance = begin()
    assert instance.receive([m.EventSent(1, "E")], now=1) == []
    assert [action.type for action in instance.state.buffer] == ["onEvent"]


def test_z43_actions_are_planned_by_time_then_by_order_of_reception() -> None:
    instance = begin()
    instance.receive([m.EventSent(5, "late"), m.EventSent(2, "b"), m.EventSent(2, "c")], now=6)
    decide(instance, task("0.0"))
    assert [branch.event_name for branch in instance.state.branches[1:]] == ["b", "c", "late"]


def test_z41_r11_an_event_ends_every_wait_for_it_after_its_own_branch() -> None:
    instance = begin()
    decide(instance, wait("0.0", "E"), wait("0.1", "E"), wait("0.2", "F"))
    decide(instance)
    instance.receive([m.EventSent(5, "E", 7)], now=5)
    assert kinds(instance)[4:] == ["onEvent", "onSuccess", "onSuccess"]
    assert [status.output for status in instance.state.statuses[:2]] == [
        {"event_name": "E", "event_input": 7}
    ] * 2
    assert [each.step for each in instance.state.waits] == ["0/0.2"]


def test_z34_z35_r7_a_wait_counts_from_the_trigger_and_the_first_of_both_wins() -> None:
    instance = begin(at=10)
    instance.receive([m.EventSent(14, "E")], now=14)
    decide(instance, wait("0.0", "E", duration=3), at=20)
    assert instance.state.statuses[0].output is None, "13 comes before 14"

    instance = begin(at=10)
    instance.receive([m.EventSent(13, "E")], now=13)
    decide(instance, wait("0.0", "E", duration=3), at=20)
    assert instance.state.statuses[0].output is not None, "an event wins a tie"


def test_r7_a_running_wait_loses_a_tie_with_its_event() -> None:
    instance = begin()
    decide(instance, wait("0.0", "E", duration=4))
    decide(instance)
    instance.receive([m.EventSent(4, "E", "x")], now=4)
    assert instance.state.statuses[0].output == {"event_name": "E", "event_input": "x"}


def test_r8_a_wait_ends_at_its_deadline_before_a_later_message() -> None:
    instance = begin()
    decide(instance, wait("0.0", "E", duration=4))
    decide(instance)
    instance.receive([m.EventSent(6, "E")], now=6)
    assert instance.state.executions == [0, 1, 2, 0, 3]
    assert kinds(instance)[2:] == ["onSuccess", "onEvent"]
    assert instance.state.statuses[0].output is None
    assert instance.state.branches[2].at == 4


def test_r8_several_due_waits_end_in_the_order_of_their_deadlines() -> None:
    instance = begin()
    decide(instance, wait("0.0", duration=9), wait("0.1", duration=5), wait("0.2", duration=99))
    decide(instance)
    instance.receive([m.Tick(10)], now=10)
    ended = [branch.step for branch in instance.state.branches if branch.type == "onSuccess"]
    assert ended == ["0/0.1", "0/0.0"]


def test_r10_an_event_behind_the_branch_in_the_same_decision_ends_the_wait() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive(
        [m.Succeeded(1, "0/0.0"), m.EventSent(2, "Go", 1), m.EventSent(3, "Stop", 2)], now=3
    )
    assert instance.state.executions == [0, 1, 0, 2, 3]
    reached = decide_two(instance, task("0.0"), wait("1.0", "Go"), at=4)
    assert reached == 2
    go = instance.state.statuses[1]
    assert (go.released_index, go.output) == (3, {"event_name": "Go", "event_input": 1})
    # The next wait looks from that event on, although the code comes to it two indices later.
    assert decide_two(instance, wait("1.0", "Go"), wait("2.0", "Stop"), at=5) == 3
    stop = instance.state.statuses[2]
    assert (stop.released_index, stop.output) == (4, {"event_name": "Stop", "event_input": 2})


def test_r10_events_from_before_the_wait_are_not_remembered() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive([m.EventSent(1, "Go"), m.Succeeded(2, "0/0.0")], now=2)
    decide_two(instance, task("0.0"), wait("1.0", "Go"), at=3)
    assert [each.event for each in instance.state.waits] == ["Go"]


def decide_two(instance: Instance, one: StepCall, two: StepCall, *, at: float) -> int:
    """Take a decision in which `handle` passes one call and asks for another."""
    session = DecisionSession(instance)
    reached = -1
    while (key := session.next_branch()) is not None:
        if key == 0:
            cursor = BranchCursor(0, session.branch(0))
            assert session.execute(cursor, [one]).status is AnswerStatus.COMPLETED
            session.execute(cursor, [two])
            reached = cursor.reached
        session.finish(session.first_properties(key))
    instance.receive([m.Completed(at, session.uuid, session.decisions)], now=at)
    return reached


def test_r14_a_second_end_of_a_step_is_dropped_whether_stored_or_buffered() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive(
        [m.Succeeded(1, "0/0.0", 1), m.StepHasFailed(1, "0/0.0", {"name": "E"})], now=1
    )
    instance.receive([m.Succeeded(2, "0/0.0", 2)], now=2)
    assert instance.state.statuses[0].output == 1
    assert instance.state.dropped == 2


def test_r14_an_answer_to_an_older_decision_is_dropped() -> None:
    instance = begin()
    old = DecisionSession(instance).uuid
    instance.receive([m.Restore(1)], now=1)
    assert instance.receive([m.Completed(2, old, [])], now=2) == []
    assert instance.state.decision_ongoing
    assert DecisionSession(instance).uuid != old


def test_r14_a_start_counts_once_per_attempt() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive([m.Started(1, "0/0.0"), m.Started(2, "0/0.0")], now=2)
    assert kinds(instance) == ["handle", "onStart"]
    decide(instance)
    instance.receive([m.StepHasFailed(3, "0/0.0", {"name": "E"})], now=3)
    decide(instance)
    instance.receive([m.RetryStep(4, "0/0.0"), m.Started(5, "0/0.0")], now=5)
    assert kinds(instance) == ["handle", "onStart", "onFailure", "onStart"]


def test_r15_messages_for_an_instance_that_has_ended_are_dropped_and_counted() -> None:
    instance = begin()
    sent = decide(instance)
    assert [type(each) for each in sent] == [m.Ended]
    before = stored.encode(instance.state)
    assert instance.receive([m.EventSent(1, "E"), m.Succeeded(1, "0/0.0")], now=1) == []
    assert instance.state.dropped == 2
    instance.state.dropped = 0
    assert stored.encode(instance.state) == before


def test_r16_a_failure_does_not_go_back_to_its_branch_and_can_be_retried() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive([m.StepHasFailed(1, "0/0.0", {"name": "E", "message": "no"})], now=1)
    assert instance.state.executions == [0, 1]
    decide(instance)
    assert instance.state.decision_mode == "run", "it is not over: handle waits"
    (again,) = instance.receive([m.RetryStep(2, "0/0.0")], now=2)
    assert isinstance(again, m.StepJob)
    assert again.attempt == 2
    assert instance.receive([m.RetryStep(3, "0/0.0")], now=3) == []


def test_r16_a_failure_goes_back_to_a_branch_that_asked_for_it() -> None:
    instance = begin()
    decide(instance, task("0.0", raises=True))
    instance.receive([m.StepHasFailed(1, "0/0.0", {"name": "E"})], now=1)
    assert instance.state.executions == [0, 1, 0]
    found = answer(instance, task("0.0", raises=True))
    assert (found.status, found.completion_index) == (AnswerStatus.FAILED, 1)
    decide(instance, task("0.0", raises=True))
    assert instance.state.decision_mode == "terminated"


def test_r17_the_timeout_counts_from_the_start_and_comes_once() -> None:
    instance = begin()
    decide(instance, task("0.0", timeout=30))
    instance.receive([m.TimedOut(1, "0/0.0")], now=1)
    assert kinds(instance) == ["handle"], "it has not started"
    sent = instance.receive([m.Started(2, "0/0.0")], now=2)
    assert m.SetStepTimer("0/0.0", 32, timeout=True) in sent
    decide(instance)
    instance.receive([m.TimedOut(32, "0/0.0"), m.TimedOut(33, "0/0.0")], now=33)
    assert kinds(instance) == ["handle", "onStart", "onTimeout"]
    decide(instance)
    instance.receive([m.Succeeded(50, "0/0.0", "ok")], now=50)
    assert instance.state.statuses[0].status == "successful"


def test_r17_there_is_no_timeout_after_the_end() -> None:
    instance = begin()
    decide(instance, task("0.0", timeout=30))
    instance.receive([m.Started(2, "0/0.0")], now=2)
    sent = instance.receive([m.Succeeded(3, "0/0.0")], now=3)
    assert m.ClearTimer("0/0.0", timeout=True) in sent
    assert instance.state.timeouts == []
    instance.receive([m.TimedOut(32, "0/0.0")], now=32)
    assert "onTimeout" not in [str(action.type) for action in instance.state.buffer]


def test_z49_r18_a_restore_sends_again_what_is_open_and_arms_the_timers() -> None:
    instance = begin()
    decide(
        instance,
        task("0.0", timeout=9),
        wait("0.1", duration=100),
        wait("0.2", "E"),
        StepCall(position="0.3", type=StepType.FLOW, name="Child"),
    )
    decide(instance)
    instance.receive([m.Started(2, "0/0.0")], now=2)
    restored = Instance(stored.decode(stored.encode(instance.state)))
    sent = restored.receive([m.Restore(50)], now=50)
    jobs = [(each.step, each.redelivery) for each in sent if isinstance(each, m.StepJob)]
    assert jobs == [("0/0.0", True), ("0/0.3", True)]
    assert [each for each in sent if isinstance(each, m.SetStepTimer)] == [
        m.SetStepTimer("0/0.1", 100),
        m.SetStepTimer("0/0.0", 11, timeout=True),
    ]
    assert isinstance(sent[0], m.DecisionJob)


def test_r19_a_pause_stops_new_decisions_only() -> None:
    instance = begin()
    instance.receive([m.Pause(1)], now=1)
    decide(instance, task("0.0"), at=2)
    instance.receive([m.Succeeded(3, "0/0.0")], now=3)
    assert not instance.state.decision_ongoing
    instance.receive([m.Resume(4)], now=4)
    assert instance.state.decision_ongoing


def test_r13_a_broken_decision_is_discarded_and_the_same_executions_come_again() -> None:
    instance = begin(at=5)
    uuid = DecisionSession(instance).uuid
    instance.receive([m.DecisionBroken(6, uuid, modified=False, error={"name": "E"})], now=6)
    assert (instance.state.decision_mode, instance.state.error) == ("failed", {"name": "E"})
    instance.receive([m.EventSent(7, "E")], now=7)
    (job,) = instance.receive([m.Resume(8)], now=8)
    assert isinstance(job, m.DecisionJob)
    assert (job.ongoing_executions, DecisionSession(instance).now) == ([0], 5)
    assert job.uuid != uuid


def test_r19_a_killed_instance_takes_nothing() -> None:
    instance = begin()
    uuid = DecisionSession(instance).uuid
    (end,) = instance.receive([m.Kill(1)], now=1)
    assert isinstance(end, m.Ended)
    assert end.killed
    assert instance.receive([m.Completed(2, uuid, []), m.Resume(3)], now=3) == []
    assert instance.state.decision_mode == "killed"


def test_z20_z57_r12_a_modified_step_is_refused_before_any_is_scheduled() -> None:
    instance = begin()
    decide(instance, task("0.0", "A"))
    instance.receive([m.Succeeded(1, "0/0.0")], now=1)
    session = DecisionSession(instance)
    assert session.next_branch() == 1
    assert session.next_branch() == 0
    with pytest.raises(WorkflowModified) as caught:
        session.execute(BranchCursor(0, session.branch(0)), [task("0.1", "B"), task("0.0", "Z")])
    text = str(caught.value)
    for words in ("Order", "branch 0 (handle)", "position 0.0", "task A(None)", "task Z(None)"):
        assert words in text
    assert session.decisions == []


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "B"},
        {"input": {"x": 2}},
        {"sync": False},
        {"position": "0.1"},
        {"type": StepType.FLOW},
    ],
)
def test_z20_the_hash_tells_steps_apart(changed: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "position": "0.0",
        "type": StepType.TASK,
        "name": "A",
        "input": {"x": 1},
        "sync": True,
    }
    one, other = StepCall(**fields), StepCall(**{**fields, **changed})
    assert one.hash_in(0) != other.hash_in(0)
    assert one.hash_in(0) != one.hash_in(1)
    assert one.hash_in(0) == StepCall(**{**fields, "timeout": 5}).hash_in(0), "R22"


def test_r22_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    one = task("0.0", input={"a": 1, "b": 2})
    assert one.hash_in(0) == task("0.0", input={"b": 2, "a": 1}).hash_in(0)


def test_z58_a_step_counts_only_from_its_completion_index_on() -> None:
    instance = begin()
    decide(instance, task("0.0"), task("0.1"))
    instance.receive([m.Succeeded(1, "0/0.0", "a"), m.Succeeded(2, "0/0.1", "b")], now=2)
    session = DecisionSession(instance)
    found = []
    while (key := session.next_branch()) is not None:
        if key == 0:
            cursor = BranchCursor(0, session.branch(0))
            found.append(session.execute(cursor, [task("0.0"), task("0.1")]))
    assert [each.status for each in found] == [AnswerStatus.SCHEDULED, AnswerStatus.COMPLETED]
    assert found[1].outputs == ["a", "b"]


def test_z22_z23_properties_are_sparse() -> None:
    instance = begin({"n": 0})
    decide(instance, task("0.0"), properties={"n": 1})
    instance.receive([m.EventSent(1, "E")], now=1)
    decide(instance)
    entries = [(entry.key, entry.values) for entry in instance.state.properties]
    assert entries == [(0, {"n": 0}), (1, {"n": 1})]
    assert [instance.properties_at(n)["n"] for n in range(4)] == [0, 1, 1, 1]


def test_z38_r20_a_child_is_a_step() -> None:
    instance = begin()
    child = StepCall(position="0.0", type=StepType.FLOW, name="Child", input={"k": 1})
    (job,) = decide(instance, child)
    assert isinstance(job, m.StepJob)
    assert (job.type, job.name, job.input) == ("flow", "Child", {"k": 1})
    instance.receive([m.Succeeded(1, "0/0.0", "done")], now=1)
    assert answer(instance, child).outputs == ["done"]


def test_a_step_that_is_left_neither_blocks_nor_wakes_its_branch() -> None:
    instance = begin()
    session = DecisionSession(instance)
    session.next_branch()
    cursor = BranchCursor(0, session.branch(0))
    session.execute(cursor, [task("0.0"), task("0.1")], Until.FIRST)
    session.leave("0/0.1", cancel=True)
    sent = instance.receive([m.Completed(1, session.uuid, session.decisions)], now=1)
    assert m.CancelStep("0/0.1", StepType.TASK) in sent
    instance.receive([m.Succeeded(2, "0/0.1")], now=2)
    assert not instance.state.decision_ongoing
    instance.receive([m.Succeeded(3, "0/0.0")], now=3)
    assert instance.state.executions == [0, 1, 0]
    decide(instance, task("0.0"), task("0.1"), until=Until.FIRST)
    assert instance.state.decision_mode == "terminated"


def test_the_state_is_plain_data_and_comes_back_the_same() -> None:
    instance = begin({"n": [1, {"x": None}]})
    decide(instance, task("0.0", input={"a": b"x"}), wait("0.1", "E", duration=2.5))
    instance.receive([m.EventSent(1, "F", [1]), m.StepHasFailed(2, "0/0.0", {"name": "E"})], now=2)
    assert stored.decode(stored.encode(instance.state)) == instance.state


def test_z46_z47_a_decider_elsewhere_gets_the_ongoing_part_only() -> None:
    instance = begin({"n": 1})
    decide(instance, task("0.0"), task("0.1"))
    instance.receive([m.EventSent(1, "E", 5)], now=1)
    data = instance.decision_data()
    assert (data["executions"], data["ongoing_index"]) == ([0, 1], 1)
    assert [each["key"] for each in data["ongoing_branches"]] == [1]
    assert data["ongoing_branches"][0]["branch"]["event_input"] == 5
    assert data["ongoing_statuses"] == []
    assert data["properties"] == [{"key": 0, "values": {"n": 1}}]
    decide(instance)
    instance.receive([m.Succeeded(2, "0/0.1", 7)], now=2)
    data = instance.decision_data()
    assert [each["key"] for each in data["ongoing_branches"]] == [0, 2]
    assert [each["position"] for each in data["ongoing_statuses"]] == ["0.0", "0.1"]
    assert data["uuid"] == DecisionSession(instance).uuid


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({1: 2, "a": 3}, {"a": 3, 1: 2}, True),
        ({1: 2}, {"1": 2}, False),
        ({1: 2}, {True: 2}, False),
        ({"x": {1: 2, None: 3}}, {"x": {None: 3, 1: 2}}, True),
        ([[1, 2]], [{1: 2}], False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        (1, True, False),
        (1, 1.0, False),
    ],
)
def test_r22_values_are_the_same_up_to_the_order_of_keys(
    one: Any,
    other: Any,
    equal: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert same(one, other) == equal
    hashes = [task("0.0", input=value).hash_in(0) for value in (one, other)]
    assert (hashes[0] == hashes[1]) == equal


def test_an_instance_goes_without_the_garbage_collector() -> None:
    instance = begin()
    decide(instance, task("0.0"))
    instance.receive([m.Succeeded(1, "0/0.0", "done")], now=1)
    decide(instance)
    gone = weakref.ref(instance)
    gc.disable()
    try:
        del instance
        assert gone() is None
    finally:
        gc.enable()
