"""What counts as a crash, and what does not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.executions.stored_backlog import CRASHES
from actorflow.engine.kind import NewTask, Outcome, TaskEnded
from actorflow.engine.stores.protocol import Change
from actorflow.engine.tasks.task import HOLD
from actorflow.runtime.tickets import ThreadTicket
from actorflow.testing.clock import VirtualClock
from tests.engine.kinds import PATIENCE, Kept, Script, collect, flush, quiet, rows, state_of, until


class Left(Kept):
    """A store that the test calls closed or not."""

    left_open = False


class Hanging:
    """A job or tasker that does not return before the test is over."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.attempts: list[int] = []

    def __call__(self, what: Any, *_state: Any) -> Any:
        self.attempts.append(getattr(what, "attempt", 0))
        self.entered.set()
        assert self.go.wait(PATIENCE)
        return None


def test_a_message_that_is_cut_off_by_many_closings_is_no_crasher() -> None:
    store = Left()
    jobs = [Hanging() for _ in range(CRASHES + 3)]
    try:
        for number, job in enumerate(jobs):
            store.left_open = number == 1  # one crash, and many closings
            engine = BareEngine(store)
            worker = engine.worker("w", job, state=[])
            if number == 0:
                worker.push_ack(1)
            engine.resume()
            assert job.entered.wait(PATIENCE)
            engine.close(timeout=0.01)
        store.left_open = False
        with BareEngine(store) as engine:
            worker = engine.worker("w", collect, state=[])
            worker.push_block(2)
            assert worker.state() == [1, 2]
            assert len(worker.dead_letters) == 0
    finally:
        for job in jobs:
            job.go.set()


def test_a_message_that_was_there_at_each_of_many_crashes_is_given_up() -> None:
    store = Left()
    jobs = [Hanging() for _ in range(CRASHES + 2)]
    try:
        for number, job in enumerate(jobs):
            store.left_open = number > 0
            engine = BareEngine(store)
            worker = engine.worker("w", job, state=[])
            if number == 0:
                worker.push_ack(1)
            engine.resume()
            assert job.entered.wait(PATIENCE), number
            engine.close(timeout=0.01)
        with BareEngine(store) as engine:
            worker = engine.worker("w", collect, state=[])
            worker.push_block(2)
            assert worker.state() == [2]
            (letter,) = worker.dead_letters
            assert (letter.message, "the process ended" in letter.error) == (1, True)
    finally:
        for job in jobs:
            job.go.set()


def test_messages_that_were_processed_beside_one_that_ends_the_process_are_not_given_up() -> None:
    store = Left()
    jobs = [Hanging() for _ in range(CRASHES + 2)]
    others = [Hanging() for _ in jobs]
    try:
        for number, (job, other) in enumerate(zip(jobs, others, strict=True)):
            store.left_open = number > 0
            engine = BareEngine(store, clock=VirtualClock())
            workers = [
                engine.worker(name, job if name == "a" else other, state=[]) for name in "abc"
            ]
            if number == 0:
                for worker in workers:
                    worker.push_ack(1)
            engine.resume()
            assert job.entered.wait(PATIENCE), number
            engine.close(timeout=0.01)
        with BareEngine(store, clock=VirtualClock()) as engine:
            crasher, *innocent = (engine.worker(name, collect, state=[]) for name in "abc")
            for worker in (crasher, *innocent):
                worker.push_block(2)
            assert crasher.state() == [2]
            assert len(crasher.dead_letters) == 1
            assert [worker.state() for worker in innocent] == [[1, 2]] * 2
            assert [len(worker.dead_letters) for worker in innocent] == [0, 0]
    finally:
        for each in (*jobs, *others):
            each.go.set()


def test_the_next_trial_begins_if_one_takes_long() -> None:
    store = Left()
    clock = VirtualClock()
    long, other = Hanging(), Hanging()
    with BareEngine(store) as engine:
        for name in "ab":
            engine.worker(name, long if name == "a" else other, state=[]).push_ack(1)
            store.commit([Change(name, attempted=[rows(engine, "messages")[-1].id])])
        engine.close(timeout=0.01)
    long.go.set()
    other.go.set()
    store.left_open = True
    long, other = Hanging(), Hanging()
    try:
        engine = BareEngine(store, clock=clock)
        engine.worker("a", long, state=[])
        engine.worker("b", other, state=[])
        engine.resume()
        assert long.entered.wait(PATIENCE)
        flush(engine)
        assert not other.entered.is_set()
        clock.advance(1.0)
        assert other.entered.wait(PATIENCE)
    finally:
        long.go.set()
        other.go.set()
        engine.close()


def _asking(state: Any, message: Any) -> Any:
    if isinstance(message, TaskEnded):
        return [*state, message.outcome]
    return Outcome(state=state, tasks=[NewTask(message, "t")])


