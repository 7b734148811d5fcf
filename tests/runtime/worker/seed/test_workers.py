"""W1 to W27: what Workex does, and what it should have done, on real workers."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Base, Bounded, Chunk, Priority, Queue, Stack, Unique
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until_accumulated

if TYPE_CHECKING:
    from actorflow.testing import ManualLane


class StackOneByOne(Base):
    """The seed's own behaviour in two methods."""

    def transform(self, messages: Any) -> Any:
        return messages[0]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


def test_w1_default_gives_the_first_alone_then_the_rest(probe: Probe) -> None:
    worker = probe.spawn()
    for message in (1, 2, 3):
        worker.push(message)
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == [2, 3]


@pytest.mark.parametrize("again", range(20))
def test_w1_three_rapid_pushes_give_the_same_batches_every_time(again: int) -> None:
    batches: list[Any] = []
    pushed = threading.Event()

    def job(batch: Any, state: Any) -> None:
        assert pushed.wait(PATIENCE)
        batches.append(batch)

    with af.spawn(job) as worker:
        for _ in range(5):
            for message in (1, 2, 3):
                worker.push(message)
            pushed.set()
            worker.push_block("end")
            pushed.clear()
            assert batches[0] == [1]
            assert batches[1][:2] == [2, 3]
            batches.clear()
            worker.executor.ask("are you idle?")  # so that the next round finds it idle


def test_w1_executor_with_on_start_is_idle_when_spawn_returns(probe: Probe) -> None:
    class Counting(af.Executor):
        def on_start(self) -> None:
            self.started = True

        def handle(self, batch: Any) -> None:
            probe.call(batch, None)

    for _ in range(50):
        worker = af.spawn(Counting)
        for message in (1, 2, 3):
            worker.push(message)
        assert probe.begun() == [1]
        probe._gate.release()
        assert probe.begun() == [2, 3]
        probe._gate.release()
        worker.stop()


def test_w2_push_ack_returns_for_each_and_order_holds(probe: Probe) -> None:
    probe.open()
    with probe.spawn() as worker:
        for message in (1, 2, 3):
            worker.push_ack(message)
    assert [message for batch in probe.batches for message in batch] == [1, 2, 3]


def test_w3_push_block_returns_only_after_its_batch(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push("first")
    assert probe.begun() == ["first"]
    caller = Caller(worker.push_block, "second")
    until_accumulated(worker, 1)
    probe.let_end()
    assert probe.begun() == ["second"]
    assert not caller.done.is_set()
    probe.let_end()
    assert caller.wait().error is None


def test_w4_bound_counts_what_waits_not_what_is_processed(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1))
    worker.push_ack(1)
    assert probe.begun() == [1]
    worker.push_ack(2)
    with pytest.raises(af.Full, match="1 messages are waiting"):
        worker.push_ack(3)
    probe.let_end()
    assert probe.begun() == [2]
    worker.push_ack(4)
    probe.let_end()
    assert probe.begun() == [4]


def test_w5_stack_gives_the_newest_first(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Stack)
    for message in (1, 2, 3):
        worker.push(message)
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == [3, 2]


@pytest.mark.parametrize(
    ("inner", "expected"), [(Stack, [10, 9, 8, 7, 6]), (Queue, [6, 7, 8, 9, 10])]
)
def test_w6_w8_drop_oldest_keeps_the_newest(
    pool_probe: Probe, inner: type, expected: list[int]
) -> None:
    worker = pool_probe.spawn(behaviour=Bounded(inner, 5, when_full="drop_oldest"))
    worker.push("first")
    assert pool_probe.begun() == ["first"]
    for message in range(1, 11):
        worker.push_ack(message)
    pool_probe.let_end()
    assert pool_probe.begun() == expected
    assert worker.statistics().dropped == 5


