"""Edits of modules, each run as a plan in new processes: no earlier result is taken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.timeout(300)  # the first test runs four plans for all

ROOT = Path(__file__).parents[3]
CASES = {
    block.partition("\n")[0]: block.partition("\n")[2]
    for block in Path(__file__).with_name("edits.txt").read_text("utf-8").split("\n### ")[1:]
}
FLOW = dedent("""
    import importlib, json, sys
    import actorflow as af

    names = json.loads(sys.argv[1])
    plan = af.Plan()
    for name in names:
        module = importlib.import_module(f"{name}_pipe")
        if hasattr(module, "build"):
            module.build(plan, name)
        else:
            plan.job(module.job, name=name)
    if __name__ == "__main__":
        cache = sys.argv[2] or None
        result = plan.run(workers=2, on_failure="continue", quiet=True, cache=cache)
        reasons = {record.name: record.reason for record in result.records}
        print("\\n" + json.dumps([[repr(result[name]), reasons[name]] for name in names]))
    """)


class Ran(NamedTuple):
    """The result of a case, and why its job has run."""

    result: str
    reason: str


class Runs(NamedTuple):
    """The first version, the same again, the second version without a cache, and with it."""

    first: dict[str, Ran]
    again: dict[str, Ran]
    truth: dict[str, Ran]
    second: dict[str, Ran]


def write(home: Path, version: int) -> None:
    for at, case in enumerate(CASES.values()):
        for block in ("\n" + case).split("\n[")[1:]:
            module, _, text = block.partition("]\n")
            path = (home / f"c{at}_{module}").with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            text = re.sub(
                r"<<(.*?)\|\|(.*?)>>",
                lambda found: str(found[version]),
                text,
                flags=re.DOTALL,
            )
            path.write_text(text.replace("$", f"c{at}_") + "\n", encoding="utf-8")
    (home / "flow.py").write_text(FLOW, encoding="utf-8")


def run(home: Path, seed: str, cache: str = "cache") -> dict[str, Ran]:
    names = json.dumps([f"c{at}" for at in range(len(CASES))])
    done = subprocess.run(
        [sys.executable, "-B", "flow.py", names, cache],
        cwd=home,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{home}", "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {case: Ran(*each) for case, each in zip(CASES, found, strict=True)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    home = tmp_path_factory.mktemp("edits")
    write(home, 1)
    first, again = run(home, "1"), run(home, "2")
    write(home, 2)
    return Runs(first, again, run(home, "3", cache=""), run(home, "3"))


def test_there_are_hundreds_of_edits() -> None:
    assert len(CASES) > 300


@pytest.mark.parametrize("case", CASES)
def test_an_edit_never_leaves_the_result_of_before(case: str, runs: Runs) -> None:
    assert (runs.first[case].result != runs.truth[case].result) == (not case.startswith("same:"))
    assert runs.second[case].result == runs.truth[case].result, "a false hit"
    assert runs.again[case].reason.startswith(("up to date", "runs every time")), "a false miss"
    if case.startswith("same:"):
        assert runs.second[case].reason == "up to date"
