"""A folder of results: found again, checked, shared, and safe against crashes."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.plans.cache.cache import FolderCache
from actorflow.plans.cache.objects import Objects
from actorflow.plans.cache_protocol import Hit, Input, JobSpec, Miss
from actorflow.plans.errors import BadCache, BadPlan
from actorflow.plans.plan import Plan
from actorflow.plans.results import InlineResult, MapResult, SpilledResult, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actorflow.plans.results import Value

ROOT = Path(__file__).parents[3]


def fit(data: Any, alpha: float = 0.1, *more: Any, **named: Any) -> Any:
    return data


def job(
    *args: Any, function: Any = fit, name: str = "fit", cache: bool = True, **kw: Any
) -> JobSpec:
    return JobSpec(name=name, function=function, args=args, kwargs=kw, cache=cache)


def inline(value: Any) -> InlineResult:
    return InlineResult(pickle.dumps(value))


def valued(inputs: Mapping[str, str] | None) -> dict[str, Value]:
    """Return inputs that are given by their digests."""
    return {name: InlineResult(b"", digest) for name, digest in (inputs or {}).items()}


def lookup(
    folder: Path, spec: JobSpec, inputs: Mapping[str, str] | None = None, *, force: bool = False
) -> Hit | Miss:
    with FolderCache(folder, force=force) as cache:
        return cache.lookup(spec, valued(inputs))


def ran(folder: Path, spec: JobSpec, value: Value, inputs: Mapping[str, str] | None = None) -> str:
    """Look a job up, store its result; return why it ran."""
    with FolderCache(folder) as cache:
        found = cache.lookup(spec, valued(inputs))
        assert isinstance(found, Miss)
        assert found.key
        cache.store(spec, found.key, value)
        return found.reason


def test_a_result_is_found_again(tmp_path: Path) -> None:
    assert ran(tmp_path, job(1, alpha=2), inline("result")) == "never ran"
    found = lookup(tmp_path, job(1, 2))  # the same call, written differently
    assert isinstance(found, Hit)
    assert load(found.value) == "result"
    assert found.value.digest
    assert found.reason == "up to date"


def reason(found: Hit | Miss) -> str:
    assert isinstance(found, Miss)
    return found.reason


@pytest.mark.parametrize(
    ("changed", "inputs", "why"),
    [
        (job(Input("load"), alpha=2), {"load": "a"}, "argument `alpha` changed"),
        (
            job(Input("load"), 1, 7, 8),
            {"load": "a"},
            "argument `more[0]` and argument `more[1]` are new",
        ),
        (job(Input("load"), 1, beta=7), {"load": "a"}, "argument `beta` is new"),
        (job(Input("load")), {"load": "a"}, "argument `alpha` is gone"),
        (job(Input("load"), 1), {"load": "b"}, "input `load` changed"),
        (job(Input("load"), 2), {"load": "b"}, "argument `alpha` and input `load` changed"),
        (job(Input("other"), 1), {"other": "a"}, "argument `data` changed"),
        (job(Input("load"), 1, function=lambda data, alpha: 1), {"load": "a"}, "code changed"),
        (job(Input("load"), 1, cache=False), {"load": "a"}, "cache=False"),
        (job(Input("load"), 1, name="other"), {"load": "a"}, None),
    ],
)
def test_a_change_is_named(
    changed: JobSpec, inputs: dict[str, str], why: str | None, tmp_path: Path
) -> None:
    ran(tmp_path, job(Input("load"), 1), inline(1), {"load": "a"})
    found = lookup(tmp_path, changed, inputs)
    assert (found.reason if isinstance(found, Miss) else None) == why


def test_many_changes_are_counted(tmp_path: Path) -> None:
    ran(tmp_path, job(1, 2, a=1, b=2, c=3), inline(1))
    found = lookup(tmp_path, job(2, 3, a=2, b=3, c=4))
    assert reason(found) == "argument `a`, argument `alpha` and 3 more changed"


def test_going_back_finds_the_older_result(tmp_path: Path) -> None:
    ran(tmp_path, job(1, 1), inline("one"))
    assert ran(tmp_path, job(2, 1), inline("two")) == "argument `data` changed"
    back = lookup(tmp_path, job(1, 1))
    assert isinstance(back, Hit)
    assert load(back.value) == "one"
    # The next change is compared with the last lookup.
    assert reason(lookup(tmp_path, job(1, 3))) == "argument `alpha` changed"


def test_force_runs_and_stores_again(tmp_path: Path) -> None:
    ran(tmp_path, job(1), inline("old"))
    with FolderCache(tmp_path, force=True) as cache:
        found = cache.lookup(job(1), {})
        assert isinstance(found, Miss)
        assert found.reason == "forced"
        assert found.key
        cache.store(job(1), found.key, inline("new"))
    again = lookup(tmp_path, job(1))
    assert isinstance(again, Hit)
    assert load(again.value) == "new"


def test_partials_and_bound_methods_have_named_arguments(tmp_path: Path) -> None:
    ran(tmp_path, job(function=functools.partial(fit, 1, alpha=2)), inline(1))
    assert isinstance(lookup(tmp_path, job(1, 2)), Hit)
    assert (
        reason(lookup(tmp_path, job(function=functools.partial(fit, 1, alpha=3))))
        == "argument `alpha` changed"
    )
    ran(tmp_path, job(function=Model(1).fit, name="method"), inline(1))
    assert reason(lookup(tmp_path, job(function=Model(2).fit, name="method"))) == (
        "argument `self` changed"
    )


class Model:
    def __init__(self, depth: int) -> None:
        self.depth = depth

    def fit(self) -> int:
        return self.depth


def test_a_call_that_does_not_fit_and_a_function_without_a_signature(tmp_path: Path) -> None:
    ran(tmp_path, job(1, 2, data=3), inline(1))
    assert reason(lookup(tmp_path, job(1, 3, data=3))) == "argument `2` changed"
    ran(tmp_path, job(function=max, name="max"), inline(1))
    assert reason(lookup(tmp_path, job(7, function=max, name="max"))) == "argument `1` is new"


def test_an_argument_without_a_stable_hash_runs_every_time(tmp_path: Path) -> None:
    spec = job(each for each in range(3))
    for _ in range(2):
        found = lookup(tmp_path, spec)
        assert isinstance(found, Miss)
        assert found.key is None
        assert found.reason.startswith(
            "runs every time: argument `data` has no stable hash (a generator cannot be hashed"
        )


def test_a_spilled_result_is_kept_when_its_own_file_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "spill"
    file.write_bytes(pickle.dumps(list(range(1000))))
    folder = tmp_path / "cache"
    ran(folder, job(1), SpilledResult(str(file), file.stat().st_size, "abc"))
    file.unlink()
    found = lookup(folder, job(1))
    assert isinstance(found, Hit)
    assert isinstance(found.value, SpilledResult)
    assert found.value.digest == "abc"
    assert load(found.value) == list(range(1000))


def test_the_results_of_a_map_are_kept_in_parts(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    value = MapResult((inline(1), MapResult((inline("a"), inline("b")), "inner"), inline(1)), "all")
    ran(folder, job(1), value)
    found = lookup(folder, job(1))
    assert isinstance(found, Hit)
    assert load(found.value) == [1, ["a", "b"], 1]
    assert found.value.digest == "all"
    damage(folder, pickle.dumps("b"))
    assert reason(lookup(folder, job(1))) == "its stored result is damaged"


def stored_files(folder: Path) -> list[Path]:
    return [each for each in (folder / "objects").rglob("*") if each.is_file()]


def damage(folder: Path, content: bytes) -> None:
    [file] = [each for each in stored_files(folder) if each.read_bytes() == content]
    file.write_bytes(content[:-1] + b"?")


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "delete"])
def test_a_damaged_result_is_noticed_and_replaced(
    harm: str, *, spill: bool, tmp_path: Path
) -> None:
    folder, value = tmp_path / "cache", inline("result")

    def result() -> Value:
        if not spill:
            return value
        (tmp_path / "spill").write_bytes(value.data)
        return SpilledResult(str(tmp_path / "spill"), value.size)

    ran(folder, job(1), result())
    (tmp_path / "spill").unlink(missing_ok=True)
    [file] = stored_files(folder)
    if harm == "delete":
        file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes({"flip": b"?" + data[1:], "cut": data[:-1], "empty": b""}[harm])
    assert ran(folder, job(1), result()) == "its stored result is damaged"
    found = lookup(folder, job(1))
    assert isinstance(found, Hit)
    assert load(found.value) == "result"


def test_equal_results_share_a_file(tmp_path: Path) -> None:
    for data in range(5):
        ran(tmp_path, job(data), inline("same"))
    assert len(stored_files(tmp_path)) == 1


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all my work")
    with pytest.raises(BadCache, match=r"holds .thesis\.txt., so it is not a cache"):
        FolderCache(tmp_path)
    with pytest.raises(BadCache, match="is a file: name a folder"):
        FolderCache(tmp_path / "thesis.txt")
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_index_is_refused_with_a_remedy(tmp_path: Path) -> None:
    ran(tmp_path, job(1), inline(1))
    (tmp_path / "index.db").write_bytes(b"not a database, but as long as the head of one" * 50)
    with pytest.raises(BadCache, match="delete the folder"):
        FolderCache(tmp_path)


def test_damage_that_shows_later_is_named_with_a_remedy(tmp_path: Path) -> None:
    with FolderCache(tmp_path) as cache:
        for number in range(60):
            spec = job(number, name=f"job {number}")
            found = cache.lookup(spec, {})
            assert isinstance(found, Miss)
            assert found.key
            cache.store(spec, found.key, inline(number))
    index = tmp_path / "index.db"
    data = bytearray(index.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    with pytest.raises(BadCache, match=r"index\.db cannot be used.*delete the folder"):  # noqa: PT012
        index.write_bytes(data)
        lookup(tmp_path, job(7, name="job 7"))
        ran(tmp_path, job(-1, name="new"), inline(1))


def test_the_order_of_keyword_arguments_counts(tmp_path: Path) -> None:
    ran(tmp_path, job(1, a=1, b=2), inline(1))
    assert reason(lookup(tmp_path, job(1, b=2, a=1))) == "argument `**named in order` changed"


def test_one_list_in_two_places_is_not_two_equal_lists(tmp_path: Path) -> None:
    shared = [1]
    ran(tmp_path, job([1], [1]), inline(1))
    assert reason(lookup(tmp_path, job(shared, shared))) == (
        "argument `objects in several places` is new"
    )
    assert isinstance(lookup(tmp_path, job([1], [1])), Hit)


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_text("one")
    plan = Plan()
    folder = tmp_path / "cache"
    ran(folder, job(plan.file(source)), inline(1))
    os.utime(source, (0, 0))
    assert isinstance(lookup(folder, job(plan.file(source))), Hit)
    source.write_text("two")
    assert reason(lookup(folder, job(plan.file(source)))) == "argument `data` changed"
    source.unlink()
    assert "cannot be read" in reason(lookup(folder, job(plan.file(source))))


def test_a_job_gets_a_plain_path() -> None:
    copy = pickle.loads(pickle.dumps(Plan().file("a.txt")))  # noqa: S301 - our own pickle
    assert type(copy) is type(Path())


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadPlan, match="an argument contains itself"):
        Plan().job(fit, loop)


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    ran(tmp_path, job(1), inline(1))
    with sqlite3.connect(tmp_path / "index.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(BadCache, match="is of version 99, this is 2: delete the folder"):
        FolderCache(tmp_path)


def test_the_folder_stays_out_of_git(tmp_path: Path) -> None:
    ran(tmp_path / "cache", job(1), inline(1))
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"


def test_what_killed_runs_have_left_is_swept_away_after_a_day(tmp_path: Path) -> None:
    ran(tmp_path, job(1), inline(1))
    old, young = (tmp_path / "objects" / f".new-{name}" for name in ("old", "young"))
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert isinstance(lookup(tmp_path, job(1)), Hit)
    assert young.exists()
    assert not old.exists()


SHARED = """\
import pickle, sys
from actorflow.plans.cache.cache import FolderCache
from actorflow.plans.cache_protocol import Hit, JobSpec
from actorflow.plans.results import InlineResult, load
from operator import neg

