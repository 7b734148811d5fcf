"""What callers hear whose message never reaches the job, or as a part of another (M18)."""

from __future__ import annotations

import asyncio
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Coalesce, Expire, Queue, Unique
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until, until_accumulated
from tests.runtime.worker.statistics.law import Latest, Sampled


def squares(batch: list[Any], state: Any) -> af.Answers:
    return af.Answers(state, [number * number for number in batch])


def holding(probe: Probe, **options: Any) -> af.WorkerRef:
    """Return a worker that is busy with the message `None`, which it answers with `None`."""
    worker = probe.spawn(**options)
    worker.push(None)
    probe.begun()
    return worker


def test_m18_what_unique_replaces_ends_its_caller_with_replaced(probe: Probe) -> None:
    worker = holding(probe, behaviour=Unique(key=str))
    replaced = Caller(worker.ask, "a")
    until_accumulated(worker, 1)
    last = Caller(worker.ask, "a")
    with pytest.raises(af.Replaced):
        replaced.value()
    probe.then(af.Answers(None, ["answer"]))
    probe.open()
    assert last.value() == "answer"


def test_m18_what_bounded_drops_ends_its_caller_with_dropped(probe: Probe) -> None:
    worker = holding(probe, behaviour=Bounded(Queue, 1, when_full="drop_oldest"))
    dropped = Caller(worker.ask, "a")
    until_accumulated(worker, 1)
    worker.push_ack("b")
    with pytest.raises(af.Dropped):
        dropped.value()


def test_m18_what_bounded_rejects_raises_full(probe: Probe) -> None:
    worker = holding(probe, behaviour=Bounded(Queue, 1))
    worker.push_ack("a")
    with pytest.raises(af.Full):
        worker.ask("b")
    with pytest.raises(af.Full):
        worker.ask("b", block=False).get(timeout=PATIENCE)


def test_m18_what_expires_ends_its_caller_with_expired() -> None:
    lane, clock = ManualLane(), VirtualClock()
    worker = af.spawn(squares, behaviour=Expire(Queue, 1.0), executor=lane, clock=clock)
    worker.push(0)
    late = worker.ask(1, block=False)
    clock.advance(2.0)
    fresh = worker.ask(2, block=False)
    lane.run()
    with pytest.raises(af.Expired):
        late.get(timeout=0)
    assert fresh.get(timeout=0) == 4


def test_m18_what_coalesce_merges_shares_one_answer_or_failure() -> None:
    lane = ManualLane()
    worker = af.spawn(
        lambda batch, state: af.Answers(
            None, [total if key == "good" else ValueError("bad") for key, total in batch]
        ),
        behaviour=Coalesce(key=0, merge=lambda one, other: (one[0], one[1] + other[1])),
        executor=lane,
    )
    worker.push(("good", 0))
    good = [worker.ask(("good", number), block=False) for number in (1, 2, 3)]
    bad = [worker.ask(("bad", number), block=False) for number in (1, 2)]
    lane.run()
    assert pykka.get_all(good, timeout=0) == [6, 6, 6]
    for future in bad:
        with pytest.raises(ValueError, match="bad"):
            future.get(timeout=0)
    counted = worker.statistics()
    assert (counted.accepted, counted.merged) == (6, 3)
    assert (counted.processed, counted.failed) == (2, 1)


def test_m18_a_part_of_a_chunk_is_answered_when_its_turn_comes() -> None:
    lane = ManualLane()
    worker = af.spawn(squares, behaviour=Chunk(Queue, 2), executor=lane)
    futures = [worker.ask(number, block=False) for number in range(6)]
    lane.run()
    assert pykka.get_all(futures, timeout=0) == [n * n for n in range(6)]
    assert worker.statistics().batches == 4


# M18 for custom behaviours.


@pytest.mark.parametrize("behaviour", [Latest, lambda: Bounded(Latest, 5)])
def test_m18_a_message_that_a_users_behaviour_replaced_never_counts_as_processed(
    probe: Probe, behaviour: Any
) -> None:
    worker = holding(probe, behaviour=behaviour)
    first = Caller(worker.push_block, "old")
    until_accumulated(worker, 1)
    second = Caller(worker.ask, "older")
    until(lambda: worker.statistics().accepted == 3, "the second one is there")
    worker.push_ack("new")
    probe.then(af.Answers(None, ["answer"]))
    probe.open()
    for caller in (first, second):
        with pytest.raises(af.Displaced):
            caller.value()
    assert probe.begun() == ["new"]
    worker.stop()
    counted = worker.statistics()
    assert (counted.accepted, counted.processed, counted.dropped) == (4, 2, 2)


def test_m18_a_message_that_a_users_behaviour_drops_ends_its_caller_at_once(
    probe: Probe,
) -> None:
    worker = holding(probe, behaviour=Sampled)  # None is the first of three
    with pytest.raises(af.Dropped):
        worker.push_block("second", timeout=PATIENCE)
    with pytest.raises(af.Dropped):
        asyncio.run(worker.aask("third"))
    kept = Caller(worker.push_block, "fourth")
    until_accumulated(worker, 1)
    assert not kept.done.is_set()
    probe.open()
    kept.value()
