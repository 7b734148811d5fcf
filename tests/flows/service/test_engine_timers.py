"""Timers of flows on the engine, to the millisecond, in virtual time; and taskers behind a URL."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import actorflow as af
from actorflow.testing import VirtualClock
from tests.flows.engines import PATIENCE, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START = 1_600_000_000.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def opened(tmp_path: Path, clock: VirtualClock) -> Iterator[Callable[[], af.Engine]]:
    """Return what opens an engine on the same file, closing the one before."""
    made: list[af.Engine] = []

    def again() -> af.Engine:
        if made:
            made[-1].close()
        made.append(af.Engine(tmp_path / "timers.db", durability="off", clock=clock))
        return made[-1]

    yield again
    made[-1].close()


def settled(engine: af.Engine, exid: str, desk: Desk) -> None:
    """Wait until an execution has got as far as its first task."""
    desk.wait_for(1)
    assert engine.execution(exid).view.exid == exid


def test_a_sleep_ends_to_the_millisecond_also_after_a_restart(
    opened: Callable[[], af.Engine], clock: VirtualClock
) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("concurrence\n  sleep '250ms'\n  desk 'x'")
    settled(engine, exid, desk)
    (timer,) = engine.execution(exid).view.timers
    assert timer.at == pytest.approx(START + 0.25, abs=1e-6)
    engine = opened()
    engine.tasker("desk", lambda task: task.payload)
    engine.resume()
    clock.advance(0.249)
    assert len(engine.parts.store.due()) == 1
    clock.advance(0.0011)
    done = engine.wait(exid, PATIENCE).view
    assert done.status == "done"
    (trigger,) = [message for message in done.history() if message["point"] == "trigger"]
    assert trigger["type"] == "in"
    assert engine.parts.store.due() == []


def test_a_timeout_takes_the_task_back(
    opened: Callable[[], af.Engine], clock: VirtualClock
) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  desk 'x' timeout: '1s'\n  set f.late true")
    (task,) = desk.wait_for(1)
    clock.advance(1.001)
    done = engine.wait(exid, PATIENCE).view
    assert done.payload["late"] is True
    assert engine.return_task(task.id, {}) is False


def test_every_goes_on_after_a_restart_and_leaves_out_what_was_missed_long_ago(
    opened: Callable[[], af.Engine], clock: VirtualClock
) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    engine.launch("sequence\n  every '10s'\n    desk 'tick'\n  stall _")
    engine.launch("desk 'ready'")
    desk.wait_for(1)
    while not engine.parts.store.due():  # the other one may still be on its way
        pass
    clock.advance(10.0)
    desk.wait_for(2)
    engine.close()
    clock.advance(86_400.0)  # a day without the engine
    engine = opened()
    again = Desk()
    engine.tasker("desk", again)
    engine.resume()
    again.wait_for(2)  # the unanswered tasks
    clock.advance(0.0)
    again.wait_for(3)
    clock.advance(10.0)
    again.wait_for(4)
    clock.advance(10.0)
    assert len(again.wait_for(5)) == 5


class Site(BaseHTTPRequestHandler):
    """Answers tasks: at once, later, with nothing, or with an error."""

    posted: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.posted.append(task)
        name = task["body"]["taskname"]
        status = {"now": 200, "later": 202, "nothing": 204}.get(name, 500)
        body = json.dumps({"seen": name}).encode() if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class says so
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    class OneSite(Site):
        posted: ClassVar[list[dict[str, Any]]] = []

    handler = OneSite
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/tasks", handler.posted
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_tasker_behind_a_url(site: tuple[str, list[dict[str, Any]]]) -> None:
    url, posted = site
    with af.Engine(":memory:") as engine:
        engine.tasker("web", url)
        assert engine.wait(engine.launch("web 'now'"), PATIENCE).view.payload == {"seen": "now"}
        kept = engine.wait(engine.launch("web 'nothing'", payload={"a": 1}), PATIENCE).view
        assert kept.payload["a"] == 1
        failed = engine.wait(engine.launch("web 'boom'"), PATIENCE).view
        assert "500" in failed.failures[0].text
        later = engine.launch("web 'later'")
        while len(posted) < 4 or not engine.execution(later).view.tasks:
            pass
        engine.flows.return_task(later, "0", {"came": "later"})
        assert engine.wait(later, PATIENCE).view.payload == {"came": "later"}
    assert posted[0]["body"]["payload"] == {"ret": "now"}
    assert posted[0]["id"].endswith(f"#{posted[0]['id'].rpartition('#')[2]}")
