"""How behaviours are built: refusals that help, readable compositions, small objects."""

from __future__ import annotations

import sys
from math import inf, nan
from operator import itemgetter
from typing import Any

import pytest

from actorflow import behaviours
from actorflow.behaviours import (
    AlreadyUsed,
    BadBehaviour,
    Base,
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Item,
    Linger,
    Priority,
    Queue,
    Stack,
    TableUnique,
    Throttle,
    Traits,
    Unique,
    adapt,
)


@pytest.mark.parametrize("bad", [-1, nan, inf, True, "1", None])
@pytest.mark.parametrize(
    ("build", "example"),
    [
        (lambda bad: Throttle(Queue, bad), r"every=.*Throttle\(Queue\(\), 0.5\)"),
        (lambda bad: Linger(Queue, bad), r"wait=.*Linger\(Queue\(\), 0.05, size=500\)"),
        (lambda bad: Debounce(Queue, bad), r"quiet=.*Debounce\(Queue\(\), 0.2"),
        (lambda bad: Expire(Queue, bad), r"ttl=.*Expire\(Queue\(\), 30.0\)"),
        (lambda bad: Chunk(Queue, bad, weight=len), r"size=.*Chunk\(Queue\(\), 1_000_000, weight"),
    ],
)
def test_bad_numbers_are_refused_with_the_right_call(build: Any, example: str, bad: Any) -> None:
    with pytest.raises(BadBehaviour, match=example):
        build(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, nan, True, "1"])
@pytest.mark.parametrize(
    ("build", "example"),
    [
        (lambda bad: Bounded(Queue, bad), r"size=.*Bounded\(Queue\(\), 1_000"),
        (lambda bad: Chunk(Queue, bad), r"size=.*Chunk\(Queue\(\), 100\)"),
        (lambda bad: Linger(Queue, 1, size=bad), r"size=.*Linger\(Queue\(\), 0.05, size=500\)"),
    ],
)
def test_bad_sizes_are_refused_with_the_right_call(build: Any, example: str, bad: Any) -> None:
    with pytest.raises(BadBehaviour, match=example):
        build(bad)


def test_zero_seconds_are_no_wait_but_no_life_either() -> None:
    Throttle(Queue, 0)
    Linger(Queue, 0)
    Debounce(Queue, 0)
    with pytest.raises(BadBehaviour, match="positive"):
        Expire(Queue, 0)


def test_at_most_must_not_be_shorter_than_quiet() -> None:
    with pytest.raises(BadBehaviour, match=r"use Linger\(..., 1\)"):
        Debounce(Queue, 2, at_most=1)


@pytest.mark.parametrize(
    ("word", "near"), [("drop-oldest", "drop_oldest"), ("Reject", "reject"), ("blocks", "block")]
)
def test_an_unknown_when_full_names_the_near_one(word: str, near: str) -> None:
    with pytest.raises(BadBehaviour, match=f"did you mean '{near}'"):
        Bounded(Queue, 1, when_full=word)


