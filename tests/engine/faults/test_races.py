"""Many threads at once: nothing is applied twice, nothing is lost, nobody hangs."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Bounded, Queue
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed
from actorflow.engine.kind import NewTask, Options, Outcome, TaskEnded
from actorflow.engine.stores.protocol import Change
from actorflow.engine.tasks.task import HOLD
from actorflow.runtime.errors import ActorflowError, Rejected
from tests.engine.kinds import PATIENCE, Kept, Script, collect, flush, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock

THREADS = 8


def together(count: int, call: Callable[[int], Any]) -> list[Any]:
    """Call from many threads at once; return what each call returned, or raised."""
    begin = threading.Barrier(count)
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        begin.wait(PATIENCE)
        try:
            found[number] = call(number)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "somebody hangs"
    return found


def _until_consumed(engine: BareEngine) -> None:
    until(engine, lambda: not rows(engine, "messages"))
    quiet(engine)


class Quick(Script):
    """A kind without code of a user in its inbox."""

    def quick(self, _execution: str) -> bool:
        return True


@pytest.fixture(params=["memory", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return what one engine after the other is opened on."""
    return Kept() if request.param == "memory" else tmp_path / "s.db"


@pytest.mark.parametrize("script", [Script, Quick])
def test_a_kind_is_registered_while_messages_are_sent(where: Any, script: type[Script]) -> None:
    for _ in range(5):
        with BareEngine(where, durability="off") as engine:
            sent: list[tuple[str, list[int]]] = []

            def work(
                number: int, engine: BareEngine = engine, sent: list[tuple[str, list[int]]] = sent
            ) -> None:
                if number == 0:
                    engine.register(script())
                    return
                name = f"x{number % 3}"
                for each in range(30):
                    engine.send(name, [number, each], kind="script")
                sent.append((name, [number, 30]))

            before = {
                f"x{n}": state_of(engine, f"x{n}") or []
                for n in range(3)
                if engine.parts.store.execution(f"x{n}") is not None
            }
            assert together(THREADS, work) == [None] * THREADS
            _until_consumed(engine)
            for name in ("x0", "x1", "x2"):
                new = state_of(engine, name)[len(before.get(name, [])) :]
                assert len(new) == sum(count for to, (_, count) in sent if to == name)
                for number in range(THREADS):
                    mine = [each for sender, each in new if sender == number]
                    assert mine == sorted(set(mine)), "in order, each once"


def test_taskers_before_kinds_and_no_answer_is_applied_twice(where: Any) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            return [*state, message.task]
        return Outcome(state=state, tasks=[NewTask(f"{message}-{n}", "t") for n in range(20)])

    with BareEngine(where, durability="off") as engine:
        script = Script(step)
        engine.register(script)
        engine.tasker("t", lambda task: HOLD)
        for number in range(5):
            engine.send(f"x{number}", f"x{number}", kind="script")
        script.wait(5)
        quiet(engine)
    with BareEngine(where, durability="off") as engine:
        engine.tasker("t", lambda task: None)  # it answers before anybody knows the kind
        engine.resume()
        until(engine, lambda: not rows(engine, "tasks"))
        engine.register(Script(step))
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        for number in range(5):
            expected = sorted(f"x{number}-{n}" for n in range(20))
            assert sorted(state_of(engine, f"x{number}")) == expected
        assert len(engine.dead_letters()) == 0


# Idempotency.


@pytest.mark.parametrize("script", [Script, Quick])
def test_start_with_an_id_starts_once(where: Any, script: type[Script]) -> None:
    with BareEngine(where, durability="off") as engine:
        engine.register(script())
        for turn in range(20):
            start = partial(engine.start, "script", id=f"x{turn}")
            found = [each.id for each in together(THREADS, start)]
            assert found == [f"x{turn}"] * THREADS
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        first = [state_of(engine, f"x{turn}") for turn in range(20)]
        assert [len(each) for each in first] == [1] * 20, first
        assert len(engine.dead_letters()) == 0
    with BareEngine(where, durability="off") as engine:
        engine.register(script())
        for turn in range(20):
            engine.start("script", "again", id=f"x{turn}")
        quiet(engine)
        assert [state_of(engine, f"x{turn}") for turn in range(20)] == first


