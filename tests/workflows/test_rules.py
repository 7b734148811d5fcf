"""Rules of the specification (Z1-Z66, R1-R25) that have no other test, and a list of them all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.kind import Context, Message
from actorflow.workflows.decider import Decider
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, BranchType, PropertiesAt, StepType
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.received_messages import event_body, start_body
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import StepError, StepInfo, Workflow
from tests.workflows.driving import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
RULES = [*(f"z{number}" for number in range(1, 67)), *(f"r{number}" for number in range(1, 26))]


def test_each_rule_has_a_test_that_is_named_after_it() -> None:
    folders = (ROOT / "tests" / "workflows", ROOT / "tests" / "conformance")
    texts = [path.read_text(encoding="utf-8") for each in folders for path in each.rglob("*.py")]
    named = {rule for text in texts for rule in re.findall(r"\btest_([zr]\d+)_", text)}
    assert [rule for rule in RULES if rule not in named] == []


@pytest.fixture
def decider() -> Iterator[Decider]:
    made = Decider()
    yield made
    made.close()


@task(timeout=10)
def step(name: str) -> str:
    raise NotImplementedError


@task
def aside(name: str) -> str:
    raise NotImplementedError


class Watcher(Workflow[str]):
    """Does two steps at once, then one; notes all events."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def handle(self) -> str:
        a, b = self.execute(step("a"), step("b"))
        self.told = [*self.told, f"both {a} {b}"]
        return self.execute(step("c"))

    def on_event(self, event: Event) -> str:
        self.told = [*self.told, f"event {event.name}"]
        return f"heard {event.name}"

    def on_start(self, step: StepInfo) -> None:
        self.told = [*self.told, f"start {step.input['name']}"]

    def on_success(self, step: StepInfo, output: Any) -> None:
        self.told = [*self.told, f"success {output}"]

    def on_failure(self, step: StepInfo, error: StepError) -> None:
        self.told = [*self.told, f"failure {error.name}"]

    def on_timeout(self, step: StepInfo) -> None:
        self.told = [*self.told, f"timeout {step.input['name']}"]


class Waiter(Workflow[Any]):
    """Waits for an event for a minute, then does a step."""

    def handle(self) -> Any:
        found = self.wait("go", seconds=60)
        return self.execute(aside("late" if found is None else str(found.data)))


def watcher(decider: Decider) -> Driver:
    return Driver(Watcher(), decider).settle()


def branches(driver: Driver) -> list[str]:
    return [str(branch.type) for branch in driver.state.branches]


# The words and the methods.


