"""`Preempt`: messages that end the batch that is running, in each kind of lane."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    BadBehaviour,
    Bounded,
    Chunk,
    Lanes,
    Linger,
    PerKey,
    Preempt,
    Queue,
    Unique,
)
from actorflow.testing import ManualLane
from actorflow.workflows.service.inbox import EventInbox
from tests.runtime.worker.job import elsewhere
from tests.runtime.worker.probe import PATIENCE
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from pathlib import Path

    import pykka

VICTIMS = ("drop", "return", "merge")
RUNS = {
    "drop": [["a"], ["!b"]],
    "return": [["a"], ["!b"], ["a"]],
    "merge": [["a"], ["a", "!b"]],
}


def is_urgent(message: str) -> bool:
    return message.startswith("!")


class Agent:
    """A job whose calls wait until they are ended, while `waits` is positive."""

    def __init__(self, waits: int = 1) -> None:
        self.waits = waits
        self.batches: list[list[str]] = []
        self.begun: SimpleQueue[list[str]] = SimpleQueue()
        self.go_on = threading.Event()

    def _begin(self, batch: list[str]) -> bool:
        self.batches.append(list(batch))
        self.waits -= 1
        self.begun.put(list(batch))
        return self.waits >= 0

    def call(self, batch: list[str], _state: Any) -> Any:
        if self._begin(batch):
            mine = af.current_batch()
            assert mine is not None
            while not mine.cancelled and not self.go_on.is_set():
                self.go_on.wait(0.001)
        answers = [message.upper() for message in batch]
        batch.clear()  # as a job may
        return af.Answers(None, answers)

    async def acall(self, batch: list[str], _state: Any) -> Any:
        if self._begin(batch):
            await asyncio.Event().wait()
        return af.Answers(None, [message.upper() for message in batch])

    def spawn(self, lane: str, victims: str = "drop", **options: Any) -> af.WorkerRef:
        job = self.acall if lane == "asyncio" else self.call
        if lane == "thread":
            options["executor"] = "thread"
        behaviour = options.pop("behaviour", Queue)
        return af.spawn(
            job, behaviour=Preempt(behaviour, when=is_urgent, victims=victims), **options
        )


def outcome(future: pykka.Future[Any]) -> Any:
    try:
        return future.get(timeout=PATIENCE)
    except af.Dropped:
        return af.Dropped


@pytest.mark.parametrize("lane", ["pool", "thread", "asyncio"])
@pytest.mark.parametrize("victims", VICTIMS)
def test_a_message_ends_the_running_batch(lane: str, victims: str) -> None:
    agent = Agent()
    with agent.spawn(lane, victims) as worker:
        victim = worker.ask("a", block=False)
        agent.begun.get(timeout=PATIENCE)
        assert worker.ask("!b", timeout=PATIENCE) == "!B"
        assert outcome(victim) == (af.Dropped if victims == "drop" else "A")
    assert agent.batches == RUNS[victims]
    statistics = check_law(worker)
    assert statistics.processed == (1 if victims == "drop" else 2)
    assert statistics.dropped == 2 - statistics.processed
    assert statistics.failed == statistics.held == statistics.in_flight == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("victims", VICTIMS)
def test_a_job_in_a_process_is_killed(victims: str, tmp_path: Path) -> None:
    path = tmp_path / "batches"
    path.write_text("", encoding="ascii")
    behaviour = Preempt(Queue(), when=lambda message: message[1] == "!b", victims=victims)
    with af.spawn(elsewhere.hang_at_first, behaviour=behaviour, executor="process") as worker:
        victim = worker.ask((str(path), "a"), block=False)
        while not path.read_text(encoding="ascii"):
            threading.Event().wait(0.005)
        assert worker.ask((str(path), "!b"), timeout=2 * PATIENCE) == "!B"
        assert outcome(victim) == (af.Dropped if victims == "drop" else "A")
    batches = [line.split(",") for line in path.read_text(encoding="ascii").split()]
    assert batches == RUNS[victims]
    check_law(worker)


@pytest.mark.parametrize("lane", ["pool", "asyncio"])
@pytest.mark.parametrize("victims", VICTIMS)
def test_callers_of_push_block_learn_what_became_of_their_message(lane: str, victims: str) -> None:
    agent = Agent()
    errors: list[Any] = []
    worker = agent.spawn(lane, victims)

    def push() -> None:
        try:
            worker.push_block("a", timeout=PATIENCE)
        except af.Displaced as error:
            errors.append(type(error))

    pusher = threading.Thread(target=push)
    pusher.start()
    agent.begun.get(timeout=PATIENCE)
    worker.push_block("!b", timeout=PATIENCE)
    pusher.join(PATIENCE)
    worker.stop()
    assert errors == ([af.Dropped] if victims == "drop" else [])
    check_law(worker)


@pytest.mark.parametrize("lane", ["pool", "asyncio"])
@pytest.mark.parametrize(
    ("victims", "expected"),
    [
        ("drop", [["a"], ["!b"], ["!c"]]),
        ("return", [["a"], ["!b"], ["!c"], ["a"], ["!b"]]),
        ("merge", [["a"], ["a", "!b"], ["a", "!b", "!c"]]),
    ],
)
def test_a_second_message_ends_the_batch_of_the_first(
    lane: str, victims: str, expected: list[list[str]]
) -> None:
    agent = Agent(waits=2)
    with agent.spawn(lane, victims) as worker:
        futures = []
        for message in ("a", "!b"):
            futures.append(worker.ask(message, block=False))
            agent.begun.get(timeout=PATIENCE)
        assert worker.ask("!c", timeout=PATIENCE) == "!C"
        outcomes = [outcome(each) for each in futures]
    assert outcomes == ([af.Dropped, af.Dropped] if victims == "drop" else ["A", "!B"])
    assert agent.batches == expected
    check_law(worker)


@pytest.mark.parametrize("lane", ["pool", "asyncio"])
@pytest.mark.parametrize("victims", VICTIMS)
def test_what_waits_stays_behind_batches_that_run_again(lane: str, victims: str) -> None:
    agent = Agent()
    behaviour = Lanes(
        steer=Queue, follow=Queue, by=lambda text: "steer" if is_urgent(text) else "follow"
    )
    with agent.spawn(lane, victims, behaviour=behaviour) as worker:
        worker.push("a")
        agent.begun.get(timeout=PATIENCE)
        worker.push_ack("z")
        worker.push("!b")
    assert agent.batches == [*RUNS[victims], ["z"]]
    check_law(worker)


def test_other_messages_end_nothing() -> None:
    agent = Agent()
    with agent.spawn("pool") as worker:
        victim = worker.ask("a", block=False)
        agent.begun.get(timeout=PATIENCE)
        worker.push_many(["b", "c"])
        with pytest.raises(af.Malformed, match="no verdict"):
            worker.push_ack(5)
        agent.go_on.set()
        assert outcome(victim) == "A"
    assert agent.batches == [["a"], ["b", "c"]]
    check_law(worker)


def test_a_refused_message_ends_nothing() -> None:
    agent = Agent()
    with agent.spawn("pool", behaviour=Bounded(Queue(), 1)) as worker:
        victim = worker.ask("a", block=False)
        agent.begun.get(timeout=PATIENCE)
        worker.push_ack("b")
        with pytest.raises(af.Full):
            worker.push_ack("!c")
        agent.go_on.set()
        assert outcome(victim) == "A"
    check_law(worker)


@pytest.mark.parametrize("lane", ["pool", "asyncio"])
def test_a_message_ends_all_running_batches(lane: str) -> None:
    agent = Agent(waits=2)
    with agent.spawn(lane, "return", behaviour=Chunk(Queue(), 1), concurrency=2) as worker:
        victims = [worker.ask("a", block=False), worker.ask("b", block=False)]
        for _ in victims:
            agent.begun.get(timeout=PATIENCE)
        assert worker.ask("!c", timeout=PATIENCE) == "!C"
        assert [outcome(each) for each in victims] == ["A", "B"]
    assert sorted(agent.batches) == [["!c"], ["a"], ["a"], ["b"], ["b"]]
    check_law(worker)


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("how", [{"drain": True}, {"drain": False}, {"now": True}])
def test_a_stop_during_a_preemption_leaves_nobody_waiting(victims: str, how: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def job(batch: list[str], _state: Any) -> Any:
        begun.set()
        go_on.wait(PATIENCE)  # it does not look whether it was preempted
        return af.Answers(None, [message.upper() for message in batch])

    worker = af.spawn(job, behaviour=Preempt(Queue, when=is_urgent, victims=victims))
    futures = [worker.ask("a", block=False)]
    assert begun.wait(PATIENCE)
    futures.append(worker.ask("!b", block=False))
    worker.stop(block=False, **how)
    go_on.set()
    outcomes = []
    for future in futures:
        try:
            outcomes.append(future.get(timeout=PATIENCE))
        except (af.Dropped, af.WorkerStopped) as error:
            outcomes.append(type(error))
    worker.stop()
    if how == {"drain": True}:
        assert outcomes == [af.Dropped if victims == "drop" else "A", "!B"]
    else:
        assert "A" not in outcomes
        assert "!B" not in outcomes
    check_law(worker)


def test_what_an_ended_job_returns_or_raises_is_ignored(caplog: Any) -> None:
    begun = threading.Event()

    def job(batch: list[str], count: int) -> int:
        mine = af.current_batch()
        assert mine is not None
        if batch == ["a"]:
            begun.set()
            while not mine.cancelled:
                threading.Event().wait(0.001)
            raise ValueError(batch)
        return count + len(batch)

    with af.spawn(job, state=0, behaviour=Preempt(Queue, when=is_urgent)) as worker:
        worker.push("a")
        assert begun.wait(PATIENCE)
        worker.push_block("!b", timeout=PATIENCE)
        assert worker.statistics().failed == 0
    assert "preempted job raised" in caplog.text
    check_law(worker)


def test_a_job_may_stop_its_worker_when_it_is_preempted() -> None:
    begun = threading.Event()

    def job(_batch: list[str], _state: Any) -> Any:
        mine = af.current_batch()
        assert mine is not None
        begun.set()
        while not mine.cancelled:
            threading.Event().wait(0.001)
        return af.Stop("enough")

    worker = af.spawn(job, behaviour=Preempt(Queue, when=is_urgent))
    worker.push("a")
    assert begun.wait(PATIENCE)
    with pytest.raises(af.WorkerStopped):
        worker.push_block("!b", timeout=PATIENCE)
    check_law(worker)


def test_an_executor_is_preempted_and_lives_on() -> None:
    begun = threading.Event()

    class Counter(af.Executor):
        def on_start(self) -> None:
            self.calls = 0

        async def handle(self, batch: list[str]) -> Any:
            self.calls += 1
            if self.calls == 1:
                begun.set()
                await asyncio.Event().wait()
            return af.Answers(None, [self.calls] * len(batch))

    with af.spawn(Counter, behaviour=Preempt(Queue, when=is_urgent)) as worker:
        worker.push("a")
        assert begun.wait(PATIENCE)
        assert worker.ask("!b", timeout=PATIENCE) == 2
    check_law(worker)


@pytest.mark.parametrize("victims", VICTIMS)
def test_parts_that_wait_for_a_retry_are_preempted_too(victims: str) -> None:
    begun = threading.Event()
    seen: list[list[str]] = []

    def job(batch: list[str], _state: Any) -> Any:
        seen.append(list(batch))
        mine = af.current_batch()
        assert mine is not None
        if len(batch) == 4 and not is_urgent(batch[-1]):
            raise ValueError(batch)
        if len(seen) == 2:
            begun.set()
            while not mine.cancelled:
                threading.Event().wait(0.001)
        return af.Answers(None, [message.upper() for message in batch])

    behaviour = Preempt(Linger(Queue, 60.0, size=4), when=is_urgent, victims=victims)
    with af.spawn(job, behaviour=behaviour, on_failure="isolate") as worker:
        futures = [worker.ask(letter, block=False) for letter in "abcd"]
        assert begun.wait(PATIENCE)
        worker.push("!e")
        worker.stop(drain=True)
        expected = [af.Dropped] * 4 if victims == "drop" else list("ABCD")
        assert [outcome(each) for each in futures] == expected
    check_law(worker)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("victims", VICTIMS)
def test_every_caller_gets_one_outcome_under_random_traffic(victims: str, seed: int) -> None:
    random = Random(seed)
    agent = Agent(waits=0)
    running: list[int] = []

    def job(batch: list[str], _state: Any) -> Any:
        running.append(len(batch))
        for _ in range(random.choice([0, 0, 1, 2])):  # as if others pushed while it runs
            push()
        running.pop()
        return agent.call(batch, None)

    def push() -> None:
        message = f"{random.choice(['', '', '!'])}m{len(futures)}"
        if len(futures) < 60:
            futures.append((message, None))
            futures[-1] = (message, worker.ask(message, block=False))

    inner = random.choice([Queue, lambda: Chunk(Queue, 2), lambda: Unique(key=hash)])
    lane = ManualLane()
    futures: list[Any] = []
    worker = af.spawn(
        job, behaviour=Preempt(inner, when=is_urgent, victims=victims), executor=lane,
        concurrency=random.choice([1, 2]),
    )  # fmt: skip
    for _ in range(30):
        push()
        if random.random() < 0.5:
            lane.run()
        check_law(worker)
    lane.run()
    for message, future in futures:
        found = outcome(future)
        assert found in ((message.upper(), af.Dropped) if victims == "drop" else (message.upper(),))
    statistics = check_law(worker)
    assert statistics.held == statistics.in_flight == statistics.failed == 0
    worker.stop(block=False)
    lane.run()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Preempt(Queue), "when=None"),
        (lambda: Preempt(Queue, when=5), "when=5"),  # type: ignore[arg-type]
        (lambda: Preempt(Queue, when=bool, victims="returns"), "return"),
        (lambda: Preempt(PerKey(Queue), when=bool, victims="merge"), "victims='drop'"),
        (lambda: Preempt(Adaptive(Queue, 1.0), when=bool, victims="return"), "victims='drop'"),
        (lambda: Preempt(Bounded(Queue, 1, when_full="block"), when=bool), "makes pushers wait"),
        (lambda: Chunk(Preempt(Queue, when=bool), 2), "outermost"),
        (lambda: Preempt(Preempt(Queue, when=bool), when=bool), "outermost"),
        (lambda: Lanes(one=Preempt(Queue, when=bool), by=str), "outermost"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, words: str) -> None:
    with pytest.raises(BadBehaviour, match=words):
        make()


def test_nothing_else_than_a_worker_takes_one() -> None:
    def make() -> Preempt:
        return Preempt(Queue, when=bool)

    engine = af.Engine(":memory:")
    try:
        with pytest.raises(af.BadOption, match="cannot end a batch"):
            engine.worker("counter", lambda batch, state: state, behaviour=make)
    finally:
        engine.close()
    with pytest.raises(af.BadOption, match="cannot end a batch"):
        EventInbox(make)
    with pytest.raises(BadBehaviour, match="outermost"):
        af.Turns(make)
    with pytest.raises(af.BadOption, match="cannot end a batch"):
        af.Workers([af.Worker("w", lambda _batch, _state: None, behaviour=make)])


def test_a_behaviour_whose_messages_may_come_back_is_not_exchanged() -> None:
    agent = Agent()
    with agent.spawn("pool", "return") as worker:
        worker.push("a")
        agent.begun.get(timeout=PATIENCE)
        with pytest.raises(af.BadOption, match="in flight"):
            worker.change(Bounded(Queue, 2, when_full="block"))
        agent.go_on.set()
