"""Sync workflows: what their code can do, and that replays do the same."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from actorflow.engine.errors import NotStorable
from actorflow.workflows.decider import BlockedBranch, Decider
from actorflow.workflows.errors import (
    InvalidWork,
    InvalidWorkflow,
    NotInWorkflow,
    WorkFailed,
    WorkflowModified,
)
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import WorkError, Workflow, WorkInfo
from tests.workflows.driving import Driver


@task
def double(number: int) -> int:
    return 2 * number


@task(timeout=30)
def ship(order: str) -> str:
    return f"shipped {order}"


class Order(Workflow[str]):
    def __init__(self, id: str) -> None:  # noqa: A002
        self.id = id
        self.paid = 0
        self.log: list[str] = []

    def handle(self) -> str:
        one, other = self.execute(double(1), double(2))
        self.log.append(f"{one} {other}")
        paid = self.wait("paid", days=3)
        if paid is None:
            return "too late"
        self.dispatch(double(9))
        return f"{self.execute(ship(self.id))} for {self.paid}"

    def on_event(self, event: Event) -> None:
        self.paid += event.data["amount"]

    def on_success(self, work: WorkInfo, output: Any) -> None:
        self.log.append(work.name)


@pytest.fixture(params=["live", "replayed"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drive(workflow: Workflow[Any], decider: Decider, way: str = "live") -> Driver:
    return Driver(workflow, decider, forget=way == "replayed").settle()


def test_z62_z63_z64_an_order_runs_to_its_end(decider: Decider, way: str) -> None:
    driver = drive(Order("o-1"), decider, way)
    driver.succeed("0/0.0", 2).succeed("0/0.1", 4)
    driver.event("paid", {"amount": 40})
    assert driver.open == ["0/2.0", "0/3.0"]
    driver.succeed("0/3.0", "shipped o-1")
    assert driver.output == "shipped o-1 for 40"
    assert driver.properties["log"] == ["double", "double", "2 4", "Wait", "ship"]


def test_a_wait_ends_by_time(decider: Decider, way: str) -> None:
    driver = drive(Order("o-1"), decider, way)
    driver.succeed("0/0.0", 2).succeed("0/0.1", 4)
    (wait,) = driver.state.waits
    assert wait.timestamp == pytest.approx(3 * 24 * 3600 + 2)
    driver.now = wait.timestamp or 0
    driver.receive(m.Tick(driver.now))
    driver.settle()
    assert driver.output == "too late"


def test_z2_a_workflow_without_handle_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="Broken has no `handle` method"):

        class Broken(Workflow[None]):
            pass


def test_a_base_may_have_no_handle() -> None:
    class Base(Workflow[str], abstract=True):
        def on_event(self, event: Event) -> None: ...

    class Real(Base):
        def handle(self) -> str:
            return "ok"

    assert Real().handle() == "ok"


class AllHooks(Workflow[list[str]]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self) -> list[str]:
        self.execute(ship("a"))
        return self.seen

    def on_event(self, event: Event) -> None:
        self.seen.append(f"event {event.name} {event.data}")

    def on_start(self, work: WorkInfo) -> None:
        self.seen.append(f"start {work.name} {work.input}")

    def on_success(self, work: WorkInfo, output: Any) -> None:
        self.seen.append(f"success {work.name} {output}")

    def on_failure(self, work: WorkInfo, error: WorkError) -> None:
        self.seen.append(f"failure {work.name} {error.name} {error.message}")

    def on_timeout(self, work: WorkInfo) -> None:
        self.seen.append(f"timeout {work.name}")


def test_z3_to_z8_each_method_is_called_for_what_it_is_for(decider: Decider, way: str) -> None:
    driver = drive(AllHooks(), decider, way)
    driver.start("0/0.0").event("E", 1)
    driver.receive(m.TimedOut(driver.tick(30), "0/0.0"))
    driver.settle().fail("0/0.0")
    driver.receive(m.Retry(driver.tick(), "0/0.0"))
    driver.succeed("0/0.0", "done")
    assert driver.output == [
        "start ship {'order': 'a'}",
        "event E 1",
        "timeout ship",
        "failure ship IOError boom",
        "success ship done",
    ]


class Point(msgspec.Struct):
    x: int
    y: int


@dataclass
class Money:
    amount: int
    currency: str = "EUR"


@task
def move(point: Point, by: Money) -> Point:
    return Point(point.x + by.amount, point.y)


class Typed(Workflow[Point]):
    where: Point
    price: Money
    when: datetime
    names: set[str]

    def __init__(self) -> None:
        self.where = Point(1, 2)
        self.price = Money(3)
        self.when = datetime(2026, 1, 2, tzinfo=UTC)
        self.names = {"a"}

    def handle(self) -> Point:
        self.where = self.execute(move(self.where, self.price))
        assert isinstance(self.where, Point)
        self.execute(double(1))
        assert isinstance(self.price, Money)
        assert isinstance(self.when, datetime)
        assert self.names == {"a"}
        return self.where


def test_values_of_declared_types_come_back_as_such(decider: Decider, way: str) -> None:
    driver = drive(Typed(), decider, way)
    assert driver.works[0][2] == {
        "point": {"x": 1, "y": 2},
        "by": {"amount": 3, "currency": "EUR"},
    }
    args, kwargs = move.arguments(driver.works[0][2])
    assert (args, kwargs) == ((Point(1, 2), Money(3)), {})
    driver.succeed("0/0.0", move.write(move.function(*args))).succeed("0/1.0", 2)
    assert driver.output == {"x": 4, "y": 2}
    assert driver.properties["where"] == {"x": 4, "y": 2}


class Parallel(Workflow[list[int]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def handle(self) -> list[int]:
        return self.execute_all(double(number) for number in range(self.count))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_execute_all_returns_a_list(count: int, decider: Decider, way: str) -> None:
    driver = Driver(Parallel(count), decider, forget=way == "replayed")
    assert driver.run(lambda _, given: 2 * given["number"]) == [2 * each for each in range(count)]


def test_z13_a_branch_goes_on_only_when_all_works_of_a_call_are_complete(
    decider: Decider, way: str
) -> None:
    driver = drive(Parallel(3), decider, way)
    driver.succeed("0/0.2", 3).succeed("0/0.0", 1)
    assert driver.mode == "run"
    assert driver.succeed("0/0.1", 2).output == [1, 2, 3]


class Racing(Workflow[Any]):
    def __init__(self, *, cancel: bool) -> None:
        self.cancel = cancel

    def handle(self) -> Any:
        found = self.first(double(1), Wait("stop", seconds=60), double(2), cancel=self.cancel)
        value = found.value.name if isinstance(found.value, Event) else found.value
        return [found.index, value, self.execute(ship("x"))]


@pytest.mark.parametrize("cancel", [False, True])
def test_first_goes_on_with_one_and_without_the_others(
    cancel: bool,  # noqa: FBT001 - a parameter of the test
    decider: Decider,
    way: str,
) -> None:
    driver = drive(Racing(cancel=cancel), decider, way)
    driver.event("stop")
    cancelled = [each.work for each in driver.sent if isinstance(each, m.CancelWork)]
    assert cancelled == (["0/0.0", "0/0.2"] if cancel else [])
    driver.succeed("0/0.2", 4)
    assert driver.restart().succeed("0/1.0", "end").output == [1, "stop", "end"]


def test_the_first_of_none_is_refused(decider: Decider) -> None:
    class Nothing(Workflow[None]):
        def handle(self) -> None:
            self.first()

    driver = drive(Nothing(), decider)
    assert driver.mode == "failed"
    assert driver.state.error["name"] == InvalidWork.__name__


class Child(Workflow[Point]):
    def __init__(self, x: int) -> None:
        self.x = x

    def handle(self) -> Point:
        return Point(self.x, 0)


class Parent(Workflow[int]):
    def handle(self) -> int:
        return self.execute(Child(7)).x


def test_r20_a_workflow_is_a_work_of_another(decider: Decider, way: str) -> None:
    driver = drive(Parent(), decider, way)
    jobs = [each for each in driver.sent if isinstance(each, m.WorkJob)]
    assert [(job.type, job.name, job.input) for job in jobs] == [("flow", "Child", {"x": 7})]
    child = Driver(Child(7), decider, id="child").settle()
    assert driver.succeed("0/0.0", child.output).output == 7


class Careful(Workflow[str]):
    def handle(self) -> str:
        try:
            self.execute(ship("a"), double(1), raises=True)
        except WorkFailed as failed:
            return f"{failed.name}: {failed.error['message']}"
        return "fine"


def test_r16_raises_brings_a_failure_to_the_code(decider: Decider, way: str) -> None:
    driver = drive(Careful(), decider, way)
    driver.fail("0/0.0")
    assert driver.mode == "run", "the other work is not complete"
    assert driver.succeed("0/0.1", 2).output == "ship: boom"


class Drawing(Workflow[Any]):
    def __init__(self) -> None:
        self.drawn: list[Any] = []

    def handle(self) -> Any:
        for _ in range(2):
            self.drawn.append([self.now().timestamp(), self.random(), str(self.uuid())])
            self.execute(double(1))
        return self.drawn


def test_values_that_are_drawn_are_the_same_in_replays(decider: Decider) -> None:
    outputs = []
    for forget in (False, True):
        driver = Driver(Drawing(), decider, forget=forget, at=1000)
        outputs.append(driver.run(lambda *_: 0))
        (_, one, two), (_, three, four) = driver.output
        assert len({one, two, three, four}) == 4
        assert [row[0] for row in driver.output] == [1000, 1001]
    assert outputs[0] == outputs[1]


class Publishing(Workflow[None]):
    def handle(self) -> None:
        for number in range(3):
            self.publish({"number": number})
            self.tag(step=number)
            self.execute(double(number))


def test_what_is_published_is_published_once(decider: Decider, way: str) -> None:
    driver = Driver(Publishing(), decider, forget=way == "replayed")
    driver.run(lambda *_: 0)
    published = [each.value for each in driver.sent if isinstance(each, m.Published)]
    assert published == [{"number": 0}, {"number": 1}, {"number": 2}]
    tags = [each.values for each in driver.sent if isinstance(each, m.Tagged)]
    assert tags == [{"step": 0}, {"step": 1}, {"step": 2}]


def test_r13_what_a_discarded_decision_published_is_not_published(decider: Decider) -> None:
    broken = threading.Event()
    broken.set()

    class Fragile(Workflow[str]):
        def handle(self) -> str:
            self.publish(1)
            self.execute(double(1))
            self.publish(2)
            if broken.is_set():
                raise ValueError("no")
            return "ok"

    driver = drive(Fragile(), decider)
    driver.succeed("0/0.0", 2)
    assert driver.mode == "failed"
    error = driver.state.error
    assert (error["name"], error["message"], error["branch_key"]) == ("ValueError", "no", 0)
    assert 'raise ValueError("no")' in error["stacktrace"]
    driver.event("meanwhile")
    broken.clear()
    driver.receive(m.Resume(driver.tick()))
    driver.settle()
    assert driver.output == "ok"
    assert [each.value for each in driver.sent if isinstance(each, m.Published)] == [1, 2]


def versions(name: str, one: Any, other: Any) -> tuple[type[Workflow[Any]], type[Workflow[Any]]]:
    """Return two classes of the same name."""
    return type(name, (Workflow,), {"handle": one}), type(name, (Workflow,), {"handle": other})


def old_code(self: Workflow[Any]) -> Any:
    return [self.execute(double(1)), self.execute(double(2)), self.execute(double(3))]


def new_code(self: Workflow[Any]) -> Any:
    found: list[Any] = [self.execute(double(1))]
    if self.patched("ship early"):
        found.append(self.execute(ship("early")))
    found.append(self.execute(double(2)))
    if self.patched("ship late"):
        found.append(self.execute(ship("late")))
    found.append(self.execute(double(3)))
    return found


def answer(name: str, given: Any) -> Any:
    return given["order"] if name == "ship" else given["number"]


def test_patched_code_is_for_instances_that_are_not_past_it(decider: Decider) -> None:
    old, new = versions("Changing", old_code, new_code)
    fresh = Driver(new(), decider, id="fresh")
    assert fresh.run(answer) == [1, "early", 2, "late", 3]

    running = drive(old(), decider)
    running.succeed("0/0.0", 1)
    running.restart().cls = new
    assert running.run(answer) == [1, 2, "late", 3], "it had come to the second call"
    again = Driver(new(), decider, id="again", forget=True)
    assert again.run(answer) == [1, "early", 2, "late", 3]


def test_z57_modified_code_is_refused_with_what_was_recorded(decider: Decider) -> None:
    def bad_code(self: Workflow[Any]) -> Any:
        return self.execute(ship("x"))

    old, new = versions("Changing", old_code, bad_code)
    driver = drive(old(), decider)
    driver.cls = new
    driver.succeed("0/0.0", 1)
    assert driver.mode == "modified"
    message = driver.state.error["message"]
    for words in (
        "the code of Changing was modified",
        "branch 0 (handle) at position 0.0",
        "recorded execute of the task double({'number': 1})",
        "now does execute of the task ship({'order': 'x'})",
    ):
        assert words in message
    assert driver.state.error["name"] == WorkflowModified.__name__
    driver.cls = old
    driver.receive(m.Resume(driver.tick()))
    assert driver.run(answer) == [1, 2, 3]


def test_r23_a_strict_decider_misses_works_that_are_gone() -> None:
    def shorter(self: Workflow[Any]) -> Any:
        return self.execute(double(1))

    for strict, mode in ((False, "terminated"), (True, "modified")):
        decider = Decider(strict=strict)
        old, new = versions("Changing", old_code, shorter)
        driver = drive(old(), decider)
        driver.succeed("0/0.0", 1)
        driver.cls = new
        driver.restart().succeed("0/1.0", 2)
        assert driver.mode == mode
        if strict:
            assert "position 1.0" in driver.state.error["message"]
        decider.close()


class Unstorable(Workflow[None]):
    def __init__(self) -> None:
        self.lock: Any = None

    def handle(self) -> None:
        self.lock = threading.Lock()
        self.execute(double(1))


def test_a_property_that_cannot_be_stored_fails_the_decision(decider: Decider) -> None:
    driver = drive(Unstorable(), decider)
    assert driver.mode == "failed"
    error = driver.state.error
    assert error["name"] == NotStorable.__name__
    assert "the property 'lock' of Unstorable" in error["message"]


def test_a_property_cannot_hide_a_method(decider: Decider) -> None:
    class Hiding(Workflow[None]):
        def handle(self) -> None:
            self.now = 3  # type: ignore[assignment, method-assign]

    driver = drive(Hiding(), decider)
    assert "Hiding.now is a method of workflows" in driver.state.error["message"]


def test_slots_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="has __slots__"):

        class Slotted(Workflow[None]):
            __slots__ = ("x",)

            def handle(self) -> None: ...


def test_works_are_executed_by_running_workflows_only(decider: Decider) -> None:
    with pytest.raises(NotInWorkflow, match="methods of a running workflow"):
        Order("o-1").execute(double(1))

    class Wrong(Workflow[None]):
        def handle(self) -> None:
            Order("o-2").execute(double(1))

    assert "use its own `self`" in drive(Wrong(), decider).state.error["message"]


def test_something_else_than_a_work_is_refused(decider: Decider) -> None:
    class Wrong(Workflow[None]):
        def handle(self) -> None:
            self.execute(7)  # type: ignore[call-overload]

    assert "7 is not a work" in drive(Wrong(), decider).state.error["message"]


class Aliasing(Workflow[list[int]]):
    def __init__(self) -> None:
        self.items: list[int] = []

    def handle(self) -> list[int]:
        items = self.items
        self.execute(double(1))
        items.append(1)
        self.execute(double(2))
        return self.items


def test_a_property_that_nobody_changes_stays_the_same_object(decider: Decider, way: str) -> None:
    assert Driver(Aliasing(), decider, forget=way == "replayed").run(lambda *_: 0) == [1]


class Mutating(Workflow[Any]):
    def handle(self) -> Any:
        found: Any = self.execute(give({"a": [1]}))
        found["a"].append(2)
        self.execute(double(1))
        return found


@task
def give(value: Any) -> Any:
    return value


def test_values_given_to_the_code_are_copies(decider: Decider, way: str) -> None:
    driver = Driver(Mutating(), decider, forget=way == "replayed")
    driver.settle().succeed("0/0.0", {"a": [1]}).succeed("0/1.0", 2)
    assert driver.output == {"a": [1, 2]}
    assert driver.state.statuses[0].output == {"a": [1]}


class Long(Workflow[int]):
    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.calls = 0

    def handle(self) -> int:
        total = 0
        for number in range(self.steps):
            total += self.execute(double(number))
        return total


def test_r25_a_long_workflow_is_not_replayed_at_each_step(decider: Decider) -> None:
    driver = Driver(Long(2000), decider)
    assert driver.run(lambda _, given: given["number"]) == sum(range(2000))
    statistics = decider.statistics()
    assert (statistics.begun, statistics.replays, statistics.threads) == (1, 0, 1)


def test_r25_after_a_restart_the_past_is_replayed_once(decider: Decider) -> None:
    driver = drive(Long(50), decider)
    for step in range(25):
        driver.succeed(f"0/{step}.0", step)
    driver.restart()
    assert driver.run(lambda _, given: given["number"]) == sum(range(50))
    assert decider.statistics().replays == 1


def test_threads_that_hold_frames_are_bounded() -> None:
    decider = Decider(max_parked=3)
    drivers = [Driver(Long(2), decider, id=f"i-{number}").settle() for number in range(10)]
    assert decider.statistics().parked == 3
    for driver in drivers:
        driver.run(lambda _, given: given["number"])
    statistics = decider.statistics()
    assert (statistics.parked, statistics.instances) == (0, 0)
    assert statistics.evicted >= 7
    assert [driver.output for driver in drivers] == [1] * 10
    decider.close()


class Tidy(Workflow[str]):
    unwound: list[str] = []  # noqa: RUF012 - shared on purpose

    def handle(self) -> str:
        try:
            self.execute(double(1))
        except Exception:  # noqa: BLE001 - must not see the end of a frame
            return "swallowed"
        finally:
            self.unwound.append("finally")
            self.execute(ship("never"))
        return "ok"


def test_a_frame_that_is_given_up_asks_for_nothing(decider: Decider) -> None:
    Tidy.unwound.clear()
    driver = drive(Tidy(), decider)
    decider.forget("i-1")
    assert Tidy.unwound == ["finally"]
    assert driver.works == [("0/0.0", "double", {"number": 1})]
    driver.succeed("0/0.0", 2).succeed("0/1.0", "shipped")
    assert driver.output == "ok"


def test_a_frame_whose_code_swallows_everything_does_no_harm(decider: Decider) -> None:
    class Stubborn(Workflow[str]):
        def handle(self) -> str:
            try:
                self.execute(double(1))
            except BaseException:  # noqa: BLE001 - what must do no harm
                return "swallowed"
            return "ok"

    driver = drive(Stubborn(), decider)
    decider.forget("i-1")
    assert driver.succeed("0/0.0", 2).output == "ok"


def test_a_decision_that_was_not_committed_is_taken_again(decider: Decider) -> None:
    driver = drive(Long(3), decider)
    driver.receive(m.Succeeded(1, "0/0.0", 5))
    lost = decider.decide(Long, driver.instance, at=1)
    assert isinstance(lost, m.Completed)
    # Its commit is lost; the frame is one step ahead of what is stored.
    again = decider.decide(Long, driver.instance, at=1)
    assert again == lost
    driver.receive(again)
    assert driver.run(lambda *_: 1) == 7


def test_a_branch_that_blocks_is_reported_with_its_stack() -> None:
    reports: list[BlockedBranch] = []
    going_on = threading.Event()

    def report(blocked: BlockedBranch) -> None:
        reports.append(blocked)
        going_on.set()

    class Blocking(Workflow[str]):
        def handle(self) -> str:
            going_on.wait()
            return "ok"

    decider = Decider(blocked_after=0.01, on_blocked=report)
    driver = drive(Blocking(), decider)
    assert driver.output == "ok"
    (blocked,) = reports
    assert (blocked.workflow, blocked.instance) == ("Blocking", "i-1")
    assert blocked.branch == "branch 0 (handle)"
    assert "going_on.wait()" in blocked.stack
    assert "workflows/decider.py" not in blocked.stack
    decider.close()


def test_the_threads_are_gone_after_close() -> None:
    before = threading.active_count()
    decider = Decider()
    drivers = [Driver(Long(2), decider, id=f"i-{number}").settle() for number in range(5)]
    assert len(drivers) == 5
    assert threading.active_count() > before
    decider.close()
    assert threading.active_count() == before


class Typing(Workflow[Point]):
    def handle(self) -> Point:
        paid = self.wait(Money, seconds=5)
        return Point(0 if paid is None else paid.amount, 0)


def test_a_wait_for_a_class_comes_to_an_object_of_it(decider: Decider) -> None:
    driver = drive(Typing(), decider)
    assert driver.event("Money", {"amount": 3}).output == {"x": 3, "y": 0}


def test_an_output_that_does_not_fit_its_declaration_is_refused(decider: Decider) -> None:
    driver = drive(Long(1), decider)
    driver.succeed("0/0.0", "no number")
    assert driver.mode == "failed"
    assert "the result of the task double is not int" in driver.state.error["message"]


@dataclass
class Declared(Workflow[str]):
    name: str
    at: Point

    def handle(self) -> str:
        self.execute(double(1))
        return f"{self.name} {self.at.x}"


def test_a_dataclass_can_be_a_workflow(decider: Decider, way: str) -> None:
    driver = drive(Declared("a", Point(1, 2)), decider, way)
    assert driver.state.properties[0].values == {"name": "a", "at": {"x": 1, "y": 2}}
    assert driver.succeed("0/0.0", 2).output == "a 1"


def test_check_replays_a_history_against_other_code(decider: Decider) -> None:
    def other_end(self: Workflow[Any]) -> Any:
        return [self.execute(double(1)), self.execute(double(2)), self.execute(ship("x"))]

    old, good = versions("Changing", old_code, other_end)
    driver = drive(old(), decider)
    driver.succeed("0/0.0", 1)
    before = stored.encode(driver.state)
    assert decider.check(old, driver.state) is None
    assert decider.check(good, driver.state) is None, "it differs after what has happened"
    assert stored.encode(driver.state) == before
    driver.succeed("0/1.0", 2)
    found = decider.check(good, driver.state)
    assert found is not None
    assert (found.kind, found.branch, found.position) == ("modified", 0, "2.0")
    assert "position 2.0" in str(found)
    driver.succeed("0/2.0", 3)
    assert decider.check(old, driver.state) is None, "ended ones can be checked, too"
    assert decider.statistics().instances == 0


def test_a_report_that_fails_does_not_end_the_decision(caplog: pytest.LogCaptureFixture) -> None:
    going_on = threading.Event()

    def report(blocked: BlockedBranch) -> None:
        going_on.set()
        raise ValueError(blocked.branch)

    class Blocking(Workflow[str]):
        def handle(self) -> str:
            going_on.wait()
            return "ok"

    decider = Decider(blocked_after=0.01, on_blocked=report)
    assert drive(Blocking(), decider).output == "ok"
    assert "a report of a blocked branch failed" in caplog.text
    decider.close()


def test_many_threads_take_decisions_while_frames_are_given_up() -> None:
    decider = Decider(max_parked=2)
    outputs: list[Any] = []

    def run(lane: int) -> None:
        drivers = [Driver(Long(8), decider, id=f"{lane}-{n}").settle() for n in range(4)]
        while any(driver.mode == "run" for driver in drivers):
            for driver in drivers:
                if driver.mode == "run":
                    driver.succeed(driver.open[0], 1)
        outputs.extend(driver.output for driver in drivers)

    lanes = [threading.Thread(target=run, args=(lane,)) for lane in range(4)]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    assert outputs == [8] * 16
    statistics = decider.statistics()
    assert (statistics.parked, statistics.instances) == (0, 0)
    assert statistics.evicted > 0
    decider.close()


def calls_of(steps: int) -> int:
    """Return how many functions are called in a workflow of many steps, in all threads."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        decider = Decider()
        driver = Driver(Long(steps), decider).settle()
        for step in range(steps):
            driver.succeed(f"0/{step}.0", 1)
        decider.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert driver.output == steps
    return count


