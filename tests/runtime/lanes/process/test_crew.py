"""A crew with real processes: results, failures, output, limits, renewal."""

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
from actorflow.runtime.lanes.process.call import Call, CallOutcome, Ended
from actorflow.runtime.lanes.process.crew import Crew
from actorflow.runtime.lanes.process.packing import pack
from tests.runtime.lanes.process import crewing
from tests.runtime.lanes.process.crewing import Collector, one, run, wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1024 * 1024


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew(2) as made:
        yield made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def test_t25_t27_calls_run_in_other_processes(crew: Crew) -> None:
    calls = [Call.of(number, crewing.double, number) for number in range(200)]
    found = run(crew, *calls)
    assert [each.result for each in found] == [2 * number for number in range(200)]
    assert all(each.outcome is CallOutcome.OK and each.ok for each in found)
    assert os.getpid() not in {each.pid for each in found}
    assert {each.worker for each in found} <= {1, 2}
    for each in found:
        assert each.started is not None
        assert each.started <= each.ended


def test_keyword_arguments_and_coroutine_functions(crew: Crew) -> None:
    assert run(crew, Call.of("a", crewing.add, 1, second=2))[0].result == 3
    assert one(crew, crewing.later, "x").result == "x"


def test_lambdas_and_closures_go_by_value(crew: Crew) -> None:
    offset = 5
    assert one(crew, lambda number: number + offset, 1).result == 6
    assert one(crew, partial(crewing.add, second=offset), 1).result == 6


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(BadJob, match=r"cannot run in another process.*pickled"):
        Call.of("a", crewing.double, threading.Lock())


def test_what_a_function_raises_comes_with_its_traceback(crew: Crew) -> None:
    ended = one(crew, crewing.fail, "oh no")
    assert ended.outcome is CallOutcome.FAILED
    assert isinstance(ended.error, ValueError)
    assert str(ended.error) == "oh no"
    assert "crewing.py" in ended.traceback
    assert "child/loop.py" not in ended.traceback


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (partial(crewing.leave, "enough"), SystemExit, "enough"),
        (crewing.be_fussy, NotSendable, "Fussy: fussy 7 (it cannot be sent"),
        (crewing.return_a_lock, NotSendable, "what return_a_lock returned (it cannot be sent"),
        (crewing.return_broken, NotSendable, "cannot be received here: RuntimeError: not here"),
    ],
)
def test_a_failure_is_told_and_the_process_goes_on(
    crew: Crew, function: Any, kind: type[BaseException], text: str
) -> None:
    before = one(crew, crewing.process).result
    ended = one(crew, function)
    assert ended.outcome is CallOutcome.FAILED
    assert isinstance(ended.error, kind)
    assert text in str(ended.error)
    assert one(crew, crewing.process).result == before


def test_output_and_warnings_reach_the_caller(crew: Crew) -> None:
    ended = one(crew, crewing.say, "hello")
    assert ended.result == "hello"
    assert ended.output == ("hello\n", "hello!\n")
    assert one(crew, crewing.say_and_fail, "hi").output.stdout == "hi\n"
    (warning,) = one(crew, crewing.warn, "careful").warnings
    assert "UserWarning: careful" in warning
    assert one(crew, crewing.double, 1).output == ("", "")
    assert one(crew, crewing.close_stdout).ok
    assert one(crew, crewing.say, "again").output.stdout == "again\n"


