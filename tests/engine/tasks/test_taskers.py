"""How a tasker works: how many at once, in which order and time, and where."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Base, Bounded, Priority, Queue
from actorflow.engine.engine import BareEngine
from actorflow.engine.tasks.task import HOLD, TaskAttempt
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.restarts import Backoff
from tests.engine.kinds import PATIENCE, Script, quiet, state_of, until
from tests.engine.tasks.asking import ask

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock


def test_so_many_at_once_and_no_more(engine: BareEngine, script: Script) -> None:
    running, most = 0, 0
    lock = threading.Lock()
    together = threading.Barrier(3)

    def do(task: TaskAttempt) -> Any:
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


def test_a_coroutine_function_can_be_a_tasker(engine: BareEngine, script: Script) -> None:
    running, most = 0, 0
    enough = asyncio.Event()

    async def do(task: TaskAttempt) -> Any:
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


def test_priority_decides_who_is_next(engine: BareEngine, script: Script) -> None:
    order: list[str] = []
    entered, go = threading.Event(), threading.Event()

    def do(task: TaskAttempt) -> Any:
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


def test_the_most_urgent_task_is_next(engine: BareEngine, script: Script) -> None:
    order: list[str] = []
    entered, go = threading.Event(), threading.Event()

    def do(task: TaskAttempt) -> Any:
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


def test_throttle_limits_the_rate(engine: BareEngine, script: Script, clock: VirtualClock) -> None:
    times: list[float] = []
    begun = threading.Semaphore(0)

    def do(task: TaskAttempt) -> Any:
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


def test_what_a_bounded_tasker_refuses_has_failed(engine: BareEngine, script: Script) -> None:
    entered, go = threading.Event(), threading.Event()

    def do(task: TaskAttempt) -> Any:
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
    engine: BareEngine, script: Script, clock: VirtualClock
) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()

    def do(task: TaskAttempt) -> Any:
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
    engine: BareEngine,
    script: Script,
    clock: VirtualClock,
    asynchronous: bool,  # noqa: FBT001
) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()
    go_async = asyncio.Event()

    def do(task: TaskAttempt) -> Any:
        begun.release()
        if task.id == "hangs":
            assert go.wait(PATIENCE)
        return task.id

    async def do_async(task: TaskAttempt) -> Any:
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
    engine: BareEngine, script: Script, clock: VirtualClock, timeout: float | None
) -> None:
    order: list[str] = []
    running: list[str] = []
    begun, go, hang = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def do(task: TaskAttempt) -> Any:
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


def test_heartbeats_give_more_time(engine: BareEngine, script: Script, clock: VirtualClock) -> None:
    beat, beaten = threading.Semaphore(0), threading.Semaphore(0)

    def do(task: TaskAttempt) -> Any:
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


def test_a_tasker_in_other_processes(engine: BareEngine, script: Script) -> None:
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


def test_a_tasker_behind_a_url(engine: BareEngine, script: Script) -> None:
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


def test_of_two_taskers_of_one_name_the_first_stays(engine: BareEngine, script: Script) -> None:
    """The second is registered while the first is being made."""
    made: list[str] = []

    def behaviour() -> Queue:
        if not made:
            made.append("inner")
            engine.tasker("t", lambda task: "inner")
        return Queue()

    with pytest.raises(BadOption, match="there is a tasker 't' already"):
        engine.tasker("t", lambda task: "outer", behaviour=behaviour)
    ask(engine, "a")
    script.wait(2)
    quiet(engine)
    assert state_of(engine, "x") == ["inner"]


@pytest.mark.parametrize("do", [lambda: None, lambda _task, _more: None])
def test_a_function_that_cannot_be_called_with_a_task_is_refused(do: Any) -> None:
    with af.Engine(":memory:") as engine:
        with pytest.raises(BadJob, match="a tasker is called with the task"):
            engine.tasker("wrong", do)
        with pytest.raises(BadJob, match=r"write def <lambda>\(task\)"):
            BareEngine.tasker(engine, "wrong", do)
        engine.tasker("right", lambda task, *more, named=1: (task, more, named))
        engine.tasker("builtin", print)
