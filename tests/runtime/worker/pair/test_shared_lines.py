"""Workers with a plain line share an empty one until something is put into theirs."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Behaviour, Queue, Stack
from actorflow.runtime.worker.pair.accumulation import Accumulation
from actorflow.runtime.worker.shape import QUEUE, STACK
from actorflow.testing import ManualLane

SHARED: dict[type[Behaviour], Behaviour] = {Queue: QUEUE, Stack: STACK}


class Nobody:
    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        return


def by_fold(core: Accumulation) -> None:
    core.raw.append("a")
    core.fold()


def by_offer(core: Accumulation) -> None:
    core.offer("a")


def by_offer_with_ticket(core: Accumulation) -> None:
    core.offer("a", Nobody())


def by_offer_many(core: Accumulation) -> None:
    assert core.offer_many([("a", Nobody())]) == []


@pytest.mark.parametrize("put", [by_fold, by_offer, by_offer_with_ticket, by_offer_many])
@pytest.mark.parametrize("line", SHARED)
def test_what_is_put_into_one_line_is_in_no_other(line: type[Behaviour], put: Any) -> None:
    one, other = Accumulation(SHARED[line]), Accumulation(SHARED[line])
    put(one)
    assert type(one.behaviour) is line
    assert one.behaviour is not SHARED[line]
    assert (len(one), len(other), len(SHARED[line])) == (1, 0, 0)
    assert SHARED[line].gone is None
    batch = one.take()
    assert batch is not None
    assert batch.payload == ["a"]


@pytest.mark.parametrize("line", SHARED)
def test_pushes_and_a_drain_leave_the_shared_line_as_it_was(line: type[Behaviour]) -> None:
    lane = ManualLane()
    seen: list[Any] = []
    worker = af.spawn(lambda batch, _: seen.extend(batch), behaviour=line, executor=lane)
    assert worker.actor.core.behaviour is SHARED[line]
    for number in range(5):
        worker.push(number)
    worker.executor.tell("mail makes it take the general path")
    worker.stop(block=False)
    lane.run()
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert len(SHARED[line]) == 0


def test_a_line_that_is_given_belongs_to_the_worker() -> None:
    mine = Queue()
    worker = af.spawn(lambda _batch, state: state, behaviour=mine)
    assert worker.actor.core.behaviour is mine
    worker.stop()
