"""Ways in which a job reaches other code: each changes the key, or runs the job every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from actorflow.plans.cache.fingerprint.components import key_of
from actorflow.plans.cache.fingerprint.walk import Walk
from tests.plans.cache.project import loaded

CASES = {
    block.partition("\n")[0]: block.partition("\n")[2]
    for block in Path(__file__).with_name("lookups.txt").read_text("utf-8").split("### ")[1:]
}


def modules(text: str) -> dict[str, str]:
    found = {}
    for block in text.split("\n["):
        name, _, body = block.strip("[\n").partition("]\n")
        found[name.removesuffix("]")] = body + "\n"
    return found


def walked(home: Path, project: dict[str, str]) -> Walk:
    with loaded(home, **project) as module:
        walk = Walk()
        walk.root(module.job)
    return walk


@pytest.mark.parametrize("case", CASES)
def test_no_change_of_what_a_job_reaches_is_a_hit(case: str, tmp_path: Path) -> None:
    before, _, rest = CASES[case].partition("--->\n")
    after, _, expected = rest.partition("=> ")
    project = modules(before)
    first = walked(tmp_path, project)
    again = walked(tmp_path, project)
    second = walked(tmp_path, project | modules(after))
    if expected.strip() == "every time":
        assert first.unstable
        return
    assert not first.unstable
    assert key_of(first.components) == key_of(again.components)
    assert key_of(first.components) != key_of(second.components)


def test_the_line_of_a_lookup_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    text = "import importlib\n\ndef job(x):\n    return importlib.import_module(x).run()\n"
    [why] = walked(tmp_path, {"pipeline": text}).unstable.values()
    assert why == "line 4 of pipeline.py uses `import_module`, which cannot be followed"
