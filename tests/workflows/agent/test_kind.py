"""Workflows whose decisions are taken elsewhere, as a kind of execution."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import actorflow as af
from actorflow.engine.kind import Context, Message, NewTask, Status, TaskEnded
from actorflow.testing.kinds import check_kind
from actorflow.workflows.agent.wire import write_broken, write_completed
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.service.received_messages import control_body, event_body, start_body
from actorflow.workflows.service.remote.kind import remote_kind


class Order(af.RemoteWorkflow[int], lang="php", env="dev"): ...


def schedule(position: str, type_: StepType = StepType.TASK, **more: Any) -> m.ScheduleStep:
    given: dict[str, Any] = {"name": "charge", "input": 7, "sync": True, "index": 0, "reached": 0}
    return m.ScheduleStep(0, position, f"hash {position}", type_, **{**given, **more})


ANSWERS = st.sampled_from(
    [
        write_completed([]),
        write_completed([schedule("0.0"), schedule("0.1", sync=False)]),
        write_completed([schedule("1.0", StepType.FLOW, name="Order", input={})]),
        write_completed([schedule("2.0", StepType.WAIT, event="go", duration=5.0)]),
        write_completed([m.UpdateProperties(1, {"total": 2}), m.SetOutput(0, 5)]),
        write_broken({"name": "E", "message": "", "stacktrace": ""}, modified=False),
    ]
)
START = st.just(start_body({"total": 1}))
EVENTS = st.sampled_from(["go", "other"]).map(lambda name: event_body(name, {}))
CONTROLS = st.sampled_from([control_body("pause"), control_body("resume"), control_body("kill")])


def test_the_engine_can_rely_on_it() -> None:
    check_kind(
        lambda: remote_kind(Order),
        messages=START | EVENTS | EVENTS | CONTROLS,
        results=ANSWERS,
        refuses=(MessageRefused,),
        max_examples=100,
    )


def test_z46_a_decision_is_a_task_that_is_stored_with_the_state_that_waits_for_it() -> None:
    kind = remote_kind(Order)
    first = kind.run(
        Context("o-1", 1.0), kind.decode(None), [Message(1, 1.0, start_body({"total": 1}))]
    )
    assert first.tasks == [NewTask("o-1/decision/1", "decision:Order", {"decision": "o-1/1"})]
    assert first.messages == []
    event = Message(2, 2.0, event_body("go", {}))
    second = kind.run(Context("o-1", 2.0), first.state, [event])
    assert second.tasks == [], "one decision at a time"
    answer = write_completed([schedule("0.0")])
    third = kind.run(
        Context("o-1", 3.0), second.state, [TaskEnded(3, 3.0, "o-1/decision/1", "ok", answer)]
    )
    assert {each.id: each.tell_start for each in third.tasks} == {
        "o-1/0/0.0": True,
        "o-1/decision/2": False,
    }
    again = kind.run(
        Context("o-1", 4.0), third.state, [TaskEnded(4, 4.0, "o-1/decision/1", "ok", answer)]
    )
    assert (again.tasks, again.status) == ([], Status.ACTIVE)


def test_r13_a_decision_that_can_never_be_taken_fails_the_instance() -> None:
    kind = remote_kind(Order)
    first = kind.run(
        Context("o-1", 1.0), kind.decode(None), [Message(1, 1.0, start_body({"total": 1}))]
    )
    ended = TaskEnded(2, 2.0, "o-1/decision/1", "crashed")
    failed = kind.run(Context("o-1", 2.0), first.state, [ended])
    assert failed.status is Status.STUCK
    resumed = kind.run(Context("o-1", 3.0), failed.state, [Message(3, 3.0, control_body("resume"))])
    assert [each.id for each in resumed.tasks] == ["o-1/decision/2"]
