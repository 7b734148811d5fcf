"""Running plans on real processes: the cases of the R package, and the rules that a run holds."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actorflow.plans.errors import BadPlan, JobFailed, JobSkipped, PlanFailed, UnknownJob
from actorflow.plans.job_record import JobStatus
from actorflow.plans.plan import Plan
from actorflow.plans.run.options import RunOptions
from actorflow.plans.run.run import PlanRun
from actorflow.runtime.errors import BadOption, LaunchFailed
from actorflow.runtime.processes.call import CallEnded, CallOutcome, ProcessCall
from actorflow.runtime.processes.launcher import Spawn
from actorflow.runtime.processes.process_pool import ProcessPool
from actorflow.runtime.worker.spec import spawn
from tests.plans.jobs import (
    act,
    add,
    allocate,
    boom,
    die,
    die_first,
    double,
    fail_first,
    large,
    note,
    one,
    pid,
    plus,
    rude,
    size_of,
    upto,
    verbose,
    wait_for_ever,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# The cases of the R package.


def test_t7_an_empty_plan() -> None:
    result = Plan.from_mapping({}).run(workers=2)
    assert len(result) == 0
    assert result.ok
    assert str(result).endswith("nothing to do")


def test_t7_one_job() -> None:
    assert Plan.from_mapping({"x": one}).run(workers=1)["x"] == 1


CHAIN: dict[Any, Callable[..., int]] = {
    "x": lambda: 1,
    "y": lambda x: x + 1,
    "z": lambda y: y + 1,
}
DIAMOND: dict[Any, Callable[..., int]] = {
    "x": lambda: 2,
    "y": lambda x: x + 1,
    "z": lambda x: x + 2,
    "w": lambda y, z: y * z + 1,
}


@pytest.mark.parametrize("order", [1, -1], ids=["chain", "chain reversed"])
def test_t1_t2_a_chain(order: int) -> None:
    jobs = dict(list(CHAIN.items())[::order])
    result = Plan.from_mapping(jobs, [("x", "y"), ("y", "z")]).run(workers=2)
    assert [result[name] for name in "xyz"] == [1, 2, 3]


@pytest.mark.parametrize("order", [1, -1], ids=["diamond", "diamond reversed"])
def test_t1_t2_a_diamond(order: int) -> None:
    edges = [("x", "y"), ("x", "z"), ("y", "w"), ("z", "w")][::order]
    jobs = dict(list(DIAMOND.items())[::order])
    result = Plan.from_mapping(jobs, edges).run(workers=2)
    assert [result[name] for name in "xyzw"] == [2, 3, 4, 13]


# What a run holds.


def test_a1_a_completion_has_the_job_the_worker_the_status_and_the_result() -> None:
    plan = Plan()
    job = plan.job(pid)
    result = plan.run(workers=1)
    record = result.record(job)
    assert record.status is JobStatus.DONE
    assert record.worker == "1"
    assert record.attempts == 1
    assert 0 <= (record.queued or 0.0) <= (record.ended or 0.0) <= result.seconds
    assert record.seconds >= 0
    assert result[job] != os.getpid()


def test_t3_t11_no_more_processes_than_workers(tmp_path: Path) -> None:
    plan = Plan()
    for _ in range(40):
        plan.job(pid)
    result = plan.run(workers=2)
    assert len({result[name] for name in result}) <= 2


def test_t4_t12_t28_workers_are_transient_and_renewal_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    plan = Plan()
    jobs = [plan.job(note, str(tmp_path), f"n{place}") for place in range(25)]
    pids = [plan.job(pid, job) for job in jobs]
    result = plan.run(workers=1, renew_after=10)
    assert all((tmp_path / f"n{place}").read_bytes() == b"x" for place in range(25))
    assert len({result[job] for job in pids}) >= 3


def test_a_plan_whose_processes_are_refused_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_options: Any) -> ProcessPool:
        raise LaunchFailed("as in a script without a guard, which a worker process imports")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("actorflow.plans.run.run.ProcessPool", refuse)
    with pytest.raises(LaunchFailed):
        Plan.from_mapping({"x": one}).run(workers=1)
    assert list(tmp_path.iterdir()) == []


def test_t5_t6_a11_a_launcher_of_your_own_starts_the_processes() -> None:
    class Counting(Spawn):
        started = 0

        def start(self, *args: Any, **kwargs: Any) -> Any:
            self.started += 1
            return super().start(*args, **kwargs)

    launcher = Counting()
    assert Plan.from_mapping({"x": one}).run(workers=1, launcher=launcher)["x"] == 1
    assert launcher.started == 1


def test_t26_a_worker_without_a_job_sleeps() -> None:
    over = threading.Event()
    found: list[CallEnded] = []

    def ended(end: CallEnded) -> None:
        found.append(end)
        over.set()

    with ProcessPool(1) as pool:
        pool.submit(ProcessCall.of(1, pid), ended)
        assert over.wait(50)
        while state_of(found[0].result) != "S":
            os.sched_yield()


def test_t8_t24_the_directory_of_a_run_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = Plan()
    plan.job(large, 100_000)
    with plan.run(workers=1) as result:
        assert len(list(tmp_path.glob("actorflow-plan-*/*"))) == 1
        assert len(result["large"]) == 100_000
    assert list(tmp_path.glob("actorflow-plan-*")) == []


def test_t9_t21_t22_the_accumulator_of_the_master_is_the_cleanup_queue() -> None:
    before = threading.active_count()
    rounds: list[PlanRun] = []
    plan = Plan()
    for _ in range(300):
        plan.job(one)
    run = PlanRun(plan.blueprint, RunOptions(workers=2), watch=rounds.append)
    assert run.run().ok
    assert len(rounds) <= 301  # one for each completion at most: it never polls
    assert threading.active_count() <= before + 2  # threads of the pool may stay


def test_t23_no_process_is_left_when_a_run_returns() -> None:
    plan = Plan()
    for _ in range(8):
        plan.job(pid)
    result = plan.run(workers=2)
    for name in result:
        assert not alive(result[name])


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        return state_of(process) != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def state_of(process: int) -> str:
    """Return the state of a process as the kernel has it: R, S, Z and so on."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()[0]


