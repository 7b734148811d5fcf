"""`TableUnique`: what differs from `Unique` because messages live in SQLite."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections import namedtuple
from decimal import Decimal
from enum import Enum, StrEnum
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.behaviours import (
    BadBehaviour,
    Bounded,
    Expire,
    Fate,
    Item,
    Malformed,
    TableUnique,
    Unique,
)
from actorflow.behaviours.keys import table

Point = namedtuple("Point", "x y")  # noqa: PYI024 - as users have them


class Colour(Enum):
    RED = 1


class Size(StrEnum):
    LARGE = "large"


def key_of(message: Any) -> Any:
    return message[0]


KEYS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([2**63, 2**63 - 1, -(2**63), 2.0**63, 2**70, 2.0**70, 0.0, -0.0, 1.5]),
        st.floats(allow_nan=False),
        st.text(max_size=3),
        st.text(st.characters(categories=["Cs", "Ll"]), max_size=2),
        st.binary(max_size=3),
        st.sampled_from([Colour.RED, Size.LARGE, "large", Point(1, 2), (1, 2), "\0", "a\0b"]),
        st.uuids().map(lambda one: UUID(int=one.int % 3)),
        st.frozensets(st.integers(0, 1)),
        st.sampled_from([Decimal(1) / 3, Decimal(2) / 3]),
    ),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(st.lists(st.tuples(KEYS, st.integers()), max_size=12), st.integers(0, 12))
def test_o13_keys_are_compared_as_unique_compares_them(
    messages: list[tuple[Any, int]], cut: int
) -> None:
    table, unique = TableUnique(key=key_of), Unique(key=key_of)
    for message in messages[:cut]:
        table.add(message)
        unique.add(message)
    assert [table.grows(message) for message in messages] == [
        unique.grows(message) for message in messages
    ]
    table.extend(messages[cut:])
    unique.extend(messages[cut:])
    table.check()
    assert len(table) == len(unique)
    assert table.tally() == unique.tally()
    assert table.take() == unique.take()


@pytest.mark.parametrize("bad", [(float("nan"), 1), ([], 1), ((1, [2]), 1), ("a", lambda: 1)])
def test_w25_messages_that_cannot_be_stored_are_refused_alone(bad: Any) -> None:
    table = TableUnique()
    with pytest.raises(Malformed):
        table.add(bad)
    [(refused, _)] = table.extend([("a", 1), ("b", 1), bad, ("a", 2)])
    assert list(refused) == [bad]
    assert table.take() == [("a", 2), ("b", 1)]
    assert table.tally().rejected == 2
    assert table.tally().replaced == 1


class Stubborn:
    """Can be pickled, cannot be unpickled."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


class Interrupting:
    """Unpickles by way of an interrupt."""

    def __reduce__(self) -> Any:
        return (_interrupt, ())


def _interrupt() -> None:
    raise KeyboardInterrupt


class Stopping:
    """Looks like the end of an iteration when it is pickled."""

    def __reduce__(self) -> Any:
        raise StopIteration


@pytest.mark.parametrize("stubborn", [Stubborn(), Interrupting(), Stopping()])
def test_w25_a_message_that_does_not_unpickle_is_refused_alone(stubborn: Any) -> None:
    table = TableUnique()
    with pytest.raises(Malformed, match="pickled and unpickled") as caught:
        table.add(("a", stubborn))
    assert isinstance(caught.value.__cause__, (ValueError, KeyboardInterrupt, StopIteration))
    [(refused, _)] = table.extend([("a", 1), ("a", stubborn), ("b", 1)])
    assert list(refused) == [("a", stubborn)]
    assert table.take() == [("a", 1), ("b", 1)]
    assert table.tally().rejected == 2
    with pytest.raises(Malformed):
        table.add((stubborn, "as a key"))
    assert len(table) == 0


class Fickle:
    """Unpickles as often as it is allowed to."""

    left = 0

    def __reduce__(self) -> Any:
        return (_unpickled, ())


def _unpickled() -> Fickle:
    Fickle.left -= 1
    if Fickle.left < 0:
        raise ValueError
    return Fickle()