def test_send_with_a_key_counts_once(where: Any) -> None:
    with BareEngine(where, durability="off") as engine:
        engine.register(Script())
        for turn in range(10):
            send = partial(engine.send, "x", kind="script", key=str(turn))
            assert together(THREADS, send) == [None] * THREADS
        quiet(engine)
        first = state_of(engine, "x")
        assert len(first) == 10
    with BareEngine(where, durability="off") as engine:
        engine.register(Script())
        for turn in range(11):
            engine.send("x", "new", key=str(turn))
        quiet(engine)
        assert state_of(engine, "x") == [*first, "new"]


def test_push_ack_with_a_key_counts_once_and_a_refusal_is_repeated(where: Any) -> None:
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        assert go.wait(PATIENCE)
        return [*state, *batch]

    with BareEngine(where, durability="off") as engine:
        worker = engine.worker("w", job, state=[], behaviour=lambda: Bounded(Queue(), 1))
        worker.push_ack("running", key="a")
        assert entered.wait(PATIENCE)
        worker.push_ack("waiting", key="b")
        for _ in range(2):
            with pytest.raises(Rejected):
                worker.push_ack("refused", key="c")
        told = together(4, lambda _: worker.push_ack(9, key="d"))
        assert all(isinstance(each, Rejected) for each in told), told
        worker.push_ack("waiting", key="b")
        go.set()
        until(engine, lambda: not rows(engine, "messages"))
        assert worker.state() == ["running", "waiting"]
        assert [letter.message for letter in worker.dead_letters] == ["refused", 9]
    with BareEngine(where, durability="off") as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_ack("running", key="a")
        with pytest.raises(Rejected):
            worker.push_ack("refused", key="c")
        with pytest.raises(Rejected):
            worker.push_ack(9, key="d")
        worker.push_ack("new", key="e")
        until(engine, lambda: not rows(engine, "messages"))
        assert worker.state() == ["running", "waiting", "new"]
        assert len(worker.dead_letters) == 2


def test_dead_letters_that_four_threads_retry_are_sent_once(where: Any) -> None:
    broken = True

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if broken:
            raise ValueError("broken")
        return [*state, *batch]

    with BareEngine(where, durability="off") as engine:
        worker = engine.worker("w", job, state=[])
        worker.push_many(range(30))
        until(engine, lambda: len(worker.dead_letters) == 30)
        broken = False
        counts = together(4, lambda _: worker.dead_letters.retry())
        assert sum(counts) == 30
        until(engine, lambda: not rows(engine, "messages"))
        quiet(engine)
        assert sorted(worker.state()) == list(range(30))
        assert len(worker.dead_letters) == 0


# While close() finishes.


def test_whatever_is_called_while_the_engine_closes_ends(where: Any) -> None:
    for _ in range(10):
        engine = BareEngine(where, durability="off")
        worker = engine.worker("w", collect, state=[])
        worker.push_block(1)

        def work(number: int, engine: BareEngine = engine, worker: Any = worker) -> None:
            calls: list[Callable[[], Any]] = [
                engine.close,
                lambda: engine.register(Script()),
                lambda: engine.worker("other", collect),
                lambda: engine.upkeep.purge(before=0.0),
                lambda: worker.push_block(2),
                lambda: engine.send("x", 1, kind="script"),
                lambda: engine.cancel("w"),
                lambda: engine.dead_letters().retry(),
                lambda: engine.tasker("t", len),
                lambda: engine.wait("w", 0.1),
                lambda: engine.every("e", "* * * * *", worker, 1),
                engine.close,
            ]
            calls[number]()

        for each in together(12, work):
            assert each is None or isinstance(each, ActorflowError), each
        with pytest.raises(EngineClosed):
            worker.push(1)
        engine.close()


