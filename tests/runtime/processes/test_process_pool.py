"""A pool with real processes: results, failures, output, limits, renewal."""

from __future__ import annotations

import os
import pickle
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from actorflow.runtime.errors import (
    BadJob,
    BadOption,
    LaunchFailed,
    NotSendable,
    ProcessCancelled,
    WorkerStopped,
)
from actorflow.runtime.processes.call import CallEnded, CallOutcome, ProcessCall
from actorflow.runtime.processes.packed import pack
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools
from tests.runtime.processes.pools import Collector, one, run, wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1024 * 1024


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(2) as made:
        yield made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def test_t25_t27_calls_run_in_other_processes(pool: ProcessPool) -> None:
    calls = [ProcessCall.of(number, pools.double, number) for number in range(200)]
    found = run(pool, *calls)
    assert [each.result for each in found] == [2 * number for number in range(200)]
    assert all(each.outcome is CallOutcome.OK and each.ok for each in found)
    assert os.getpid() not in {each.pid for each in found}
    assert {each.worker for each in found} <= {1, 2}
    for each in found:
        assert each.started is not None
        assert each.started <= each.ended


def test_keyword_arguments_and_coroutine_functions(pool: ProcessPool) -> None:
    assert run(pool, ProcessCall.of("a", pools.add, 1, second=2))[0].result == 3
    assert one(pool, pools.later, "x").result == "x"


def test_lambdas_and_closures_go_by_value(pool: ProcessPool) -> None:
    offset = 5
    assert one(pool, lambda number: number + offset, 1).result == 6
    assert one(pool, partial(pools.add, second=offset), 1).result == 6


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(BadJob, match=r"cannot run in another process.*pickled"):
        ProcessCall.of("a", pools.double, threading.Lock())


def test_what_a_function_raises_comes_with_its_traceback(pool: ProcessPool) -> None:
    ended = one(pool, pools.fail, "oh no")
    assert ended.outcome is CallOutcome.FAILED
    assert isinstance(ended.error, ValueError)
    assert str(ended.error) == "oh no"
    assert "pools.py" in ended.traceback
    assert "child/loop.py" not in ended.traceback


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (partial(pools.leave, "enough"), SystemExit, "enough"),
        (pools.be_fussy, NotSendable, "Fussy: fussy 7 (it cannot be sent"),
        (pools.return_a_lock, NotSendable, "what return_a_lock returned (it cannot be sent"),
        (pools.return_broken, NotSendable, "cannot be received here: RuntimeError: not here"),
    ],
)
def test_a_failure_is_told_and_the_process_goes_on(
    pool: ProcessPool, function: Any, kind: type[BaseException], text: str
) -> None:
    before = one(pool, pools.process).result
    ended = one(pool, function)
    assert ended.outcome is CallOutcome.FAILED
    assert isinstance(ended.error, kind)
    assert text in str(ended.error)
    assert one(pool, pools.process).result == before


def test_output_and_warnings_reach_the_caller(pool: ProcessPool) -> None:
    ended = one(pool, pools.say, "hello")
    assert ended.result == "hello"
    assert ended.output == ("hello\n", "hello!\n")
    assert one(pool, pools.say_and_fail, "hi").output.stdout == "hi\n"
    (warning,) = one(pool, pools.warn, "careful").warnings
    assert "UserWarning: careful" in warning
    assert one(pool, pools.double, 1).output == ("", "")
    assert one(pool, pools.close_stdout).ok
    assert one(pool, pools.say, "again").output.stdout == "again\n"