def test_z1_the_vocabulary_of_the_seed_is_kept() -> None:
    pages = [*(ROOT / "docs" / "workflows").glob("*.md"), *(ROOT / "actorflow").rglob("*.py")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for word in ("Engine", "Worker", "Agent", "Task", "Workflow", "Instance", "Decision"):
        assert re.search(rf"\b{word}\b", text), word
    for role in ("decider", "tasker"):  # the executers of decisions and of tasks
        assert role in text


def test_z4_on_start_is_called_for_each_start(decider: Decider) -> None:
    driver = watcher(decider).start("0/0.1").start("0/0.0")
    assert driver.properties["told"] == ["start b", "start a"]
    driver = Driver(Waiter(), decider, id="i-2").settle()
    assert branches(driver) == ["handle", "onStart"], "a wait starts as well"


def test_z5_on_success_is_called_for_each_completion(decider: Decider) -> None:
    driver = watcher(decider).succeed("0/0.1", "B").succeed("0/0.0", "A")
    assert driver.properties["told"] == ["success B", "success A", "both A B"]


def test_z6_on_failure_is_called_for_each_failure(decider: Decider) -> None:
    driver = watcher(decider).fail("0/0.0", "IOError")
    assert driver.properties["told"] == ["failure IOError"]


def test_z7_a_task_that_takes_too_long_is_told_and_has_failed(decider: Decider) -> None:
    driver = watcher(decider).start("0/0.0")
    driver.receive(m.TimedOut(driver.tick(10), "0/0.0"))
    driver.settle().succeed("0/0.0", "A")
    assert driver.properties["told"] == ["start a", "timeout a", "failure TaskTimeout"]


def test_z8_one_branch_for_the_start_and_for_each_thing_that_happens(decider: Decider) -> None:
    driver = watcher(decider).start("0/0.0").event("E").succeed("0/0.0", "A").fail("0/0.1")
    expected = ["handle", "onStart", "onEvent", "onSuccess", "onFailure"]
    assert branches(driver) == expected
    driver.event("E")
    assert branches(driver) == [*expected, "onEvent"]


def test_z9_branches_run_one_at_a_time_in_one_decision(decider: Decider) -> None:
    inside: list[str] = []

    class Alone(Workflow[None]):
        def handle(self) -> None:
            self.wait("end")

        def on_event(self, event: Event) -> None:
            inside.append(f"in {event.data}")
            inside.append(f"out {event.data}")

    driver = Driver(Alone(), decider).settle()
    driver.receive(m.EventSent(1, "E", 1), m.EventSent(2, "E", 2))
    number = driver.state.decision_number
    driver.settle()
    assert inside == ["in 1", "out 1", "in 2", "out 2"]
    assert driver.state.decision_number == number


def test_z10_a_branch_stops_where_it_waits_or_ends(decider: Decider) -> None:
    driver = watcher(decider)
    assert [status.step for status in driver.state.statuses] == ["0/0.0", "0/0.1"]
    assert driver.state.branches[0].output is UNSET
    driver.event("E")
    assert driver.state.branches[1].output == "heard E"


def test_z11_the_index_grows_with_each_execution_of_a_branch(decider: Decider) -> None:
    driver = watcher(decider)
    assert len(driver.state.executions) == 1
    driver.event("E")
    assert len(driver.state.executions) == 2
    driver.succeed("0/0.0", "A")
    assert driver.state.executions == [0, 1, 2, 0], "its own branch, then the one that waits"


def test_z12_branches_are_numbered_by_creation_and_know_their_first_position(
    decider: Decider,
) -> None:
    driver = watcher(decider).event("E").succeed("0/0.0", "A").event("F")
    state = driver.state
    assert state.executions == [0, 1, 2, 0, 3]
    firsts = [state.executions.index(key) for key in range(len(state.branches))]
    assert [branch.start_index for branch in state.branches] == firsts == [0, 1, 2, 4]


def test_z14_r3_an_instance_ends_when_all_branches_have(decider: Decider) -> None:
    class Both(Workflow[str]):
        def handle(self) -> str:
            self.dispatch(aside("not waited for"))
            return "handled"

        def on_event(self, event: Event) -> None:
            self.execute(step("event"))

    driver = Driver(Both(), decider)
    driver.receive(m.EventSent(driver.tick(), "E"))
    driver.settle()
    assert driver.mode == "run", "handle has ended, and the branch of the event has not"
    assert driver.succeed("1/0.0", "x").mode == "terminated"
    assert driver.output == "handled"


def test_r3_an_end_needs_no_output(decider: Decider) -> None:
    class Silent(Workflow[None]):
        def handle(self) -> None: ...

    driver = Driver(Silent(), decider).settle()
    assert (driver.mode, driver.output) == ("terminated", None)
    assert driver.state.branches[0].output is None, "handle always has one"


# Recorded entries.


def test_z16_an_instance_has_an_id_a_name_and_a_language(decider: Decider) -> None:
    state = watcher(decider).state
    assert (state.id, state.workflow_name, state.programming_language) == (
        "i-1",
        "Watcher",
        "python",
    )
    made, _ = Instance.start("i", "W", {}, at=0, language="php", custom_id="mine")
    assert (made.state.programming_language, made.state.custom_id) == ("php", "mine")


def test_z17_a_branch_holds_what_it_was_created_by(decider: Decider) -> None:
    driver = watcher(decider).event("E", 5).start("0/0.0").succeed("0/0.0", "A").fail("0/0.1")
    handle, event, start, success, failure = driver.state.branches
    assert handle.type is BranchType.HANDLE
    assert (event.event_name, event.event_input, event.output) == ("E", 5, "heard E")
    assert (start.task_name, start.task_input) == ("step", {"name": "a"})
    assert (success.task_name, success.task_output) == ("step", "A")
    assert (failure.error_name, failure.error_input) == ("IOError", {"message": "boom"})


def test_z18_executions_are_the_keys_of_branches_in_order(decider: Decider) -> None:
    driver = watcher(decider)
    driver.receive(m.Succeeded(1, "0/0.0", "A"), m.Succeeded(2, "0/0.1", "B"))
    assert driver.state.executions == [0, 1, 0, 2, 0], "including the planned ones"
    assert driver.state.ongoing_index == 1


def test_z19_r2_the_status_of_a_step(decider: Decider) -> None:
    driver = watcher(decider)
    status = driver.instance.status("0/0.0")
    assert status is not None
    assert (status.branch_key, status.position, status.status) == (0, "0.0", "scheduled")
    assert (status.sync, status.type, status.name) == (True, "task", "step")
    assert status.input == {"name": "a"}
    driver.succeed("0/0.0", "A")
    assert (status.status, status.completion_index, status.output) == ("successful", 1, "A")


def test_r2_what_prepare_needs_is_stored_with_the_status(decider: Decider) -> None:
    driver = watcher(decider).restart()
    driver.succeed("0/0.0", "A").succeed("0/0.1", "B")
    assert [each.name for each in driver.state.statuses] == ["step", "step", "step"]


def test_z21_a_running_wait_has_its_deadline_and_its_event(decider: Decider) -> None:
    driver = Driver(Waiter(), decider, at=100).settle()
    assert driver.state.waits == [stored.RunningWait("0/0.0", 160.0, "go")]

    class Patient(Workflow[None]):
        def handle(self) -> None:
            self.wait("go")

    driver = Driver(Patient(), decider, id="i-2").settle()
    assert driver.state.waits == [stored.RunningWait("0/0.0", None, "go")]


def test_z23_properties_at_an_index_are_those_at_the_end_of_the_one_before(
    decider: Decider,
) -> None:
    driver = watcher(decider).event("E").event("F")
    assert driver.instance.properties_at(0) == {"told": []}
    assert driver.instance.properties_at(1) == {"told": []}
    assert driver.instance.properties_at(2) == {"told": ["event E"]}
    assert driver.instance.properties_at(3) == {"told": ["event E", "event F"]}


def test_z24_a_branch_is_replayed_from_the_properties_it_started_with(decider: Decider) -> None:
    seen: list[list[str]] = []

    class Replayed(Watcher):
        def handle(self) -> str:
            seen.append(list(self.told))
            return super().handle()

    driver = Driver(Replayed(), decider, forget=True).settle().event("E")
    driver.succeed("0/0.0", "A")
    assert seen == [[], []], "also when it is replayed after the event"


def test_z25_after_execute_the_properties_are_those_of_the_last_completion(
    decider: Decider,
) -> None:
    class Dispatches(Watcher):
        def handle(self) -> str:
            self.execute(step("a"))
            self.told = [*self.told, "after execute"]
            self.dispatch(aside("d"))
            self.told = [*self.told, "after dispatch"]
            return self.execute(step("b"))

    driver = Driver(Dispatches(), decider).settle().event("E").succeed("0/0.0", "A")
    assert driver.properties["told"] == [
        "event E",
        "success A",
        "after execute",
        "after dispatch",
    ]


def test_z26_on_success_starts_with_the_properties_of_its_index(decider: Decider) -> None:
    driver = watcher(decider)
    driver.receive(m.EventSent(1, "E"), m.Succeeded(2, "0/0.0", "A"))
    driver.settle()
    assert driver.properties["told"] == ["event E", "success A"]


# The buffer and the waits.


def test_z27_what_happens_before_a_decision_can_be_scheduled_is_buffered(
    decider: Decider,
) -> None:
    driver = Driver(Watcher(), decider)
    driver.receive(m.EventSent(5, "E", 1))
    (action,) = driver.state.buffer
    assert (action.timestamp, action.type) == (5, BranchType.EVENT)
    assert action.data == {"event_name": "E", "event_input": 1}


def test_z28_the_start_of_a_wait_is_the_trigger_of_its_decision(decider: Decider) -> None:
    driver = Driver(Waiter(), decider, at=100)
    driver.tick(50)
    driver.decide()
    start = driver.state.branches[1]
    assert (start.type, start.at) == (BranchType.START, 100)


def test_z29_an_event_during_the_decision_that_creates_the_wait_releases_it(
    decider: Decider,
) -> None:
    driver = Driver(Waiter(), decider)
    driver.receive(m.EventSent(driver.tick(), "go", "in time"))
    driver.settle()
    assert [status.input for status in driver.state.statuses[1:]] == [{"name": "in time"}]


def test_z30_a_wait_that_ended_during_a_slow_decision_comes_before_later_actions(
    decider: Decider,
) -> None:
    driver = Driver(Waiter(), decider)
    driver.tick(100)
    driver.receive(m.EventSent(driver.now, "other"))
    driver.decide()
    assert branches(driver) == ["handle", "onStart", "onSuccess", "onEvent"]


def test_z32_a_scheduled_task_is_recorded_and_sent(decider: Decider) -> None:
    driver = watcher(decider)
    jobs = [each for each in driver.sent if isinstance(each, m.StepJob)]
    assert [(job.step, job.type, job.name, job.input, job.timeout) for job in jobs] == [
        ("0/0.0", StepType.TASK, "step", {"name": "a"}, 10),
        ("0/0.1", StepType.TASK, "step", {"name": "b"}, 10),
    ]
    assert [status.step for status in driver.state.statuses] == ["0/0.0", "0/0.1"]


def test_z33_a_scheduled_wait_starts_and_either_runs_or_is_over(decider: Decider) -> None:
    driver = Driver(Waiter(), decider).settle()
    assert branches(driver) == ["handle", "onStart"]
    assert m.SetStepTimer("0/0.0", 60.0) in driver.sent

    class Past(Workflow[None]):
        def handle(self) -> None:
            self.wait(until=50.0)

    driver = Driver(Past(), decider, id="i-2", at=100).settle()
    assert branches(driver) == ["handle", "onStart", "onSuccess"]
    assert driver.state.waits == []
    assert driver.mode == "terminated"


def test_z35_the_wait_counts_from_the_trigger_of_the_decision(decider: Decider) -> None:
    driver = Driver(Waiter(), decider, at=100)
    driver.tick(30)
    driver.decide()
    assert driver.state.waits[0].timestamp == 160


def test_z36_changed_properties_are_appended(decider: Decider) -> None:
    driver = watcher(decider).event("E")
    assert driver.state.properties == [
        PropertiesAt(0, {"told": []}),
        PropertiesAt(2, {"told": ["event E"]}),
    ]


def test_z37_the_output_of_a_branch_is_kept_with_it(decider: Decider) -> None:
    driver = watcher(decider).event("E")
    assert driver.state.branches[1].output == "heard E"


# Decisions.


def test_z39_r1_each_completed_decision_tries_to_trigger_the_next(decider: Decider) -> None:
    driver = Driver(Watcher(), decider)
    driver.receive(m.EventSent(1, "E"))
    first = driver.state.decision_number
    driver.decide()
    assert (driver.state.decision_ongoing, driver.state.decision_number) == (True, first + 1)
    driver.decide()
    assert not driver.state.decision_ongoing


def test_r1_a_decision_that_decides_nothing_is_over_as_well(decider: Decider) -> None:
    driver = watcher(decider)
    driver.receive(m.Started(1, "0/0.0"))
    driver.receive(m.Completed(2, driver.state.decision_uuid, []))
    assert not driver.state.decision_ongoing
    driver.receive(m.Started(3, "0/0.1"))
    assert driver.state.decision_ongoing


def test_r11_several_waits_on_one_event_are_released_in_their_order(decider: Decider) -> None:
    class Twice(Workflow[list[Any]]):
        def handle(self) -> list[Any]:
            waits: list[Wait[Any]] = [Wait("go"), Wait("go")]
            return [each is not None for each in self.execute_all(waits)]

    driver = Driver(Twice(), decider).settle().event("go")
    ended = [branch.step for branch in driver.state.branches if branch.type == "onSuccess"]
    assert ended == ["0/0.0", "0/0.1"]
    assert driver.output == [True, True]


def test_z44_a_success_is_settled_and_plans_the_branch_that_waits(decider: Decider) -> None:
    driver = watcher(decider)
    driver.receive(m.Succeeded(1, "0/0.1", "B"))
    status = driver.instance.status("0/0.1")
    assert status is not None
    assert (status.status, status.completion_index, status.output) == ("successful", 1, "B")
    assert driver.state.executions == [0, 1, 0]

    class Aside(Workflow[None]):
        def handle(self) -> None:
            self.dispatch(aside("d"))
            self.wait("end")

    driver = Driver(Aside(), decider, id="i-2").settle().succeed("0/0.0", "x")
    assert driver.state.executions == [0, 1, 2], "a dispatched one plans nothing else"


def test_z45_prepare_empties_the_buffer(decider: Decider) -> None:
    driver = watcher(decider)
    driver.receive(m.EventSent(1, "E"), m.EventSent(2, "F"))
    assert driver.state.buffer == []
    assert len(driver.state.branches) == 3


def test_z47_a_decider_elsewhere_gets_the_ongoing_branches_only(decider: Decider) -> None:
    driver = watcher(decider).event("E").succeed("0/0.0", "A")
    driver.receive(m.Succeeded(9, "0/0.1", "B"))
    data = driver.instance.decision_data()
    assert data["ongoing_index"] == 4
    assert [each["key"] for each in data["ongoing_branches"]] == [0, 3]
    assert {each["branch_key"] for each in data["ongoing_statuses"]} == {0}


def test_z50_a_run_that_is_not_committed_leaves_the_state_as_it_was(decider: Decider) -> None:
    kind = WorkflowKind(Watcher, decider)
    start = Message(1, 0.0, start_body({"told": []}))
    begun = kind.run(Context("i-1", 0.0), kind.decode(None), [start])
    data = begun.state.data
    event = [Message(2, 1.0, event_body("E", {}, None))]
    lost = kind.run(Context("i-1", 1.0), begun.state, event)
    again = kind.run(Context("i-1", 1.0), kind.decode(data), event)
    assert lost.state.data == again.state.data, "repeated deliveries lead to the same state"


def test_z63_several_steps_are_scheduled_together_and_awaited_together(decider: Decider) -> None:
    driver = watcher(decider)
    assert driver.open == ["0/0.0", "0/0.1"]
    driver.succeed("0/0.1", "B")
    assert driver.open == ["0/0.0"], "one is not enough"
    driver.succeed("0/0.0", "A")
    assert "both A B" in driver.properties["told"], "in the order of the call"
    assert driver.open == ["0/1.0"]


def test_z64_dispatch_never_waits_and_schedules_once(decider: Decider) -> None:
    class Goes(Workflow[str]):
        def handle(self) -> str:
            self.dispatch(aside("d"))
            return self.execute(step("a"))

    driver = Driver(Goes(), decider, forget=True).settle()
    assert driver.open == ["0/0.0", "0/1.0"]
    assert driver.succeed("0/1.0", "A").output == "A", "a replay has not scheduled it again"
    assert len(driver.state.statuses) == 2


def test_r18_a_restored_decision_has_another_uuid(decider: Decider) -> None:
    driver = Driver(Watcher(), decider)
    before = driver.state.decision_uuid
    driver.restart().receive(m.Restore(5))
    assert driver.state.decision_uuid != before
    assert driver.state.decision_triggered_at == 0
    dropped = driver.state.dropped
    driver.receive(m.Completed(6, before, []))
    assert driver.state.dropped == dropped + 1
    assert driver.state.decision_ongoing