def test_m5_a_message_that_no_longer_unpickles_is_dropped_and_reported() -> None:
    gone: list[Any] = []
    table = TableUnique()
    table.track(gone)
    Fickle.left = 1
    table.add(Item(("a", Fickle()), ("ticket",)))
    table.add(("b", 1))
    assert table.peek() == ("b", 1)
    assert len(table) == 1
    assert table.take() == [("b", 1)]
    assert [(item.tickets, fate) for item, fate in gone] == [(("ticket",), Fate.DROPPED)]
    Fickle.left = 2
    table.extend([("a", Fickle()), ("b", Fickle()), ("c", 1)])
    assert table.drop_oldest() == ("c", 1)
    assert table.tally().dropped == 3
    Fickle.left = 1
    table.add(("a", Fickle()))
    table.add(("b", 1))
    assert table.forget(lambda message: message[0] == "b") == [("b", 1)]
    assert (len(table), table.tally().dropped) == (0, 4)
    Fickle.left = 1
    table.add(("a", Fickle()))
    with pytest.raises(BadBehaviour, match="no longer unpickle"):
        table.take()
    assert (len(table), table.tally().dropped) == (0, 5)
    table.check()


def test_a_replaced_message_that_no_longer_unpickles_is_reported() -> None:
    gone: list[Any] = []
    table = TableUnique()
    table.track(gone)
    Fickle.left = 1
    table.add(Item(("a", Fickle()), ("ticket",)))
    table.add(("a", 1))
    assert [(item.tickets, fate) for item, fate in gone] == [(("ticket",), Fate.REPLACED)]


def test_it_works_from_several_threads_one_at_a_time() -> None:
    table = TableUnique()
    for number in range(3):
        thread = threading.Thread(target=table.extend, args=([(number, "x")],))
        thread.start()
        thread.join()
    assert table.take() == [(0, "x"), (1, "x"), (2, "x")]


def test_the_table_is_closed_with_the_behaviour() -> None:
    table = TableUnique()
    connection = table._rows._connection
    del table
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_only_private_databases() -> None:
    with pytest.raises(BadBehaviour, match=r"database='shared\.db'"):
        TableUnique(database="shared.db")
    memory = TableUnique(database=":memory:")
    memory.add(("a", 1))
    assert memory.take() == [("a", 1)]


def test_tickets_stay_outside_the_table() -> None:
    waiter = threading.Event()  # cannot be pickled
    table = Bounded(Expire(TableUnique(), 5.0), 2, when_full="drop_oldest")
    gone: list[Any] = []
    table.track(gone)
    table.ready_at(1.0)
    table.extend([Item(("a", 1), (waiter,)), ("b", 1)])
    [first, second] = table.take()
    assert (first.message, first.tickets, second) == (("a", 1), (waiter,), ("b", 1))
    table.add(Item(("a", 1), (waiter,)))
    table.ready_at(7.0)
    assert table.take() == []
    assert [item.tickets for item, _ in gone] == [(waiter,)]


def test_a_large_table_is_taken_in_parts_in_line() -> None:
    table = TableUnique()
    table.extend([(number, "old") for number in range(5_000)])
    table.extend([(number, "new") for number in range(0, 5_000, 2)])
    taken: list[Any] = []
    while len(table):
        taken += table.take(700)
    assert [number for number, _ in taken] == list(range(5_000))
    assert {value for number, value in taken if number % 2 == 0} == {"new"}


@pytest.mark.parametrize("near", [-1, 0, 3, 10_000])
def test_few_keys_in_memory_and_many_in_the_table_are_the_same(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_NEAR", near)
    random = Random(3)
    real, unique = TableUnique(), Unique()
    values = [1, "x", None, 2.5, (1, 2), b"y", [3], {"z": 1}]
    for serial in range(400):
        some = [
            (random.choice([0, 1, "a", "b", 2**70, "\ud800", True, 7.5]), serial, value)
            for value in random.choices(values, k=random.randrange(6))
        ]
        assert not real.extend(list(some))
        assert not unique.extend(list(some))
        real.check()
        assert [real.grows(message) for message in some] == [False] * len(some)
        if len(unique) and random.random() < 0.5:
            limit = random.choice([None, 1, 2])
            assert real.peek() == unique.peek()
            assert real.take(limit) == unique.take(limit)
        if len(unique) and random.random() < 0.1:
            assert real.drop_oldest() == unique.drop_oldest()
        assert len(real) == len(unique)
        assert real.tally() == unique.tally()