def test_w7_explicit_queue_is_the_default(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(behaviour=Queue())
    for message in (1, 2, 3):
        worker.push(message)
    assert pool_probe.begun() == [1]
    pool_probe.let_end()
    assert pool_probe.begun() == [2, 3]


def test_w9_unique_keeps_the_newest_of_each_key(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Unique)
    for message in (("a", 1), ("a", 2), ("b", 4), ("a", 3)):
        worker.push(message)
    assert probe.begun() == [("a", 1)]
    probe.let_end()
    assert dict(probe.begun()) == {"a": 3, "b": 4}


def test_w10_payload_need_not_be_a_list_and_the_rest_may_stay(probe: Probe) -> None:
    worker = probe.spawn(behaviour=StackOneByOne)
    for message in (1, 2, 3):
        worker.push(message)
    assert probe.begun() == 1
    probe.let_end()
    assert probe.begun() == 3
    probe.let_end()
    assert probe.begun() == 2


def test_w11_second_start_under_a_name_is_refused_and_names_find_the_worker() -> None:
    seen: list[Any] = []
    with af.spawn(lambda batch, state: seen.extend(batch), name="w11") as worker:
        with pytest.raises(af.AlreadyStarted, match="w11") as refused:
            af.spawn(lambda batch, state: None, name="w11")
        assert refused.value.ref is worker
        assert refused.value.name == "w11"
        found = af.whereis("w11")
        assert found is worker
        found.push_block("hello")
    assert seen == ["hello"]
    assert af.whereis("w11") is None


def test_w12_batches_put_together_are_the_input() -> None:
    draw = random.Random(12)
    messages = [draw.randrange(1_000) for _ in range(1_000)]
    seen: list[int] = []
    with af.spawn(lambda batch, state: seen.extend(batch)) as worker:
        for message in messages:
            push = draw.choice((worker.push, worker.push_ack, worker.push, worker.push_block))
            push(message)
    assert seen == messages


def test_w17_bound_holds_for_a_behaviour_that_jumps_past_it(pool_probe: Probe) -> None:
    class Double(Base):
        """Holds each message twice, so its length jumps from 0 to 2."""

        def add(self, messages: Any, message: Any) -> Any:
            return [message, message, *messages]

    worker = pool_probe.spawn(behaviour=Bounded(Double, 1))
    worker.push(1)
    assert pool_probe.begun() == [1, 1]
    worker.push_ack(2)
    with pytest.raises(af.Full):
        worker.push_ack(3)


def test_w18_replacing_a_key_is_welcome_when_full(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Unique, 1))
    worker.push(("first", 0))
    probe.begun()
    worker.push_ack(("a", 1))
    worker.push_ack(("a", 2))
    with pytest.raises(af.Full):
        worker.push_ack(("b", 1))
    probe.let_end()
    assert probe.begun() == [("a", 2)]


def test_w19_impossible_combination_is_refused_when_built() -> None:
    with pytest.raises(af.BadBehaviour, match="oldest"):
        Bounded(StackOneByOne, 5, when_full="drop_oldest")


@pytest.mark.parametrize("behaviour", [StackOneByOne, lambda: Chunk(Stack, 1)])
def test_w20_push_block_answers_only_its_own_item(probe: Probe, behaviour: Any) -> None:
    worker = probe.spawn(behaviour=behaviour)
    worker.push("first")
    probe.begun()
    older = Caller(worker.push_block, "older")
    until_accumulated(worker, 1)
    newer = Caller(worker.push_block, "newer")
    until_accumulated(worker, 2)
    probe.let_end()
    assert probe.begun() in ("newer", ["newer"])
    probe.let_end()
    assert newer.wait().error is None
    assert probe.begun() in ("older", ["older"])
    assert not older.done.is_set()
    probe.let_end()
    assert older.wait().error is None


def test_w21_a_caller_whose_item_was_dropped_is_told(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="drop_oldest"))
    worker.push("first")
    probe.begun()
    caller = Caller(worker.push_block, "dropped")
    until_accumulated(worker, 1)
    worker.push_ack("newer")
    assert isinstance(caller.wait().error, af.Dropped)


def test_w21_a_caller_whose_item_was_replaced_is_told(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Unique)
    worker.push(("first", 0))
    probe.begun()
    caller = Caller(worker.push_block, ("a", 1))
    until_accumulated(worker, 1)
    worker.push_ack(("a", 2))
    assert isinstance(caller.wait().error, af.Replaced)


def test_w22_out_of_band_messages_do_not_make_the_worker_look_idle(lane: ManualLane) -> None:
    log: list[Any] = []

    class Talks(af.Executor):
        def handle(self, batch: Any) -> None:
            log.append(batch)

        def handle_message(self, message: Any) -> Any:
            worker.push("pushed while it answers")
            log.append(message)
            return "answered"

    worker = af.spawn(Talks, executor=lane)
    worker.push(1)  # submitted, not begun
    answer = worker.executor.ask("out of band", block=False)
    worker.push(2)
    assert len(lane) == 1  # the executor is in its lane once, not twice
    lane.run()
    assert answer.get(timeout=0) == "answered"
    assert log == ["out of band", [1], [2, "pushed while it answers"]]