def test_t30_small_results_never_touch_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = Plan()
    plan.map(double, plan.job(upto, 5))
    with plan.run(workers=1):
        assert list(tmp_path.glob("actorflow-plan-*/*")) == []


def test_a13_large_results_stay_out_of_the_master() -> None:
    plan = Plan()
    data = plan.job(large, 5_000_000)
    size = plan.job(size_of, data)
    parts = plan.map(size_of, plan.job(list, (b"a" * 50_000, b"b")))
    run = PlanRun(plan.blueprint, RunOptions(workers=1))
    result = run.run()
    assert (result[size], result[parts]) == (5_000_000, [50_000, 1])
    assert result[data] == b"x" * 5_000_000
    assert result.record(data).size > 5_000_000
    kept = sum(len(each.data) for each in run.dispatcher.values.values() if hasattr(each, "data"))
    assert kept < 1_000


def test_a_call_that_ends_after_a_second_ctrl_c_is_told_to_nobody() -> None:
    run = PlanRun(Plan().blueprint, RunOptions(workers=1))
    with spawn(lambda _batch, state: state) as scheduler:
        run._push = scheduler.push
    run._on_ended(
        CallEnded("a", CallOutcome.CANCELLED)
    )  # the scheduler has stopped, and nobody waits
    run.run()


def test_jobs_hand_over_results_inside_containers() -> None:
    plan = Plan()
    a, b = plan.job(one), plan.job(double, 4)
    both = plan.job(lambda pair, table: (pair, table), [a, (b,)], {"b": b, "c": 3})
    total = plan.job(add, a, b)
    result = plan.run(workers=2)
    assert result[both] == ([1, (8,)], {"b": 8, "c": 3})
    assert result[total] == 9


def test_a_map_branches_over_a_result_known_at_run_time() -> None:
    plan = Plan()
    numbers = plan.map(plus, plan.job(upto, 3), name="more", by=plan.job(double, 5))
    again = plan.map(double, numbers, name="again")
    total = plan.job(sum, again)
    empty = plan.map(double, plan.job(upto, 0), name="empty")
    items = plan.map(double, [1, plan.job(one)], name="items")
    result = plan.run(workers=2)
    assert result[numbers] == [10, 11, 12]
    assert result[again] == [20, 22, 24]
    assert result[total] == 66
    assert result[empty] == []
    assert result[items] == [2, 2]
    assert result["again[1]"] == 22
    assert set(result.record("again").upstream) >= {"again[0]", "again[1]", "again[2]"}
    assert result.record("again[0]").upstream == ("more",)


def test_a_map_over_what_is_no_list_fails() -> None:
    plan = Plan()
    plan.map(double, plan.job(one), name="m")
    with pytest.raises(PlanFailed, match="job 'm' failed: TypeError"):
        plan.run(workers=1)


