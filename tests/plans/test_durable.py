"""Durable plans: a kind on the engine, whose journal survives."""

from __future__ import annotations

import fcntl
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.application import Engine
from actorflow.engine.errors import Cancelled, KindMismatch, TaskWithdrawn
from actorflow.engine.kind import Context, Failure, Message, Status, TaskEnded
from actorflow.plans.errors import BadPlan, JobSkipped, PlanFailed
from actorflow.plans.job_record import JobStatus
from actorflow.plans.plan import Plan
from actorflow.plans.run.job_calls import do_job
from actorflow.plans.service.kind import PlanKind, start_body
from actorflow.plans.service.stored_plan import pack_plan, unpack_plan
from actorflow.runtime.errors import BadOption
from actorflow.testing.kinds import check_kind
from tests.engine.kinds import until
from tests.plans.jobs import (
    add,
    allocate,
    boom,
    double,
    large,
    note,
    one,
    pid,
    plus,
    size_of,
    talk,
    upto,
    wait_at,
    wait_for_ever,
    wait_for_lock,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import Postgres

OPTIONS: dict[str, Any] = {
    "directory": "/nowhere",
    "offered": False,
    "workers": 2,
    "on_failure": "continue",
    "retries": 1,
    "crashes_max": 2,
    "resources": {},
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


# The kind alone.


def test_the_plan_is_the_same_after_it_was_stored() -> None:
    plan = Plan()
    first = plan.job(one, name="first")
    plan.map(plus, [first, 2], name="more", by=first)
    plan.job(lambda numbers: numbers[:1], plan["more"], retries=3)
    again = unpack_plan(pack_plan(plan.blueprint))
    assert again.names() == plan.blueprint.names()
    assert again.upstream() == plan.blueprint.upstream()
    assert list(again.codes().values()) != []
    assert again.options == plan.blueprint.options
    assert pack_plan(again) == pack_plan(unpack_plan(pack_plan(again)))


class Driver:
    """Plays the engine for one durable plan."""

    def __init__(self, plan: Plan, **options: Any) -> None:
        self.kind = PlanKind()
        self.stored: bytes = b""
        self.state = self.kind.decode(None)
        self.out: dict[str, Any] = {}
        self.status = Status.ACTIVE
        self.seen: list[str] = []
        self.withdrawn: set[str] = set()
        body = start_body(pack_plan(plan.blueprint), OPTIONS | options)
        self.run([Message(0, 100.0, body)])

    def run(self, batch: list[Any]) -> None:
        outcome = self.kind.run(Context("p", 100.0), self.state, batch)
        added = self.kind.encode(outcome.state)
        self.stored = added if isinstance(added, bytes) else self.stored + added.data
        self.status = outcome.status
        self.error = outcome.error
        self.withdrawn.update(outcome.withdrawn_tasks)
        for task in outcome.tasks:
            assert not self.withdrawn
            assert task.id not in self.seen
            self.seen.append(task.id)
            self.out[task.id] = task

    def end(self, task: str, outcome: Any, value: Any = None) -> TaskEnded:
        del self.out[task]
        error = None if outcome == "ok" else Failure("Oops", "no")
        if outcome == "withdrawn":
            assert task in self.withdrawn
            outcome, error = "failed", Failure(TaskWithdrawn.__name__, "taken back")
        return TaskEnded(0, 101.0, task, outcome, value, error)

    def restart(self) -> None:
        """Read the state again, as an engine does that was killed."""
        self.state = self.kind.decode(self.stored)


def perform_of(task: Any) -> Any:
    return do_job(task)


@given(st.data())
def test_a_plan_that_is_read_again_at_any_point_goes_on_as_if_nothing_had_happened(
    data: st.DataObject,
) -> None:
    plan = Plan()
    count = data.draw(st.integers(0, 6))
    jobs: list[Any] = []
    for _ in range(count):
        branches = data.draw(st.booleans())
        takes = data.draw(st.lists(st.sampled_from(jobs), max_size=2)) if jobs else []
        if takes and branches:
            plan.map(plus, plan.job(upto, plan.job(add, 2)), by=takes[0])
        jobs.append(plan.job(add, *takes, 1))
    restarts = data.draw(st.booleans())
    driver = Driver(plan, on_failure=data.draw(st.sampled_from(["continue", "stop"])))
    rounds = 0
    while driver.status is Status.ACTIVE:
        assert driver.out
        rounds += 1
        batch = []
        for task in list(driver.out):
            if data.draw(st.booleans()):
                continue
            endings = ["ok", "ok", "ok", "failed", "crashed"]
            if task in driver.withdrawn:
                endings.append("withdrawn")
            outcome = data.draw(st.sampled_from(endings))
            value = perform_of(driver.out[task]) if outcome == "ok" else None
            batch.append(driver.end(task, outcome, value))
        if not batch:
            task = next(iter(driver.out))
            batch = [driver.end(task, "ok", perform_of(driver.out[task]))]
        if restarts:
            driver.restart()
        driver.run(batch)
    before = driver.state.records()
    driver.restart()
    assert driver.state.records() == before
    assert {each.status for each in before} <= {
        JobStatus.DONE,
        JobStatus.FAILED,
        JobStatus.SKIPPED,
    }


def test_each_run_adds_only_what_is_new_to_the_state() -> None:
    plan = Plan()
    for _ in range(200):
        plan.job(one)
    driver = Driver(plan)
    whole = len(driver.stored)
    task = next(iter(driver.out))
    driver.run([driver.end(task, "ok", perform_of(driver.out[task]))])
    assert len(driver.stored) - whole < 100


def test_it_is_a_kind_that_an_engine_can_rely_on() -> None:
    plan = Plan()
    first = plan.job(upto, 2)
    plan.job(sum, plan.map(double, first), retries=1)
    plan.job(one, after=first)
    body = start_body(pack_plan(plan.blueprint), OPTIONS)
    wire = [pickle.dumps(1), pickle.dumps(2)]
    good = {"wire": pickle.dumps(3), "started": 1.0, "ended": 2.0, "pid": 7}
    bad = {"error": "E: x", "traceback": "t", "started": 1.0, "ended": 2.0, "pid": 7}
    check_kind(
        PlanKind,
        messages=st.sampled_from([body, "nonsense"]),
        results=st.sampled_from([good, bad, {**good, "wire": wire}]),
        refuses=(BadPlan, TypeError, IndexError),
        max_examples=60,
    )


def test_a8_a_plan_that_stops_takes_back_what_has_not_begun() -> None:
    plan = Plan()
    for name in ("bad", "runs", "waits"):
        plan.job(one, name=name)
    driver = Driver(plan, on_failure="stop", retries=0)
    bad, runs, waits = driver.out
    driver.run([driver.end(bad, "failed")])
    assert driver.withdrawn == {runs, waits}
    good = perform_of(driver.out[runs])
    driver.run([driver.end(waits, "withdrawn"), driver.end(runs, "ok", good)])
    assert driver.status is Status.STUCK
    found = {each.name: (each.status, each.attempts) for each in driver.state.records()}
    assert found == {
        "bad": (JobStatus.FAILED, 1),
        "runs": (JobStatus.DONE, 1),
        "waits": (JobStatus.SKIPPED, 0),
    }


def test_a_message_that_is_no_plan_is_refused() -> None:
    kind = PlanKind()
    with pytest.raises(BadPlan, match="takes no messages but the plan"):
        kind.run(Context("p", 0.0), kind.decode(None), [Message(0, 0.0, "hello")])


# On an engine, with real processes.


def test_a_durable_plan_runs_to_its_end(engine: Engine) -> None:
    plan = Plan()
    numbers = plan.job(upto, 4)
    doubled = plan.map(double, numbers, name="doubled")
    total = plan.job(sum, doubled, name="total")
    handle = engine.start(plan, id="nightly")
    result = handle.result(timeout=50)
    assert result[total] == 12
    assert result[doubled] == [0, 2, 4, 6]
    assert result["doubled[3]"] == 6
    assert result.ok
    assert handle.status is Status.DONE
    assert engine.result("nightly") == {"done": 7, "failed": 0, "skipped": 0}
    again = engine.start(plan, id="nightly")
    assert again.result(timeout=5)["total"] == 12
    assert [each.id for each in engine.plans.list()] == ["nightly"]


def test_large_results_stay_in_files_beside_the_store(tmp_path: Path) -> None:
    plan = Plan()
    data = plan.job(large, 300_000)
    plan.job(size_of, data, name="size")
    with Engine(tmp_path / "store.db") as engine:
        result = engine.start(plan, id="p").result(timeout=50)
        assert result["size"] == 300_000
        assert result[data] == b"x" * 300_000
    files = [each for each in tmp_path.glob("store.db.plans/*/*") if each.name != "id"]
    assert len(files) == 1
    assert (tmp_path / "store.db").stat().st_size < 300_000


def test_a_plan_on_a_shared_store_needs_no_directory_for_its_results(
    postgres: Postgres, tmp_path: Path
) -> None:
    plan = Plan()
    data = plan.job(large, 300_000)
    plan.job(size_of, data, name="size")
    with Engine(postgres.new_url()) as engine:
        assert engine.start(plan).result(timeout=50)["size"] == 300_000
        result = engine.plans.start(plan, directory=tmp_path).result(timeout=50)
        assert len(result[data]) == 300_000
        assert result["size"] == 300_000
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_a_job_that_fails_stops_the_plan_or_only_what_needs_it(engine: Engine) -> None:
    plan = Plan()
    bad = plan.job(boom, name="bad")
    after = plan.job(one, after=bad, name="after")
    with pytest.raises(PlanFailed, match="job 'bad' failed: ValueError: boom") as raised:
        engine.start(plan).result(timeout=50)
    result: Any = raised.value.result
    assert [*result.failed] == ["bad"]
    assert "in boom" in result.failed["bad"].traceback
    with pytest.raises(JobSkipped, match="job 'after' was not run: job 'bad' failed"):
        result[after]
    other = engine.plans.start(plan, on_failure="continue").result(timeout=50)
    assert [*other.skipped] == ["after"]


def test_a8_nothing_is_begun_after_a_failure_has_stopped_the_plan(
    engine: Engine, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    os.mkfifo(first)
    os.mkfifo(second)
    plan = Plan()
    plan.job(lambda path: boom(wait_at(path)), str(first), name="bad", priority=3)
    plan.job(wait_at, str(second), name="runs", priority=2)
    # It may take the place of the one that fails, before the plan knows of that.
    plan.job(wait_for_lock, str(tmp_path / "lock"), name="next", priority=1)
    for number in range(6):
        plan.job(note, str(tmp_path), f"late-{number}", name=f"late-{number}")
    engine.plans.workers(2)
    handle = engine.plans.start(plan, workers=8)
    late = [f"late-{number}" for number in range(6)]

    def skipped() -> bool:
        found = {each.name: each.status for each in handle.records()}
        return all(found.get(name) is JobStatus.SKIPPED for name in late)

    with (tmp_path / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with second.open("w", encoding="utf-8") as gate:  # both have begun
            first.write_text("now", encoding="utf-8")
            until(engine, skipped)
            gate.write("go")
    with pytest.raises(PlanFailed, match="job 'bad' failed") as raised:
        handle.result(timeout=50)
    result: Any = raised.value.result
    assert result["runs"] == "go"
    assert set(result.skipped) - {"next"} == set(late)
    assert list(tmp_path.glob("late-*")) == []


def test_t15_the_processes_of_durable_plans_are_renewed(engine: Engine) -> None:
    engine.plans.workers(1, executor=af.Processes(renew_after=2))
    plan = Plan()
    jobs: list[Any] = []
    for _ in range(6):
        jobs.append(plan.job(pid, *jobs[-1:]))
    result = engine.start(plan).result(timeout=50)
    pids = [result[job] for job in jobs]
    assert pids[::2] == pids[1::2]
    assert len(set(pids)) == 3


def test_what_a_durable_job_prints_and_warns_of_is_in_its_record(
    engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = Plan()
    plan.job(talk, "hello", name="talks")
    plan.job(talk, "x" * 20_000 + "end", name="talks much")
    plan.job(talk, "oh", fails=True, name="fails", retries=1)
    plan.job(one, name="silent")
    result = engine.plans.start(plan, on_failure="continue").result(timeout=50)
    talks = result.record("talks")
    assert talks.output == "hello\nhello on stderr\n"
    assert len(talks.warnings) == 1
    assert "UserWarning: careful" in talks.warnings[0]
    much = result.record("talks much").output
    assert much.startswith("... ")
    assert "characters were left out" in much
    assert much.endswith("xend on stderr\n")
    assert result.record("fails").output == "oh\noh on stderr\n"
    assert (result.record("silent").output, result.record("silent").warnings) == ("", ())
    printed = capfd.readouterr()
    assert printed.out.count("hello\n") == 1
    assert printed.err.count("oh on stderr") == 2


def test_a_resource_that_is_not_there_is_refused_before_anything_is_stored(engine: Engine) -> None:
    plan = Plan()
    plan.job(one, resources={"gpu": 1})
    with pytest.raises(BadPlan, match="needs 1 of resource 'gpu'"):
        engine.start(plan, id="p")
    assert list(engine.plans.list()) == []
    assert engine.plans.start(plan, id="p", resources={"gpu": 1}).result(timeout=50).ok


def test_a_durable_job_has_times_limits_and_retries(engine: Engine) -> None:
    plan = Plan()
    limits = {"memory": (100 << 20, 2 << 30)}
    job = plan.job(allocate, 300 << 20, retries=1, resources=limits)
    late = plan.job(wait_for_ever, timeout=0.2)
    result = engine.plans.start(plan, on_failure="continue").result(timeout=50)
    assert result[job] == 300 << 20
    record = result.record(job)
    assert record.attempts == 2
    assert record.worker is not None
    assert 0 <= (record.started or -1.0) <= (record.ended or -1.0)
    assert result.record(late).attempts == 1
    assert "TaskTimeout" in result.record(late).error


def test_a_plan_that_is_cancelled_has_no_result(engine: Engine, tmp_path: Path) -> None:
    plan = Plan()
    plan.job(note, str(tmp_path), "a")
    engine.plans.workers(1)
    handle = engine.start(plan, id="c")
    handle.result(timeout=50)
    exid = engine.launch("1")
    with pytest.raises(KindMismatch, match="not a plan"):
        engine.plans.get(exid)
    with pytest.raises(BadOption, match="plans have their workers already"):
        engine.plans.workers(2)
    plan.job(boom, retries=10**9)
    other = engine.start(plan, id="d")
    other.cancel()
    with pytest.raises(Cancelled, match="'d' was cancelled"):
        other.result(timeout=5)
