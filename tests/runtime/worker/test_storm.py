"""Storms and duels: what holds for one producer holds for eight, in every order of events."""

from __future__ import annotations

import queue
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
import pytest

import actorflow as af
from actorflow.runtime.lanes.pool import Pool, _Seat
from actorflow.runtime.worker.accumulator import FOLD_AT
from actorflow.runtime.worker.spec import launch, make
from actorflow.testing import ManualLane
from behaviours import Bounded, Queue
from tests.runtime.worker.duel import ACTIONS, STATES, duel
from tests.runtime.worker.interleave import PATIENCE, Paused, Yields
from tests.runtime.worker.mutations import MUTATIONS, Mutation
from tests.runtime.worker.storm import BEHAVIOURS, Weather, run_storm

if TYPE_CHECKING:
    from collections.abc import Iterator

STOPS = (None, "drain", "finish", "now")
SEEDS = 400
"""The most storms that a missing safeguard may survive. It is found in one of a dozen or so."""


@contextmanager
def hasty_switches() -> Iterator[None]:
    """Let the interpreter switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# Storms.


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_loses_repeats_and_reorders_nothing(behaviour: str, stop: str | None) -> None:
    assert run_storm(Weather(behaviour, seed=1, messages=300, stop=stop, fold_at=None)) == []


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_with_hasty_switches(behaviour: str, stop: str | None) -> None:
    with hasty_switches():
        assert run_storm(Weather(behaviour, seed=2, messages=100, stop=stop)) == []


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_with_yields_at_opcodes(behaviour: str, stop: str | None) -> None:
    for seed in range(3):
        with Yields(seed):
            found = run_storm(Weather(behaviour, seed, messages=40, stop=stop, help=seed == 1))
        assert found == [], f"seed {seed}"


@pytest.mark.parametrize("behaviour", ["queue", "unique", "chunk", "reject", "block"])
def test_a_crash_in_the_storm_is_told_to_every_waiter(behaviour: str) -> None:
    for seed in range(4):
        with Yields(seed):
            found = run_storm(Weather(behaviour, seed, messages=40, crash=True, help=seed == 1))
        assert found == [], f"seed {seed}"


@pytest.mark.parametrize("stop", [*STOPS, "crash"])
@pytest.mark.parametrize("behaviour", ["queue", "unique", "chunk", "reject", "block", "linger"])
def test_m8_a_storm_over_three_batches_in_flight(behaviour: str, stop: str | None) -> None:
    crash = stop == "crash"
    mode = None if crash else stop
    for seed in range(2):
        with Yields(seed):
            found = run_storm(
                Weather(behaviour, seed, messages=40, stop=mode, crash=crash, concurrency=3)
            )
        assert found == [], f"seed {seed}"


def test_a_storm_with_lulls_leaves_nothing_behind() -> None:
    for seed in range(10):
        with Yields(seed):
            found = run_storm(Weather(seed=seed, producers=3, messages=60, lulls=True))
        assert found == [], f"seed {seed}"


def test_a_storm_without_the_interpreter_lock() -> None:
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("this Python has an interpreter lock; run the file with a free-threaded one")
    for behaviour in BEHAVIOURS:
        for stop in STOPS:
            assert run_storm(Weather(behaviour, seed=3, messages=2_000, stop=stop)) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", ["queue", "unique", "drop_oldest", "chunk"])
def test_a_storm_of_eight_million_messages(behaviour: str, stop: str | None) -> None:
    weather = Weather(
        behaviour, seed=4, messages=1_000_000, stop=stop, calm=True, fold_at=None, patience=1_200.0
    )
    assert run_storm(weather) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_many_storms_with_yields_at_opcodes(behaviour: str, stop: str | None) -> None:
    for seed in range(200):
        with Yields(seed, often=(0.001, 0.004, 0.03)[seed % 3]):
            found = run_storm(Weather(behaviour, seed, messages=60, stop=stop, help=seed % 2 == 1))
        assert found == [], f"seed {seed}"


# Duels.


@pytest.mark.parametrize("first", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_a_duel_leaves_the_worker_whole(state: str, first: str) -> None:
    for number, second in enumerate(ACTIONS):
        assert duel(state, first, second, begin=number, stride=24) == []


@pytest.mark.parametrize("third", ["push", "block", "tell"])
@pytest.mark.parametrize("second", ["drain", "finish", "now", "poison"])
@pytest.mark.parametrize("first", ["push", "push_many", "block", "tell"])
def test_m6_whoever_takes_the_token_of_a_stopped_worker_hides_the_stop_from_nobody(
    first: str, second: str, third: str
) -> None:
    assert duel("idle", first, second, third) == []


@pytest.mark.parametrize("second", ["push", "push_many", "block", "same"])
def test_m16_a_push_while_somebody_looks_leaves_no_negative_count(second: str) -> None:
    assert duel("idle", "look", second) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("first", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_a_duel_at_every_single_place(state: str, first: str, opcodes: bool) -> None:  # noqa: FBT001 - a parameter
    for second in ACTIONS:
        assert duel(state, first, second, opcodes=opcodes) == []


def test_m7_an_executor_that_is_replaced_while_it_begins_leaves_the_next_one_whole() -> None:
    for place in range(1_000):
        lane = ManualLane()
        seen: list[str] = []
        worker = make(lambda batch, _, seen=seen: seen.extend(batch), {"executor": lane})  # type: ignore[misc]
        life = worker.actor.life
        life.supervise()
        launch(worker)
        worker.push("first")
        paused = Paused(lane.run, place)
        helper = threading.Thread(target=_replace, args=(life,), daemon=True)
        helper.start()
        if not worker.actor.lock.locked():
            helper.join(PATIENCE)
        paused.finish()
        helper.join(PATIENCE)
        worker.push("second")
        lane.run()
        assert worker.status is af.PairState.IDLE, paused.where
        assert seen in (["second"], ["first", "second"]), paused.where
        worker.stop(now=True)
        if paused.where is None:
            return


def _replace(life: Any) -> None:
    life.abandon_executor()
    life.revive()


# The storms can fail.


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.storm], ids=str)
def test_a_storm_notices_a_missing_safeguard(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.apply(monkeypatch)
    weather: dict[str, Any] = {"producers": 3, "messages": 60, "patience": 3.0}
    weather.update(mutation.storm or ())
    for seed in range(SEEDS):
        with Yields(seed):
            if run_storm(Weather(seed=seed, **weather)):
                return
    pytest.fail(f"{SEEDS} storms have not noticed: {mutation}")


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.duel], ids=str)
def test_a_duel_notices_a_missing_safeguard(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mutation.duel is not None
    assert duel(*mutation.duel) == []
    mutation.apply(monkeypatch)
    assert duel(*mutation.duel)


# What the hunt has found, one by one.


def test_a_bound_holds_for_what_is_raw_too() -> None:
    gate, begun = threading.Event(), threading.Event()
    batches: list[int] = []

    def job(batch: list[int], _state: Any) -> None:
        batches.append(len(batch))
        begun.set()
        assert gate.wait(PATIENCE)

    producers, deepest = 4, 0
    worker = af.spawn(job, behaviour=Bounded(Queue(), 10, when_full="drop_oldest"))
    worker.push(0)
    assert begun.wait(PATIENCE)

    def produce() -> None:
        nonlocal deepest
        for number in range(5_000):
            worker.push(number)
            deepest = max(deepest, len(worker))

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.set()
    worker.stop()
    assert deepest <= 10 + 4 * FOLD_AT + producers
    assert max(batches) <= 10


def test_a_message_that_comes_by_name_while_the_worker_starts_is_not_forgotten() -> None:
    for place in range(1_000):
        lane = ManualLane()
        seen: list[str] = []
        name = f"storm-{place}"

        def start(lane: ManualLane = lane, seen: list[str] = seen, name: str = name) -> None:
            af.spawn(lambda batch, _: seen.extend(batch), executor=lane, name=name)

        paused = Paused(start, place)
        worker = af.whereis(name)
        pusher = threading.Thread(target=getattr(worker, "push", len), args=("early",))
        pusher.start()
        if worker is not None and not worker.actor.lock.locked():
            pusher.join(PATIENCE)
        paused.finish()
        pusher.join(PATIENCE)
        lane.run()
        assert seen == ([] if worker is None else ["early"]), paused.where
        af.whereis(name).stop()  # type: ignore[union-attr]
        if paused.where is None:
            return


def test_the_name_is_free_when_stop_returns_although_another_thread_ends_the_worker() -> None:
    def find() -> Any:
        return af.whereis("storm-name")

    for place in range(1_000):
        worker = af.spawn(lambda batch, _: None, executor=ManualLane(), name="storm-name")
        names: list[Any] = []
        paused = Paused(worker.kill, place)
        worker.watch(lambda _worker, _reason, names=names: names.append(find()))  # type: ignore[misc]
        paused.finish()
        assert names == [None], paused.where
        if paused.where is None:
            return


class Broken:
    """A behaviour of a user's that cannot give back what it holds."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> Any:
        raise KeyError("lost it")

    def __len__(self) -> int:
        return len(self.held)