@pytest.mark.parametrize("size", [10, 70_000, 3 * MB])
def test_large_values_travel_both_ways(pool: ProcessPool, size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    result = one(pool, np.add, array, 1).result
    assert np.array_equal(result, array + 1)
    result[0] = 7  # it is ours
    data = os.urandom(size)
    assert one(pool, bytes, data).result == data


def test_more_large_results_than_files(pool: ProcessPool) -> None:
    calls = [ProcessCall.of(number, np.full, 20_000, number) for number in range(300)]
    found = run(pool, *calls)
    assert all(each.result[0] == each.id for each in found)
    assert len(list(Path("/proc/self/fd").iterdir())) < 250


def test_setup_runs_once_in_each_process() -> None:
    with ProcessPool(1, setup=pools.prepare) as pool:
        for _ in range(3):
            assert one(pool, pools.is_prepared).result == ["prepared"]


def test_t15_t16_a3_renewal_loses_and_repeats_nothing(notes: Path) -> None:
    with ProcessPool(2, renew_after=7) as pool:
        calls = [ProcessCall.of(n, pools.count_runs, str(notes), n) for n in range(500)]
        found = run(pool, *calls)
        assert [each.result for each in found] == list(range(500))
        processes: dict[int | None, int] = {}
        for each in found:
            processes[each.pid] = processes.get(each.pid, 0) + 1
        assert max(processes.values()) <= 7
        assert pool.statistics().launches >= 72  # 500 / 7
    assert sorted(map(int, pools.lines(notes, 500))) == list(range(500))
    assert pool.statistics().workers == 0


def test_a_process_that_grows_is_renewed() -> None:
    with ProcessPool(1, max_rss=200 * MB) as pool:
        first = one(pool, pools.grow, MB).result
        assert one(pool, pools.grow, MB).result == first
        one(pool, pools.grow, 200 * MB)
        assert one(pool, pools.process).result != first
        assert pool.statistics().renewals == 1


def test_memory_is_limited_for_one_call_only(pool: ProcessPool) -> None:
    ended = one(pool, pools.allocate, 200 * MB, memory=100 * MB)
    assert isinstance(ended.error, MemoryError)
    assert one(pool, pools.allocate, 200 * MB).result == 200 * MB


def test_memory_escalates_with_attempts(pool: ProcessPool) -> None:
    memory = 100 * MB, 400 * MB
    for attempt, ok in ((1, False), (2, True), (3, True)):
        ended = one(pool, pools.allocate, 200 * MB, memory=memory, attempt=attempt)
        assert ended.ok is ok


def test_cpu_time_is_limited(pool: ProcessPool) -> None:
    ended = one(pool, pools.burn, cpu=0.1)
    assert ended.outcome is CallOutcome.CRASHED
    assert "SIGXCPU" in str(ended.error)


def test_heartbeats_ask_the_parent(pool: ProcessPool, notes: Path) -> None:
    answers = [False, True, True]
    ended = one(pool, pools.beat_until_unwanted, str(notes), heartbeat=answers.pop)
    assert ended.result == 3
    assert not answers


def test_calls_in_reserve_go_to_whoever_is_idle(notes: Path) -> None:
    """Calls behind a slow one are taken back."""
    with ProcessPool(2) as pool:
        run(pool, *(ProcessCall.of(("warm", n), pools.nothing) for n in range(200)))
        slow = ProcessCall.of("slow", pools.wait_for, str(notes), "go")
        quick = [ProcessCall.of(n, pools.double, n) for n in range(100)]
        collector = Collector()
        pool.submit([slow, *quick], collector)
        found = collector.by_id(100)
        assert "slow" not in found
        pools.note(str(notes), "go")
        assert len(collector.wait(101)) == 101


def test_an_id_in_hand_is_refused_and_nothing_of_the_batch_is_taken(
    pool: ProcessPool, notes: Path
) -> None:
    collector = Collector()
    pool.submit(ProcessCall.of("a", pools.wait_for, str(notes), "go"), collector)
    with pytest.raises(BadOption, match=r"id='a' is in hand"):
        pool.submit(
            [ProcessCall.of("b", pools.nothing), ProcessCall.of("a", pools.nothing)], collector
        )
    pools.note(str(notes), "go")
    assert [each.id for each in collector.wait(1)] == ["a"]
    assert one(pool, pools.nothing).ok


def test_what_is_told_may_fail(pool: ProcessPool) -> None:
    told = threading.Event()

    def ended(_: CallEnded) -> None:
        told.set()
        raise ValueError

    pool.submit(ProcessCall.of("a", pools.nothing), ended)
    assert told.wait(pools.PATIENCE)
    assert one(pool, pools.nothing).ok


def test_a_call_may_be_submitted_by_the_end_of_another(pool: ProcessPool) -> None:
    collector = Collector()

    def ended(before: CallEnded) -> None:
        collector(before)
        if before.result < 20:
            pool.submit(ProcessCall.of(before.result, pools.double, before.result), ended)

    pool.submit(ProcessCall.of("first", pools.double, 1), ended)
    assert [each.result for each in collector.wait(5)] == [2, 4, 8, 16, 32]


def test_closing_ends_calls_and_processes(notes: Path) -> None:
    pool = ProcessPool(1)
    collector = Collector()
    pool.submit(
        [ProcessCall.of("a", pools.hang, str(notes)), ProcessCall.of("b", pools.nothing)], collector
    )
    (process,) = pools.lines(notes, 1)
    pool.close()
    found = collector.by_id(2)
    for name in "ab":
        assert found[name].outcome is CallOutcome.CANCELLED
        assert isinstance(found[name].error, ProcessCancelled)
    wait_gone(int(process))
    with pytest.raises(WorkerStopped, match="closed"):
        pool.submit(ProcessCall.of("c", pools.nothing), collector)
    pool.close()


def test_draining_runs_what_was_submitted() -> None:
    collector = Collector()
    with ProcessPool((1, 2)) as pool:
        pool.submit([ProcessCall.of(n, pools.double, n) for n in range(50)], collector)
    assert len(collector.ended) == 50
    assert all(each.ok for each in collector.ended)
    assert pool.statistics().workers == 0


def test_draining_has_an_end(notes: Path) -> None:
    pool = ProcessPool(1)
    collector = Collector()
    pool.submit(ProcessCall.of("a", pools.hang, str(notes)), collector)
    pools.lines(notes, 1)
    pool.close(drain=True, timeout=0.01)
    assert collector.by_id(1)["a"].outcome is CallOutcome.CANCELLED


def test_closing_an_unused_pool_starts_nothing() -> None:
    pool = ProcessPool(2)
    pool.close()
    assert pool.statistics().launches == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": (3, 2)}, "workers=2"),
        ({"workers": (1, 2, 3)}, r"must be a number or \(min, max\)"),
        ({"launcher": "thread"}, "launcher='thread'"),
        ({"launcher": 3}, "launcher=3"),
        ({"renew_after": 0}, "renew_after=0"),
        ({"renew_after_seconds": -1}, "renew_after_seconds=-1"),
        ({"max_rss": 0}, "max_rss=0"),
        ({"idle_stop": 0}, "idle_stop=0"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"launches_max": 0}, "launches_max=0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        ProcessPool(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": 0}, "timeout=0"),
        ({"memory": ()}, r"memory=\(\)"),
        ({"memory": (1, 0)}, "memory=0"),
        ({"cpu": -1}, "cpu=-1"),
        ({"attempt": 0}, "attempt=0"),
        ({"crashes_max": -1}, "crashes_max=-1"),
        ({"payload": b"x"}, "must come from pack"),
    ],
)
def test_bad_calls_are_refused(pool: ProcessPool, options: dict[str, Any], text: str) -> None:
    options = {"payload": pack(pools.nothing), **options}
    with pytest.raises(BadOption, match=text):
        pool.submit(ProcessCall("a", **options), Collector())


