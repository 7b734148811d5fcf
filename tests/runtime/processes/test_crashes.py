"""Processes that crash, hang, are killed or cannot start: only the call in hand is hurt."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import threading
from functools import partial
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.errors import (
    LaunchFailed,
    NotSendable,
    ProcessCancelled,
    ProcessCrashed,
    ProcessTimeout,
)
from actorflow.runtime.processes.call import CallEnded, CallOutcome, ProcessCall
from actorflow.runtime.processes.launcher import Forkserver, Spawn
from actorflow.runtime.processes.packed import pack
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools
from tests.runtime.processes.pools import Collector, lines, one, run, wait_gone

if TYPE_CHECKING:
    import socket

    from actorflow.testing import VirtualClock

CRASHES: list[tuple[Any, str, int]] = [
    (pools.kill_self, "was ended by SIGKILL", -signal.SIGKILL),
    (pools.segfault, "was ended by SIGSEGV", -signal.SIGSEGV),
    (partial(pools.exit_hard, 3), "was ended with exit code 3", 3),
    (partial(pools.exit_hard, 0), "was ended with exit code 0", 0),
]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
@pytest.mark.parametrize(("crash", "text", "code"), CRASHES)
def test_a5_a_crash_fails_only_the_call_in_hand(
    crash: Any, text: str, code: int, launcher: str, notes: Path
) -> None:
    with ProcessPool(1, launcher=launcher) as pool:
        run(pool, *(ProcessCall.of(("warm", n), pools.nothing) for n in range(50)))
        rest = [ProcessCall.of(n, pools.count_runs, str(notes), n) for n in range(40)]
        found = run(pool, *rest[:20], ProcessCall("crash", pack(crash)), *rest[20:])
        crashed = found.pop(20)
        assert crashed.outcome is CallOutcome.CRASHED
        assert isinstance(crashed.error, ProcessCrashed)
        assert crashed.error.exitcode == code
        assert f"process {crashed.pid} {text} during call 'crash'" in str(crashed.error)
        assert [each.result for each in found] == list(range(40))
        assert pool.statistics().crashes == 1
    assert sorted(map(int, lines(notes, 40))) == list(range(40))


def test_a5_a_crash_is_answered_with_another_attempt_if_asked_for(notes: Path) -> None:
    with ProcessPool(1) as pool:
        ended = one(pool, pools.crash_at_first, str(notes), crashes_max=1)
        assert (ended.result, ended.crashes) == ("second", 1)
        ended = one(pool, pools.kill_self, crashes_max=2)
        assert (ended.outcome, ended.crashes) == (CallOutcome.CRASHED, 3)


def test_processes_killed_at_random_through_2000_calls() -> None:
    randomness = random.Random(7)
    collector = Collector()
    alive: dict[int, int] = {}
    with ProcessPool(3, renew_after=150) as pool:

        def ended(one_more: CallEnded) -> None:
            collector(one_more)
            alive[one_more.worker or 0] = one_more.pid or 0
            if randomness.random() < 0.02:
                victim = randomness.choice(list(alive.values()))
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    return

        pool.submit(
            [ProcessCall(n, pack(pools.double, (n,)), crashes_max=1000) for n in range(2000)],
            ended,
        )
        found = collector.by_id(2000)
        assert all(found[n].ok and found[n].result == 2 * n for n in range(2000))
        assert pool.statistics().crashes > 0


def test_a_process_that_died_idle_is_replaced_and_nothing_fails() -> None:
    with ProcessPool(1) as pool:
        first = one(pool, pools.process).result
        os.kill(first, signal.SIGKILL)
        wait_gone(first)
        ended = one(pool, pools.process)
        assert ended.ok
        assert ended.result != first
        assert ended.crashes == 0


def test_a_crash_is_noticed_although_a_child_holds_the_socket(notes: Path) -> None:
    with ProcessPool(1) as pool:
        ended = one(pool, pools.fork_and_die, str(notes))
        assert ended.outcome is CallOutcome.CRASHED
        (child,) = lines(notes, 1)
        wait_gone(int(child))  # it is killed with its worker process


def test_a9_a_call_that_takes_too_long_is_killed(notes: Path, clock: VirtualClock) -> None:
    with ProcessPool(1, clock=clock) as pool:
        collector = Collector()
        pool.submit(
            [
                ProcessCall("slow", pack(pools.hang, (str(notes),)), timeout=10.0),
                ProcessCall.of("next", pools.double, 4),
            ],
            collector,
        )
        (process,) = lines(notes, 1)
        clock.advance(9.0)
        assert not collector.ended
        clock.advance(1.0)
        found = collector.by_id(2)
        assert found["slow"].outcome is CallOutcome.TIMED_OUT
        assert isinstance(found["slow"].error, ProcessTimeout)
        assert "did not end within 10 s" in str(found["slow"].error)
        assert found["next"].result == 8
        wait_gone(int(process))


def test_cancelling_kills_the_call_in_hand(notes: Path) -> None:
    with ProcessPool(1) as pool:
        collector = Collector()
        pool.submit(
            [ProcessCall.of("a", pools.hang, str(notes)), ProcessCall.of("b", pools.double, 2)],
            collector,
        )
        (process,) = lines(notes, 1)
        pool.cancel("a")
        found = collector.by_id(2)
        assert found["a"].outcome is CallOutcome.CANCELLED
        assert isinstance(found["a"].error, ProcessCancelled)
        assert found["b"].result == 4
        wait_gone(int(process))
        pool.cancel("a")  # it has ended: nothing happens
        assert one(pool, pools.nothing).ok


def test_cancelling_takes_programs_of_the_call_along(notes: Path) -> None:
    with ProcessPool(1) as pool:
        collector = Collector()
        pool.submit(ProcessCall.of("a", pools.hang_with_program, str(notes)), collector)
        (program,) = lines(notes, 1)
        pool.cancel("a")
        collector.wait(1)
        wait_gone(int(program))


def test_cancelling_what_waits_or_is_held_in_reserve(notes: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.touch()
    mine = RuntimeError("not wanted")
    with ProcessPool(1) as pool:
        run(pool, *(ProcessCall.of(("warm", n), pools.nothing) for n in range(50)))
        collector = Collector()
        slow = ProcessCall.of("slow", pools.wait_for, str(notes), "go")
        pool.submit(
            [slow, *(ProcessCall.of(n, pools.count_runs, str(runs), n) for n in range(100))],
            collector,
        )
        (process,) = lines(notes, 1)
        for n in range(0, 100, 2):
            pool.cancel(n, mine)
        count = 1
        while 98 not in {each.id for each in collector.wait(count)}:
            count += 1  # until the last of them, which is not held yet, has ended
        pools.note(str(notes), "go")
        found = collector.by_id(101)
        assert found["slow"].result == int(process)
        for n in range(100):
            assert found[n].ok is bool(n % 2)
            assert n % 2 or found[n].error is mine
    assert sorted(map(int, lines(runs, 50))) == list(range(1, 100, 2))


def test_t16_a_process_is_renewed_when_it_is_old(clock: VirtualClock) -> None:
    with ProcessPool(1, renew_after_seconds=60.0, clock=clock) as pool:
        first = one(pool, pools.process).result
        assert one(pool, pools.process).result == first
        clock.advance(60.0)
        wait_gone(first)
        assert one(pool, pools.process).result != first
        assert pool.statistics().renewals == 1


def test_idle_processes_stop_down_to_the_least(clock: VirtualClock, notes: Path) -> None:
    with ProcessPool((1, 3), idle_stop=30.0, clock=clock) as pool:
        collector = Collector()
        pool.submit(
            [ProcessCall.of(n, pools.wait_for, str(notes), "go") for n in range(3)], collector
        )
        lines(notes, 3)
        assert pool.statistics().workers == 3
        pools.note(str(notes), "go")
        collector.wait(3)
        while pool.statistics().workers > 1:
            clock.advance(30.0)
        clock.advance(300.0)
        assert one(pool, pools.nothing).ok
        assert pool.statistics().launches == 3


def test_t11_processes_start_with_demand(notes: Path) -> None:
    with ProcessPool(4) as pool:
        assert pool.statistics().workers == 0
        one(pool, pools.nothing)
        assert pool.statistics().workers == 1
        collector = Collector()
        pool.submit(
            [ProcessCall.of(n, pools.wait_for, str(notes), "go") for n in range(2)], collector
        )
        lines(notes, 2)
        assert pool.statistics().launches == 2
        pools.note(str(notes), "go")
        collector.wait(2)


class NoMore:
    """A launcher on a machine that is full."""

    def __init__(self, after: int) -> None:
        self.attempts = 0
        self._after = after
        self._real = Forkserver()

    def start(self, worker_id: int, endpoint: socket.socket) -> Any:
        self.attempts += 1
        if self.attempts > self._after:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._real.start(worker_id, endpoint)

    def close(self) -> None:
        self._real.close()


def test_a5_a_launcher_that_fails_ends_what_waits() -> None:
    launcher = NoMore(0)
    with ProcessPool(2, launcher=launcher, launches_max=3) as pool:
        ended = one(pool, pools.nothing)
        assert isinstance(ended.error, LaunchFailed)
        assert os.strerror(errno.EAGAIN) in str(ended.error)
        assert launcher.attempts == 3
        one(pool, pools.nothing)
        assert launcher.attempts == 6


def test_a5_those_who_have_started_do_the_work_of_those_who_cannot(notes: Path) -> None:
    launcher = NoMore(1)
    with ProcessPool(2, launcher=launcher, launches_max=2) as pool:
        found = run(pool, *(ProcessCall.of(n, pools.process) for n in range(100)))
        assert len({each.result for each in found}) == 1
    launcher.close()


@pytest.mark.parametrize("launcher", [Forkserver, Spawn])
@pytest.mark.parametrize("interpreter", ["/bin/false", "/no/such/python"])
def test_a5_a_bad_interpreter_is_told_in_bounded_time(
    interpreter: str, launcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interpreter == "/bin/false" and not Path(interpreter).exists():
        pytest.skip("there is no /bin/false")
    monkeypatch.setattr(spawn, "_python_exe", interpreter)
    made = launcher()
    with ProcessPool(1, launcher=made, launches_max=2) as pool:
        ended = one(pool, pools.nothing)
        assert isinstance(ended.error, LaunchFailed)
        assert "exit code 1" in str(ended.error) or interpreter in str(ended.error)
    if launcher is Forkserver:
        made.close()


def test_the_process_that_forks_is_replaced_when_it_dies() -> None:
    launcher = Forkserver()
    with ProcessPool(1, launcher=launcher) as pool:
        first = one(pool, pools.process).result
        assert launcher._popen is not None
        launcher._popen.kill()
        wait_gone(first)
        assert one(pool, pools.process).ok
    launcher.close()


def test_many_threads_submit_and_cancel() -> None:
    collector = Collector()
    with ProcessPool(2) as pool:

        def work(name: int) -> None:
            for n in range(100):
                pool.submit(ProcessCall.of((name, n), pools.double, n), collector)
                if n % 10 == 0:
                    pool.cancel((name, n))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = collector.by_id(400)
        for name, each in found.items():
            assert each.outcome in {CallOutcome.OK, CallOutcome.CANCELLED}
            assert each.ok or str(name).endswith("0)")


def test_a5_without_file_descriptors_calls_fail_and_work_again_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ProcessPool(1, launches_max=2) as pool:
        first = one(pool, pools.process).result
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        extra = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(extra) + 1, hard))
        try:
            lost = one(pool, bytes, 100_000)
            os.kill(first, signal.SIGKILL)
            wait_gone(first)
            failed = one(pool, pools.process)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in extra:
                os.close(each)
        assert isinstance(lost.error, NotSendable)
        assert "ulimit -n" in str(lost.error)
        assert isinstance(failed.error, LaunchFailed)
        assert "Too many open files" in str(failed.error)
        assert one(pool, bytes, 100_000).result == bytes(100_000)
