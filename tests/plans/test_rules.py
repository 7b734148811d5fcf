"""Every rule of plans is held by a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PLACES = ("plans/**/test_*.py", "runtime/processes/test_*.py", "crash/test_plans_crash.py")
NAME = re.compile(r"def test_((?:[ta]\d+_)+)")


def test_each_rule_and_each_resolution_has_a_test() -> None:
    found: set[str] = set()
    for place in PLACES:
        for path in TESTS.glob(place):
            for ids in NAME.findall(path.read_text(encoding="utf-8")):
                found.update(ids.strip("_").split("_"))
    rules = {f"t{number}" for number in range(1, 31)} | {f"a{number}" for number in range(1, 15)}
    assert sorted(rules - found) == []
    assert sorted(found - rules) == []
