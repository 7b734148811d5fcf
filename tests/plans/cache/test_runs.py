"""Plans with a cache, on real processes: jobs that are up to date are not run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from actorflow.plans.errors import BadCache, PlanFailed, UnknownJob
from actorflow.plans.job_record import JobStatus
from actorflow.plans.plan import Plan
from actorflow.runtime.errors import BadOption
from tests.plans.jobs import add, boom, double, large, plus, size_of, upto

ROOT = Path(__file__).parents[3]


def chain(by: int = 1, **options: Any) -> Plan:
    plan = Plan()
    first = plan.job(upto, 4, name="first")
    second = plan.job(add, 10, name="second")
    third = plan.job(plus, second, by=by, name="third", **options)
    plan.job(size_of, [first, third], name="last")
    return plan


def reasons(plan: Plan) -> dict[str, str]:
    return {record.name: record.reason for record in plan.report().records}


def test_the_second_run_runs_nothing(tmp_path: Path) -> None:
    first = chain().run(workers=2, cache=tmp_path / "cache")
    assert set(reasons_of(first)) == {"never ran"}
    again = chain().run(workers=2, cache=tmp_path / "cache")
    assert {record.status for record in again.records} == {JobStatus.CACHED}
    assert [again[name] for name in again] == [first[name] for name in first]
    assert {record.attempts for record in again.records} == {0}


def reasons_of(result: Any) -> list[str]:
    return [record.reason for record in result.records]


def test_a_change_runs_what_depends_on_it(tmp_path: Path) -> None:
    chain().run(workers=2, cache=tmp_path / "cache")
    plan = chain(by=2)
    assert plan.why("third", cache=tmp_path / "cache") == "argument `by` changed"
    assert plan.why("last", cache=tmp_path / "cache") == "input `third` may change"
    assert plan.why("first", cache=tmp_path / "cache") == "up to date"
    result = plan.run(workers=2, cache=tmp_path / "cache")
    assert result["third"] == 12
    assert reasons(plan) == {
        "first": "up to date",
        "second": "up to date",
        "third": "argument `by` changed",
        "last": "input `third` changed",
    }
    assert plan.why("third") == "argument `by` changed"
    assert plan.why(plan["last"]) == "input `third` changed"


def test_an_equal_result_stops_the_change(tmp_path: Path) -> None:
    def plan(number: int) -> Plan:
        made = Plan()
        job = made.job(abs, number, name="absolute")
        made.job(double, job, name="double")
        return made

    plan(-3).run(workers=1, cache=tmp_path / "cache")
    again = plan(3)
    assert again.run(workers=1, cache=tmp_path / "cache")["double"] == 6
    assert reasons(again) == {"absolute": "argument `x` changed", "double": "up to date"}


def test_force_and_cache_false(tmp_path: Path) -> None:
    chain().run(workers=1, cache=tmp_path / "cache")
    plan = chain()
    plan.run(workers=1, cache=tmp_path / "cache", force=True)
    assert set(reasons(plan).values()) == {"forced"}
    plan = chain(cache=False)
    assert plan.why("third", cache=tmp_path / "cache") == "cache=False"
    assert plan.why("last", cache=tmp_path / "cache") == "input `third` may change"
    plan.run(workers=1, cache=tmp_path / "cache")
    assert reasons(plan) == {
        "first": "up to date",
        "second": "up to date",
        "third": "cache=False",
        "last": "up to date",  # what it gets is the same
    }


def test_a_job_that_failed_is_run_again(tmp_path: Path) -> None:
    plan = Plan()
    good = plan.job(upto, 2, name="good")
    plan.job(boom, good, name="bad")
    for expected in ("never ran", "up to date"):
        with pytest.raises(PlanFailed):
            plan.run(workers=1, cache=tmp_path / "cache")
        assert reasons(plan) == {"good": expected, "bad": "never ran"}


def test_large_results_come_from_files_of_the_cache(tmp_path: Path) -> None:
    def plan(times: int) -> Plan:
        made = Plan()
        data = made.job(large, 300_000, name="data")
        made.job(size_of, [data] * times, name="size")
        return made

    plan(1).run(workers=1, cache=tmp_path / "cache").close()
    result = plan(2).run(workers=1, cache=tmp_path / "cache")
    assert list(result.cached) == ["data"]
    assert len(result["data"]) == 300_000


def mapped(count: int, by: int = 1) -> Plan:
    plan = Plan()
    items = plan.job(upto, count, name="items")
    each = plan.map(plus, items, by=by, name="each")
    plan.job(sum, each, name="total")
    return plan


def test_a_map_runs_only_what_is_new(tmp_path: Path) -> None:
    assert mapped(3).run(workers=2, cache=tmp_path / "cache")["total"] == 6
    plan = mapped(5)
    assert plan.why("items", cache=tmp_path / "cache") == "argument `number` changed"
    assert plan.why("total", cache=tmp_path / "cache") == "input `each` may change"
    result = plan.run(workers=2, cache=tmp_path / "cache")
    assert result["total"] == 15
    found = reasons(plan)
    assert [found[f"each[{at}]"] for at in range(5)] == ["up to date"] * 3 + ["never ran"] * 2
    assert found["total"] == "input `each` changed"


def test_why_looks_into_maps_over_stored_lists(tmp_path: Path) -> None:
    mapped(3).run(workers=2, cache=tmp_path / "cache")
    same, other = mapped(3), mapped(3, by=2)
    assert same.why("each[2]", cache=tmp_path / "cache") == "up to date"
    assert same.why("each", cache=tmp_path / "cache") == "its jobs are up to date"
    assert same.why("total", cache=tmp_path / "cache") == "up to date"
    assert other.why("each[2]", cache=tmp_path / "cache") == "argument `by` changed"
    assert other.why("each", cache=tmp_path / "cache") == "its jobs have to run"


def test_why_of_a_job_behind_another_whose_result_it_does_not_take(tmp_path: Path) -> None:
    def plan(number: int) -> Plan:
        made = Plan()
        before = made.job(upto, number, name="before")
        made.job(add, 1, after=before, name="after")
        return made

    plan(1).run(workers=1, cache=tmp_path / "cache")
    assert plan(2).why("after", cache=tmp_path / "cache") == "up to date"


def test_a_preview_says_what_a_run_would_do(tmp_path: Path) -> None:
    chain().run(workers=1, cache=tmp_path / "cache")
    found = [(each.name, each.runs) for each in chain(by=2).preview(tmp_path / "cache")]
    assert found == [("first", False), ("second", False), ("third", True), ("last", True)]
    forced = chain().preview(tmp_path / "cache", force=True)
    assert [each.reason for each in forced] == ["forced"] * 4


def test_why_names_what_is_missing(tmp_path: Path) -> None:
    plan = chain()
    with pytest.raises(BadOption, match=r"the plan has not been run: plan\.run\(\) first"):
        plan.why("first")
    with pytest.raises(UnknownJob, match=r"there is no job .furst..*first"):
        plan.why("furst", cache=tmp_path / "cache")
    plan.run(workers=1)
    assert plan.why("first") == "it was run without a cache"


def test_a_folder_with_other_files_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    plan = chain()
    with pytest.raises(BadCache, match=r"holds 'data\.csv'"):
        plan.run(workers=1, cache=tmp_path)
    with pytest.raises(BadOption, match="has not been run"):
        plan.report()


FLOW = """\
    import sys
    import actorflow as af
    from steps import load, clean, fit

    plan = af.Plan()
    data = plan.job(load, 5)
    tidy = plan.job(clean, data)
    plan.job(fit, tidy, alpha=2)

    if __name__ == "__main__":
        result = plan.run(workers=2, cache="cache")
        for record in result.records:
            print(f"{record.name}: {record.status}, {record.reason}")
        print(result["fit"])
