"""Tasks: handed out after the commit, answered once, retried, timed, cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine import bodies
from actorflow.engine.engine import Engine
from actorflow.engine.kind import NewTask, Outcome, TaskEnded
from actorflow.engine.tasks.tasker import HOLD, Task
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.supervision.spec import Backoff
from behaviours import Base, Bounded, Priority, Queue, Unique
from tests.engine.kinds import PATIENCE, Kept, Script, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing import VirtualClock


def asking(state: Any, message: Any) -> Any:
    """Hand out the tasks of a dict, cancel those of a list, keep answers."""
    if isinstance(message, dict) and "ask" in message:
        urgent = message.get("urgent", {})
        tasks = [
            NewTask(name, message["of"], name, priority=urgent.get(name, 0))
            for name in message["ask"]
        ]
        return Outcome(state=state, tasks=tasks)
    if isinstance(message, list):
        return Outcome(state=state, cancelled_tasks=message)
    if isinstance(message, TaskEnded):
        return [*state, message.value if message.ok else error_of(message)]
    return [*state, message]


def error_of(ended: TaskEnded) -> Any:
    assert ended.error is not None
    return {"kind": ended.error.type, "message": ended.error.message, "outcome": ended.outcome}


@pytest.fixture
def script(engine: Engine) -> Script:
    made = Script(asking)
    engine.register(made)
    return made


def ask(engine: Engine, *names: str, of: str = "t") -> None:
    engine.send("x", {"ask": list(names), "of": of}, kind="script")


def test_a_task_is_done_and_its_result_is_a_message(engine: Engine, script: Script) -> None:
    seen: list[Task] = []

    def do(task: Task) -> Any:
        seen.append(task)
        return f"did {task.body}"

    engine.tasker("t", do)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["did a"]
    assert [(task.id, task.execution, task.attempt) for task in seen] == [("a", "x", 1)]
    assert rows(engine, "tasks") == []
    assert engine.statistics().tasks_done == 1


def test_a_held_task_is_answered_later_and_only_once(engine: Engine, script: Script) -> None:
    held = threading.Event()

    def do(task: Task) -> Any:
        held.set()
        return HOLD

    engine.tasker("t", do)
    ask(engine, "a", "b")
    assert held.wait(PATIENCE)
    assert engine.return_task("a", 1)
    assert not engine.return_task("a", 2)
    assert engine.fail_task("b", ValueError("no"))
    assert not engine.fail_task("b", ValueError("no"))
    assert not engine.return_task("unknown", 2)
    script.wait(3)
    quiet(engine)
    assert state_of(engine, "x") == [
        1,
        {"kind": "ValueError", "message": "no", "outcome": "failed"},
    ]


def test_a_task_that_fails_is_tried_again_with_longer_waits(
    engine: Engine, script: Script, clock: VirtualClock
) -> None:
    attempts: list[tuple[float, int]] = []
    tried = threading.Semaphore(0)

    def do(task: Task) -> Any:
        attempts.append((clock.now(), task.attempt))
        tried.release()
        if task.attempt < 4:
            raise ValueError(str(task.attempt))
        return "done"

    engine.tasker("t", do, retries=3, backoff=Backoff(initial=1.0, factor=2.0, maximum=60.0))
    ask(engine, "a")
    for delay in (1.0, 2.0, 4.0):
        assert tried.acquire(timeout=PATIENCE)
        until(engine, lambda: clock.next_time() is not None)
        assert rows(engine, "tasks")[0].due == clock.now() + delay
        clock.advance(delay)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["done"]
    assert attempts == [(1_000.0, 1), (1_001.0, 2), (1_003.0, 3), (1_007.0, 4)]
    assert engine.statistics().tasks_retried == 3


def test_jitter_takes_a_part_off_the_wait(
    engine: Engine, script: Script, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)

    def do(task: Task) -> Any:
        raise ValueError

    engine.tasker("t", do, retries=1, backoff=Backoff(initial=10.0, maximum=10.0, jitter=0.2))
    ask(engine, "a")
    until(engine, lambda: clock.next_time() is not None)
    assert clock.next_time() == 1_009.0


def test_the_last_failure_is_told_to_the_execution(engine: Engine, script: Script) -> None:
    def do(task: Task) -> Any:
        raise ValueError("never")

    engine.tasker("t", do)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == [
        {"kind": "ValueError", "message": "never", "outcome": "failed"}
    ]


def test_a_result_that_cannot_be_stored_is_a_failure(engine: Engine, script: Script) -> None:
    engine.tasker("t", lambda task: object(), retries=5)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x")[0]["kind"] == "NotStorable"


def test_tasks_wait_for_a_tasker_that_is_not_there(engine: Engine, script: Script) -> None:
    ask(engine, "a", "b", of="later")
    script.wait(1)
    quiet(engine)
    assert len(rows(engine, "tasks")) == 2
    engine.tasker("later", lambda task: task.id)
    script.wait(3)
    quiet(engine)
    assert sorted(state_of(engine, "x")) == ["a", "b"]


def test_so_many_at_once_and_no_more(engine: Engine, script: Script) -> None:
    running, most = 0, 0
    lock = threading.Lock()
    together = threading.Barrier(3)

    def do(task: Task) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(PATIENCE)
        with lock:
            running -= 1

    engine.tasker("t", do, concurrency=3)
    ask(engine, *(str(number) for number in range(9)))
    script.wait(10)
    assert most == 3


def test_a_coroutine_function_can_be_a_tasker(engine: Engine, script: Script) -> None:
    running, most = 0, 0
    enough = asyncio.Event()

    async def do(task: Task) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 5:
            enough.set()
        await enough.wait()
        if task.id == "3":
            raise ValueError("three")
        return task.id

    engine.tasker("t", do, concurrency=5)
    ask(engine, *(str(number) for number in range(5)))
    script.wait(6)
    quiet(engine)
    assert most == 5
    assert {"kind": "ValueError", "message": "three", "outcome": "failed"} in state_of(engine, "x")


def test_priority_decides_who_is_next(engine: Engine, script: Script) -> None:
    order: list[str] = []
    entered, go = threading.Event(), threading.Event()

    def do(task: Task) -> Any:
        order.append(task.id)
        entered.set()
        assert go.wait(PATIENCE)

    engine.tasker("t", do, behaviour=Priority(key=lambda task: int(task.body)))
    ask(engine, "5")
    assert entered.wait(PATIENCE)
    ask(engine, "1", "9", "4")
    ask(engine, "7")
    script.wait(3)
    quiet(engine)
    go.set()
    script.wait(8)
    assert order == ["5", "9", "7", "4", "1"]


def test_the_most_urgent_task_is_next(engine: Engine, script: Script) -> None:
    order: list[str] = []
    entered, go = threading.Event(), threading.Event()

    def do(task: Task) -> Any:
        order.append(task.id)
        entered.set()
        assert go.wait(PATIENCE)

    engine.tasker("t", do)
    ask(engine, "first")
    assert entered.wait(PATIENCE)
    urgent = {"b": 9, "d": 2}
    engine.send("x", {"ask": ["a", "b", "c", "d"], "of": "t", "urgent": urgent}, kind="script")
    script.wait(2)
    quiet(engine)
    go.set()
    script.wait(7)
    assert order == ["first", "b", "d", "a", "c"]


def test_throttle_limits_the_rate(engine: Engine, script: Script, clock: VirtualClock) -> None:
    times: list[float] = []
    begun = threading.Semaphore(0)

    def do(task: Task) -> Any:
        times.append(clock.now())
        begun.release()

    engine.tasker("t", do, throttle=2.0, concurrency=10)
    ask(engine, "a", "b", "c")
    for _ in range(3):
        assert begun.acquire(timeout=PATIENCE)
        for _ in range(100):
            if clock.next_time() is not None:
                break
            quiet(engine)
        clock.advance(2.0)
    assert times == [1_000.0, 1_002.0, 1_004.0]


def test_what_a_bounded_tasker_refuses_has_failed(engine: Engine, script: Script) -> None:
    entered, go = threading.Event(), threading.Event()

    def do(task: Task) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return task.id

    engine.tasker("t", do, behaviour=Bounded(Queue(), 1))
    ask(engine, "a")
    assert entered.wait(PATIENCE)
    ask(engine, "b", "c")
    script.wait(3)
    quiet(engine)
    assert [each["kind"] for each in state_of(engine, "x")] == ["Full"]
    go.set()
    script.wait(5)


def test_a_task_without_an_answer_in_time_is_tried_again_in_another_place(
    engine: Engine, script: Script, clock: VirtualClock
) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()

    def do(task: Task) -> Any:
        begun.release()
        if task.attempt == 1:
            assert go.wait(PATIENCE)
            assert not task.heartbeat()
            return "too late"
        return "second"

    engine.tasker("t", do, timeout=10.0, retries=1, backoff=Backoff(initial=1.0, maximum=1.0))
    ask(engine, "a")
    assert begun.acquire(timeout=PATIENCE)
    clock.advance(10.0)
    until(engine, lambda: clock.next_time() is not None)
    clock.advance(1.0)
    assert begun.acquire(timeout=PATIENCE)
    script.wait(2)
    go.set()
    quiet(engine)
    assert state_of(engine, "x") == ["second"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_attempt_whose_time_is_up_leaves_its_place_to_others(
    engine: Engine,
    script: Script,
    clock: VirtualClock,
    asynchronous: bool,  # noqa: FBT001
) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()
    go_async = asyncio.Event()

    def do(task: Task) -> Any:
        begun.release()
        if task.id == "hangs":
            assert go.wait(PATIENCE)
        return task.id

    async def do_async(task: Task) -> Any:
        begun.release()
        if task.id == "hangs":
            await go_async.wait()
        return task.id

    engine.tasker("t", do_async if asynchronous else do, timeout=10.0)
    ask(engine, "hangs", "next", "last")
    assert begun.acquire(timeout=PATIENCE)
    script.wait(1)
    quiet(engine)
    assert not begun.acquire(blocking=False), "there is one place"
    clock.advance(10.0)
    script.wait(4)
    quiet(engine)
    found = state_of(engine, "x")
    assert [each for each in found if isinstance(each, str)] == ["next", "last"]
    assert [each["kind"] for each in found if isinstance(each, dict)] == ["TaskTimeout"]
    go.set()
    LOOP.call_soon(go_async.set)


class Whole(Base):
    """A behaviour that cannot be divided: it hands over all it holds, the oldest first."""

    def transform(self, held: Any) -> Any:
        return held[::-1]


@pytest.mark.parametrize("timeout", [None, 10.0])
def test_tasks_that_leave_together_share_one_place(
    engine: Engine, script: Script, clock: VirtualClock, timeout: float | None
) -> None:
    order: list[str] = []
    running: list[str] = []
    begun, go, hang = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def do(task: Task) -> Any:
        running.append(task.id)
        order.append("+".join(running))
        begun.release()
        assert go.acquire(timeout=PATIENCE)
        if task.id == "c" and timeout is not None:
            running.remove("c")
            assert hang.wait(PATIENCE)
        else:
            running.remove(task.id)
        return task.id

    engine.tasker("t", do, timeout=timeout, behaviour=Whole)
    ask(engine, "a")
    assert begun.acquire(timeout=PATIENCE)
    ask(engine, "b", "c", "d")
    script.wait(2)
    quiet(engine)
    go.release(3)
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE)
    if timeout is not None:
        script.wait(4)
        quiet(engine)
        clock.advance(timeout)
    go.release()
    script.wait(6)
    hang.set()
    assert order == ["a", "b", "c", "d"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def test_m22_an_error_without_a_text_is_a_failure_like_any_other(
    engine: Engine, script: Script
) -> None:
    def do(task: Task) -> Any:
        if task.id == "a":
            raise Unspeakable
        return task.id

    engine.tasker("t", do)
    ask(engine, "a", "b")
    script.wait(3)
    quiet(engine)
    found = state_of(engine, "x")
    assert found[0]["kind"] == "Unspeakable"
    assert found[1] == "b"


def test_a_task_that_has_not_begun_when_the_engine_is_closed_begins_with_the_next(
    reopen: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    engine = reopen()
    engine.register(Script(asking))
    begun, go = threading.Event(), threading.Event()
    done: list[str] = []

    def hang(task: Task) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        done.append(task.id)

    engine.tasker("t", hang)
    ask(engine, "a", "b", "c")
    assert begun.wait(PATIENCE)
    engine.close(timeout=0.05)
    assert "tasks were left running" in caplog.text
    assert "['a']" in caplog.text
    engine = reopen()
    script = Script(asking)
    engine.register(script)
    engine.tasker("t", lambda task: f"again {task.id}")
    engine.resume()
    script.wait(3)
    go.set()
    quiet(engine)
    assert sorted(state_of(engine, "x")) == ["again a", "again b", "again c"]
    assert done in (["a"], [])


def test_heartbeats_give_more_time(engine: Engine, script: Script, clock: VirtualClock) -> None:
    beat, beaten = threading.Semaphore(0), threading.Semaphore(0)

    def do(task: Task) -> Any:
        beaten.release()
        for _ in range(3):
            assert beat.acquire(timeout=PATIENCE)
            assert task.heartbeat()
            beaten.release()
        return HOLD

    engine.tasker("t", do, timeout=10.0)
    ask(engine, "a")
    assert beaten.acquire(timeout=PATIENCE)
    for _ in range(3):
        clock.advance(9.0)
        beat.release()
        assert beaten.acquire(timeout=PATIENCE)
    clock.advance(9.0)
    assert engine.heartbeat("a")
    clock.advance(9.0)
    assert not engine.heartbeat("unknown")
    clock.advance(9.0)
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x")[0]["kind"] == "TaskTimeout"


def test_a_cancelled_task_is_told_and_its_answer_refused(engine: Engine, script: Script) -> None:
    held, cancelled = threading.Event(), threading.Event()
    told: list[str] = []

    def do(task: Task) -> Any:
        held.set()
        return HOLD

    def on_cancel(task: Task) -> None:
        told.append(task.id)
        cancelled.set()

    engine.tasker("t", do, on_cancel=on_cancel)
    ask(engine, "a")
    assert held.wait(PATIENCE)
    engine.send("x", ["a"])
    assert cancelled.wait(PATIENCE)
    assert told == ["a"]
    assert not engine.return_task("a", 1)
    assert rows(engine, "tasks") == []


def test_tasks_go_on_with_the_next_engine(reopen: Callable[..., Engine]) -> None:
    engine = reopen()
    engine.register(Script(asking))
    held = threading.Event()

    def hold(task: Task) -> Any:
        held.set()
        return HOLD

    engine.tasker("t", hold)
    ask(engine, "a")
    assert held.wait(PATIENCE)
    engine = reopen()
    script = Script(asking)
    engine.register(script)
    engine.tasker("t", lambda task: f"again {task.id}")
    engine.resume()
    script.wait(1)
    quiet(engine)
    assert state_of(engine, "x") == ["again a"]


def double(task: Task) -> Any:
    return task.body * 2


def test_a_tasker_in_other_processes(engine: Engine, script: Script) -> None:
    engine.tasker("t", len, executor="process")
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x")[0]["kind"] == "TypeError"  # a Task has no length


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"held": 202, "broken": 500}.get(task["id"], 200)
        body = json.dumps({"did": task["body"], "key": self.headers["Idempotency-Key"]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def test_a_tasker_behind_a_url(engine: Engine, script: Script) -> None:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        engine.tasker("t", f"http://127.0.0.1:{server.server_port}/do")
        ask(engine, "a", "broken", "held")
        script.wait(3)
        assert engine.statistics().tasks == 1
        assert engine.return_task("held", "late")
        script.wait(4)
        quiet(engine)
        found = state_of(engine, "x")
        assert found[0] == {"did": "a", "key": "a"}
        assert found[1]["kind"] == "TaskFailed"
        assert found[2] == "late"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def test_bad_taskers_are_refused(engine: Engine) -> None:
    engine.tasker("t", double)
    calls: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: engine.tasker("t", double), BadOption),
        (lambda: engine.tasker("a", 7), BadJob),  # type: ignore[arg-type]
        (lambda: engine.tasker("a", "ftp://x"), BadOption),
        (lambda: engine.tasker("a", double, concurrency=0), BadOption),
        (lambda: engine.tasker("a", double, timeout=-1.0), BadOption),
        (lambda: engine.tasker("a", double, executor="moon"), BadOption),
    ]
    for call, error in calls:
        with pytest.raises(error):
            call()


class Noting(Kept):
    """Notes the messages that are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Any] = []

    def commit(self, changes: Any) -> None:
        self.stored += [row for each in changes for row in each.messages]
        self.stored += [answer.message for each in changes for answer in each.answers]
        super().commit(changes)


