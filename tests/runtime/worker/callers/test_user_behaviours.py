"""Callers who wait for messages inside custom behaviours."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Base, Bounded
from actorflow.behaviours.adapt import adapt
from actorflow.runtime.worker.pair.accumulation import Accumulation
from tests.runtime.worker.probe import FakeTicket


class OneByOne(Base):
    """Newest first, one at a time: the seed's example."""

    def transform(self, messages: Any) -> Any:
        return messages[0]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


class Wrapping(OneByOne):
    """Holds something else than the messages themselves."""

    def add(self, messages: Any, message: Any) -> Any:
        return [("wrapped", message), *messages]

    def transform(self, messages: Any) -> Any:
        return {"the message": messages[0][1]}


class Plain:
    """Just the methods that are needed, and an order."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def add(self, message: Any) -> None:
        self.messages.append(message)

    def take(self) -> list[Any]:
        batch, self.messages = self.messages, []
        return batch

    def drop_oldest(self) -> Any:
        return self.messages.pop(0)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Any:
        return iter(self.messages)


def offered(core: Accumulation, *messages: Any) -> list[FakeTicket]:
    tickets = [FakeTicket() for _ in messages]
    for message, ticket in zip(messages, tickets, strict=True):
        core.offer(message, ticket)
    return tickets


def test_w20_a_behaviour_that_hides_its_messages_answers_late_not_early() -> None:
    core = Accumulation(adapt(Wrapping()))
    first, second = offered(core, "a", "b")
    batch = core.take()
    assert batch is not None
    assert batch.payload == {"the message": "b"}
    assert batch.tickets is None
    last = core.take()
    assert last is not None
    last.resolve()
    assert first.answers == second.answers == [None]


def test_w20_the_callers_of_a_wrapped_user_behaviour_are_told_one_by_one() -> None:
    core = Accumulation(adapt(Bounded(OneByOne(), 10)))
    first, second = offered(core, "a", "b")
    batch = core.take()
    assert batch is not None
    batch.resolve()
    assert (first.answers, second.answers) == ([], [None])


def test_w20_equal_messages_of_two_callers_leave_one_by_one() -> None:
    core = Accumulation(adapt(OneByOne()))
    tickets = offered(core, 1, 1)
    batch = core.take()
    assert batch is not None
    batch.resolve()
    assert sorted(len(ticket.answers) for ticket in tickets) == [0, 1]
    batch = core.take()
    assert batch is not None
    batch.resolve()
    assert [ticket.answers for ticket in tickets] == [[None], [None]]


@pytest.mark.parametrize("folded", [False, True])
def test_w21_a_caller_whose_message_a_bound_dropped_from_a_user_behaviour_is_told(
    folded: bool,  # noqa: FBT001
) -> None:
    core = Accumulation(adapt(Bounded(Plain(), 2, when_full="drop_oldest")))
    first, second = offered(core, "a", "b")
    if folded:
        core.raw.append("c")
        core.fold()
    else:
        core.offer("c")
    batch = core.take()
    assert batch is not None
    assert batch.payload == ["b", "c"]
    (fate,) = first.answers
    assert isinstance(fate, af.Dropped)
    assert second.answers == []
    batch.resolve()
    assert second.answers == [None]