"""
STEPS = """\
    from tools import scale

    OFFSET = 1

    def load(count):
        return list(range(count))

    def clean(data):
        return [scale(each) + OFFSET for each in data]

    def fit(data, alpha=1):
        total = sum(data)
        return total * alpha
"""
TOOLS = """\
    def scale(number):
        return number * 3
"""


def run_flow(home: Path, *, steps: str = STEPS, tools: str = TOOLS) -> list[str]:
    """Run a user script in a new process; return its output."""
    for name, text in (("flow", FLOW), ("steps", steps), ("tools", tools)):
        (home / f"{name}.py").write_text(dedent(text))
    done = subprocess.run(
        [sys.executable, "-B", "flow.py"],
        cwd=home,
        env={"PYTHONPATH": f"{ROOT}:{home}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_script_runs_again_only_what_was_edited(tmp_path: Path) -> None:
    up_to_date = "cached, up to date"
    assert run_flow(tmp_path) == [
        "load: done, never ran",
        "clean: done, never ran",
        "fit: done, never ran",
        "70",
    ]
    cosmetic = STEPS.replace("total", "summe").replace(
        "return list", "# as a list\n        return list"
    )
    assert run_flow(tmp_path, steps=cosmetic) == [
        f"load: {up_to_date}",
        f"clean: {up_to_date}",
        f"fit: {up_to_date}",
        "70",
    ]
    assert run_flow(tmp_path, tools=TOOLS.replace("3", "2 * 1")) == [
        f"load: {up_to_date}",
        "clean: done, helper `scale` changed",
        "fit: done, input `clean` changed",
        "50",
    ]
    assert run_flow(tmp_path, steps=STEPS.replace("OFFSET = 1", "OFFSET = 2")) == [
        f"load: {up_to_date}",
        "clean: done, helper `scale` and global `OFFSET` changed",
        "fit: done, input `clean` changed",
        "80",
    ]
    assert run_flow(tmp_path)[-1] == "70"  # as it was in the beginning
    assert run_flow(tmp_path, steps=STEPS.replace("alpha=1", "alpha=3")) == [
        f"load: {up_to_date}",
        f"clean: {up_to_date}",
        "fit: done, default argument `alpha` changed",
        "70",
    ]