def test_a_task_that_is_cut_off_by_many_closings_is_no_crasher() -> None:
    store = Left()
    taskers = [Hanging() for _ in range(6)]
    try:
        for number, tasker in enumerate(taskers):
            engine = BareEngine(store)
            engine.register(Script(_asking))
            engine.tasker("t", tasker)
            if number == 0:
                engine.send("x", "a", kind="script")
            engine.resume()
            assert tasker.entered.wait(PATIENCE)
            engine.close(timeout=0.01)
        assert [tasker.attempts for tasker in taskers] == [[1]] * 6
        with BareEngine(store) as engine:
            script = Script(_asking)
            engine.register(script)
            engine.tasker("t", lambda task: None)
            engine.resume()
            script.wait(1)
            quiet(engine)
            assert state_of(engine, "x") == ["ok"]
    finally:
        for tasker in taskers:
            tasker.go.set()


@pytest.mark.parametrize("left_open", [False, True])
def test_a_task_whose_tasker_comes_late_is_at_its_first_attempt(
    left_open: bool,  # noqa: FBT001
) -> None:
    store = Left()
    store.left_open = left_open
    with BareEngine(store) as engine:
        script = Script(_asking)
        engine.register(script)
        for name in "abc":
            engine.send("x", name, kind="script")
        script.wait(3)
        quiet(engine)
        attempts: list[int] = []
        engine.tasker("t", lambda task: attempts.append(task.attempt))
        script.wait(6)
        assert attempts == [1, 1, 1]


def _until_not_counted(engine: BareEngine) -> None:
    until(engine, lambda: rows(engine, "tasks")[0].attempts == 0)
    quiet(engine)


@pytest.mark.parametrize("left_open", [False, True])
def test_a_task_that_is_held_over_many_restarts_is_held(
    left_open: bool,  # noqa: FBT001
) -> None:
    """Somebody answers after weeks; the process ended many times meanwhile, well or not."""
    store = Left()
    for number in range(6):
        store.left_open = left_open and number > 0
        with BareEngine(store) as engine:
            engine.register(Script(_asking))
            begun = threading.Event()

            def hold(_task: Any, begun: threading.Event = begun) -> Any:
                begun.set()
                return HOLD

            engine.tasker("t", hold)
            if number == 0:
                engine.send("x", "a", kind="script")
            engine.resume()
            assert begun.wait(PATIENCE)
            _until_not_counted(engine)
    with BareEngine(store) as engine:
        script = Script(_asking)
        engine.register(script)
        assert engine.return_task("a", 1)
        script.wait(1)
        quiet(engine)
        assert state_of(engine, "x") == ["ok"]


def test_an_engine_can_be_closed_again_and_again_while_it_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("actorflow.engine.executions.stored_backlog._PAGE", 1)
    store = Left()
    names = [f"x{number:02}" for number in range(50)]
    with BareEngine(store) as engine:
        for name in names:
            engine.send(name, "once", kind="script")
        engine.send("x00", "twice")
    for number in range(6):
        store.left_open = number == 2
        with BareEngine(store) as engine:
            engine.register(Script())
            engine.resume()
    with BareEngine(store) as engine:
        engine.register(Script())
        engine.resume()
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        assert state_of(engine, "x00") == ["once", "twice"]
        assert [state_of(engine, name) for name in names[1:]] == [["once"]] * 49
        assert len(engine.dead_letters()) == 0


class Telling(Left):
    """A store that tells the test whenever attempts have been counted."""

    count: Any = None

    def commit(self, changes: Any) -> Any:
        done = super().commit(changes)
        if self.count is not None and any(change.attempted for change in changes):
            self.count()
        return done


@pytest.mark.parametrize("crashes", [0, 1, 2])
@pytest.mark.parametrize("moment", ["woken", "counted"])
def test_a_push_block_does_not_overtake_what_an_earlier_engine_has_left(
    moment: str, crashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes just when the worker is awake, and not all of its messages are there."""
    store = Telling()
    with BareEngine(store) as engine:
        engine.parts.state.passive = True  # it leaves what it stores
        engine.worker("w", collect, state=[]).push_many(range(4))
    for _ in range(crashes - 1):
        store.commit([Change("w", attempted=[row.id for row in rows(store, "messages")])])
    store.left_open = crashes > 0
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        done: list[ThreadTicket] = []

        def push_block() -> None:  # in the writer's thread: it must not wait
            done.append(ThreadTicket())
            engine.parts.sender.append_waiting("w", "worker", f"new{len(done)}", done[-1], None)

        def load(*arguments: Any) -> Any:
            live = woken(*arguments)
            push_block()
            return live

        if moment == "counted":
            store.count = push_block
        else:
            woken = engine.parts.table.load
            monkeypatch.setattr(engine.parts.table, "load", load)
        engine.resume()
        until(engine, lambda: not rows(engine, "messages"))
        worker.push_block("last")
        for ticket in done:
            assert ticket.wait(PATIENCE)
        expected = [f"new{number + 1}" for number in range(len(done))]
        assert worker.state() == [*range(4), *expected, "last"]
        assert len(worker.dead_letters) == 0
        assert len(done) == (1 if moment == "woken" else [0, 1, 4][crashes])
