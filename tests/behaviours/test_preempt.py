"""`Preempt` against a naive model, and against the contract of behaviours."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actorflow.behaviours import BadBehaviour, Chunk, Item, Preempt, Queue, Stack, Unique
from actorflow.testing import check_behaviour

VICTIMS = ("drop", "return", "merge")


class NaivePreempt:
    """Says what a `Preempt(Chunk(Queue(), 3))` does, with lists that are copied."""

    def __init__(self, victims: str) -> None:
        self.victims = victims
        self.waiting: list[int] = []
        self.ended: list[list[int]] = []
        self.inner_first = False
        self.dropped: list[int] = []

    def put_back(self, batch: list[int]) -> None:
        if self.victims == "drop":
            self.dropped += batch
        else:
            self.ended = [*self.ended, batch]
            self.inner_first = True

    def take(self) -> list[int]:
        before: list[int] = []
        if self.victims == "merge":
            before, self.ended = list(chain(*self.ended)), []
        elif self.ended and not (self.inner_first and self.waiting):
            batch, self.ended, self.inner_first = self.ended[0], self.ended[1:], False
            return batch
        self.inner_first = False
        batch, self.waiting = self.waiting[:3], self.waiting[3:]
        return before + batch

    def held(self) -> list[int]:
        return [*chain(*self.ended), *self.waiting]


@settings(max_examples=150, deadline=None)
@given(
    victims=st.sampled_from(VICTIMS),
    steps=st.lists(st.sampled_from(["add", "urgent", "take", "put_back"]), max_size=60),
    tracked=st.booleans(),
)
def test_it_does_what_a_naive_model_does(*, victims: str, steps: list[str], tracked: bool) -> None:
    inbox = Preempt(Chunk(Queue(), 3), when=lambda number: number < 0, victims=victims)
    gone: list[Any] = []
    if tracked:
        inbox.track(gone)
    ended: list[int] = []
    inbox.watch(lambda: ended.append(1))
    model = NaivePreempt(victims)
    running: list[Any] = []
    finished: list[int] = []

    def bare(items: Any) -> list[int]:
        return [each.message if type(each) is Item else each for each in items]

    urgent = count = 0
    for step in steps:
        if step in {"add", "urgent"}:
            count += 1
            number = count if step == "add" else -count
            urgent += step == "urgent"
            inbox.add(Item(number, ()) if tracked else number)
            model.waiting.append(number)
        elif step == "take" and len(inbox):
            finished += bare(running)
            running = inbox.take()
            assert bare(running) == model.take()
        elif step == "put_back" and running:
            inbox.put_back(running)
            model.put_back(bare(running))
            running = []
        assert len(ended) == urgent
        assert bare(inbox) == model.held()
        assert len(inbox) == len(model.held())
        assert inbox.tally().dropped == len(model.dropped)
        assert len(finished) + len(running) + len(inbox) + inbox.tally().dropped == count
        if tracked:
            assert [item.message for item, _ in gone] == model.dropped


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("inner", [Queue, Stack, lambda: Unique(key=hash)])
def test_it_keeps_the_contract(inner: Any, victims: str) -> None:
    check_behaviour(lambda: Preempt(inner, when=bool, victims=victims))


def test_messages_of_an_ended_batch_can_be_withdrawn() -> None:
    inbox = Preempt(Queue(), when=bool, victims="return")
    first, second = object(), object()
    inbox.put_back([first, second])
    assert inbox.withdraw(first)
    assert not inbox.withdraw(first)
    assert list(inbox) == [second]
    assert inbox.withdraw(second)
    assert len(inbox) == 0


def test_it_is_not_taken_in_parts() -> None:
    inbox: Any = Preempt(Queue(), when=bool)
    with pytest.raises(BadBehaviour, match="outermost"):
        inbox.choose(bool, 1)
    assert not inbox.traits.divisible


def test_a_behaviour_without_the_trait_takes_nothing_back() -> None:
    with pytest.raises(BadBehaviour, match="take messages back"):
        Queue().put_back(["a"])