def test_spawn_starts_fresh_interpreters() -> None:
    with ProcessPool(1, launcher="spawn", setup=pools.prepare) as pool:
        found = one(pool, pools.is_prepared)
        assert found.result == ["prepared"]
        assert one(pool, pools.exit_hard, 3).outcome is CallOutcome.CRASHED
        assert one(pool, pools.process).result != found.pid


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (pools.prepare_badly, "setup failed with OSError: no licence"),
        (pools.prepare_by_dying, "exit code 7 before it was ready"),
    ],
)
def test_a5_a_process_that_cannot_start_fails_what_waits(
    launcher: str, setup: Any, text: str
) -> None:
    with ProcessPool(2, setup=setup, launches_max=2, launcher=launcher) as pool:
        found = run(pool, *(ProcessCall.of(n, pools.nothing) for n in range(3)))
        for each in found:
            assert each.outcome is CallOutcome.CRASHED
            assert isinstance(each.error, LaunchFailed)
            assert "no worker process could be started in 2 attempts" in str(each.error)
            assert text in str(each.error)


def test_a_setup_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(BadJob, match="cannot run in another process"):
        ProcessPool(1, setup=partial(print, threading.Lock()))


def test_errors_can_be_pickled() -> None:
    for error in (LaunchFailed("x"), ProcessCancelled("x"), NotSendable("x")):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(again), str(again)) == (type(error), str(error))


def test_a_pool_that_is_not_used_opens_nothing() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    pool = ProcessPool(2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    pool.close()


def test_calls_that_come_while_the_pool_is_being_closed_are_ended() -> None:
    """Whatever is accepted ends, whenever the pool is closed."""
    for _ in range(20):
        pool = ProcessPool(1)
        collector = Collector()
        accepted: list[int] = []

        def submit(pool: ProcessPool, collector: Collector, accepted: list[int]) -> None:
            for number in range(1000):
                try:
                    pool.submit(ProcessCall.of(number, pools.nothing), collector)
                except WorkerStopped:
                    return
                accepted.append(number)

        thread = threading.Thread(target=submit, args=(pool, collector, accepted))
        thread.start()
        pool.close()
        thread.join()
        assert len(collector.wait(len(accepted))) == len(accepted)


def test_a_pool_in_a_worker_process(pool: ProcessPool) -> None:
    result, inner, outer = one(pool, pools.use_a_pool_there, 4).result
    assert result == 8
    assert len({inner, outer, os.getpid()}) == 3
    wait_gone(inner)


def test_a_crash_has_a_place_and_a_time(pool: ProcessPool) -> None:
    ended = one(pool, pools.kill_self)
    assert ended.worker in {1, 2}
    assert ended.started is not None
    assert ended.started <= ended.ended