def test_an_unknown_when_full_names_all() -> None:
    with pytest.raises(BadBehaviour, match=r"'reject', 'drop_oldest', 'drop_newest', 'block'$"):
        Bounded(Queue, 1, when_full=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("build", [Unique, TableUnique, Priority, Fair])
def test_a_key_is_a_function_or_an_index(build: Any) -> None:
    for key in 1, -1, itemgetter(1), lambda message: message[1]:
        assert build(key=key).extend([("x", 1)]) == ()
    for bad in None, True, 1.0:
        with pytest.raises(BadBehaviour, match=rf"{build.__name__}\(key=0\)"):
            build(key=bad)
    with pytest.raises(BadBehaviour, match=r"itemgetter\('id'\) or key=attrgetter\('id'\)"):
        build(key="id")


def test_functions_must_be_functions() -> None:
    with pytest.raises(BadBehaviour, match="merge=1: merge must be a function"):
        Coalesce(0, 1)  # type: ignore[arg-type]
    with pytest.raises(BadBehaviour, match="weight=1: weight must be a function"):
        Chunk(Queue, 5, weight=1)  # type: ignore[arg-type]


def test_one_instance_has_one_owner() -> None:
    queue = Queue()
    Throttle(queue, 1)
    with pytest.raises(AlreadyUsed, match=r"Queue\(\) is in use already; give each worker its own"):
        Bounded(queue, 1)
    base = Base()
    adapt(base)
    with pytest.raises(AlreadyUsed):
        adapt(base)


def test_a_subclass_that_forgets_super_init_still_has_one_owner() -> None:
    class Forgets(Behaviour):
        def __init__(self) -> None:
            self.held: list[Any] = []

    forgets = Forgets()
    assert adapt(forgets) is forgets
    with pytest.raises(AlreadyUsed):
        adapt(forgets)


def test_inner_behaviours_come_as_instance_class_or_factory() -> None:
    for inner in Queue(), Queue, lambda: Unique(key=1), Base, Base(), list_like:
        assert len(Bounded(inner, 2)) == 0


def list_like() -> Any:
    class Listed:
        def __init__(self) -> None:
            self.held: list[Any] = []

        def add(self, message: Any) -> None:
            self.held.append(message)

        def take(self) -> Any:
            return self.held.pop()

        def __len__(self) -> int:
            return len(self.held)

        def __iter__(self) -> Any:
            return iter(self.held)

    return Listed()


@pytest.mark.parametrize(
    ("build", "value", "fix"),
    [
        (lambda: Queue(5), "Queue(5)", "Bounded(Queue(), 5)"),  # type: ignore[arg-type]
        (lambda: Stack(5), "Stack(5)", "Bounded(Stack(), 5)"),  # type: ignore[arg-type]
        (lambda: Queue(maxsize=5), "Queue(maxsize=5)", "Bounded(Queue(), 5)"),  # type: ignore[arg-type]
        (lambda: Queue([1, 2]), "Queue([1, 2])", "Bounded(Queue(), 1_000)"),  # type: ignore[arg-type]
    ],
)
def test_a_line_takes_no_size_and_says_what_bounds_it(build: Any, value: str, fix: str) -> None:
    with pytest.raises(BadBehaviour) as caught:
        build()
    assert str(caught.value).startswith(f"{value}: ")
    assert fix in str(caught.value)
    assert "__init__" not in str(caught.value)


def test_what_is_no_behaviour_is_refused() -> None:
    with pytest.raises(BadBehaviour, match="lacks add, take"):
        adapt([])
    with pytest.raises(BadBehaviour, match=r"behaviour=lambda: Bounded\(...\)"):
        adapt(Bounded)


@pytest.mark.parametrize(
    ("behaviour", "shown"),
    [
        (Queue(), "Queue()"),
        (
            Bounded(Unique(key=0), 1000, when_full="drop_oldest"),
            "Bounded(Unique(key=0), 1000, when_full='drop_oldest')",
        ),
        (Throttle(Chunk(Stack(), 10), 0.5), "Throttle(Chunk(Stack(), 10), 0.5)"),
        (Chunk(Priority(key=len), 9.5, weight=len), "Chunk(Priority(key=len), 9.5, weight=len)"),
        (Linger(Fair(key=1), 2, size=3), "Linger(Fair(key=1), 2, size=3)"),
        (Debounce(Base, 1, at_most=2.5), "Debounce(Base(), 1, at_most=2.5)"),
        (Expire(TableUnique(), 60), "Expire(TableUnique(key=0), 60)"),
        (TableUnique(database=":memory:"), "TableUnique(key=0, database=':memory:')"),
        (Coalesce(0, max), "Coalesce(key=0, merge=max)"),
    ],
)
def test_repr_is_the_composition(behaviour: Behaviour, shown: str) -> None:
    assert repr(behaviour) == shown


def test_traits_of_wrappers_derive_from_the_inner_ones() -> None:
    queue = Queue().traits
    assert Throttle(Queue, 1).traits == Traits(
        ordered=queue.ordered, divisible=queue.divisible, trackable=queue.trackable,
        accepts_all=True, timed=True, chooses=True, paces=True,
    )  # fmt: skip
    bounded = Bounded(Linger(Unique, 1), 5, when_full="block").traits
    assert bounded == Traits(
        ordered=True, divisible=True, shrinks=True, bounded=True, timed=True, first_stamped=True,
        blocks=True, trackable=True, chooses=True,
    )  # fmt: skip
    assert not Bounded(Base, 5).traits.trackable


def test_small_objects_stay_small() -> None:
    queue = Queue()
    assert sys.getsizeof(queue) < 80
    for name in behaviours.__all__:
        kind = getattr(behaviours, name)
        if isinstance(kind, type) and issubclass(kind, Behaviour) and kind is not Behaviour:
            assert "__dict__" not in dir(kind), f"{name} has no __slots__"


def test_a_queue_adopts_and_hands_over_the_list_itself() -> None:
    for kind in Queue, Stack:
        messages = [1, 2, 3]
        line = kind()
        line.extend(messages)
        assert line.take() is messages


def test_items_are_shown_and_unwrapped() -> None:
    assert repr(Item("a", ("x", "y"))) == "Item('a', 2 waiting)"
    assert behaviours.unwrap(Item("a")) == behaviours.unwrap("a") == "a"
