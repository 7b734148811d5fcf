"""o1 to o18: the rules of the seed, each by its number. o8 belongs to supervision."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Base, Priority, Queue, Stack, TableUnique, Throttle, Unique
from actorflow.behaviours.behaviour import Traits
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until_accumulated

if TYPE_CHECKING:
    from actorflow.testing import ManualLane, VirtualClock


def keep(batch: Any, state: list[Any]) -> list[Any]:
    return [*state, batch]


def state_of(worker: af.WorkerRef) -> Any:
    executor: Any = worker.executor.actor
    return executor.state


def test_o1_a_server_has_workers_by_id_each_with_its_own_options() -> None:
    clock_free: list[Any] = []
    with af.Server(
        [
            af.Worker("sum", lambda batch, total: total + sum(batch), state=10),
            af.Worker("stack", keep, state=[], behaviour=Stack, executor="thread"),
            af.Worker("slow", lambda batch, _: clock_free.append(batch), throttle=0.001),
        ]
    ) as server:
        server.push_block("sum", 1)
        server.push_block("stack", "a")
        server.push_block("slow", "b")
        assert list(server) == ["sum", "stack", "slow"]
        assert state_of(server.worker("sum")) == 11
        assert state_of(server.worker("stack")) == [["a"]]
    assert clock_free == [["b"]]


def test_o2_idle_worker_gets_the_message_at_once_as_a_list_of_one(lane: ManualLane) -> None:
    worker = af.spawn(keep, state=[], executor=lane)
    worker.push("a")
    worker.push("b")  # too late for the first batch, which has been taken already
    lane.run()
    assert state_of(worker) == [["a"], ["b"]]


def test_o3_busy_worker_gets_all_that_accumulated_at_once(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(0)
    assert probe.begun() == [0]
    worker.push_many(range(1, 100))
    worker.push_ack(100)
    probe.let_end()
    assert probe.begun() == list(range(1, 101))


def test_o4_order_is_that_of_arrival_whatever_the_kind_of_push(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(0)
    probe.begun()
    worker.push(1)
    worker.push_ack(2)
    worker.push(3)
    caller = Caller(worker.push_block, 4)
    until_accumulated(worker, 4)
    worker.push_many([5, 6])
    probe.let_end()
    assert probe.begun() == [1, 2, 3, 4, 5, 6]
    probe.let_end()
    assert caller.wait().error is None


def test_o5_push_is_a_cast(probe: Probe) -> None:
    worker = probe.spawn()
    answers = [worker.push(message) for message in (1, 2, 3)]  # type: ignore[func-returns-value]
    assert answers == [None, None, None]
    assert probe.begun() == [1]  # nothing has ended: the pushes did not wait


def test_o6_the_example_of_the_seed(probe: Probe) -> None:
    options: dict[str, Any] = {} if probe.lane == "asyncio" else {"executor": probe.lane}
    job = probe.acall if probe.lane == "asyncio" else probe.call
    with af.Server([af.Worker("my_worker", job, **options)]) as server:
        for message in ("msg1", "msg2", "msg3"):
            server.push("my_worker", message)
        assert probe.begun() == ["msg1"]
        probe.let_end()
        assert probe.begun() == ["msg2", "msg3"]
        probe.open()


def test_o7_a_crash_of_one_worker_ends_the_whole_structure(pool_probe: Probe) -> None:
    error = ValueError("broken")

    def breaks(batch: Any, state: Any) -> None:
        raise error

    server = af.Server([af.Worker("holds", pool_probe.call), af.Worker("breaks", breaks)])
    server.push("holds", "first")
    pool_probe.begun()
    waits = Caller(server.push_block, "holds", "accumulated", None)
    until_accumulated(server.worker("holds"), 1)
    server.push("breaks", "bad")
    assert ended(server.worker("breaks")) == af.Crash(error)
    assert ended(server.worker("holds")) == af.Crash(error)
    raised = waits.wait().error
    assert isinstance(raised, af.WorkerCrashed)
    assert raised.__cause__ is error
    assert server.exit_reason == af.Crash(error)
    for worker_id in server:
        with pytest.raises(af.WorkerCrashed):
            server.push(worker_id, "late")
    pool_probe.open()


def test_o9_the_job_gets_the_state_and_its_result_is_the_next_one(probe: Probe) -> None:
    probe.then("one", "two")
    probe.open()
    worker = probe.spawn(state="zero")
    assert state_of(worker) == "zero"
    worker.push_block(1)
    assert state_of(worker) == "one"
    worker.push_block(2)
    assert state_of(worker) == "two"


class Timed:
    """A job that takes virtual time and notes when each call began."""

    def __init__(self, clock: VirtualClock, takes: float) -> None:
        self.clock = clock
        self.takes = takes
        self.calls: list[tuple[float, Any]] = []

    def __call__(self, batch: Any, state: Any) -> None:
        self.calls.append((self.clock.now(), batch))
        self.clock.advance(self.takes)


def test_o10_throttle_counts_from_the_start_of_the_call(
    lane: ManualLane, clock: VirtualClock
) -> None:
    job = Timed(clock, takes=0.4)
    worker = af.spawn(job, executor=lane, clock=clock, throttle=1.0)
    clock.advance(7.0)
    worker.push("a")  # after a long pause: at once
    lane.run()
    worker.push("b")
    worker.push("c")
    lane.run()
    assert job.calls == [(7.0, ["a"])]  # the call took 0.4, so 0.6 are left
    clock.advance(0.59)
    lane.run()
    assert len(job.calls) == 1
    worker.push("d")  # goes on accumulating
    clock.advance(0.01)
    lane.run()
    assert job.calls[1:] == [(8.0, ["b", "c", "d"])]


def test_o10_a_job_longer_than_the_throttle_is_not_followed_by_a_wait(
    lane: ManualLane, clock: VirtualClock
) -> None:
    job = Timed(clock, takes=2.5)
    worker = af.spawn(job, executor=lane, clock=clock, throttle=1.0)
    worker.push("a")
    worker.push("b")
    lane.run()
    assert job.calls == [(0.0, ["a"]), (2.5, ["b"])]


def test_o10_the_option_is_the_behaviour(lane: ManualLane, clock: VirtualClock) -> None:
    job = Timed(clock, takes=0.0)
    worker = af.spawn(job, executor=lane, clock=clock, behaviour=Throttle(Stack, 1.0))
    for message in "abc":
        worker.push(message)
    lane.run()
    clock.advance(1.0)
    lane.run()
    assert job.calls == [(0.0, ["a"]), (1.0, ["c", "b"])]


def test_o10_a_real_worker_waits_in_real_time() -> None:
    starts: list[float] = []
    begin = monotonic()  # no later than the first batch is taken
    with af.spawn(lambda batch, state: starts.append(monotonic()), throttle=0.02) as worker:
        worker.push_block(1)
        worker.push_block(2)
    assert starts[1] >= begin + 0.02


def test_o11_stack_gives_the_newest_first(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Stack())
    for message in ("msg1", "msg2", "msg3"):
        worker.push(message)
    assert probe.begun() == ["msg1"]
    probe.let_end()
    assert probe.begun() == ["msg3", "msg2"]


def test_o12_unique_replaces_by_the_first_element(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Unique())
    for message in (("msg1", "a"), ("msg2", "b"), ("msg2", "c"), ("msg3", "d")):
        worker.push(message)
    assert probe.begun() == [("msg1", "a")]
    probe.let_end()
    assert sorted(probe.begun()) == [("msg2", "c"), ("msg3", "d")]


def test_o13_table_unique_holds_the_same_contract(probe: Probe) -> None:
    worker = probe.spawn(behaviour=TableUnique)
    for message in (("msg1", "a"), ("msg2", "b"), ("msg2", "c"), ("msg3", "d")):
        worker.push(message)
    assert [tuple(message) for message in probe.begun()] == [("msg1", "a")]
    probe.let_end()
    assert sorted(tuple(message) for message in probe.begun()) == [("msg2", "c"), ("msg3", "d")]


def test_o14_priority_gives_higher_first_and_equals_in_order(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Priority())
    for message in ((1, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")):
        worker.push(message)
    assert probe.begun() == [(1, "a")]
    probe.let_end()
    assert probe.begun() == [(3, "e"), (2, "c"), (1, "b"), (1, "d")]


@pytest.mark.parametrize(("options", "expected"), [({"behaviour": Base}, [3, 2]), ({}, [2, 3])])
def test_o15_the_base_behaviour_is_a_stack_the_default_a_queue(
    probe: Probe, options: Any, expected: Any
) -> None:
    worker = probe.spawn(**options)
    for message in (1, 2, 3):
        worker.push(message)
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == expected


def test_o15_all_five_hooks_are_used(lane: ManualLane) -> None:
    class Sum(Base):
        """Accumulates a number: not a list at all."""

        def init(self) -> Any:
            return 0

        def add(self, messages: Any, message: Any) -> Any:
            return messages + message

        def transform(self, messages: Any) -> Any:
            return messages

        def clear(self, messages: Any) -> Any:
            return 0

        def empty(self, messages: Any) -> bool:
            return bool(messages == 0)

    worker = af.spawn(keep, state=[], behaviour=Sum, executor=lane)
    for message in (5, 1, 2, 3):
        worker.push(message)
    lane.run()
    assert state_of(worker) == [5, 6]


def test_o16_transform_may_give_one_item_and_clear_drop_just_that(probe: Probe) -> None:
    class StackOneByOne(Base):
        def transform(self, messages: Any) -> Any:
            return messages[0]

        def clear(self, messages: Any) -> Any:
            return messages[1:]

    worker = probe.spawn(behaviour=StackOneByOne)
    for message in (1, 2, 3):
        worker.push(message)
    got = []
    for _ in range(3):
        got.append(probe.begun())
        probe.let_end()
    assert got == [1, 3, 2]


def test_o17_workers_without_actors_give_the_new_value_each_time() -> None:
    workers = af.Workers([af.Worker("my_worker", keep, state=[])])
    for message in ("msg1", "msg2", "msg3"):
        workers = workers.push("my_worker", message)
    while calls := workers.pending():
        for call in calls:
            workers = workers.handle_message(call.run())
    assert workers.state("my_worker") == [["msg1"], ["msg2", "msg3"]]


def test_o18_accumulation_happens_in_the_accumulator_not_in_the_job(pool_probe: Probe) -> None:
    """Messages reach the behaviour one by one or in slices, each exactly once."""
    added: list[Any] = []

    class Watching(Queue):
        traits = Traits(ordered=True)

        def extend(self, messages: list[Any]) -> Any:
            added.extend(messages)
            return super().extend(messages)

        def add(self, message: Any) -> None:
            added.append(message)
            super().add(message)

    worker = pool_probe.spawn(behaviour=Watching)
    worker.push(0)
    pool_probe.begun()
    worker.push_many([1, 2, 3])
    worker.push_ack(4)
    assert added == [0, 1, 2, 3, 4]  # although the job still has its first batch
    pool_probe.let_end()
    assert pool_probe.begun() == [1, 2, 3, 4]


def test_the_patience_of_the_tests_is_longer_than_that_of_callers() -> None:
    assert PATIENCE > 5.0
