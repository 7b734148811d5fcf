"""User functions that raise: one message is refused, all others are treated normally."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import (
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Expire,
    Fair,
    Full,
    Item,
    Linger,
    Malformed,
    Priority,
    Queue,
    TableUnique,
    Unique,
    adapt,
)
from actorflow.behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable


class Unspeakable(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Mute:
    """A message that cannot be shown."""

    def __repr__(self) -> str:
        raise KeyboardInterrupt

    __str__ = __repr__


ERRORS = [
    ValueError("no"),
    Unspeakable(),
    StopIteration(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
]


def raising(error: BaseException, good: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that raises for messages whose second element is "bad"."""

    def function(message: Any) -> Any:
        if message[1] == "bad":
            raise error
        return good(message)

    return function


def merging(error: BaseException) -> Callable[[Any, Any], Any]:
    def merge(old: Any, new: Any) -> Any:
        if new[1] == "bad":
            raise error
        return (old[0], f"{old[1]}+{new[1]}")

    return merge


class UserMade:
    """A plain object whose add raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        if message[1] == "bad":
            raise self.error
        self.held.append(message)

    def take(self) -> Any:
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        return len(self.held)


def first(message: Any) -> Any:
    return message[0]


KINDS: dict[str, Callable[[BaseException], Behaviour]] = {
    "Unique": lambda error: Unique(raising(error, first)),
    "Priority": lambda error: Priority(raising(error, first)),
    "Fair": lambda error: Fair(raising(error, first)),
    "TableUnique": lambda error: TableUnique(raising(error, first)),
    "Coalesce key": lambda error: Coalesce(raising(error, first), max),
    "Coalesce merge": lambda error: Coalesce(0, merging(error)),
    "Chunk weight": lambda error: Chunk(Queue(), 9, weight=raising(error, first)),
    "Bounded": lambda error: Bounded(Unique(raising(error, first)), 9, when_full="drop_oldest"),
    "Bounded, full": lambda error: Bounded(Unique(raising(error, first)), 2),
    "Linger": lambda error: Linger(Unique(raising(error, first)), 1.0),
    "Expire": lambda error: Expire(Coalesce(0, merging(error)), 1.0),
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", KINDS)
def test_m12_m22_whatever_a_function_raises_refuses_that_message_alone(
    name: str, error: BaseException
) -> None:
    for tracked in False, True:
        behaviour = KINDS[name](error)
        if tracked:
            behaviour.track([])
        behaviour.ready_at(0.0)
        behaviour.add((1, "a"))
        with pytest.raises(Malformed) as caught:
            behaviour.add((1, "bad"))
        assert caught.value.__cause__ is error
        assert "malformed message (1, 'bad'): " in str(caught.value)
        bad: Any = Item((1, "bad"), ("ticket",)) if tracked else (1, "bad")
        refusals = [
            *behaviour.extend([(2, "b"), (1, "bad")]),
            *behaviour.extend([bad, (2, "b"), (1, "bad")]),
        ]
        refused = [message for messages, _ in refusals for message in messages]
        assert refused == [(1, "bad"), bad, (1, "bad")]
        assert {why.__cause__ for _, why in refusals} == {error}
        behaviour.check()
        tally = behaviour.tally()
        assert tally.rejected == 4
        left = tally.replaced + tally.merged
        assert len(behaviour) + left == 3
        assert {message[0] for message in behaviour.take()} == {1, 2}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_m12_an_add_of_the_users_may_raise_anything(error: BaseException) -> None:
    behaviour = adapt(UserMade(error))
    [(refused, why)] = behaviour.extend([(1, "a"), (1, "bad"), (2, "b")])
    assert list(refused) == [(1, "bad")]
    assert why is error or (isinstance(why, Malformed) and why.__cause__ is error)
    with pytest.raises(Malformed if not isinstance(error, Exception) else type(error)):
        behaviour.add((1, "bad"))
    assert behaviour.tally().rejected == 2
    assert behaviour.take() == [(1, "a"), (2, "b")]


class Touchy:
    """A key that raises when it is compared."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise SystemExit


@pytest.mark.parametrize("kind", [Unique, Fair, lambda: Coalesce(0, max)])
def test_m12_a_key_that_raises_when_compared_is_refused(kind: Any) -> None:
    behaviour = kind()
    behaviour.add((1, "a"))
    touchy = (Touchy(), "b")
    with pytest.raises(Malformed):
        behaviour.add(touchy)
    [(refused, _)] = behaviour.extend([(2, "c"), touchy, (3, "d")])
    assert list(refused) == [touchy]
    behaviour.check()
    assert behaviour.take() == [(1, "a"), (2, "c"), (3, "d")]


def test_m12_a_key_that_raises_when_compared_is_refused_by_a_table() -> None:
    table = TableUnique()
    touchy = (Touchy(), "b")
    table.add(touchy)
    with pytest.raises(Malformed):
        table.add(touchy)
    assert not table.grows(touchy)
    [(refused, _)] = table.extend([(2, "c"), touchy, (3, "d")])
    assert list(refused) == [touchy]
    assert [message[1] for message in table.take()] == ["b", "c", "d"]


@pytest.mark.parametrize(
    "behaviour",
    [Unique(), Priority(), Fair(), TableUnique(), Coalesce(0, max), Chunk(Queue(), 1, weight=len)],
    ids=repr,
)
def test_m22_a_message_that_cannot_be_shown_is_refused_with_a_text(behaviour: Behaviour) -> None:
    with pytest.raises(Malformed, match=r"malformed message <Mute whose repr\(\) raised Keyboard"):
        behaviour.add(Mute())
    [(_, why)] = behaviour.extend([Mute()])
    assert "Mute" in str(why)


def test_m22_brief_shows_anything() -> None:
    assert brief(Mute()) == "<Mute whose repr() raised KeyboardInterrupt>"
    assert "Mute" in brief([Mute()])
    assert "Unspeakable" in brief(Unspeakable())
    assert len(brief("x" * 10_000)) <= 200
    assert "Mute" in repr(Item(Mute()))


def test_weights_may_be_of_any_number_type() -> None:
    kinds: list[Any] = [Decimal, Fraction, int, float]
    for kind in kinds:
        chunk = Chunk(Queue(), 3, weight=kind)
        chunk.extend([1, 2, 3])
        assert [chunk.take(), chunk.take()] == [[1, 2], [3]]


class Odd(int):
    """A number that does not compare, as it turns out when it is sorted."""

    def __lt__(self, other: object) -> bool:
        raise ValueError

    __gt__ = __le__ = __ge__ = __lt__


def test_priorities_of_odd_types_are_compared_as_plain_numbers() -> None:
    priority = Priority()
    assert not priority.extend([(Odd(1), "a"), (Odd(2), "b"), (True, "c")])
    assert [message[1] for message in priority.take()] == ["b", "a", "c"]


def test_full_is_no_fault_of_the_message() -> None:
    bounded = Bounded(Unique(first), 1)
    [(refused, why)] = bounded.extend([(1, "a"), (2, "b"), (1, "c")])
    assert (list(refused), type(why)) == ([(2, "b")], Full)