folder, rounds = sys.argv[1], int(sys.argv[2])
with FolderCache(folder) as cache:
    for data in range(rounds):
        job = JobSpec(name=f"neg-{data}", function=neg, args=(data,), kwargs={})
        found = cache.lookup(job, {})
        if isinstance(found, Hit):
            assert load(found.value) == -data
        else:
            cache.store(job, found.key, InlineResult(pickle.dumps(-data)))
            print(data, flush=True)
"""


def start(folder: Path, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SHARED, str(folder), str(rounds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    processes = [start(tmp_path / "cache", 150) for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    stored = [int(number) for output in outputs for number in output.split()]
    assert set(stored) == set(range(150))
    with start(tmp_path / "cache", 150) as again:
        assert again.communicate()[0] == ""


def test_a_result_that_is_complete_while_another_run_looks_for_old_ones_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects(tmp_path)
    new = tmp_path / ".new-result"
    new.touch()
    scan = os.scandir

    @contextmanager
    def look_then_move(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(folder) as entries:
            found = list(entries)
        new.rename(tmp_path / "result")
        yield found

    monkeypatch.setattr(os, "scandir", look_then_move)
    objects.sweep(inf)
    assert [each.name for each in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize("after", [1, 3, 10, 40])
def test_a_run_that_is_killed_leaves_only_whole_results(after: int, tmp_path: Path) -> None:
    with start(tmp_path / "cache", 100_000) as process:
        assert process.stdout
        seen = [int(process.stdout.readline()) for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
    with start(tmp_path / "cache", after + 20) as again:
        output, _ = again.communicate()
    assert again.returncode == 0
    assert not set(map(int, output.split())) & set(seen)