def test_an_answer_to_a_live_execution_is_committed_with_what_it_leads_to() -> None:
    store, script = Noting(), Script(asking)
    with Engine(store) as engine:
        engine.register(script)
        engine.tasker("t", lambda task: task.body)
        ask(engine, "a")
        script.wait(2)
        quiet(engine)
        assert state_of(engine, "x") == ["a"]
    assert [row for row in store.stored if row.type != "message"] == []
    assert rows(store, "tasks") == []


def test_an_answer_to_an_execution_that_is_not_in_memory_is_stored() -> None:
    store, script = Noting(), Script(asking)
    with Engine(store, max_live=0) as engine:
        engine.register(script)
        engine.tasker("t", lambda _task: HOLD)
        ask(engine, "a")
        script.wait(1)
        until(engine, lambda: not len(engine.core.host))
        assert engine.return_task("a", 1)
        script.wait(2)
        quiet(engine)
        assert state_of(engine, "x") == [1]
    (row,) = [row for row in store.stored if row.type != "message"]
    assert bodies.decode(row.body)["value"] == 1
    assert rows(store, "tasks") == []


def test_an_answer_that_cannot_be_processed_is_a_dead_letter_and_its_task_is_over(
    reopen: Callable[..., Engine],
) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            raise ValueError("no")  # noqa: TRY004 - any error
        return asking(state, message)

    engine = reopen()
    script = Script(step, on_failure="isolate")
    engine.register(script)
    engine.tasker("t", lambda task: task.body)
    ask(engine, "a")
    until(engine, lambda: len(engine.dead_letters()))
    assert [letter.message["value"] for letter in engine.dead_letters()] == ["a"]
    assert rows(engine, "tasks") == []
    assert rows(reopen(), "tasks") == []


def test_an_answer_that_is_displaced_ends_its_task() -> None:
    entered, go = threading.Event(), threading.Event()

    def step(state: Any, message: Any) -> Any:
        if message == "wait":
            entered.set()
            assert go.wait(PATIENCE)
            return state
        return asking(state, message)

    script = Script(
        step,
        behaviour=lambda: Unique(
            key=lambda each: "same" if isinstance(each, TaskEnded) else id(each)
        ),
    )
    with Engine() as engine:
        engine.register(script)
        engine.tasker("t", lambda _task: HOLD)
        ask(engine, "a", "b")
        script.wait(1)
        quiet(engine)
        engine.send("x", "wait")
        assert entered.wait(PATIENCE)
        assert engine.return_task("a", 1)
        assert engine.return_task("b", 2)
        until(engine, lambda: engine.core.host._live["x"].displaced)
        go.set()
        script.wait(3)
        quiet(engine)
        assert state_of(engine, "x") == [2]
        assert rows(engine, "tasks") == []