@pytest.mark.parametrize("size", [10, 70_000, 3 * MB])
def test_large_values_travel_both_ways(crew: Crew, size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    result = one(crew, np.add, array, 1).result
    assert np.array_equal(result, array + 1)
    result[0] = 7  # it is ours
    data = os.urandom(size)
    assert one(crew, bytes, data).result == data


def test_more_large_results_than_files(crew: Crew) -> None:
    calls = [Call.of(number, np.full, 20_000, number) for number in range(300)]
    found = run(crew, *calls)
    assert all(each.result[0] == each.id for each in found)
    assert len(list(Path("/proc/self/fd").iterdir())) < 250


def test_setup_runs_once_in_each_process() -> None:
    with Crew(1, setup=crewing.prepare) as crew:
        for _ in range(3):
            assert one(crew, crewing.is_prepared).result == ["prepared"]


def test_t15_t16_a3_renewal_loses_and_repeats_nothing(notes: Path) -> None:
    with Crew(2, renew_after=7) as crew:
        calls = [Call.of(n, crewing.count_runs, str(notes), n) for n in range(500)]
        found = run(crew, *calls)
        assert [each.result for each in found] == list(range(500))
        processes: dict[int | None, int] = {}
        for each in found:
            processes[each.pid] = processes.get(each.pid, 0) + 1
        assert max(processes.values()) <= 7
        assert crew.statistics().launches >= 72  # 500 / 7
    assert sorted(map(int, crewing.lines(notes, 500))) == list(range(500))
    assert crew.statistics().workers == 0


def test_a_process_that_grows_is_renewed() -> None:
    with Crew(1, max_rss=200 * MB) as crew:
        first = one(crew, crewing.grow, MB).result
        assert one(crew, crewing.grow, MB).result == first
        one(crew, crewing.grow, 200 * MB)
        assert one(crew, crewing.process).result != first
        assert crew.statistics().renewals == 1


def test_memory_is_limited_for_one_call_only(crew: Crew) -> None:
    ended = one(crew, crewing.allocate, 200 * MB, memory=100 * MB)
    assert isinstance(ended.error, MemoryError)
    assert one(crew, crewing.allocate, 200 * MB).result == 200 * MB


def test_memory_escalates_with_attempts(crew: Crew) -> None:
    memory = 100 * MB, 400 * MB
    for attempt, ok in ((1, False), (2, True), (3, True)):
        ended = one(crew, crewing.allocate, 200 * MB, memory=memory, attempt=attempt)
        assert ended.ok is ok


def test_cpu_time_is_limited(crew: Crew) -> None:
    ended = one(crew, crewing.burn, cpu=0.1)
    assert ended.outcome is CallOutcome.CRASHED
    assert "SIGXCPU" in str(ended.error)


def test_heartbeats_ask_the_parent(crew: Crew, notes: Path) -> None:
    answers = [False, True, True]
    ended = one(crew, crewing.beat_until_unwanted, str(notes), heartbeat=answers.pop)
    assert ended.result == 3
    assert not answers


def test_calls_in_reserve_go_to_whoever_is_idle(notes: Path) -> None:
    """Calls behind a slow one are taken back."""
    with Crew(2) as crew:
        run(crew, *(Call.of(("warm", n), crewing.nothing) for n in range(200)))
        slow = Call.of("slow", crewing.wait_for, str(notes), "go")
        quick = [Call.of(n, crewing.double, n) for n in range(100)]
        collector = Collector()
        crew.submit([slow, *quick], collector)
        found = collector.by_id(100)
        assert "slow" not in found
        crewing.note(str(notes), "go")
        assert len(collector.wait(101)) == 101


def test_an_id_in_hand_is_refused_and_nothing_of_the_batch_is_taken(
    crew: Crew, notes: Path
) -> None:
    collector = Collector()
    crew.submit(Call.of("a", crewing.wait_for, str(notes), "go"), collector)
    with pytest.raises(BadOption, match=r"id='a' is in hand"):
        crew.submit([Call.of("b", crewing.nothing), Call.of("a", crewing.nothing)], collector)
    crewing.note(str(notes), "go")
    assert [each.id for each in collector.wait(1)] == ["a"]
    assert one(crew, crewing.nothing).ok


def test_what_is_told_may_fail(crew: Crew) -> None:
    told = threading.Event()

    def ended(_: Ended) -> None:
        told.set()
        raise ValueError

    crew.submit(Call.of("a", crewing.nothing), ended)
    assert told.wait(crewing.PATIENCE)
    assert one(crew, crewing.nothing).ok


def test_a_call_may_be_submitted_by_the_end_of_another(crew: Crew) -> None:
    collector = Collector()

    def ended(before: Ended) -> None:
        collector(before)
        if before.result < 20:
            crew.submit(Call.of(before.result, crewing.double, before.result), ended)

    crew.submit(Call.of("first", crewing.double, 1), ended)
    assert [each.result for each in collector.wait(5)] == [2, 4, 8, 16, 32]


def test_closing_ends_calls_and_processes(notes: Path) -> None:
    crew = Crew(1)
    collector = Collector()
    crew.submit([Call.of("a", crewing.hang, str(notes)), Call.of("b", crewing.nothing)], collector)
    (process,) = crewing.lines(notes, 1)
    crew.close()
    found = collector.by_id(2)
    for name in "ab":
        assert found[name].outcome is CallOutcome.CANCELLED
        assert isinstance(found[name].error, ProcessCancelled)
    wait_gone(int(process))
    with pytest.raises(WorkerStopped, match="closed"):
        crew.submit(Call.of("c", crewing.nothing), collector)
    crew.close()


def test_draining_runs_what_was_submitted() -> None:
    collector = Collector()
    with Crew((1, 2)) as crew:
        crew.submit([Call.of(n, crewing.double, n) for n in range(50)], collector)
    assert len(collector.ended) == 50
    assert all(each.ok for each in collector.ended)
    assert crew.statistics().workers == 0


def test_draining_has_an_end(notes: Path) -> None:
    crew = Crew(1)
    collector = Collector()
    crew.submit(Call.of("a", crewing.hang, str(notes)), collector)
    crewing.lines(notes, 1)
    crew.close(drain=True, timeout=0.01)
    assert collector.by_id(1)["a"].outcome is CallOutcome.CANCELLED


def test_closing_an_unused_crew_starts_nothing() -> None:
    crew = Crew(2)
    crew.close()
    assert crew.statistics().launches == 0


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
        Crew(**options)


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
def test_bad_calls_are_refused(crew: Crew, options: dict[str, Any], text: str) -> None:
    options = {"payload": pack(crewing.nothing), **options}
    with pytest.raises(BadOption, match=text):
        crew.submit(Call("a", **options), Collector())


def test_spawn_starts_fresh_interpreters() -> None:
    with Crew(1, launcher="spawn", setup=crewing.prepare) as crew:
        found = one(crew, crewing.is_prepared)
        assert found.result == ["prepared"]
        assert one(crew, crewing.exit_hard, 3).outcome is CallOutcome.CRASHED
        assert one(crew, crewing.process).result != found.pid


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (crewing.prepare_badly, "setup failed with OSError: no licence"),
        (crewing.prepare_by_dying, "exit code 7 before it was ready"),
    ],
)
def test_a5_a_process_that_cannot_start_fails_what_waits(
    launcher: str, setup: Any, text: str
) -> None:
    with Crew(2, setup=setup, launches_max=2, launcher=launcher) as crew:
        found = run(crew, *(Call.of(n, crewing.nothing) for n in range(3)))
        for each in found:
            assert each.outcome is CallOutcome.CRASHED
            assert isinstance(each.error, LaunchFailed)
            assert "no worker process could be started in 2 attempts" in str(each.error)
            assert text in str(each.error)