def test_a_failed_job_stops_the_plan_and_shows_its_traceback() -> None:
    plan = Plan()
    bad = plan.job(boom, name="bad")
    after = plan.job(one, after=bad, name="after")
    with pytest.raises(PlanFailed, match="job 'bad' failed: ValueError: boom") as raised:
        plan.run(workers=1)
    assert "in boom" in str(raised.value)
    result: Any = raised.value.result
    assert [*result.failed] == ["bad"]
    with pytest.raises(JobFailed, match="ValueError: boom"):
        result[bad]
    with pytest.raises(JobSkipped, match="job 'bad' failed"):
        result[after]


def test_stop_lets_what_runs_end_and_begins_nothing_that_was_handed_out(tmp_path: Path) -> None:
    plan = Plan()
    plan.job(boom)
    for place in range(50):
        plan.job(note, str(tmp_path), f"n{place}")
    with pytest.raises(PlanFailed) as raised:
        plan.run(workers=1)
    result: Any = raised.value.result
    ran = {path.name for path in tmp_path.iterdir()}
    assert ran == {result[name] for name in result if result.record(name).status == "done"}
    assert len(ran) + len(result.skipped) == 50


def test_continue_skips_what_needs_a_failed_job() -> None:
    plan = Plan()
    bad = plan.job(boom, name="bad")
    plan.job(add, plan.job(add, bad, name="b"), name="c")
    plan.map(double, [bad, 2], name="m")
    fine = plan.job(one, name="fine")
    result = plan.run(workers=2, on_failure="continue")
    assert result[fine] == 1
    assert [*result.failed] == ["bad"]
    assert [*result.skipped] == ["b", "c", "m", "m[0]"]
    assert {record.reason for record in result.skipped.values()} == {"job 'bad' failed"}
    assert not result.ok
    assert result["m[1]"] == 4


def test_retries_run_a_job_again(tmp_path: Path) -> None:
    plan = Plan()
    job = plan.job(fail_first, str(tmp_path), 2, retries=2)
    result = plan.run(workers=1)
    assert result[job] == 3
    assert result.record(job).attempts == 3


def test_a_crash_fails_only_the_job_in_hand_and_it_is_tried_again(tmp_path: Path) -> None:
    plan = Plan()
    job = plan.job(die_first, str(tmp_path), 2)
    others = [plan.job(one) for _ in range(50)]
    result = plan.run(workers=2)
    assert result.record(job).crashes == 2
    assert all(result[other] == 1 for other in others)


def test_a_job_that_always_crashes_fails_in_the_end() -> None:
    plan = Plan()
    plan.job(die)
    with pytest.raises(PlanFailed, match="job 'die' failed") as raised:
        plan.run(workers=1, crashes_max=2)
    result: Any = raised.value.result
    assert result.record("die").crashes == 2


def test_a_job_whose_time_is_up_is_killed() -> None:
    plan = Plan()
    plan.job(wait_for_ever, timeout=0.2)
    with pytest.raises(PlanFailed, match="job 'wait_for_ever' failed"):
        plan.run(workers=1)


def test_memory_is_limited_and_grows_with_each_attempt() -> None:
    plan = Plan()
    job = plan.job(allocate, 300 << 20, retries=1, resources={"memory": (100 << 20, 2 << 30)})
    result = plan.run(workers=1)
    assert result[job] == 300 << 20
    assert result.record(job).attempts == 2


def test_resources_are_shared_and_what_is_not_there_is_refused() -> None:
    plan = Plan()
    for _ in range(4):
        plan.job(one, resources={"gpu": 1})
    assert plan.run(workers=2, resources={"gpu": 1}).ok
    with pytest.raises(BadPlan, match=r"job 'one' needs 1 of resource 'gpu', but the run has 0"):
        plan.run(workers=2)


def test_what_jobs_say_reaches_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan()
    job = plan.job(_talk)
    result = plan.run(workers=1)
    out, err = capsys.readouterr()
    assert (out, err) == ("hello\n", "oh\n")
    assert result.record(job).output == "hello\noh\n"
    assert "careful" in result.record(job).warnings[0]
    plan.run(workers=1, quiet=True)
    assert capsys.readouterr() == ("", "")


