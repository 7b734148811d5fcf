"""The statistics add up at every moment (M16), whatever the behaviour and whatever happens."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any

import pykka
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Stack,
    TableUnique,
    Throttle,
    Unique,
)
from actorflow.testing import ManualLane, VirtualClock
from tests.behaviours.compositions import built, compositions, possible
from tests.behaviours.models import merge
from tests.runtime.worker.probe import PATIENCE, until
from tests.runtime.worker.statistics.law import CUSTOM, check_law

BEHAVIOURS: dict[str, Any] = {
    "Queue": Queue,
    "Stack": Stack,
    "Unique": Unique,
    "TableUnique": TableUnique,
    "Coalesce": lambda: Coalesce(0, merge),
    "Priority": Priority,
    "Fair": Fair,
    "reject": lambda: Bounded(Queue, 4),
    "drop_oldest": lambda: Bounded(Unique, 4, when_full="drop_oldest"),
    "drop_newest": lambda: Bounded(Queue, 4, when_full="drop_newest"),
    "block": lambda: Bounded(Queue, 4, when_full="block"),
    "Chunk": lambda: Chunk(Queue, 3),
    "Linger": lambda: Linger(Queue, 0.002, size=5),
    "Throttle": lambda: Throttle(Queue, 0.001),
    "Debounce": lambda: Debounce(Unique, 0.001, at_most=0.002),
    "Expire": lambda: Expire(Unique, 0.001),
    "Adaptive": lambda: Adaptive(Queue, target=0.005),
    "nested": lambda: Linger(Bounded(Unique, 6, when_full="drop_oldest"), 0.001),
    **{kind.__name__: kind for kind in CUSTOM},
}

POLICIES: dict[str, Any] = {
    "drop": "drop",
    "retry": af.Retry(1),
    "isolate": "isolate",
    "isolate twice": af.Isolate(retries=1),
}

actions = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), st.integers(0, 20)),
        st.tuples(st.just("push_many"), st.lists(st.integers(0, 20), max_size=6)),
        st.tuples(st.just("ask"), st.integers(0, 3), st.integers(0, 20)),
        st.tuples(st.just("malformed")),
        st.tuples(st.just("step")),
        st.tuples(st.just("run")),
        st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 3.0])),
        st.tuples(st.just("mail")),
        st.tuples(st.just("letters"), st.sampled_from(["retry", "purge"])),
    ),
    max_size=30,
)
ends = st.sampled_from(["drain", "finish", "now", "kill", "stop inside", "exit inside", None])


class Stage:
    """A worker on virtual time whose job fails for some messages, and answers in all ways."""

    def __init__(self, behaviour: Any, policy: Any, concurrency: int, seed: int) -> None:
        self.lane, self.clock = ManualLane(), VirtualClock()
        self.random = random.Random(seed)
        self.order: Any = None
        self.deferred: list[af.Deferred] = []
        self.tickets: list[Any] = []
        self.worker = af.spawn(
            self.job, behaviour=behaviour, on_failure=policy, concurrency=concurrency,
            executor=self.lane, clock=self.clock,
        )  # fmt: skip

    def job(self, batch: Any, state: Any) -> Any:
        check_law(self.worker)
        if self.order is not None:
            raise self.order
        messages = batch if isinstance(batch, list) else [batch]
        if any(isinstance(m, tuple) and m[1] == 13 for m in messages):
            raise ValueError("poison")
        choice = self.random.randrange(6)
        if choice == 0:
            return af.Answers(
                None, [ValueError(m) if self.random.random() < 0.3 else m for m in messages]
            )
        if choice == 1:
            self.deferred.append(af.Deferred())
            return self.deferred[-1]
        if choice == 2:
            return af.Answers(None, [None] * (len(messages) + self.random.randrange(2)))
        return None

    def perform(self, action: tuple[Any, ...]) -> None:
        verb, *args = action
        worker = self.worker
        with suppress(af.WorkerStopped, af.WouldDeadlock):
            if verb == "push":
                worker.push(tuple(args))
            elif verb == "push_many":
                worker.push_many([(number % 3, number) for number in args[0]])
            elif verb == "ask":
                self.tickets.append(worker.ask(tuple(args), block=False))
            elif verb == "malformed":
                worker.push(object())
            elif verb == "mail":
                worker.executor.tell("mail")
            elif verb == "letters":
                getattr(worker.dead_letters, args[0])()
            elif verb == "step":
                self.lane.step()
            elif verb == "run":
                self.lane.run()
                if self.deferred:
                    failing = self.random.random() < 0.3
                    self.deferred.pop().resolve(OSError("late") if failing else None)
            else:
                self.clock.advance(args[0])

    def end(self, how: str | None) -> None:
        worker = self.worker
        if how is None:
            return
        if how.endswith("inside"):
            self.order = af.Stop() if how == "stop inside" else SystemExit()
            with suppress(af.WorkerStopped, af.WouldDeadlock):
                worker.push((0, 2))
        elif how == "kill":
            worker.kill()
        else:
            worker.stop(drain=how == "drain", now=how == "now", block=False)

    def settle(self) -> None:
        """Let everything end that is under way."""
        for _ in range(200):
            self.lane.run()
            check_law(self.worker)
            if self.deferred:
                self.deferred.pop().resolve()
            elif self.clock.next_time() is not None:
                self.clock.advance(5.0)
            elif not len(self.lane):
                return


def play(stage: Stage, script: list[tuple[Any, ...]], end: str | None) -> None:
    for action in script:
        stage.perform(action)
        check_law(stage.worker)
    stage.end(end)
    check_law(stage.worker)
    for action in script[:5]:
        stage.perform(action)
        check_law(stage.worker)
    stage.settle()
    counted = check_law(stage.worker)
    if not stage.worker.is_alive():
        assert counted.held == counted.in_flight == 0
        assert all(is_told(ticket) for ticket in stage.tickets)  # M5


def is_told(future: Any) -> bool:
    try:
        future.get(timeout=0)
    except pykka.Timeout:
        return False
    except BaseException:  # noqa: BLE001 - an error is an answer, too
        return True
    return True


@settings(max_examples=150)
@given(
    name=st.sampled_from(sorted(BEHAVIOURS)),
    policy=st.sampled_from(sorted(POLICIES)),
    concurrency=st.sampled_from([1, 1, 2, 3]),
    script=actions,
    end=ends,
    seed=st.integers(0, 1_000),
)
def test_m16_the_law_for_each_behaviour(
    *, name: str, policy: str, concurrency: int, script: Any, end: str | None, seed: int
) -> None:
    play(Stage(BEHAVIOURS[name], POLICIES[policy], concurrency, seed), script, end)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_m16_the_law_where_more_fail_than_were_given(policy: str) -> None:
    def job(batch: Any, state: Any) -> Any:
        return af.Answers(state, [ValueError(m) for m in batch[:-1]] + [None])

    lane = ManualLane()
    worker = af.spawn(
        job, behaviour=BEHAVIOURS["Doubling"], on_failure=POLICIES[policy], executor=lane
    )
    worker.push_many([(0, 1), (0, 2), (0, 3)])
    lane.run()
    counted = check_law(worker)
    assert counted.accepted == 3
    assert counted.in_flight == 0


@settings(max_examples=100)
@given(
    layers=compositions,
    policy=st.sampled_from(sorted(POLICIES)),
    script=actions,
    end=ends,
    seed=st.integers(0, 1_000),
)
def test_m16_the_law_for_compositions(
    layers: Any, policy: str, script: Any, end: str | None, seed: int
) -> None:
    assume(possible(layers))
    play(Stage(built(layers), POLICIES[policy], 1, seed), script, end)


class Look:
    """A thread that takes the statistics all the time."""

    def __init__(self, worker: af.WorkerRef) -> None:
        self.worker = worker
        self.looks = 0
        self.wrong: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: self.looks > 3 or self.wrong is not None, "the statistics are taken")

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                check_law(self.worker)
                self.looks += 1
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.wrong = error

    def end(self) -> None:
        self._done.set()
        self._thread.join(PATIENCE)
        assert self.wrong is None, self.wrong


def produce(worker: af.WorkerRef, first: int) -> None:
    """Push 150 messages, and wait for some of them."""
    chance = random.Random(first)
    expected = (af.Displaced, af.Rejected, KeyError, ValueError)
    with suppress(af.WorkerStopped):
        for number in range(first, first + 150):
            if chance.random() < 0.1:
                with suppress(*expected):
                    worker.push_block((number % 5, number), timeout=PATIENCE)
            else:
                worker.push((number % 5, number))


@pytest.mark.parametrize("end", ["drain", "finish", "now", "crash"])
@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_m16_the_law_in_a_storm(name: str, end: str) -> None:
    crash = threading.Event()

    def job(batch: Any, state: Any) -> Any:
        if crash.is_set():
            raise ValueError("broken")
        messages = batch if isinstance(batch, list) else [batch]
        return af.Answers(None, [None if m[1] % 9 else KeyError(m) for m in messages])

    worker = af.spawn(job, behaviour=BEHAVIOURS[name], concurrency=1 + (end == "now"))
    producers = [threading.Thread(target=produce, args=(worker, 1_000 * n)) for n in range(3)]
    for thread in producers:
        thread.start()
    look = Look(worker)
    if end == "crash":
        crash.set()
        with suppress(af.WorkerStopped):
            worker.push((0, 2))
    elif end == "drain":
        for thread in producers:
            thread.join(PATIENCE)
    worker.stop(drain={"drain": True, "finish": False}.get(end), now=end == "now")
    for thread in producers:
        thread.join(PATIENCE)
    look.end()
    counted = check_law(worker)
    assert counted.held == counted.in_flight == 0
    if end == "drain":
        assert counted.accepted + counted.rejected == 450
