"""Values that the code of a workflow gets and keeps: declared types, copies, keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from actorflow.workflows.task import task
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver, drive
from tests.workflows.orders import Long, Point, double

if TYPE_CHECKING:
    from actorflow.workflows.decider import Decider


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
    assert driver.steps[0][2] == {
        "point": {"x": 1, "y": 2},
        "by": {"amount": 3, "currency": "EUR"},
    }
    args, kwargs = move.arguments(driver.steps[0][2])
    assert (args, kwargs) == ((Point(1, 2), Money(3)), {})
    driver.succeed("0/0.0", move.write(move.function(*args))).succeed("0/1.0", 2)
    assert driver.output == {"x": 4, "y": 2}
    assert driver.properties["where"] == {"x": 4, "y": 2}


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