def test_a_behaviour_that_fails_ends_the_worker_and_nobody_hangs() -> None:
    worker = af.spawn(lambda batch, _: None, behaviour=Broken)
    with pytest.raises(af.WorkerCrashed) as caught:
        worker.push_block("message", PATIENCE)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(af.WorkerCrashed):
        worker.push("another")


def test_helpers_that_wait_for_room_do_not_wait_for_each_other() -> None:
    pool = Pool(core=2, name="storm-help")
    worker = af.spawn(
        lambda batch, _: None,
        behaviour=Bounded(Queue(), 1, when_full="block"),
        executor=pool,
        help=True,
    )

    def produce() -> None:
        for number in range(200):
            worker.push_block(number)

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
    with hasty_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    worker.stop()
    pool.close()


class Echo(af.Actor):
    """An actor that remembers what it was told."""

    def __init__(self, lane: ManualLane) -> None:
        super().__init__(lane=lane)
        self.heard: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.heard.append(message)


def test_an_actor_that_is_told_something_while_it_starts_is_not_stuck() -> None:
    for place in range(1_000):
        lane = ManualLane()
        paused = Paused(partial(Echo.start, lane), place)
        early = pykka.ActorRegistry.get_by_class(Echo)
        for ref in early:
            ref.tell("early")
        paused.finish()
        (ref,) = pykka.ActorRegistry.get_by_class(Echo)
        ref.tell("late")
        lane.run()
        actor = ref._actor_weakref()
        assert actor is not None
        assert actor.heard == ["early"] * len(early) + ["late"], paused.where
        ref.stop(block=False)
        lane.run()
        if paused.where is None:
            return


class LateQueue:
    """A pool's queue in which something arrives in the moment in which a thread gives up."""

    def __init__(self, late: Any) -> None:
        self._late = [late]
        self._here: list[Any] = []

    def get(self, timeout: float | None = None) -> Any:
        if self._here:
            return self._here.pop()
        self._here, self._late = self._late, []
        raise queue.Empty

    def empty(self) -> bool:
        return not self._here


class Note:
    """Something that a pool runs."""

    def __init__(self) -> None:
        self.ran = False

    def run(self) -> None:
        self.ran = True


def test_a_pool_thread_that_gives_up_takes_what_came_in_that_moment() -> None:
    pool, note = Pool(core=1, name="storm-linger"), Note()
    pool._ready = LateQueue(note)  # type: ignore[assignment]
    pool._work(2, _Seat())
    assert note.ran


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clocks of threads here")
def test_the_watcher_of_a_pool_survives_a_thread_that_ends() -> None:
    seat = _Seat()

    def sit() -> None:
        seat.clock = time.pthread_getcpuclockid(threading.get_ident())

    thread = threading.Thread(target=sit)
    thread.start()
    thread.join()
    assert not seat.look(now=1.0)
