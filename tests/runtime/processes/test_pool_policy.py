"""The policy: pure decisions, against a naive model of processes."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actorflow.runtime.errors import LaunchFailed, ProcessCancelled, ProcessCrashed
from actorflow.runtime.processes.call import CallOutcome, ProcessCall
from actorflow.runtime.processes.packed import Packed
from actorflow.runtime.processes.policy.actions import (
    Action,
    CheckProgress,
    EndCall,
    KillProcess,
    LaunchProcess,
    RetireProcess,
    SendCalls,
    SkipCalls,
)
from actorflow.runtime.processes.policy.entries import PoolCall, PoolLimits
from actorflow.runtime.processes.policy.pool_policy import PoolPolicy

PACKED = Packed(b"")


def job(name: Any, **options: Any) -> PoolCall:
    return PoolCall(ProcessCall(name, PACKED, **options))


class Process:
    """A process as it would be."""

    def __init__(self) -> None:
        self.ready = False
        self.queue: deque[tuple[int, PoolCall] | None] = deque()
        self.flags: set[int] = set()
        self.begun = 0
        self.running: tuple[int, PoolCall] | None = None
        self.killed = False
        self.done = 0


class World:
    """A naive model: it performs actions, and reports what happens."""

    def __init__(self, limits: PoolLimits) -> None:
        self.policy = PoolPolicy(limits)
        self.limits = limits
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.runs: Counter[Any] = Counter()
        self.ended: dict[Any, CallOutcome] = {}
        self.errors: dict[Any, BaseException] = {}
        self.crashed: Counter[Any] = Counter()
        self.log: list[Action] = []

    def decide(self) -> list[Action]:
        made = []
        while actions := self.policy.decide(self.now):
            for action in actions:
                self.perform(action)
            made += actions
        self.log += made
        return made

    def perform(self, action: Action) -> None:
        match action:
            case LaunchProcess(worker, _):
                assert worker not in self.processes
                self.processes[worker] = Process()
            case SendCalls(worker, jobs):
                assert jobs
                assert self.processes[worker].ready
                assert None not in self.processes[worker].queue, "sent after it was asked to leave"
                self.processes[worker].queue.extend((each.sequence, each) for each in jobs)
            case SkipCalls(worker, sequences):
                self.processes[worker].flags |= set(sequences)
            case CheckProgress(worker):
                self.policy.looked(worker, self.processes[worker].begun)
            case RetireProcess(worker):
                assert None not in self.processes[worker].queue, "asked to leave twice"
                self.processes[worker].queue.append(None)
            case KillProcess(worker):
                self.processes[worker].killed = True
            case EndCall(each, outcome, error, _):
                self.end(each, outcome)
                self.errors[each.call.id] = error

    def end(self, each: PoolCall, outcome: CallOutcome) -> None:
        assert each.call.id not in self.ended, "ended twice"
        self.ended[each.call.id] = outcome

    # What happens in the world.

    def hello(self, worker: int) -> None:
        self.processes[worker].ready = True
        self.policy.ready(worker, self.now)

    def begin(self, worker: int) -> None:
        """Take the next thing from the socket."""
        process = self.processes[worker]
        each = process.queue.popleft()
        if each is None:
            self.exit(worker)
        elif each[0] in process.flags:
            self.policy.skipped(worker, each[0], self.now)
        else:
            process.begun = each[0]
            process.running = each
            process.done += 1
            self.runs[each[1].call.id] += 1
            running = [
                other.running[1].call.id for other in self.processes.values() if other.running
            ]
            assert len(running) == len(set(running)), "runs twice at once"
            assert len(running) <= self.limits.most
            assert process.done <= self.limits.renew_after

    def finish(self, worker: int) -> None:
        process = self.processes[worker]
        assert process.running is not None
        sequence, _ = process.running
        process.running = None
        ended = self.policy.ended(worker, sequence, self.now, 0.001, 0)
        if ended is not None:
            self.end(ended, CallOutcome.OK)

    def exit(self, worker: int) -> None:
        process = self.processes.pop(worker)
        if process.running is not None and not process.killed:
            self.crashed[process.running[1].call.id] += 1
        self.policy.exited(worker, process.begun, "it died", self.now)

    def settle(self) -> None:
        """Let everything happen that can."""
        for _ in range(10_000):
            self.decide()
            for worker, process in list(self.processes.items()):
                if process.killed:
                    self.exit(worker)
                elif not process.ready:
                    self.hello(worker)
                elif process.running is not None:
                    self.finish(worker)
                elif process.queue:
                    self.begin(worker)
            self.decide()
            if not (self.policy.waiting or self.policy.running):
                return
            self.now = max(self.now, min(self.policy.next_time(), self.now + 1.0))
        raise AssertionError("it never ends")


class RosterMachine(RuleBasedStateMachine):
    """Anything may happen at any time, and no call is lost, doubled or misplaced."""

    @initialize(
        least=st.integers(0, 2),
        more=st.integers(1, 3),
        prefetch=st.integers(0, 5),
        renew=st.sampled_from([1, 2, 3, math.inf]),
        seconds=st.sampled_from([5.0, math.inf]),
        idle=st.sampled_from([3.0, math.inf]),
        launches=st.integers(1, 4),
    )
    def start(self, **given: Any) -> None:
        self.world = World(
            PoolLimits(
                least=given["least"],
                most=given["least"] + given["more"],
                prefetch=given["prefetch"],
                renew_after=given["renew"],
                renew_after_seconds=given["seconds"],
                idle_stop=given["idle"],
                launches_max=given["launches"],
            )
        )
        self.jobs: list[PoolCall] = []

    def pick(self, condition: Any, number: int) -> int | None:
        found = [each for each, process in self.world.processes.items() if condition(process)]
        return found[number % len(found)] if found else None

    @rule(count=st.integers(1, 6), crashes=st.integers(0, 2))
    def submit(self, count: int, crashes: int) -> None:
        new = [job(len(self.jobs) + n, crashes_max=crashes, timeout=50.0) for n in range(count)]
        self.jobs += new
        self.world.policy.submit(new)
        self.world.decide()

    @rule(number=st.integers(0, 5))
    def hello(self, number: int) -> None:
        worker = self.pick(lambda each: not each.ready and not each.killed, number)
        if worker is not None:
            self.world.hello(worker)
            self.world.decide()

    @rule(number=st.integers(0, 5), decides=st.booleans())
    def begin(self, number: int, decides: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        worker = self.pick(lambda each: each.queue and not each.running, number)
        if worker is not None:
            self.world.begin(worker)
            if decides:
                self.world.decide()

    @rule(number=st.integers(0, 5), decides=st.booleans())
    def finish(self, number: int, decides: bool) -> None:  # noqa: FBT001
        worker = self.pick(lambda each: each.running, number)
        if worker is not None:
            self.world.finish(worker)
            if decides:
                self.world.decide()

    @rule(number=st.integers(0, 5))
    def die(self, number: int) -> None:
        worker = self.pick(lambda each: True, number)
        if worker is not None:
            self.world.exit(worker)
            self.world.decide()

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 100))
    def cancel(self, number: int) -> None:
        chosen = self.jobs[number % len(self.jobs)]
        self.world.policy.cancel(chosen, CallOutcome.CANCELLED, ProcessCancelled("x"))
        self.world.decide()

    @rule(seconds=st.sampled_from([0.001, 0.003, 0.01, 1.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.decide()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.policy.check()
        for each in self.jobs:
            name = each.call.id
            # A kill for a verdict may strike the next call only in a race that the flags prevent.
            assert self.world.runs[name] <= 1 + each.crashes

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            assert set(self.world.ended) == {each.call.id for each in self.jobs}
            self.world.policy.close()
            self.world.settle()
            for _ in range(3):
                self.world.decide()
                for worker, process in list(self.world.processes.items()):
                    if process.queue or process.killed:
                        self.world.exit(worker)
            assert not self.world.processes


TestRosterMachine = RosterMachine.TestCase


# The rules one by one.


def world(**limits: Any) -> World:
    return World(PoolLimits(**limits))


def sent(actions: list[Action]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for each in actions:
        if isinstance(each, SendCalls):
            found.setdefault(each.worker, []).extend(one.call.id for one in each.jobs)
    return found


def ready(made: World, count: int) -> None:
    """Start so many processes."""
    made.policy.submit([job(("first", n)) for n in range(count)])
    made.decide()
    for worker in list(made.processes):
        made.hello(worker)
    made.settle()
    assert len(made.processes) == count


def test_t19_a14_the_least_busy_gets_the_next_call() -> None:
    made = world(most=3, prefetch=1)
    ready(made, 3)
    made.policy.submit([job(n) for n in range(5)])
    given = sent(made.decide())
    assert given == {1: [0, 3], 2: [1, 4], 3: [2]}


def test_a14_no_more_than_the_reserve_is_sent_ahead() -> None:
    made = world(most=1, prefetch=2)
    ready(made, 1)
    made.policy.submit([job(n) for n in range(10)])
    assert sent(made.decide()) == {1: [0, 1, 2]}
    made.begin(1)
    made.finish(1)
    assert sent(made.decide()) == {}  # filled up once half of it is used
    made.begin(1)
    made.finish(1)
    assert sent(made.decide()) == {1: [3, 4]}


def test_a3_a4_nothing_is_sent_behind_the_order_to_leave() -> None:
    made = world(most=2, prefetch=3, renew_after=2)
    ready(made, 2)
    made.policy.submit([job(n) for n in range(8)])
    actions = made.decide()
    assert sent(actions) == {1: [0], 2: [1]}
    assert [each for each in actions if isinstance(each, RetireProcess)] == [
        RetireProcess(1),
        RetireProcess(2),
    ]
    launched = [each for each in actions if isinstance(each, LaunchProcess)]
    assert [each.place for each in launched] == [1, 2]
    made.hello(launched[0].worker)
    assert sent(made.decide()) == {}, "its predecessor still works at that place"
    made.begin(1)
    made.finish(1)
    assert sent(made.decide()) == {launched[0].worker: [2, 3]}


def test_t16_a_successor_is_only_started_for_what_waits() -> None:
    made = world(most=1, renew_after=1)
    made.policy.submit([job(0)])
    made.settle()
    for worker in list(made.processes):
        made.begin(worker)  # the order to leave
    made.decide()
    assert made.policy.launches == 1
    assert not made.processes
    made.policy.submit([job(1)])
    made.settle()
    assert made.policy.launches == 2


def test_t18_calls_are_handed_out_in_their_order() -> None:
    made = world(most=1, prefetch=0)
    ready(made, 1)
    made.policy.submit([job(n) for n in range(5)])
    made.settle()
    order = [name for each in made.log if isinstance(each, SendCalls) for name in sent([each])[1]]
    assert order == [("first", 0), 0, 1, 2, 3, 4]


def test_t17_what_crashed_goes_behind_the_others() -> None:
    made = world(most=1, prefetch=0)
    made.policy.submit([job("bad", crashes_max=1), job("a"), job("b")])
    made.decide()
    made.hello(1)
    made.decide()
    made.begin(1)
    made.exit(1)
    assert [each.call.id for each in made.policy.waiting] == ["a", "b", "bad"]


def test_a5_launches_back_off_and_give_up() -> None:
    made = world(most=2, launches_max=3)
    made.policy.submit([job(n) for n in range(4)])
    made.decide()
    times = []
    while not made.ended:
        for worker in list(made.processes):
            times.append(made.now)
            made.exit(worker)
        made.decide()
        if not made.processes and not made.ended:
            when = made.policy.next_time()
            assert when > made.now
            made.now = when
            made.decide()
    assert set(made.ended.values()) == {CallOutcome.CRASHED}
    assert isinstance(made.errors[0], LaunchFailed)
    assert "in 3 attempts: it died" in str(made.errors[0]) or "it died" in str(made.errors[0])
    assert made.policy.launches <= 4
    assert made.policy.next_time() == math.inf


def test_a9_a_process_that_does_not_start_or_leave_is_killed() -> None:
    made = world(most=1, launch_timeout=10.0, idle_stop=1.0)
    made.policy.submit([job(0)])
    made.decide()
    assert made.policy.next_time() == 10.0
    made.now = 10.0
    assert made.decide() == [KillProcess(1)]
    made.exit(1)
    assert made.policy.backoff.failures == 1
    made.settle()
    made.now += 1.0
    assert made.decide() == [RetireProcess(2)]
    made.now = made.policy.next_time()
    assert made.decide() == [KillProcess(2)]


def test_a9_the_time_of_a_call_begins_with_the_call() -> None:
    made = world(most=1, prefetch=1)
    ready(made, 1)
    made.policy.submit([job("a", timeout=5.0), job("b", timeout=5.0)])
    made.decide()
    made.begin(1)
    made.now += 4.0
    made.finish(1)
    made.begin(1)
    made.now += 4.0
    assert made.decide() == []
    made.now += 1.0
    assert KillProcess(1) in made.decide()
    made.exit(1)
    made.decide()
    assert made.ended == {("first", 0): CallOutcome.OK, "a": CallOutcome.OK} | {
        "b": CallOutcome.TIMED_OUT
    }


def test_what_has_not_begun_is_not_hurt_by_a_crash() -> None:
    made = world(most=1, prefetch=3)
    ready(made, 1)
    made.policy.submit([job(n) for n in range(3)])
    made.decide()
    made.exit(1)  # before the first of them has begun
    made.settle()
    assert all(outcome is CallOutcome.OK for outcome in made.ended.values())
    assert max(made.runs.values()) == 1


def test_calls_behind_a_slow_one_are_taken_back_for_an_idle_process() -> None:
    made = world(most=2, prefetch=1)
    ready(made, 2)
    made.policy.submit([job(n) for n in range(4)])
    assert sent(made.decide()) == {1: [0, 2], 2: [1, 3]}
    made.begin(1)
    for _ in range(2):
        made.begin(2)
        made.finish(2)
    made.decide()
    made.now = made.policy.next_time()
    (skip,) = made.decide()
    assert isinstance(skip, SkipCalls)
    made.now = made.policy.next_time()
    actions = made.decide()
    assert isinstance(actions[0], CheckProgress)
    assert sent(actions) == {2: [2]}
    made.settle()
    assert len(made.ended) == 6


def test_memory_is_that_of_the_attempt() -> None:
    each = job("a", memory=(1, 2, 4))
    assert each.memory == 1
    each.crashes = 1
    assert each.memory == 2
    each.crashes = 5
    assert each.memory == 4
    assert job("b", memory=7).memory == 7
    assert job("c").memory == 0
    assert job("d", memory=(1, 2, 4), attempt=3).memory == 4


def test_abandoning_ends_everything() -> None:
    made = world(most=2, prefetch=1)
    ready(made, 2)
    made.policy.submit([job(n) for n in range(9)])
    made.decide()
    made.begin(1)
    made.policy.abandon()
    actions = made.decide()
    assert {each.worker for each in actions if isinstance(each, KillProcess)} == {1, 2}
    made.exit(1)
    made.exit(2)
    made.decide()
    assert Counter(made.ended.values()) == {CallOutcome.OK: 2, CallOutcome.CANCELLED: 9}


def test_the_error_of_a_crash_names_the_call() -> None:
    made = world(most=1)
    made.policy.submit([job("mine")])
    made.decide()
    made.hello(1)
    made.decide()
    made.begin(1)
    made.exit(1)
    made.decide()
    assert isinstance(made.errors["mine"], ProcessCrashed)
    assert str(made.errors["mine"]) == "it died during call 'mine'"


@pytest.mark.parametrize("least", [1, 2])
def test_the_least_number_is_kept(least: int) -> None:
    made = world(least=least, most=3, idle_stop=1.0)
    assert made.decide() == []
    made.policy.submit([job(0)])
    made.settle()
    assert len(made.processes) == least
    made.now += 10.0
    made.decide()
    assert len(made.processes) == least
    made.exit(1)
    made.decide()
    assert len(made.processes) == least
