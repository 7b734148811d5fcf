"""Messages that a running job takes into its batch."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Chunk,
    Expire,
    Lanes,
    Linger,
    PadTo,
    Preempt,
    Queue,
    Stack,
    Unique,
)
from actorflow.testing import VirtualClock
from tests.runtime.worker.job import elsewhere
from tests.runtime.worker.probe import PATIENCE, Caller
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

    import pykka

KINDS = ("pool", "thread", "asyncio")


def lane(message: str) -> str:
    return "steer" if message.startswith("s") else "follow"


def lanes(**options: Any) -> Lanes:
    return Lanes(steer=Queue(), follow=Queue(), by=lane, **options)


class Agent:
    """A job that takes more messages once the test lets it, and shouts its answers."""

    def __init__(self, kind: str = "pool", looks: int = 1) -> None:
        self.kind = kind
        self.looks = looks
        self.taken: list[tuple[list[str], list[str]]] = []
        self.inboxes: list[af.JobInbox] = []
        self.begun: SimpleQueue[list[str]] = SimpleQueue()
        self.gate = threading.Semaphore(0)
        self.errors: list[BaseException] = []

    def _take(self, batch: list[str]) -> Any:
        inbox = af.current_inbox()
        self.inboxes.append(inbox)
        more = [message for _ in range(self.looks) for message in inbox.take_now()]
        self.taken.append((batch, more))
        if self.errors:
            raise self.errors.pop()
        return af.Answers(None, [message.upper() for message in batch + more])

    def call(self, batch: list[str], _state: Any) -> Any:
        self.begun.put(batch)
        assert self.gate.acquire(timeout=PATIENCE)
        return self._take(batch)

    async def acall(self, batch: list[str], _state: Any) -> Any:
        self.begun.put(batch)
        while not self.gate.acquire(blocking=False):  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0)
        return self._take(batch)

    def spawn(self, **options: Any) -> af.WorkerRef:
        if self.kind == "asyncio":
            return af.spawn(self.acall, **options)
        return af.spawn(self.call, executor=self.kind, **options)

    def running(self) -> list[str]:
        return self.begun.get(timeout=PATIENCE)

    def go_on(self, count: int = 1) -> None:
        self.gate.release(count)


def answer(future: pykka.Future[Any]) -> Any:
    return future.get(timeout=PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "around",
    [
        lambda inner: inner,
        lambda inner: Bounded(inner, 10),
        lambda inner: Expire(inner, 1000.0),
        lambda inner: Preempt(inner, when=lambda _: False),
    ],
)
def test_only_the_first_lane_joins_the_running_batch(
    kind: str, around: Callable[[Any], Any]
) -> None:
    agent = Agent(kind)
    with agent.spawn(behaviour=around(lanes())) as worker:
        asked = [worker.ask("f1", block=False)]
        agent.running()
        asked += [worker.ask(each, block=False) for each in ("f2", "s1", "s2")]
        agent.go_on(2)
        assert [answer(each) for each in asked] == ["F1", "F2", "S1", "S2"]
        assert agent.taken == [(["f1"], ["s1", "s2"]), (["f2"], [])]
    statistics = check_law(worker)
    assert statistics.processed == 4
    assert statistics.batches == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("behaviour", "more"),
    [
        (Queue, ["b", "c", "d"]),
        (Stack, ["d", "c", "b"]),
        (lambda: Chunk(Queue(), 2), ["b", "c"]),
        (lambda: Unique(key=lambda _: 1), ["d"]),
        (lambda: Bounded(Queue(), 10), ["b", "c", "d"]),
        (lambda: Expire(Queue(), 1000.0), ["b", "c", "d"]),
        (lambda: Preempt(Queue(), when=lambda _: False), ["b", "c", "d"]),
    ],
)
def test_another_behaviour_hands_over_what_is_next(
    kind: str, behaviour: Callable[[], Any], more: list[str]
) -> None:
    agent = Agent(kind)
    with agent.spawn(behaviour=behaviour() if behaviour not in (Queue, Stack) else behaviour) as w:
        w.push("a")
        agent.running()
        for each in ("b", "c", "d"):
            w.push(each)
        agent.go_on(2)
        w.stop(drain=True)
    assert agent.taken[0] == (["a"], more)
    statistics = check_law(w)
    assert statistics.processed == 4 - statistics.replaced
    assert statistics.held == statistics.in_flight == 0


def test_a_job_may_look_more_than_once_and_its_list_does_not_grow() -> None:
    agent = Agent(looks=3)
    with agent.spawn(behaviour=Chunk(Queue(), 1)) as worker:
        asked = [worker.ask("a", block=False)]
        agent.running()
        asked += [worker.ask(each, block=False) for each in "bcd"]
        agent.go_on()
        assert [answer(each) for each in asked] == list("ABCD")
    assert agent.taken == [(["a"], ["b", "c", "d"])]
    assert check_law(worker).batches == 1


@pytest.mark.parametrize("kind", KINDS)
def test_joined_messages_fail_with_the_batch(kind: str) -> None:
    agent = Agent(kind)
    agent.errors = [ValueError("no")]
    worker = agent.spawn(behaviour=lanes())
    asked = [worker.ask("f1", block=False)]
    agent.running()
    asked.append(worker.ask("s1", block=False))
    agent.go_on()
    for each in asked:
        with pytest.raises(ValueError, match="no"):
            answer(each)
    worker.stop()
    assert check_law(worker).failed == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [af.Retry(1), af.Isolate()])
def test_joined_messages_are_retried_with_the_batch(kind: str, policy: Any) -> None:
    agent = Agent(kind)
    agent.errors = [ValueError("no")]
    with agent.spawn(behaviour=lanes(), on_failure=policy) as worker:
        asked = [worker.ask("f1", block=False)]
        agent.running()
        asked.append(worker.ask("s1", block=False))
        agent.go_on(3)
        assert [answer(each) for each in asked] == ["F1", "S1"]
    again = [batch for batch, _ in agent.taken[1:]]
    assert again == ([["f1", "s1"]] if isinstance(policy, af.Retry) else [["f1"], ["s1"]])
    assert check_law(worker).processed == 2


def test_an_answer_that_is_missing_is_a_failure_of_all() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def job(batch: list[str], _state: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE)
        af.current_inbox().take_now()
        return af.Answers(None, batch)

    worker = af.spawn(job)
    asked = [worker.ask("a", block=False)]
    assert begun.wait(PATIENCE)
    asked.append(worker.ask("b", block=False))
    go_on.set()
    for each in asked:
        with pytest.raises(af.BadJob, match="1 answers for a batch of 2"):
            answer(each)
    worker.stop()
    assert check_law(worker).failed == 2


@pytest.mark.parametrize("kind", ["pool", "asyncio"])
def test_several_batches_in_flight_share_what_has_arrived(kind: str) -> None:
    agent = Agent(kind)
    with agent.spawn(behaviour=lanes(), concurrency=2) as worker:
        asked = []
        for each in ("f1", "f2"):
            asked.append(worker.ask(each, block=False))
            agent.running()
        asked += [worker.ask(f"s{at}", block=False) for at in range(20)]
        agent.go_on(3)
        assert [answer(each) for each in asked] == [
            "F1", "F2", *(f"S{at}" for at in range(20)),
        ]  # fmt: skip
    joined = [message for batch, more in agent.taken for message in batch + more]
    assert sorted(joined) == sorted(["f1", "f2", *(f"s{at}" for at in range(20))])
    assert check_law(worker).processed == 22


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("behaviour", [Queue, lanes, lambda: Chunk(Queue(), 3)])
def test_nothing_is_lost_or_doubled_in_a_storm(
    kind: str, concurrency: int, behaviour: Callable[[], Any]
) -> None:
    seen: list[str] = []

    def job(batch: list[str], _state: Any) -> Any:
        mine = list(batch)
        inbox = af.current_inbox()
        for _ in range(3):
            mine += inbox.take_now()
        seen.extend(mine)
        return af.Answers(None, [message.upper() for message in mine])

    async def ajob(batch: list[str], _state: Any) -> Any:
        mine = list(batch)
        inbox = af.current_inbox()
        for _ in range(3):
            await asyncio.sleep(0)
            mine += inbox.take_now()
        seen.extend(mine)
        return af.Answers(None, [message.upper() for message in mine])

    options: dict[str, Any] = {} if kind == "asyncio" else {"executor": kind}
    given: Any = Queue if behaviour is Queue else behaviour()
    worker = af.spawn(
        ajob if kind == "asyncio" else job, behaviour=given, concurrency=concurrency, **options
    )
    wrong: list[Any] = []

    def produce(name: str) -> None:
        waiting = []
        for at in range(60):
            message = f"{'sf'[at % 2]}-{name}-{at}"
            if at % 3:
                worker.push(message)
            else:
                waiting.append((message, worker.ask(message, block=False)))
        wrong.extend(each for each, future in waiting if answer(future) != each.upper())

    threads = [threading.Thread(target=produce, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    worker.stop(drain=True)
    assert not wrong
    assert len(seen) == len(set(seen)) == 180
    assert check_law(worker).processed == 180


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{"drain": True}, {"drain": False}, {"now": True}])
def test_a_stop_answers_each_caller_once(kind: str, how: Any) -> None:
    agent = Agent(kind)
    worker = agent.spawn(behaviour=lanes())
    asked = [worker.ask("f1", block=False)]
    agent.running()
    asked.append(worker.ask("s1", block=False))
    worker.stop(block=False, **how)
    agent.go_on(2)
    outcomes = []
    for each in asked:
        try:
            outcomes.append(answer(each))
        except af.WorkerStopped:
            outcomes.append(None)
    worker.stop()
    if how == {"drain": True}:
        assert outcomes == ["F1", "S1"]
    else:
        assert outcomes == [None if "now" in how else "F1", None]
        assert all(not more for _, more in agent.taken)
    check_law(worker)


def test_joined_messages_of_a_batch_that_is_cut_off_are_refused() -> None:
    begun, taken, go_on = threading.Event(), threading.Event(), threading.Event()
    later: SimpleQueue[Any] = SimpleQueue()

    def job(_batch: list[str], _state: Any) -> None:
        inbox = af.current_inbox()
        begun.set()
        while not inbox.take_now():
            pass
        taken.set()
        assert go_on.wait(PATIENCE)
        later.put(inbox.take_now())

    worker = af.spawn(job, executor="thread")
    asked = [worker.ask("a", block=False)]
    assert begun.wait(PATIENCE)
    asked.append(worker.ask("b", block=False))
    assert taken.wait(PATIENCE)
    worker.stop(now=True)
    for each in asked:
        with pytest.raises(af.WorkerStopped):
            answer(each)
    go_on.set()
    assert later.get(timeout=PATIENCE) == []
    assert check_law(worker).failed == 2


@pytest.mark.parametrize("victims", ["drop", "return", "merge"])
def test_joined_messages_are_preempted_with_the_batch(victims: str) -> None:
    begun, joined = threading.Event(), threading.Event()
    batches: list[list[str]] = []

    def job(batch: list[str], _state: Any) -> Any:
        batches.append(list(batch))
        mine = list(batch)
        if batch == ["a"]:
            current, inbox = af.current_batch(), af.current_inbox()
            assert current is not None
            begun.set()
            while "b" not in mine:
                mine += inbox.take_now()
            joined.set()
            while not current.cancelled:
                mine += inbox.take_now()  # it finds the message that preempts, and leaves it
            assert mine == ["a", "b"]
            assert inbox.take_now() == []
        return af.Answers(None, [message.upper() for message in mine])

    behaviour = Preempt(Queue(), when=lambda message: message == "!", victims=victims)
    with af.spawn(job, behaviour=behaviour, executor="thread") as worker:
        asked = [worker.ask("a", block=False)]
        assert begun.wait(PATIENCE)
        asked.append(worker.ask("b", block=False))
        assert joined.wait(PATIENCE)
        worker.push("!")
        if victims == "drop":
            for each in asked:
                with pytest.raises(af.Dropped):
                    answer(each)
        else:
            assert [answer(each) for each in asked] == ["A", "B"]
        worker.stop(drain=True)
    after = {"drop": [["!"]], "return": [["!"], ["a", "b"]], "merge": [["a", "b", "!"]]}
    assert batches[1:] == after[victims]
    check_law(worker)


def test_a_pusher_that_waits_for_room_gets_it() -> None:
    agent = Agent(looks=2)
    with agent.spawn(behaviour=Bounded(Queue(), 1, when_full="block")) as worker:
        worker.push("a")
        agent.running()
        worker.push_ack("b")
        asked = worker.ask("c", block=False)
        agent.go_on()
        agent.go_on()
        assert answer(asked) == "C"
    joined = [message for batch, more in agent.taken for message in batch + more]
    assert joined == ["a", "b", "c"]
    check_law(worker)


def test_messages_that_may_not_leave_yet_stay() -> None:
    clock = VirtualClock()
    taken: SimpleQueue[list[str]] = SimpleQueue()
    begun, go_on = threading.Event(), threading.Semaphore(0)

    def job(batch: list[str], _state: Any) -> None:
        inbox = af.current_inbox()
        taken.put(batch)
        begun.set()
        for _ in range(2):
            assert go_on.acquire(timeout=PATIENCE)
            taken.put(inbox.take_now())

    worker = af.spawn(job, behaviour=Linger(Queue(), 10.0), clock=clock)
    worker.push("a")
    clock.advance(10.0)
    assert taken.get(timeout=PATIENCE) == ["a"]
    worker.push("b")
    go_on.release()
    assert taken.get(timeout=PATIENCE) == []
    clock.advance(10.0)
    go_on.release()
    assert taken.get(timeout=PATIENCE) == ["b"]
    worker.stop(drain=True)
    assert check_law(worker).processed == 2


def test_expired_steering_does_not_let_others_join() -> None:
    clock = VirtualClock()
    agent = Agent()
    behaviour = Lanes(steer=Expire(Queue(), 5.0), follow=Queue(), by=lane)
    worker = agent.spawn(behaviour=behaviour, clock=clock)
    worker.push("f1")
    agent.running()
    late = worker.ask("s1", block=False)
    worker.push("f2")
    clock.advance(6.0)
    agent.go_on(2)
    with pytest.raises(af.Expired):
        answer(late)
    worker.stop(drain=True)
    assert agent.taken == [(["f1"], []), (["f2"], [])]
    check_law(worker)


def test_a_caller_that_has_left_does_not_let_others_join() -> None:
    agent = Agent()
    with agent.spawn(behaviour=lanes()) as worker:
        worker.push("f1")
        agent.running()
        with pytest.raises(af.AnswerTimeout):
            worker.ask("s1", timeout=0.01)
        worker.push("f2")
        agent.go_on(2)
        worker.stop(drain=True)
    assert agent.taken == [(["f1"], []), (["f2"], [])]
    assert check_law(worker).abandoned == 1


def test_nothing_joins_a_paused_worker() -> None:
    agent = Agent()
    with agent.spawn() as worker:
        first = worker.ask("a", block=False)
        agent.running()
        second = worker.ask("b", block=False)
        worker.pause()
        agent.go_on(2)
        assert answer(first) == "A"
        worker.resume()
        assert answer(second) == "B"
    assert agent.taken == [(["a"], []), (["b"], [])]
    check_law(worker)


@pytest.mark.parametrize("thread", ["main", "another"])
@pytest.mark.parametrize("behaviour", [Queue, Stack, lanes, lambda: Chunk(Queue(), 5)])
def test_a_caller_that_helps_joins_messages_too(thread: str, behaviour: Callable[[], Any]) -> None:
    workers: list[af.WorkerRef] = []

    def job(batch: list[str], _state: Any) -> None:
        assert batch == ["f"]
        workers[0].push("s")
        assert af.current_inbox().take_now() == ["s"]

    def ask() -> None:
        for _ in range(20):
            worker.push_block("f")

    given: Any = behaviour if behaviour in {Queue, Stack} else behaviour()
    with af.spawn(job, behaviour=given, help=True) as worker:
        workers.append(worker)
        if thread == "main":
            ask()
        else:
            Caller(ask).wait()
        statistics = check_law(worker)
    assert (statistics.processed, statistics.batches) == (40, 20)


def test_an_inbox_of_a_call_that_has_ended_takes_nothing() -> None:
    agent = Agent()
    with agent.spawn() as worker:
        first = worker.ask("a", block=False)
        agent.running()
        agent.go_on()
        assert answer(first) == "A"
        worker.push("b")
        agent.running()
        worker.push("c")
        assert agent.inboxes[0].take_now() == []
        agent.go_on(2)
        worker.stop(drain=True)
    assert check_law(worker).processed == 3


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (lambda: Adaptive(Queue(), 1.0), "learns from each call"),
        (lambda: PadTo(Queue(), [4], "x"), "pads its batches"),
    ],
)
def test_a_behaviour_that_counts_on_its_batches_refuses(
    behaviour: Callable[[], Any], why: str
) -> None:
    def job(_batch: list[str], _state: Any) -> None:
        af.current_inbox().take_now()

    worker = af.spawn(job, behaviour=behaviour())
    with pytest.raises(af.BadOption, match=why):
        worker.push_block("a")
    worker.stop()


def test_a_batch_that_the_job_has_shortened_is_refused() -> None:
    def job(batch: list[str], _state: Any) -> None:
        batch.pop()
        af.current_inbox().take_now()

    worker = af.spawn(job)
    with pytest.raises(af.BadJob, match="copy"):
        worker.push_block("a")
    worker.stop()


def test_there_is_no_inbox_outside_a_job() -> None:
    with pytest.raises(af.NotHandling, match="outside a job"):
        af.current_inbox()


@pytest.mark.timeout(60)
def test_there_is_no_inbox_in_another_process() -> None:
    worker = af.spawn(elsewhere.take_more, executor="process")
    with pytest.raises(af.NotHandling, match="executor='process'"):
        worker.ask("a", timeout=PATIENCE)
    worker.stop()
