"""Names of workers."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.registry import forget_name, take_name
from tests.runtime.worker.interrupts.strike import Strike
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


def noop(batch: Any, state: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize("name", ["a name", 7, ("tuple", 1), frozenset({1})])
def test_any_hashable_is_a_name(name: Hashable) -> None:
    assert af.whereis(name) is None
    with af.spawn(noop, name=name) as worker:
        assert af.whereis(name) is worker
        assert worker.name == name
    assert af.whereis(name) is None


def test_without_a_name_a_worker_is_not_found() -> None:
    with af.spawn(noop) as worker:
        assert worker.name is None
        assert af.whereis(None) is None


def test_a_name_is_free_again_after_the_end(pool_probe: Probe) -> None:
    for _ in range(3):
        with af.spawn(noop, name="again") as worker:
            assert af.whereis("again") is worker
    pool_probe.then(ValueError("broken"))
    pool_probe.open()
    crashing = pool_probe.spawn(name="again")
    crashing.push(1)
    ended(crashing)
    assert af.whereis("again") is None


def test_a_name_is_taken_until_the_drain_is_through(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(name="draining")
    worker.push(1)
    pool_probe.begun()
    worker.stop(block=False)
    with pytest.raises(af.AlreadyStarted) as refused:
        af.spawn(noop, name="draining")
    assert refused.value.ref is worker
    pool_probe.open()
    ended(worker)
    af.spawn(noop, name="draining").stop()


def test_of_many_who_want_a_name_one_gets_it() -> None:
    barrier = threading.Barrier(8)

    def attempt() -> Any:
        barrier.wait(PATIENCE)
        try:
            return af.spawn(noop, name="wanted")
        except af.AlreadyStarted as error:
            return error

    callers = [Caller(attempt) for _ in range(8)]
    outcomes = [caller.value() for caller in callers]
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, af.WorkerRef)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, af.AlreadyStarted)]
    assert len(losers) == 7
    assert all(loser.ref is winner for loser in losers)
    winner.stop()


def test_forgetting_a_name_that_another_bears_does_nothing() -> None:
    first, second = object(), object()
    take_name("borne", first)
    forget_name("borne", second)
    assert af.whereis("borne") is first
    forget_name("borne", first)
    forget_name("borne", first)
    assert af.whereis("borne") is None


def test_a_message_by_name_before_the_worker_is_ready_is_not_lost() -> None:
    """Somebody finds the name while `on_start` still runs."""
    seen: list[Any] = []
    inside, go_on = threading.Event(), threading.Event()

    class Slow(af.Executor):
        def on_start(self) -> None:
            inside.set()
            assert go_on.wait(PATIENCE)

        def handle(self, batch: Any) -> None:
            seen.append(batch)

    spawner = Caller(af.spawn, Slow, name="early")
    assert inside.wait(PATIENCE)
    early: Any = af.whereis("early")
    early.push(1)
    early.push_ack(2)
    waits = Caller(early.push_block, 3)
    go_on.set()
    worker = spawner.value()
    assert worker is early
    assert waits.wait().error is None
    worker.stop()
    assert [message for batch in seen for message in batch] == [1, 2, 3]


class Ready(af.Executor):
    def on_start(self) -> None:
        self.state = "ready"

    def handle(self, batch: Any) -> None:
        pass


@pytest.mark.parametrize("what", ["worker", "executor", "supervisor"])
def test_m13_an_interrupted_start_leaves_no_name_that_nobody_bears(what: str) -> None:
    tree = af.Supervisor([af.Worker("w", noop)], name="struck")
    starts: dict[str, Callable[[], Any]] = {
        "worker": lambda: af.spawn(noop, name="struck"),
        "executor": lambda: af.spawn(Ready, name="struck"),
        "supervisor": tree.start,
    }
    for place in itertools.count():
        strike = Strike(place, opcodes=False)
        struck = strike.call(starts[what])
        bearer = af.whereis("struck")
        if bearer is not None:
            bearer.stop(timeout=PATIENCE)
        until(lambda: af.whereis("struck") is None, f"the name should be free: {strike.where}")
        if not struck:
            break
    assert strike.where is None