def test_a_setup_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(BadJob, match="cannot run in another process"):
        Crew(1, setup=partial(print, threading.Lock()))


def test_errors_can_be_pickled() -> None:
    for error in (LaunchFailed("x"), ProcessCancelled("x"), NotSendable("x")):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(again), str(again)) == (type(error), str(error))


def test_a_crew_that_is_not_used_opens_nothing() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    crew = Crew(2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    crew.close()


def test_calls_that_come_while_the_crew_is_being_closed_are_ended() -> None:
    """Whatever is accepted ends, whenever the crew is closed."""
    for _ in range(20):
        crew = Crew(1)
        collector = Collector()
        accepted: list[int] = []

        def submit(crew: Crew, collector: Collector, accepted: list[int]) -> None:
            for number in range(1000):
                try:
                    crew.submit(Call.of(number, crewing.nothing), collector)
                except WorkerStopped:
                    return
                accepted.append(number)

        thread = threading.Thread(target=submit, args=(crew, collector, accepted))
        thread.start()
        crew.close()
        thread.join()
        assert len(collector.wait(len(accepted))) == len(accepted)


def test_a_crew_in_a_worker_process(crew: Crew) -> None:
    result, inner, outer = one(crew, crewing.use_a_crew_there, 4).result
    assert result == 8
    assert len({inner, outer, os.getpid()}) == 3
    wait_gone(inner)


def test_a_crash_has_a_place_and_a_time(crew: Crew) -> None:
    ended = one(crew, crewing.kill_self)
    assert ended.worker in {1, 2}
    assert ended.started is not None
    assert ended.started <= ended.ended
