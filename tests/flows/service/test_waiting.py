"""Waiting for something to happen inside a flow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import EngineClosed, UnknownExecution, WaitTimeout
from actorflow.flows.errors import PointMissed
from actorflow.flows.service.awaited_points import steps_of
from actorflow.runtime.errors import BadOption
from tests.flows.engines import PATIENCE, Desk

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = "sequence\n  task 'alice' 'a'\n  task 'bob' 'b'"


class _Caller(threading.Thread):
    """Calls a function in a thread of its own, and keeps the outcome."""

    def __init__(self, do: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._do = do
        self.result: Any = None
        self.start()

    def run(self) -> None:
        """Do it."""
        try:
            self.result = self._do()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.result = error

    def outcome(self) -> Any:
        """Return the result of the call, or the exception that it raised."""
        self.join(PATIENCE)
        assert not self.is_alive()
        return self.result


@pytest.fixture
def is_waiting(engine: af.Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return what returns once somebody waits for something in a flow."""
    arrived = threading.Semaphore(0)
    add = engine.flows.kind.waiters.add

    def add_and_tell(exid: str, ticket: Any) -> None:
        add(exid, ticket)
        arrived.release()

    monkeypatch.setattr(engine.flows.kind.waiters, "add", add_and_tell)
    return lambda: arrived.acquire(timeout=PATIENCE)


def test_what_is_to_come_is_waited_for(engine: af.Engine, is_waiting: Callable[[], bool]) -> None:
    desk = Desk()
    engine.tasker("alice", desk)
    engine.tasker("bob", desk)
    exid = engine.launch(FLOW, payload={"n": 1})
    desk.wait_for(1)
    caller = _Caller(lambda: engine.flows.wait_for(exid, "0_1 task; end", PATIENCE))
    assert is_waiting()
    engine.flows.return_task(exid, "0_0", {"n": 2})
    end = caller.outcome()
    assert (end["point"], end["m"]) == ("end", engine.execution(exid).view.counters["msgs"])
    task = engine.flows.wait_for(exid, "0_1 task", PATIENCE)
    assert (task["tasker"], task["taskname"], task["payload"]) == ("bob", "b", {"n": 2, "ret": "b"})
    caller = _Caller(lambda: engine.flows.wait_for(exid, "failed|terminated"))
    engine.flows.return_task(exid, "0_1", {"n": 3})
    assert caller.outcome()["payload"] == {"n": 3}
    assert len(engine.flows.kind.waiters) == 0


def test_what_has_happened_need_not_be_waited_for(engine: af.Engine) -> None:
    engine.tasker("alice", lambda _task: None)
    engine.tasker("bob", lambda _task: None)
    exid = engine.launch("sequence tag: 'x'\n  task 'alice' 'a'\n  task 'bob' 'b'")
    engine.wait(exid, PATIENCE)
    history = engine.execution(exid).view.history()
    tasks = [message["m"] for message in history if message["point"] == "task"]
    ends = [run["counters"]["msgs"] for run in engine.execution(exid).view.runs()]
    expected = {
        "task": tasks[0],
        "task:bob": tasks[1],
        "0_2 task": tasks[1],
        "task; task": tasks[1],
        "end": ends[0],
        "task:bob; end": ends[1],
        "execute; failed | terminated": ends[2],
    }
    assert {text: engine.flows.wait_for(exid, text, 0)["m"] for text in expected} == expected
    assert engine.flows.wait_for(exid, "task", 0, after=tasks[0])["m"] == tasks[1]
    for text in ("entered:x", "left:x"):
        assert engine.flows.wait_for(exid, text, 0)["nid"] == "0"


def test_what_can_not_happen_any_more_is_not_waited_for(
    engine: af.Engine, is_waiting: Callable[[], bool]
) -> None:
    desk = Desk()
    engine.tasker("alice", desk)
    exid = engine.launch("alice 'a'")
    desk.wait_for(1)
    caller = _Caller(lambda: engine.flows.wait_for(exid, "0_7 task"))
    assert is_waiting()
    engine.flows.return_task(exid, "0", {})
    assert isinstance(caller.outcome(), PointMissed)
    with pytest.raises(PointMissed, match=exid):
        engine.flows.wait_for(exid, "0_7 task")
    with pytest.raises(PointMissed):
        engine.flows.wait_for(exid, "terminated; task")


def test_a_wait_ends_in_time(engine: af.Engine) -> None:
    exid = engine.launch("stall _")
    engine.flows.wait_for(exid, "execute", PATIENCE)
    with pytest.raises(WaitTimeout, match="'terminated' did not happen"):
        engine.flows.wait_for(exid, "execute; terminated", 0.01)


def test_a_wait_ends_with_the_engine(engine: af.Engine, is_waiting: Callable[[], bool]) -> None:
    exid = engine.launch("stall _")
    caller = _Caller(lambda: engine.flows.wait_for(exid, "terminated"))
    assert is_waiting()
    engine.flows.wait_for(exid, "execute", PATIENCE)
    engine.close()
    assert isinstance(caller.outcome(), EngineClosed)
    with pytest.raises(EngineClosed):
        engine.flows.wait_for(exid, "terminated")


def test_a_signal_is_waited_for_by_its_name(engine: af.Engine) -> None:
    exid = engine.launch("stall _")
    engine.flows.signal(exid, "other", {})
    engine.flows.signal(exid, "go", {"by": "hand"})
    assert engine.flows.wait_for(exid, "signal:go", PATIENCE)["payload"] == {"by": "hand"}


def test_a_failure_does_not_end_a_wait(engine: af.Engine, is_waiting: Callable[[], bool]) -> None:
    exid = engine.launch("sequence\n  nosuch _")
    failed = engine.flows.wait_for(exid, "failed", PATIENCE)
    assert failed["nid"] == "0_0"
    caller = _Caller(lambda: engine.flows.wait_for(exid, "terminated", PATIENCE))
    assert is_waiting()
    engine.flows.re_apply(exid, "0_0", "'mended'")
    assert caller.outcome()["payload"]["ret"] == "mended"


def test_wrong_waits_are_refused(engine: af.Engine) -> None:
    exid = engine.launch("stall _")
    for text in ("", "0_1", "Task", "task;", "0_1 0_2 task"):
        with pytest.raises(BadOption, match="nothing to wait for"):
            engine.flows.wait_for(exid, text)
    with pytest.raises(UnknownExecution):
        engine.flows.wait_for("nobody", "task")
    assert len(engine.flows.kind.waiters) == 0
    with (
        af.Engine(":memory:", history=False) as forgetful,
        pytest.raises(BadOption, match="history=True"),
    ):
        forgetful.flows.wait_for(forgetful.launch("1"), "terminated")


def test_steps_are_read() -> None:
    first, second = steps_of("0_1-3 task:alice | failed ;terminated")
    assert (first.nid, first.points) == ("0_1-3", (("task", "alice"), ("failed", None)))
    assert (second.nid, second.points) == (None, (("terminated", None),))
