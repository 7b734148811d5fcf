"""Callers who wait: for room where the behaviour says so, or by running the job themselves."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue, Unique
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until, until_accumulated

# A full behaviour that makes pushers wait.


def test_block_makes_pushers_wait_for_room(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push(1)
    probe.begun()
    worker.push(2)
    pushers = [Caller(push, 3) for push in (worker.push, worker.push_ack, worker.push_block)]
    until(lambda: len(worker.actor.offers._blocked or ()) == 3, "three pushers wait")
    assert not any(pusher.done.is_set() for pusher in pushers)
    for _ in range(4):
        probe.let_end()
        probe.begun()
        assert len(worker) <= 1
    probe.open()
    assert [pusher.wait().error for pusher in pushers] == [None] * 3
    assert probe.batches == [[1], [2], [3], [3], [3]]
    assert worker.statistics().rejected == 0


def test_block_with_a_timeout_raises_full(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push(1)
    probe.begun()
    worker.push(2)
    with pytest.raises(af.Full):
        worker.push_ack(3, timeout=0.001)
    with pytest.raises(af.Full):
        worker.push_block(3, timeout=0.001)
    probe.let_end()
    assert probe.begun() == [2]
    assert len(worker) == 0


def test_block_ends_with_an_error_when_the_worker_ends(probe: Probe) -> None:
    error = ValueError("broken")
    probe.then(error)
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push(1)
    probe.begun()
    worker.push(2)
    pushers = [Caller(push, 3) for push in (worker.push, worker.push_ack, worker.push_block)]
    until(lambda: len(worker.actor.offers._blocked or ()) == 3, "three pushers wait")
    probe.let_end()
    assert all(isinstance(pusher.wait().error, af.WorkerCrashed) for pusher in pushers)


def test_block_in_its_own_job_would_deadlock() -> None:
    def job(batch: Any, state: Any) -> None:
        for message in (1, 2, 3):
            workers[0].push(message)

    workers = [af.spawn(job, behaviour=Bounded(Queue, 2, when_full="block"))]
    with pytest.raises(af.WouldDeadlock, match="full"):
        workers[0].push_block("first")


# Callers that help.


def test_help_runs_the_job_in_the_callers_thread() -> None:
    threads: list[int] = []
    with af.spawn(lambda batch, state: threads.append(threading.get_ident()), help=True) as worker:
        worker.push_block(1)
        worker.push_block(2, timeout=PATIENCE)  # with a timeout it cannot help
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()


def test_help_leaves_a_busy_worker_to_its_thread(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(help=True)
    worker.push(1)
    pool_probe.begun()
    caller = Caller(worker.push_block, 2)
    until_accumulated(worker, 1)
    pool_probe.let_end()
    assert pool_probe.begun() == [2]
    pool_probe.let_end()
    assert caller.wait().error is None


def test_help_goes_on_with_what_arrived_meanwhile() -> None:
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        seen.append(batch)
        if batch == [1]:
            workers[0].push(2)

    workers = [af.spawn(job, help=True)]
    with workers[0] as worker:
        worker.push_block(1)
    assert seen == [[1], [2]]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_help_does_not_leak_the_token_when_the_job_raises(error: BaseException) -> None:
    def job(batch: Any, state: Any) -> None:
        raise error

    worker = af.spawn(job, help=True)
    with pytest.raises(type(error)) as raised:
        worker.push_block(1)
    assert raised.value is error
    assert worker.exit_reason == af.Crash(error)
    for push in (worker.push, worker.push_ack, worker.push_block):
        with pytest.raises(af.WorkerCrashed):
            push(2)


def test_help_does_not_leak_the_token_when_the_message_is_refused() -> None:
    seen: list[Any] = []
    with af.spawn(lambda b, s: seen.extend(b), behaviour=Unique, help=True) as worker:
        with pytest.raises(af.Malformed):
            worker.push_block(5)
        worker.push_block(("a", 1))
    assert seen == [("a", 1)]
