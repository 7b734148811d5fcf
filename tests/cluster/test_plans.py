"""Plans whose jobs run on other machines: `plan.run(on=...)`."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.plans.errors import BadPlan, PlanFailed
from actorflow.plans.run.job_calls import STORED
from actorflow.runtime.errors import BadOption
from tests.cluster.processes import PATIENCE, ROOT, until
from tests.plans.jobs import add, double, large, one, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Postgres


class PlanWorker:
    """`actorflow cluster worker URL`, in a folder of its own: it shares no files with others."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        folder.mkdir()
        self.folder = folder
        command = (sys.executable, "-m", "actorflow.cli", "cluster", "worker", url)
        self.process = subprocess.Popen(
            [*command, "--jobs", "2", *options],
            cwd=folder, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("worker ")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def plan_workers(url: str, *given: tuple[Path, tuple[str, ...]]) -> Iterator[list[PlanWorker]]:
    """Start workers; kill the remaining ones at the end."""
    made = [PlanWorker(url, folder, *options) for folder, options in given]
    try:
        for each in made:
            each.wait_until_ready()
        yield made
    finally:
        for each in made:
            each.kill()


def where(directory: str, name: str) -> str:
    """Note that it was begun, and return in which folder."""
    with Path(directory, name).open("a", encoding="utf-8") as file:
        file.write(f"{Path.cwd().name}\n")  # one line is one write
    return Path.cwd().name


def hang_once(directory: str) -> str:
    """Hang in the first call; return in which folder the second one was."""
    begun = Path(directory, "begun")
    first = not begun.exists()
    begun.write_text(f"{os.getppid()} {Path.cwd().name}", encoding="utf-8")
    if first:
        signal.pause()
    return Path.cwd().name


def test_workers_elsewhere_run_the_jobs_and_this_process_waits(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    url = store_url()
    plan = af.Plan()
    noted = [plan.job(where, str(tmp_path), f"job-{number}") for number in range(6)]
    total = plan.job(add, *(plan.job(double, number) for number in range(5)))
    mapped = plan.map(double, [1, plan.job(one)])
    workers = [(tmp_path / name, ()) for name in ("one", "two")]
    with plan_workers(url, *workers):
        result = plan.run(on=url)
    assert result[total] == 20
    assert result[mapped] == [2, 2]
    assert {result[each] for each in noted} <= {"one", "two"}
    # At least once: a job that runs while its plan gets another owner may be begun again.
    assert all((tmp_path / f"job-{number}").read_text() for number in range(6))
    assert plan.report().records[0].seconds is not None


def test_a_job_goes_to_another_worker_when_its_own_is_killed(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    url = store_url(lease=2)
    plan = af.Plan()
    slow = plan.job(hang_once, str(tmp_path))
    last = plan.job(size_of, slow)
    begun = tmp_path / "begun"
    with (
        plan_workers(url, (tmp_path / "one", ()), (tmp_path / "two", ())) as running,
        af.Engine(url, worker=False) as engine,
    ):
        handle = engine.plans.start(plan, id="nightly")
        until(lambda: begun.exists() and " " in begun.read_text(), "the job was never begun")
        first = begun.read_text().split()[1]
        next(each for each in running if each.folder.name == first).kill()
        again = plan.run(on=url, id="nightly")
        assert again[slow] == ({"one", "two"} - {first}).pop()
        assert again[last] == 3
        assert handle.result(timeout=PATIENCE).ok


def test_jobs_go_to_workers_that_offer_what_they_need(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    url = store_url()
    plan = af.Plan()
    needs = {"gpu": {"gpu": 1}, "both": {"gpu": 1, "ssd": 1}}
    jobs = {
        (name, number): plan.job(where, str(tmp_path), f"{name}-{number}", resources=uses)
        for name, uses in needs.items()
        for number in range(3)
    }
    some = ("--offers", "gpu")
    every = ("--offers", "gpu", "--offers", "ssd")
    given = [(tmp_path / "none", ()), (tmp_path / "some", some), (tmp_path / "every", every)]
    with plan_workers(url, *given):
        result = plan.run(on=url, resources={"gpu": 2, "ssd": 1})
    assert {result[jobs["gpu", number]] for number in range(3)} <= {"some", "every"}
    assert {result[jobs["both", number]] for number in range(3)} == {"every"}


def test_results_travel_through_the_store_up_to_a_limit(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    url = store_url()
    plan = af.Plan()
    fits = plan.job(size_of, plan.job(large, STORED - 1_000))
    too_large = plan.job(large, STORED + 1, name="too large")
    with plan_workers(url, (tmp_path / "one", ())):
        result = plan.run(on=url, on_failure="continue")
    assert result[fits] == STORED - 1_000
    assert "directory='s3://bucket/plans'" in result.failed["too large"].error
    assert too_large.name in result.failed


def test_larger_results_go_to_a_url_and_leave_with_the_result(
    postgres: Postgres, tmp_path: Path
) -> None:
    pytest.importorskip("fsspec")
    url = postgres.empty_url("plans")
    plan = af.Plan()
    data = plan.job(large, STORED + 1)
    size = plan.job(size_of, data)
    results = tmp_path / "results"
    with plan_workers(url, (tmp_path / "one", ()), (tmp_path / "two", ())):
        with plan.run(on=url, directory=f"file://{results}") as result:
            assert result[size] == STORED + 1
            assert len(result[data]) == STORED + 1
            assert any(path.is_file() for path in results.rglob("*"))
        assert not any(path.is_file() for path in results.rglob("*"))
        kept = plan.run(on=url, directory=f"file://{results}", id="kept")
    kept.close()
    assert len(kept[data]) == STORED + 1


def test_a_failure_stops_the_plan_with_the_traceback_of_the_worker(
    postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.empty_url("plans")
    plan = af.Plan()
    plan.job(where, str(tmp_path / "no such folder"), "x", name="bad")
    with plan_workers(url, (tmp_path / "one", ())), pytest.raises(PlanFailed) as caught:
        plan.run(on=url)
    assert "FileNotFoundError" in str(caught.value)
    assert plan.report().records[0].error


def test_a_worker_without_the_code_says_where_it_is_missing(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    url = postgres.empty_url("plans")
    plan = af.Plan()
    plan.job(importlib.import_module("only_here").f)
    with plan_workers(url, (tmp_path / "one", ())), pytest.raises(PlanFailed) as caught:
        plan.run(on=url)
    assert f"No module named 'only_here'; worker process on {gethostname()}" in str(caught.value)


def test_what_a_plan_elsewhere_cannot_have_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.empty_url("plans")
    plan = af.Plan()
    plan.job(one, resources={"gpu": 1})
    with pytest.raises(BadOption, match="cache= is for processes on this machine"):
        plan.run(on=url, cache=tmp_path)
    with pytest.raises(BadOption, match="id= is for plans on other machines"):
        plan.run(id="nightly")
    with pytest.raises(BadOption, match=r"af\.Engine\('plans\.db'\)\.start\(plan\)"):
        plan.run(on="plans.db")
    with pytest.raises(BadPlan, match="needs 1 of resource 'gpu'"):
        plan.run(on=url)
    pytest.importorskip("fsspec")
    with pytest.raises(BadOption, match="Protocol not known: no-such"):
        plan.run(on=url, resources={"gpu": 1}, directory="no-such://bucket")


@pytest.mark.parametrize(
    ("offers", "why"),
    [("gpu", r"offers=\['gpu'\]"), ([1], "not the name"), (list("abcdef"), "at most 5")],
)
def test_offers_are_names(postgres: Postgres, offers: Any, why: str) -> None:
    with af.Engine(postgres.empty_url("plans")) as engine, pytest.raises(BadOption, match=why):
        engine.plans.workers(1, offers=offers)