def test_w22_push_block_is_not_answered_by_an_out_of_band_message(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(1)
    pool_probe.begun()
    caller = Caller(worker.push_block, 2)
    until_accumulated(worker, 1)
    answer = worker.executor.ask("out of band", block=False)
    pool_probe.let_end()
    assert answer.get(timeout=PATIENCE) is None
    assert pool_probe.begun() == [2]
    assert not caller.done.is_set()
    pool_probe.let_end()
    assert caller.wait().error is None


def test_w23_crash_fails_everyone_who_waits_with_the_cause(probe: Probe) -> None:
    error = ValueError("broken")
    probe.then(None, error)
    worker = probe.spawn()
    worker.push("first")
    probe.begun()
    within = Caller(worker.push_block, "in the batch")
    until_accumulated(worker, 1)
    probe.let_end()
    probe.begun()
    waits = Caller(worker.push_block, "accumulated")
    until_accumulated(worker, 1)
    asks = worker.executor.ask("unanswered", block=False)
    probe.let_end()
    assert within.wait().error is error
    assert isinstance(waits.wait().error, af.WorkerCrashed)
    assert waits.error is not None
    assert waits.error.__cause__ is error
    with pytest.raises(af.WorkerCrashed):
        asks.get(timeout=PATIENCE)


def test_w24_push_is_a_cast_even_when_refused(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(behaviour=Bounded(Queue, 1))
    worker.push(1)
    pool_probe.begun()
    for message in (2, 3, 4):
        worker.push(message)
    pool_probe.let_end()
    assert pool_probe.begun() == [2]
    assert worker.statistics().rejected == 2


def test_w24_after_a_timeout_the_message_stays_accumulated(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(1)
    probe.begun()
    with pytest.raises(af.PushTimeout, match="stays accumulated"):
        worker.push_block(2, timeout=0.001)
    assert len(worker) == 1
    probe.let_end()
    assert probe.begun() == [2]


def test_w25_add_may_refuse_with_an_error_of_its_own(probe: Probe) -> None:
    class Even(Base):
        def add(self, messages: Any, message: Any) -> Any:
            if message % 2:
                raise ZeroDivisionError(f"{message} is odd")
            return [message, *messages]

    probe.open()
    worker = probe.spawn(behaviour=Even)
    worker.push(1)
    with pytest.raises(ZeroDivisionError, match="3 is odd"):
        worker.push_ack(3)
    with pytest.raises(ZeroDivisionError, match="5 is odd"):
        worker.push_block(5)
    worker.push_block(2)
    assert probe.batches == [[2]]
    assert worker.statistics().rejected == 3


def test_w26_defaults_are_a_queue_without_bound_that_drops_nothing(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(0)
    pool_probe.begun()
    worker.push_many(range(1, 5_001))
    pool_probe.let_end()
    assert pool_probe.begun() == list(range(1, 5_001))
    statistics = worker.statistics()
    assert (statistics.rejected, statistics.dropped, statistics.replaced) == (0, 0, 0)


def test_w27_a_behaviour_is_any_object_with_add_take_and_len(probe: Probe) -> None:
    class Newest:
        """Keeps the last message only; it is no subclass of anything."""

        def __init__(self) -> None:
            self.held: list[Any] = []

        def add(self, message: Any) -> None:
            self.held = [message]

        def take(self) -> Any:
            held, self.held = self.held, []
            return held

        def __len__(self) -> int:
            return len(self.held)

    worker = probe.spawn(behaviour=Newest)
    worker.push(1)
    assert probe.begun() == [1]
    for message in (2, 3, 4):
        worker.push(message)
    probe.let_end()
    assert probe.begun() == [4]


def test_priority_gives_the_highest_first_and_equals_in_order(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Priority)
    for message in ((1, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")):
        worker.push(message)
    assert probe.begun() == [(1, "a")]
    probe.let_end()
    assert probe.begun() == [(3, "e"), (2, "c"), (1, "b"), (1, "d")]
