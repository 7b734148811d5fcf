"""Servers: workers by id, linked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import Caller, Probe, ended


def noop(batch: Any, state: Any) -> None:
    """Do nothing."""


def breaks(batch: Any, state: Any) -> None:
    raise ValueError("broken")


def test_pushes_reach_the_worker_of_that_id() -> None:
    seen: dict[str, list[Any]] = {"a": [], "b": []}

    async def main() -> None:
        await server.apush_ack("a", 5)
        await server.apush_block("b", 6)

    with af.Server(
        [
            af.Worker(name, lambda batch, state, name=name: seen[name].extend(batch))
            for name in ("a", "b")
        ]
    ) as server:
        server.push("a", 1)
        server.push_many("b", [2, 3])
        server.push_ack("a", 4)
        asyncio.run(main())
        server.push_block("a", 7)
        assert server.statistics()["b"].accepted == 3
        assert len(server) == 2
        assert "a" in server
        assert "c" not in server
    assert seen == {"a": [1, 4, 5, 7], "b": [2, 3, 6]}
    assert server.exit_reason == af.Normal()


def test_unknown_id_raises_at_the_push_and_names_near_ones() -> None:
    with af.Server([af.Worker("writer", noop), af.Worker("mailer", noop)]) as server:
        for call in (
            lambda: server.push("writter", 1),
            lambda: server.push_many("writter", [1]),
            lambda: server.push_ack("writter", 1),
            lambda: server.push_block("writter", 1),
            lambda: server.worker("writter"),
        ):
            with pytest.raises(af.UnknownWorker, match="did you mean 'writer'") as raised:
                call()
            assert isinstance(raised.value, KeyError)
            assert raised.value.worker_id == "writter"
        with pytest.raises(af.UnknownWorker, match="'writer', 'mailer'"):
            server.push(12345, 1)


def test_an_empty_server_says_so() -> None:
    with af.Server([]) as server, pytest.raises(af.UnknownWorker, match="none at all"):
        server.push("a", 1)


@pytest.mark.parametrize("workers", [[noop], ["a"], [("a", noop)]])
def test_what_is_no_worker_is_refused(workers: Any) -> None:
    with pytest.raises(af.BadOption, match=r"Worker\(id, job"):
        af.Server(workers)


def test_two_workers_of_one_id_are_refused() -> None:
    with pytest.raises(af.BadOption, match="'a'"):
        af.Server([af.Worker("a", noop), af.Worker("a", noop)])


def test_a_worker_spec_refuses_what_spawn_would_refuse() -> None:
    with pytest.raises(af.BadJob):
        af.Worker("a", lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(af.BadOption, match="did you mean 'behaviour'"):
        af.Worker("a", noop, behavior=None)  # type: ignore[call-overload]


def test_one_that_does_not_start_stops_those_before_it() -> None:
    started: list[Any] = []

    class Begins(af.Executor):
        def on_start(self) -> None:
            started.append(self)

        def handle(self, batch: Any) -> None: ...

    class Fails(Begins):
        def on_start(self) -> None:
            raise ValueError("no database")

    with pytest.raises(af.StartFailed, match="no database"):
        af.Server(
            [
                af.Worker("a", Begins, name="first of the server"),
                af.Worker("b", Fails),
                af.Worker("c", Begins),
            ]
        )
    assert len(started) == 1
    assert af.whereis("first of the server") is None


def test_context_manager_raises_after_a_crash() -> None:
    server = af.Server([af.Worker("a", noop), af.Worker("b", breaks)])
    with pytest.raises(af.WorkerCrashed, match="broken"), server:
        server.push("b", 1)
    assert isinstance(server.exit_reason, af.Crash)


def test_a_worker_that_is_done_does_not_end_the_others() -> None:
    with af.Server(
        [af.Worker("a", noop), af.Worker("done", lambda batch, state: af.Stop())]
    ) as server:
        server.push("done", 1)
        assert ended(server.worker("done")) == af.Normal()
        server.push_block("a", 1)
        assert server.exit_reason is None
        with pytest.raises(af.WorkerStopped):
            server.push("done", 2)


def test_a_worker_that_stops_with_a_reason_ends_the_structure_with_it() -> None:
    server = af.Server(
        [af.Worker("a", noop), af.Worker("quits", lambda batch, state: af.Stop("quits"))]
    )
    server.push("quits", 1)
    assert ended(server.worker("a")) == af.Shutdown("quits")
    assert server.exit_reason == af.Shutdown("quits")


def test_a_large_linked_structure_ends_as_a_whole(caplog: pytest.LogCaptureFixture) -> None:
    server = af.Server(
        [af.Worker("breaks", breaks)] + [af.Worker(number, noop) for number in range(600)]
    )
    server.push("breaks", 1)
    reasons = {ended(server.worker(worker_id)).describe() for worker_id in server}
    assert reasons == {"crash: ValueError: broken"}
    assert "notice failed" not in caplog.text


def test_stop_with_a_timeout_stops_all_of_them(pool_probe: Probe) -> None:
    server = af.Server(
        [af.Worker("first", noop), af.Worker("hangs", pool_probe.call), af.Worker("last", noop)]
    )
    server.push("hangs", 1)
    pool_probe.begun()
    with pytest.raises(af.StopTimeout):
        server.stop(timeout=0.001)
    for worker_id in server:
        assert server.worker(worker_id).exit_reason is not None
        with pytest.raises(af.WorkerStopped):
            server.push(worker_id, 1)
    pool_probe.open()


def test_stop_drains_all_the_last_one_first(pool_probe: Probe) -> None:
    order: list[str] = []

    class Ends(af.Executor):
        def handle(self, batch: Any) -> None: ...

        def on_stop(self) -> None:
            order.append(self.state)

    server = af.Server([af.Worker(name, Ends, state=name) for name in "abc"])
    server.stop()
    assert order == ["c", "b", "a"]
    server.stop()
    assert server.exit_reason == af.Normal()


def test_two_crashes_at_once_end_the_structure_once() -> None:
    server = af.Server([af.Worker(name, breaks) for name in "ab"])
    pushes = [Caller(server.push, name, 1) for name in "ab"]
    for push in pushes:
        push.wait()
    for name in "ab":
        assert isinstance(ended(server.worker(name)), af.Crash)
    assert isinstance(server.exit_reason, af.Crash)
