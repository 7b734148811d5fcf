"""Servers and supervision: the three forms of the seed (o7, o8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import PATIENCE, until

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def job(batch: Any, total: int) -> int:
    if "bad" in batch:
        raise ValueError("bad")
    return total + len(batch)


def workers(**options: Any) -> list[af.Worker]:
    return [af.Worker(name, job, state=0, **options) for name in ("a", "b")]


def test_o7_linked_one_crash_ends_the_whole_structure() -> None:
    server = af.Server(workers())
    other = server.worker("b")
    with pytest.raises(ValueError, match="bad"):
        server.push_block("a", "bad", timeout=PATIENCE)
    assert other.actor_stopped.wait(PATIENCE)
    assert isinstance(server.exit_reason, af.Crash)
    assert isinstance(other.exit_reason, af.Crash)
    with pytest.raises(af.WorkerCrashed):
        server.push("b", 1)
    server.stop()


def test_o8_own_supervisor_restarts_the_worker_alone() -> None:
    with af.Server(workers(), supervisor=af.Restart("permanent", shutdown=5.0)) as server:
        worker, other = server.worker("a"), server.worker("b")
        server.push_block("b", 1, timeout=PATIENCE)
        with pytest.raises(ValueError, match="bad"):
            server.push_block("a", "bad", timeout=PATIENCE)
        server.push_block("a", 1, timeout=PATIENCE)
        assert server.worker("a") is worker
        assert server.worker("b") is other
        assert worker.executor.actor.state == 1  # the first state again
        assert worker.statistics().restarts == 1
        assert other.statistics().restarts == 0
    assert server.exit_reason == af.Normal()
    assert server.supervisor is not None
    assert not server.supervisor.is_alive()


def test_o8_server_dies_with_its_own_supervisor_when_that_gives_up() -> None:
    server = af.Server(workers(), supervisor=af.Restart(max_restarts=1))
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            server.push_block("a", "bad", timeout=PATIENCE)
    until(lambda: server.exit_reason is not None, "the server ends with the supervisor")
    assert isinstance(server.exit_reason, af.Shutdown)
    assert "gave up on child 'a' (crash: ValueError: bad" in server.exit_reason.describe()
    with pytest.raises(af.WorkerStopped, match="gave up on child 'a'"):
        server.push("b", 1)
    server.stop()


def test_o8_given_supervisor_goes_on_without_the_server(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    first = af.Server(workers(executor=stage.lane), supervisor=supervisor, clock=stage.clock)
    second = af.Server(workers(executor=stage.lane), supervisor=supervisor, clock=stage.clock)
    assert supervisor.count_children().active == 4
    first.push("a", "bad")
    first.push("a", 1)
    stage.run()
    assert first.worker("a").statistics().restarts == 1
    assert second.worker("a").statistics().restarts == 0  # the same ids do not get mixed up
    first.stop()
    assert supervisor.count_children().active == 2
    second.push("b", 1)
    stage.run()
    assert second.worker("b").statistics().processed == 1
    assert second.exit_reason is None
    assert first.exit_reason == af.Normal()


def test_o8_server_dies_with_the_given_supervisor(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    server = af.Server(workers(executor=stage.lane), supervisor=supervisor)
    supervisor.stop(af.Shutdown("over"))
    assert server.exit_reason == af.Shutdown("over")
    with pytest.raises(af.WorkerStopped):
        server.push("a", 1)
    server.stop()


def test_o8_server_is_not_in_the_tree_but_can_be_put_there(stage: Stage) -> None:
    supervisor = stage.up(strategy="dynamic")
    server = af.Server(workers(executor=stage.lane), supervisor=supervisor)
    assert {info.id for info in supervisor.which_children()} == {"a", "b"}
    server.stop()


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_o8_restart_types(restart: Any) -> None:
    server = af.Server(workers(), supervisor=af.Restart(restart))
    with pytest.raises(ValueError, match="bad"):
        server.push_block("a", "bad", timeout=PATIENCE)
    if restart == "temporary":
        until(lambda: not server.worker("a").is_alive(), "it is not started again")
        with pytest.raises(af.WorkerCrashed):
            server.push("a", 1)
    else:
        server.push_block("a", 1, timeout=PATIENCE)
    server.push_block("b", 1, timeout=PATIENCE)
    server.stop()


def test_worker_that_was_stopped_is_found_again_under_its_id() -> None:
    with af.Server(workers(), supervisor=af.Restart()) as server:
        before = server.worker("a")
        before.stop()
        until(lambda: server.worker("a") is not before, "the supervisor makes a new one")
        server.push_block("a", 1, timeout=PATIENCE)


def test_worker_that_does_not_start_rolls_back(stage: Stage) -> None:
    class Broken(af.Executor):
        def on_start(self) -> None:
            raise OSError("no port")

        def handle(self, batch: Any) -> None:
            """Do nothing."""

    for supervisor in (None, af.Restart()):
        with pytest.raises(af.StartFailed, match="no port") as raised:
            af.Server([*workers(), af.Worker("c", Broken)], supervisor=supervisor)
        assert isinstance(raised.value.__cause__, OSError)
    given = stage.up(strategy="dynamic")
    specs = [*workers(executor=stage.lane), af.Worker("c", Broken, executor=stage.lane)]
    with pytest.raises(af.StartFailed, match="no port"):
        af.Server(specs, supervisor=given)
    assert given.count_children().active == 0
    assert given.is_alive()


@pytest.mark.parametrize("given", ["permanent", 3, af.Supervisor])
def test_bad_supervisor_is_refused(given: Any) -> None:
    with pytest.raises(af.BadOption, match="Restart"):
        af.Server(workers(), supervisor=given)


def test_static_supervisor_is_refused(stage: Stage) -> None:
    with pytest.raises(af.BadOption, match="dynamic"):
        af.Server(workers(), supervisor=stage.up())


def test_restart_refuses_unknown_options() -> None:
    with pytest.raises(af.BadOption, match="did you mean 'shutdown'"):
        af.Restart(shutdwon=3)


def test_leaving_the_block_raises_if_a_worker_crashed_for_good() -> None:
    server = af.Server(workers(), supervisor=af.Restart(max_restarts=0))
    with pytest.raises(ValueError, match="bad"):
        server.push_block("a", "bad", timeout=PATIENCE)
    until(lambda: server.exit_reason is not None, "it gives up")
    with pytest.raises(af.WorkerCrashed), server:
        pass


def test_stop_from_two_threads() -> None:
    server = af.Server(workers(), supervisor=af.Restart())
    threads = [threading.Thread(target=server.stop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert server.exit_reason == af.Normal()
