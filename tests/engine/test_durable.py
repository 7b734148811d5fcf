"""Durable workers: stored, processed once, whatever the behaviour does with them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import (
    Base,
    Bounded,
    Dedup,
    Expire,
    Fair,
    Priority,
    Queue,
    Rate,
    Stack,
    Unique,
)
from actorflow.engine.errors import EngineClosed, NotStorable
from actorflow.runtime.errors import (
    BadJob,
    BadOption,
    Full,
    Malformed,
    PushTimeout,
    Replaced,
)
from tests.engine.kinds import PATIENCE, collect, inbox, quiet, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine
    from actorflow.testing import VirtualClock


class Gate:
    """A job that stops at its first batch until the test opens."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.batches: list[Any] = []

    def __call__(self, batch: Any, state: Any) -> Any:
        self.batches.append(batch)
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return [*state, *batch]


def test_push_block_returns_when_the_state_is_stored(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    for number in range(5):
        worker.push_block(number)
        assert worker.state() == list(range(number + 1))
    assert worker.depth() == 0


def test_what_is_started_before_its_worker_is_registered_waits_for_it(engine: BareEngine) -> None:
    engine.worker("other", collect, state=[])
    engine.start("worker", 1, id="late")
    worker = engine.worker("late", collect, state=[])
    worker.push_block(2)
    assert worker.state() == [1, 2]


def test_a_worker_that_nobody_has_pushed_to_can_be_sent_to_by_its_name(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    engine.send("w", 1)
    asyncio.run(engine.asend("w", 2))
    worker.push_block(3)
    assert worker.state() == [1, 2, 3]


def test_messages_of_one_producer_keep_their_order_by_whatever_road_they_come(
    engine: BareEngine,
) -> None:
    worker = engine.worker("w", collect, state=[])
    for number in range(0, 300, 3):
        worker.push(number)
        worker.push_ack(number + 1)
        worker.push_block(number + 2)
    worker.push_many(range(300, 400))
    worker.push_block(400)
    assert worker.state() == list(range(401))


def test_push_ack_returns_when_the_message_is_stored(engine: BareEngine) -> None:
    gate = Gate()
    worker = engine.worker("w", gate, state=[])
    worker.push("first")
    assert gate.entered.wait(PATIENCE)
    worker.push_ack("second")
    assert worker.depth() == 2
    assert worker.state() == []
    gate.opened.set()
    worker.push_block("third")
    assert worker.state() == ["first", "second", "third"]


def test_what_arrives_while_the_job_runs_is_one_batch(engine: BareEngine) -> None:
    gate = Gate()
    worker = engine.worker("w", gate, state=[], behaviour=Stack)
    worker.push(0)
    assert gate.entered.wait(PATIENCE)
    for number in (1, 2, 3):
        worker.push_ack(number)
    gate.opened.set()
    until(engine, lambda: not worker.depth())
    assert gate.batches == [[0], [3, 2, 1]]


def test_asyncio_callers(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])

    async def main() -> None:
        await asyncio.gather(*(worker.apush_ack(number) for number in range(100)))
        await worker.apush_block(100)

    asyncio.run(main())
    assert sorted(worker.state()) == list(range(101))


def test_a_coroutine_function_can_be_the_job(engine: BareEngine) -> None:
    async def job(batch: list[Any], state: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        if "bad" in batch:
            raise ValueError("bad")
        return [*state, *batch]

    worker = engine.worker("w", job, state=[])
    worker.push_block(1)
    with pytest.raises(ValueError, match="bad"):
        worker.push_block("bad")
    worker.push_block(2)
    assert worker.state() == [1, 2]
    assert [letter.message for letter in worker.dead_letters] == ["bad"]


@pytest.mark.parametrize("policy", ["drop", "retry", "isolate"])
def test_a_job_that_changes_its_state_and_then_raises_leaves_no_trace(
    engine: BareEngine, policy: str
) -> None:
    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        for message in batch:
            state.append(message)
            if message == "bad":
                raise ValueError("bad")
        return state

    worker = engine.worker("w", job, state=[], on_failure=policy)
    worker.push_block(1)
    with pytest.raises(ValueError, match="bad"):
        worker.push_block("bad")
    worker.push_block(2)
    assert worker.state() == [1, 2]
    (letter,) = worker.dead_letters
    assert (letter.message, letter.error) == ("bad", "ValueError: bad")


def test_the_poison_alone_becomes_a_dead_letter(engine: BareEngine) -> None:
    gate = Gate()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if 13 in batch:
            raise ValueError("unlucky")
        result: list[Any] = gate(batch, state)
        return result

    worker = engine.worker("w", job, state=[])
    worker.push("first")
    assert gate.entered.wait(PATIENCE)
    worker.push_many(range(20))
    gate.opened.set()
    worker.push_block("last")
    assert worker.state() == ["first", *(n for n in range(20) if n != 13), "last"]
    assert [letter.message for letter in worker.dead_letters] == [13]
    assert worker.depth() == 0


def test_dead_letters_are_read_retried_and_purged(engine: BareEngine) -> None:
    broken = True

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if broken:
            raise ValueError("broken")
        return [*state, *batch]

    worker = engine.worker("w", job, state=[])
    for number in range(3):
        with pytest.raises(ValueError, match="broken"):
            worker.push_block(number)
    letters = list(worker.dead_letters)
    assert [letter.message for letter in letters] == [0, 1, 2]
    assert worker.dead_letters.retry(letters[0]) == 1
    quiet(engine)
    broken = False
    assert engine.dead_letters().purge(letters[1]) == 1
    assert worker.dead_letters.retry() >= 1
    worker.push_block("end")
    quiet(engine)
    worker.dead_letters.retry()
    worker.push_block("very end")
    assert sorted(map(str, worker.state())) == ["0", "2", "end", "very end"]
    assert len(worker.dead_letters) == 0
    assert worker.dead_letters.retry() == worker.dead_letters.purge() == 0
    assert worker.dead_letters.purge(*letters) == 0, "they are gone"


def test_what_unique_replaced_is_consumed_in_the_same_commit(engine: BareEngine) -> None:
    gate = Gate()
    worker = engine.worker("w", gate, state=[], behaviour=Unique)
    worker.push(["a", 0])
    assert gate.entered.wait(PATIENCE)
    errors: list[BaseException] = []

    def wait_in_vain() -> None:
        try:
            worker.push_block(["a", 1], timeout=PATIENCE)
        except Replaced as error:
            errors.append(error)

    thread = threading.Thread(target=wait_in_vain)
    thread.start()
    until(engine, lambda: len(inbox(engine, "w")))
    for number in range(2, 6):
        worker.push_ack(["a", number])
    gate.opened.set()
    worker.push_block(["b", 0])
    thread.join(PATIENCE)
    assert len(errors) == 1
    assert worker.state() == [["a", 0], ["a", 5], ["b", 0]]
    assert worker.depth() == 0
    assert len(worker.dead_letters) == 0


def test_what_bounded_dropped_is_consumed_and_what_it_rejects_is_a_dead_letter(
    engine: BareEngine,
) -> None:
    gate = Gate()
    dropping = engine.worker(
        "d", gate, state=[], behaviour=lambda: Bounded(Queue(), 2, when_full="drop_oldest")
    )
    dropping.push_ack(0)
    assert gate.entered.wait(PATIENCE)
    dropping.push_many(range(1, 8))
    dropping.push_ack(8)
    gate.opened.set()
    dropping.push_block(9)
    assert dropping.depth() == 0
    assert dropping.state()[0] == 0
    assert dropping.state()[-2:] == [8, 9]

    gate.opened.clear()
    gate.entered.clear()
    rejecting = engine.worker("r", gate, state=[], behaviour=lambda: Bounded(Queue(), 1))
    rejecting.push_ack(0)
    assert gate.entered.wait(PATIENCE)
    rejecting.push_ack(1)
    with pytest.raises(Full):
        rejecting.push_ack(2)
    with pytest.raises(Full):
        rejecting.push_block(3)
    gate.opened.set()
    quiet(engine)
    assert [letter.message for letter in rejecting.dead_letters] == [2, 3]


def test_a_malformed_message_is_refused_alone(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[], behaviour=Unique)
    with pytest.raises(Malformed):
        worker.push_ack(7)
    worker.push_block(["a", 1])
    assert worker.state() == [["a", 1]]
    assert [letter.message for letter in worker.dead_letters] == [7]


def test_what_expires_is_consumed_although_no_run_follows(
    engine: BareEngine, clock: VirtualClock
) -> None:
    gate = Gate()
    worker = engine.worker("w", gate, state=[], behaviour=lambda: Expire(Queue(), 10.0))
    worker.push_ack("now")
    assert gate.entered.wait(PATIENCE)
    worker.push_ack("too late")
    clock.advance(20.0)
    gate.opened.set()
    live = engine.parts.table._live["w"]
    while not inbox(engine, "w").is_idle or not live.displaced:
        quiet(engine)
    clock.advance(1.0)  # the sweep
    quiet(engine)
    assert worker.depth() == 0
    assert worker.state() == ["now"]


def test_a_behaviour_of_ones_own(engine: BareEngine) -> None:
    class OneByOne(Base):
        def transform(self, messages: Any) -> Any:
            return messages[-1]

        def clear(self, messages: Any) -> Any:
            return messages[:-1]

    worker = engine.worker(
        "w", lambda message, state: [*state, message], state=[], behaviour=OneByOne
    )
    worker.push_many("abc")
    worker.push_block("d")
    assert worker.state() == list("abcd")
    assert worker.depth() == 0


def test_bad_options_are_refused_at_once(engine: BareEngine) -> None:
    engine.worker("w", collect, state=[])
    nullary: Any = lambda: None  # noqa: E731 - it stands for what users may write
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: engine.worker("w", collect), BadOption, "already"),
        (lambda: engine.worker("a", nullary), BadJob, "cannot be a job"),
        (lambda: engine.worker("a", collect, behaviour=7), BadOption, "behaviour=Queue"),
        (lambda: engine.worker("a", collect, state=object()), NotStorable, "plain data"),
        (lambda: engine.worker("a", collect, on_failure="ignore"), BadOption, "not a policy"),
        (
            lambda: engine.worker(
                "a", collect, behaviour=lambda: Bounded(Queue(), 1, when_full="block")
            ),
            BadOption,
            "pushers wait",
        ),
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()


def test_what_is_not_plain_data_is_refused_at_the_push(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    for push in (worker.push, worker.push_ack, worker.push_block):
        with pytest.raises(NotStorable, match="use plain data"):
            push(object())
    worker.push_block(1)
    assert worker.state() == [1]


def test_a_state_that_is_not_plain_data_is_the_jobs_failure(engine: BareEngine) -> None:
    worker = engine.worker("w", lambda batch, state: object(), state=0)
    with pytest.raises(NotStorable):
        worker.push_block(1)
    assert worker.state() == 0
    assert len(worker.dead_letters) == 1


def test_a_timeout_leaves_the_message_where_it_is(engine: BareEngine) -> None:
    gate = Gate()
    worker = engine.worker("w", gate, state=[])
    with pytest.raises(PushTimeout):
        worker.push_block(1, timeout=0.01)
    with pytest.raises(PushTimeout):
        asyncio.run(worker.apush_block(2, timeout=0.01))
    gate.opened.set()
    worker.push_block(3)
    assert worker.state() == [1, 2, 3]


def test_everything_goes_on_with_the_next_engine(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    gate = Gate()
    worker = engine.worker("w", gate, state=[])
    worker.push("running")
    assert gate.entered.wait(PATIENCE)
    worker.push_ack("waiting")
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine.closed:
        pass
    gate.opened.set()
    closing.join(PATIENCE)
    with pytest.raises(EngineClosed):
        worker.push("late")

    again = reopen().worker("w", collect, state=[])
    again.push_block("new")
    assert again.state() == ["running", "waiting", "new"]


def test_those_who_wait_are_told_when_the_engine_is_closed(
    reopen: Callable[..., BareEngine],
) -> None:
    engine = reopen()
    gate = Gate()
    worker = engine.worker("w", gate, state=[])
    worker.push("running")
    assert gate.entered.wait(PATIENCE)
    errors: list[BaseException] = []

    def wait_in_vain() -> None:
        try:
            worker.push_block("waiting", timeout=PATIENCE)
        except EngineClosed as error:
            errors.append(error)

    thread = threading.Thread(target=wait_in_vain)
    thread.start()
    until(engine, lambda: len(inbox(engine, "w")))
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine.closed:
        pass
    gate.opened.set()
    closing.join(PATIENCE)
    thread.join(PATIENCE)
    assert len(errors) == 1


def test_throttle_counts_in_the_engines_time(engine: BareEngine, clock: VirtualClock) -> None:
    seen = threading.Semaphore(0)

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        seen.release()
        return [*state, batch]

    worker = engine.worker("w", job, state=[], throttle=10.0)
    worker.push_ack(1)
    assert seen.acquire(timeout=PATIENCE)
    worker.push_ack(2)
    worker.push_ack(3)
    live = inbox(engine, "w")
    until(engine, lambda: live.status.value == "waiting")
    clock.advance(10.0)
    assert seen.acquire(timeout=PATIENCE)
    until(engine, lambda: not worker.depth())
    assert worker.state() == [[1], [2, 3]]


@pytest.mark.parametrize("policy", ["isolate", "drop", "retry"])
def test_the_log_of_a_dead_letter_names_its_execution_and_error(
    engine: BareEngine, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    def job(batch: list[Any], state: Any) -> Any:
        raise ValueError("poison")

    worker = engine.worker("orders", job, on_failure=policy)
    with pytest.raises(ValueError, match="poison"):
        worker.push_block(1)
    records = [each for each in caplog.records if each.levelname in {"ERROR", "WARNING"}]
    assert len(records) == 1, records
    assert "dead-lettered" in records[0].getMessage()
    assert "execution='orders'" in records[0].getMessage()
    assert "RunFailed" not in caplog.text
    assert "ValueError: poison" in caplog.text


def test_a_deduplication_window_survives_a_restart(
    reopen: Callable[..., BareEngine], clock: VirtualClock
) -> None:
    def start(engine: BareEngine) -> Any:
        inbox = lambda: Dedup(Queue(), within=60.0, key=lambda order: order["id"])  # noqa: E731
        return engine.worker("w", collect, state=[], behaviour=inbox)

    worker = start(reopen())
    worker.push_block({"id": "a"})
    worker.push_block({"id": "b"})
    clock.advance(30.0)
    worker = start(reopen())
    worker.push_ack({"id": "a"})
    worker.push_block({"id": "c"})
    assert [order["id"] for order in worker.state()] == ["a", "b", "c"]
    clock.advance(31.0)
    worker = start(reopen())
    worker.push_block({"id": "a"})
    assert [order["id"] for order in worker.state()] == ["a", "b", "c", "a"]
    assert not list(worker.dead_letters)


def test_a_message_that_was_not_committed_is_no_duplicate_of_itself(
    reopen: Callable[..., BareEngine],
) -> None:
    def start(engine: BareEngine, job: Any) -> Any:
        return engine.worker("w", job, state=[], behaviour=lambda: Dedup(Queue(), within=60.0))

    gate = Gate()
    engine = reopen()
    worker = start(engine, gate)
    worker.push("a")
    assert gate.entered.wait(PATIENCE)
    worker.push_ack("b")
    gate.opened.set()
    engine = reopen()
    worker = start(engine, collect)
    engine.resume()
    until(engine, lambda: worker.depth() == 0)
    assert sorted(worker.state()) == ["a", "b"]


def test_a_bucket_of_tokens_survives_a_restart_and_regains_what_it_has_missed(
    reopen: Callable[..., BareEngine], clock: VirtualClock
) -> None:
    def start(engine: BareEngine) -> Any:
        inbox = lambda: Rate(Queue(), 0.1, burst=2)  # noqa: E731
        return engine.worker("w", collect, state=[], behaviour=inbox)

    worker = start(reopen())
    worker.push_block(1)
    worker.push_block(2)
    engine = reopen()
    worker = start(engine)
    worker.push_ack(3)
    clock.advance(9.0)
    assert worker.state() == [1, 2]
    clock.advance(1.0)
    until(engine, lambda: worker.state() == [1, 2, 3])
    clock.advance(5.0)
    engine = reopen()
    worker = start(engine)
    worker.push_ack(4)
    clock.advance(4.0)
    assert worker.state() == [1, 2, 3]
    clock.advance(1.0)
    until(engine, lambda: worker.state() == [1, 2, 3, 4])


@pytest.mark.parametrize(
    "inbox",
    [
        lambda: Priority(key=lambda message: -message),
        lambda: Rate(Queue(), 10_000, key=lambda message: message),
        lambda: Rate(Rate(Queue(), 10_000, key=lambda message: message), 10_000, burst=40),
        lambda: Fair(key=lambda message: message % 3),
        Stack,
    ],
    ids=["priority", "rate", "two rates", "fair", "stack"],
)
def test_messages_that_overtake_each_other_are_all_processed(
    reopen: Callable[..., BareEngine], inbox: Any
) -> None:
    engine = reopen()
    worker = engine.worker("w", collect, state=[], behaviour=inbox)
    for number in range(40):
        worker.push_ack(number)
    until(engine, lambda: len(worker.state()) + len(worker.dead_letters) == 40)
    assert sorted(worker.state()) == list(range(40))
