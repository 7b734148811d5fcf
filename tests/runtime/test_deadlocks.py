"""`detect_deadlocks` finds circles of actors and workers that wait for each other."""

from __future__ import annotations

import asyncio
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.runtime.actor.answers import AnswerFuture
from actorflow.runtime.worker.ref import WorkerRef
from actorflow.testing import detect_deadlocks
from actorflow.testing.deadlocks import WaitGraph
from tests.runtime.worker.probe import PATIENCE


class Node:
    def __init__(self, number: int) -> None:
        self.title = f"actor {number}"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=30))
def test_a_wait_is_refused_exactly_if_it_closes_a_circle(
    steps: list[tuple[int, int, bool]],
) -> None:
    nodes = [Node(number) for number in range(5)]
    waits, graph = WaitGraph(), nx.MultiDiGraph()
    graph.add_nodes_from(range(5))
    for waiter, target, ends in steps:
        if waiter == target:
            continue
        if ends and graph.has_edge(waiter, target):
            waits.end(nodes[waiter], nodes[target])
            graph.remove_edge(waiter, target)
        elif nx.has_path(graph, target, waiter):
            with pytest.raises(af.WouldDeadlock, match=f"actor {waiter} waits for actor {target}"):
                waits.begin(nodes[waiter], nodes[target])
        else:
            waits.begin(nodes[waiter], nodes[target])
            graph.add_edge(waiter, target)


class Relay(af.Actor):
    """Asks the next actor of a list."""

    def on_receive(self, others: list[Any]) -> Any:
        return others[0].ask(others[1:]) if others else "end"


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_circle_of_actors_is_found(size: int) -> None:
    with detect_deadlocks() as waits:
        refs = [Relay.start() for _ in range(size)]
        with pytest.raises(af.WouldDeadlock, match="deadlock"):
            refs[0].ask([*refs[1:], refs[0]], timeout=PATIENCE)
        assert waits.found[0].count("waits for") == size
        assert refs[0].ask(refs[1:], timeout=PATIENCE) == "end"
        for ref in refs:
            ref.stop()
    assert len(waits.found) == 1


def relay(batch: list[Any], _: object) -> af.Answers:
    return af.Answers(None, [_asked(one) for one in batch])


def _asked(refs: list[Any]) -> Any:
    try:
        return refs[0].ask(refs[1:], timeout=PATIENCE) if refs else "end"
    except af.WouldDeadlock as error:
        return error


async def arelay(batch: list[Any], _: object) -> af.Answers:
    answers: list[Any] = []
    for refs in batch:
        try:
            answers.append(await refs[0].aask(refs[1:]) if refs else "end")
        except af.WouldDeadlock as error:
            answers.append(error)
    return af.Answers(None, answers)


def push(batch: list[Any], _: object) -> af.Answers:
    for refs in batch:
        if refs:
            refs[0].push_block(refs[1:], timeout=PATIENCE)
    return af.Answers(None, ["end"] * len(batch))


@pytest.mark.parametrize("job", [relay, arelay])
def test_a_circle_of_workers_is_found(job: Any) -> None:
    with (
        detect_deadlocks() as waits,
        af.spawn(relay, on_failure="isolate") as one,
        af.spawn(job, on_failure="isolate") as two,
    ):
        assert one.ask([two], timeout=PATIENCE) == "end"
        with pytest.raises(af.WouldDeadlock, match="waits for"):
            asyncio.run(one.aask([two, one], timeout=PATIENCE))
        assert one.ask([two], timeout=PATIENCE) == "end"
    assert len(waits.found) == 1


class _Pushed:
    """An actor, to which a worker pushes."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def push_block(self, others: list[Any], timeout: float) -> None:
        self.ref.ask(others, timeout=timeout)


def test_a_circle_of_an_actor_and_a_worker_is_found() -> None:
    with detect_deadlocks() as waits, af.spawn(push, on_failure="isolate") as worker:
        actor = Relay.start()
        with pytest.raises(af.WouldDeadlock, match=r"Relay .* waits for worker"):
            actor.ask([worker, _Pushed(actor)], timeout=PATIENCE)
        actor.stop()
    assert len(waits.found) == 1


def test_a_worker_with_other_batches_in_flight_is_no_part_of_a_circle() -> None:
    with (
        detect_deadlocks() as waits,
        af.spawn(relay, concurrency=2) as one,
        af.spawn(relay) as two,
    ):
        assert one.ask([two, one], timeout=PATIENCE) == "end"
    assert waits.found == []


def test_everything_is_as_before_afterwards() -> None:
    before = AnswerFuture.get, WorkerRef.ask, WorkerRef.push_block, WorkerRef.aask
    with detect_deadlocks(), detect_deadlocks():
        assert WorkerRef.ask is not before[1]
    assert before == (AnswerFuture.get, WorkerRef.ask, WorkerRef.push_block, WorkerRef.aask)
