"""Programs that end badly: `faulty.py NAME STORE ...`, each for one test."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from actorflow.behaviours import Bounded, Queue, Unique
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed, StoreRefused
from actorflow.engine.kind import NewTask, Outcome, Status, TaskEnded
from actorflow.runtime.errors import Full
from tests.engine.kinds import Script, collect

PATIENCE = 20.0


def _tell(*found: Any) -> None:
    print(json.dumps(found), flush=True)  # noqa: T201 - this is what the test reads


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_in_job(store: str, count: str) -> None:
    """Push a message among others that ends the process whenever it is run, unless count is 0."""

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if "poison" in batch:
            os._exit(3)
        return [*state, *batch]

    with BareEngine(store) as engine:
        worker = engine.worker("w", job, state=[])
        other = engine.worker("other", collect, state=[])
        if int(count):
            gate = threading.Event()
            held = engine.worker("held", lambda batch, state: gate.wait(PATIENCE), state=None)
            held.push_ack(1)
            engine.parts.writer.call_and_wait(lambda: _send_all(worker, other, int(count)))
        engine.resume()
        worker.push_block("last", timeout=PATIENCE)
        other.push_block("last", timeout=PATIENCE)
        _tell(
            worker.state(),
            other.state(),
            [[letter.message, letter.error] for letter in worker.dead_letters],
        )


def _send_all(worker: Any, other: Any, count: int) -> None:
    """In the writer's thread: one commit takes all of it, so that one batch does."""
    worker.push_many([*range(count // 2), "poison", *range(count // 2, count)])
    other.push_many(range(count))


def exit_in_task(store: str, retries: str) -> None:
    """Start a task that ends the process each time it is done."""

    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            error = "" if message.error is None else message.error.message
            return Outcome(
                state=state, status=Status.DONE, result=[message.outcome, message.value, error]
            )
        return Outcome(state=state, tasks=[NewTask("a", "t", retries=int(retries))])

    def do(task: Any) -> Any:
        with open(f"{store}.attempts", "a", encoding="ascii") as notes:  # noqa: PTH123
            notes.write(f"{task.attempt}\n")
        os._exit(3)

    with BareEngine(store) as engine:
        engine.register(Script(step))
        engine.tasker("t", do)
        engine.start("script", "begin", id="x")
        _tell(engine.result("x", PATIENCE))


def lose(store: str, behaviour: str) -> None:
    """Die right after a push_ack and a push_block have returned."""
    made: dict[str, Any] = {
        "unique": lambda: Unique(key=lambda message: message[0]),
        "bounded": lambda: Bounded(Queue(), 1, when_full="drop_oldest"),
    }
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if batch[0][0] == "first":
            entered.set()
            assert go.wait(PATIENCE)
        return [*state, *batch]

    engine = BareEngine(store)
    worker = engine.worker("w", job, state=[], behaviour=made[behaviour])
    worker.push(["first", 0])
    assert entered.wait(PATIENCE)
    worker.push_ack(["a", 1])
    told: list[str] = []

    def block() -> None:
        worker.push_block(["a", 2], timeout=PATIENCE)
        told.append("processed")

    thread = threading.Thread(target=block)
    thread.start()
    live: Any = engine.parts.table.find("w")
    while not live.displaced:  # the second one has taken the place of the first
        pass
    if os.environ.get("KILL_WHEN") == "displaced":
        _tell("displaced")
        _die()
    go.set()
    thread.join(PATIENCE)
    _tell(*told)
    _die()


def overfill(store: str, first: str) -> None:
    """Die while a batch is being processed, and the inbox is full."""
    entered = threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        entered.set()
        if first:
            threading.Event().wait(PATIENCE)
        return [*state, *batch]

    engine = BareEngine(store)
    worker = engine.worker("w", job, state=[], behaviour=lambda: Bounded(Queue(), 2))
    if first:
        worker.push_ack(0)
        assert entered.wait(PATIENCE)
        for number in (1, 2):
            worker.push_ack(number)
        try:
            worker.push_ack("rejected", key="once")
        except Full:
            _tell("rejected")
        _die()
    engine.resume()
    while worker.depth():
        pass
    _tell(worker.state(), [letter.message for letter in worker.dead_letters])
    engine.close()


def show(store: str) -> None:
    """Go on, and tell the state."""
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block(["end", 0], timeout=PATIENCE)
        _tell(worker.state(), [letter.message for letter in worker.dead_letters])


def leave_open(store: str) -> None:
    """End normally without closing the engine."""
    worker = BareEngine(store).worker("w", collect, state=[])
    for number in range(100):
        worker.push(number)


def leave_open_in_thread(store: str) -> None:
    """End normally without closing the engine, which another thread has opened."""
    threads = [threading.Thread(target=leave_open, args=(store,))]
    threads[0].start()
    threads[0].join()


def fork(store: str) -> None:
    """Fork with an open engine; the child must not touch it, the parent goes on."""
    engine = BareEngine(store)
    engine.register(Script())
    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    child = os.fork()
    if child == 0:
        refused = []
        calls: list[Any] = [
            lambda: worker.push(2),
            lambda: worker.push_ack(2),
            lambda: worker.push_block(2),
            worker.state,
            worker.depth,
            lambda: engine.send("x", 1, kind="script"),
            lambda: engine.start("script", 1),
            lambda: engine.wait("w", 1.0),
            lambda: engine.execution("w"),
            lambda: list(engine.executions()),
            lambda: engine.cancel("w"),
            lambda: engine.upkeep.purge(before=0.0),
            lambda: engine.register(Script(name="other")),
            lambda: engine.worker("v", collect),
            lambda: engine.tasker("t", len),
            lambda: engine.every("e", "* * * * *", worker, 1),
            engine.resume,
            lambda: engine.return_task("a"),
            lambda: engine.dead_letters().retry(),
            lambda: list(engine.dead_letters()),
            engine.statistics,
            lambda: engine.heartbeat("a"),
            lambda: engine.upkeep.backup("copy.db"),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except (EngineClosed, StoreRefused) as error:
                if str(os.getppid()) in str(error) or "before this process was forked" in str(
                    error
                ):
                    refused.append(number)
                else:
                    _tell(number, repr(error))
            except BaseException as error:  # noqa: BLE001 - told to the test
                _tell(number, repr(error))
        engine.close()
        _tell("child", len(refused), len(calls))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    worker.push_block(2)
    locked = 0
    try:
        BareEngine(store)
    except Exception as error:  # noqa: BLE001 - told to the test
        locked = int("StoreBusy" in type(error).__name__)
    _tell("parent", os.waitstatus_to_exitcode(status), worker.state(), locked)
    engine.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