def test_r25_a_step_costs_the_same_however_long_the_history_is() -> None:
    few, many = calls_of(100) / 100, calls_of(1000) / 1000
    assert many < 1.1 * few


class FifteenSteps(Workflow[None]):
    def handle(self) -> None:
        self.execute(double(1), double(2), double(3))
        self.execute(double(4))


def test_z15_the_example_of_the_seed(decider: Decider, way: str) -> None:
    driver = Driver(FifteenSteps(), decider, forget=way == "replayed")
    driver.decide()
    driver.receive(m.Started(2, "0/0.1"))
    driver.receive(m.Started(3, "0/0.0"))
    driver.receive(m.Started(4, "0/0.2"))
    assert driver.state.executions == [0, 1]
    driver.decide()
    assert driver.state.executions[2:] == [2, 3], "step 6"
    driver.decide()
    assert not driver.state.decision_ongoing
    driver.receive(m.Succeeded(7, "0/0.2", 6))
    driver.receive(m.Succeeded(8, "0/0.0", 2))
    driver.receive(m.Succeeded(9, "0/0.1", 4))
    driver.decide()
    assert driver.state.executions[4:] == [4, 0, 5, 0, 6, 0], "step 11"
    driver.decide()
    assert driver.open == ["0/1.0"]
    driver.start("0/1.0").succeed("0/1.0", 8)
    assert driver.state.executions[10:] == [7, 8, 0], "step 15"
    assert driver.output is None


class Counting(Workflow[Any]):
    def __init__(self) -> None:
        self.counts: dict[Any, Any] = {1: "a", "1": "b"}

    def handle(self) -> Any:
        self.counts[None] = self.execute(give({2: {True: 0}}))
        self.execute(double(1))
        return sorted(map(repr, self.counts.items()))


def test_keys_need_not_be_texts(decider: Decider, way: str) -> None:
    driver = drive(Counting(), decider, way)
    driver.succeed("0/0.0", {3: 4}).succeed("0/1.0", 2)
    assert driver.output == ["('1', 'b')", "(1, 'a')", "(None, {3: 4})"]