def test_the_order_survives_a_close_that_waits_for_a_tasker(where: Any) -> None:
    """Messages are sent while close() waits: none may overtake the ones in memory."""
    begun, go = threading.Event(), threading.Event()

    def do(_task: Any) -> Any:
        begun.set()
        assert go.wait(PATIENCE)

    entered, open_ = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "begin":
            return Outcome(state=state, tasks=[NewTask("a", "t")])
        if isinstance(message, TaskEnded):
            return state
        if message == 0:
            entered.set()
            assert open_.wait(PATIENCE)
        return [*state, message]

    engine = BareEngine(where, durability="off")
    engine.register(Script(step))
    engine.tasker("t", do)
    engine.send("x", "begin", kind="script")
    assert begun.wait(PATIENCE)
    for number in range(4):
        engine.send("x", number)
    assert entered.wait(PATIENCE)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine.closed:
        pass
    left = list(range(4, 8))  # refused messages are sent to the next engine
    with suppress(EngineClosed):
        while left:
            engine.send("x", left[0])
            del left[0]
    open_.set()
    go.set()
    closing.join(PATIENCE)
    with BareEngine(where, durability="off") as again:
        again.register(Script(step))
        again.tasker("t", lambda task: None)
        for number in left:
            again.send("x", number)
        until(again, lambda: not rows(again, "messages"))
        quiet(again)
        assert state_of(again, "x") == list(range(8))


def test_a_run_that_always_loses_its_race_gives_up_nothing(
    engine: BareEngine, clock: VirtualClock
) -> None:
    """Somebody else writes three times while a message is being run."""
    entered, go = threading.Semaphore(0), threading.Semaphore(0)

    def step(state: Any, message: Any) -> Any:
        entered.release()
        assert go.acquire(timeout=PATIENCE)
        return [*state, message]

    script = Script(step)
    engine.register(script)
    engine.send("x", "mine", kind="script")
    for number in range(3):
        assert entered.acquire(timeout=PATIENCE)
        row = engine.parts.row("x")
        state = script.encode([*script.decode(row.state), number])
        change = Change("x", kind="script", expected=row.revision, state=state, at=1.0)
        engine.parts.writer.submit(change)
        flush(engine)
        go.release()
    go.release()
    script.wait(4)
    quiet(engine)
    assert state_of(engine, "x") == [0, 1, 2, "mine"]


@pytest.mark.parametrize(
    "options",
    [
        {"retention": "x"},
        {"retention": -1},
        {"max_live": "x"},
        {"max_live": -1},
        {"clock": 5},
        {"check": "x"},
    ],
    ids=str,
)
def test_bad_options_of_an_engine_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ActorflowError, match=next(iter(options))):
        BareEngine(tmp_path / "s.db", **options)
    BareEngine(tmp_path / "s.db").close()


def test_options_of_a_kind_are_an_object_of_their_own() -> None:
    with pytest.raises(TypeError):
        Options(behavior=Queue)  # type: ignore[call-arg]


def test_what_is_read_from_the_store_is_not_delivered_once_more(
    where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is behind reads on after a commit that has stored another message for it."""
    monkeypatch.setattr("actorflow.engine.executions.table.WINDOW", 4)
    for room in ("table", "stored_backlog"):
        monkeypatch.setattr(f"actorflow.engine.executions.{room}.LOW", 2)
    entered, go = threading.Semaphore(0), threading.Semaphore(0)

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.release()
        assert go.acquire(timeout=PATIENCE)
        return [*state, *batch]

    with BareEngine(where, durability="off") as engine:
        worker = engine.worker("w", job, state=[])
        worker.push_ack(0)
        assert entered.acquire(timeout=PATIENCE)
        worker.push_many(range(1, 7))
        worker.push_ack(7)  # it is left in the store: there are enough in memory
        go.release()
        assert entered.acquire(timeout=PATIENCE)
        blocked, on = threading.Event(), threading.Event()

        def block() -> None:
            blocked.set()
            assert on.wait(PATIENCE)

        engine.parts.writer.call(block)
        assert blocked.wait(PATIENCE)
        go.release(5)
        while not engine.parts.writer.waiting:  # what the second run came to
            pass
        worker.push(8)
        on.set()  # one commit takes both
        _until_consumed(engine)
        assert worker.state() == list(range(9))
        assert len(worker.dead_letters) == 0