def test_jobs_may_print_where_there_is_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service that was started with closed streams."""
    plan = Plan()
    plan.job(_talk)
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert plan.run(workers=1).ok


def _talk() -> None:
    sys.stdout.write("hello\n")
    sys.stderr.write("oh\n")
    warnings.warn("careful", stacklevel=1)


def test_arguments_that_cannot_be_pickled_fail_their_job() -> None:
    plan = Plan()
    plan.job(one, name="fine")
    plan.job(add, threading.Lock(), name="locked")
    result = plan.run(workers=1, on_failure="continue")
    assert "the arguments of job 'locked' cannot be sent" in result.failed["locked"].error
    assert result["fine"] == 1


def test_a_worker_that_cannot_start_ends_the_plan_with_a_clear_error() -> None:
    class Broken:
        def start(self, worker_id: int, endpoint: Any) -> Any:
            msg = "no such interpreter: /nowhere/python"
            raise OSError(msg)

        def close(self) -> None: ...

    plan = Plan()
    for _ in range(20):
        plan.job(one)
    with pytest.raises(PlanFailed, match=r"no worker process could be started.*/nowhere/python"):
        plan.run(workers=2, launcher=Broken())


@pytest.mark.parametrize(
    "given",
    [
        {"workers": 0},
        {"retries": -1},
        {"on_failure": "ignore"},
        {"crashes_max": 0},
        {"renew_after": 0},
        {"renew_after_seconds": 0},
        {"budget": 0},
        {"resources": {"gpu": 0}},
        {"quiet": 1},
    ],
)
def test_options_of_a_run_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(given))):
        Plan().run(**given)


def test_names_that_are_not_there() -> None:
    plan = Plan()
    plan.job(one)
    result = plan.run(workers=1)
    with pytest.raises(UnknownJob, match="no job 'two'"):
        result["two"]
    assert "one" in result
    assert "two" not in result
    other = Plan().job(one)
    assert other not in result
    with pytest.raises(UnknownJob, match="is not of the plan that was run"):
        result[other]
    with pytest.raises(UnknownJob, match="is not of the plan that was run"):
        result[plan.job(one)]


@settings(max_examples=8)
@given(st.data())
def test_random_plans_compute_what_plain_python_computes(data: st.DataObject) -> None:
    plan = Plan()
    expected: list[int] = []
    jobs: list[Any] = []
    for place in range(data.draw(st.integers(1, 12))):
        takes = data.draw(st.lists(st.integers(0, place - 1), max_size=3)) if place else []
        jobs.append(plan.job(add, place, *(jobs[each] for each in takes)))
        expected.append(place + sum(expected[each] for each in takes))
    renew = data.draw(st.sampled_from([None, 1, 3]))
    result = plan.run(workers=2, renew_after=renew)
    assert [result[job] for job in jobs] == expected


@settings(max_examples=10)
@given(st.data())
def test_random_plans_with_failures_crashes_and_renewals_run_each_job_as_often_as_they_should(
    data: st.DataObject,
) -> None:
    retries, crashes_max = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3))
    upstream: list[list[int]] = []
    acts: list[tuple[int, int]] = []
    for place in range(data.draw(st.integers(1, 8))):
        before = st.lists(st.integers(0, place - 1), max_size=2, unique=True)
        upstream.append(data.draw(before) if place else [])
        acts.append(data.draw(st.sampled_from([(0, 0)] * 4 + [(1, 0), (0, 1), (1, 1), (2, 2)])))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        plan = Plan()
        jobs: list[Any] = []
        for place, takes in enumerate(upstream):
            inputs = [jobs[each] for each in takes]
            jobs.append(plan.job(act, str(log), f"j{place}", *acts[place], *inputs))
        result = plan.run(
            workers=2,
            retries=retries,
            crashes_max=crashes_max,
            on_failure="continue",
            renew_after=data.draw(st.sampled_from([None, 1, 2])),
        )
        lines = log.read_text(encoding="utf-8").split()
    values: dict[int, int] = {}
    for place, (crashes, failures) in enumerate(acts):
        begun = lines.count(f"begin:j{place}")
        if not all(each in values for each in upstream[place]):
            assert begun == 0
            assert result.record(jobs[place]).status is JobStatus.SKIPPED
        elif crashes < crashes_max and failures <= retries:
            values[place] = 1 + sum(values[each] for each in upstream[place])
            assert begun == crashes + failures + 1
            assert result[jobs[place]] == values[place]
            first = lines.index(f"begin:j{place}")
            assert all(f"end:j{each}" in lines[:first] for each in upstream[place])
        else:
            assert begun == (crashes_max if crashes >= crashes_max else crashes + retries + 1)
            assert result.record(jobs[place]).status is JobStatus.FAILED


def test_a_result_of_one_job_says_job() -> None:
    plan = Plan()
    plan.job(abs, -1)
    assert str(plan.run(workers=1, progress=False)).startswith("1 job in ")


def test_an_error_that_cannot_be_printed_fails_its_job_alone() -> None:
    plan = Plan()
    plan.job(rude)
    plan.job(verbose)
    plan.job(add, 1, name="good")
    result = plan.run(workers=2, on_failure="continue")
    assert result["good"] == 1
    assert set(result.failed) == {"rude", "verbose"}
    assert result.failed["rude"].error.startswith("Rude: ")
    assert len(result.failed["verbose"].error) < 20_000
    assert len(result.failed["verbose"].traceback) < 20_000
