"""Generated projects in two versions: whenever a job returns something else, its key is another.

A case combines how `job` reaches something, what that is, and in which module it stands. Both
versions of the project are run, so that each case shows by itself that the change matters.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from actorflow.plans.cache.fingerprint.components import key_of
from actorflow.plans.cache.fingerprint.walk import Walk
from tests.plans.cache.project import loaded

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = {
    "function": "def thing(): return {n}",
    "constant": "VALUE = {n}\ndef thing(): return VALUE",
    "item of a list": "VALUES = [0, {n}]\ndef thing(): return VALUES[1]",
    "item of a dict": "VALUES = {{'a': {{'b': {n}}}}}\ndef thing(): return VALUES['a']['b']",
    "default": "def thing(value={n}): return value",
    "keyword default": "def thing(*, value={n}): return value",
    "nested function": "def thing():\n    def inner(): return {n}\n    return inner()",
    "lambda": "thing = lambda: {n}",
    "method": "class Some:\n    def get(self): return {n}\ndef thing(): return Some().get()",
    "inherited method": (
        "class Base:\n    def get(self): return {n}\nclass Some(Base): pass\n"
        "def thing(): return Some().get()"
    ),
    "class attribute": "class Some:\n    value = {n}\ndef thing(): return Some.value",
    "property": (
        "class Some:\n    @property\n    def value(self): return {n}\n"
        "def thing(): return Some().value"
    ),
    "static method": (
        "class Some:\n    @staticmethod\n    def get(): return {n}\ndef thing(): return Some.get()"
    ),
    "class method": (
        "class Some:\n    @classmethod\n    def get(cls): return {n}\n"
        "def thing(): return Some.get()"
    ),
    "field of a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass Some:\n    value: int = {n}\n"
        "def thing(): return Some().value"
    ),
    "enum": (
        "from enum import Enum\nclass Some(Enum):\n    A = {n}\ndef thing(): return Some.A.value"
    ),
    "named tuple": (
        "from typing import NamedTuple\nclass Some(NamedTuple):\n    value: int = {n}\n"
        "def thing(): return Some().value"
    ),
    "closure": (
        "def maker(value):\n    def inner(): return value\n    return inner\nthing = maker({n})"
    ),
    "partial": (
        "from functools import partial\ndef given(value): return value\nthing = partial(given, {n})"
    ),
    "decorator": (
        "from functools import wraps\ndef adds(function):\n    @wraps(function)\n"
        "    def inner(): return function() + {n}\n    return inner\n@adds\ndef thing(): return 0"
    ),
    "cached function": (
        "from functools import cache\n@cache\ndef thing(): return {n}"
    ),
    "callable object": (
        "class Some:\n    def __call__(self): return {n}\nthing = Some()"
    ),
    "generator": "def numbers(): yield {n}\ndef thing(): return list(numbers())[0]",
    "metaclass": (
        "class Meta(type):\n    def get(cls): return {n}\nclass Some(metaclass=Meta): pass\n"
        "def thing(): return Some.get()"
    ),
}  # fmt: skip
"""Definitions of `thing`, which returns the number of the version."""

REACHES = {
    "call": "{imports}\ndef job(): return {thing}()",
    "alias": "{imports}\nother = {thing}\ndef job(): return other()",
    "table": "{imports}\nTABLE = {{'x': {thing}}}\ndef job(): return TABLE['x']()",
    "list": "{imports}\nSTEPS = [{thing}]\ndef job(): return [step() for step in STEPS][0]",
    "default of the job": "{imports}\ndef job(f={thing}): return f()",
    "closure of the job": (
        "{imports}\ndef maker(f):\n    def job(): return f()\n    return job\njob = maker({thing})"
    ),
    "helper": "{imports}\ndef helper(): return {thing}()\ndef job(): return helper()",
    "method of a helper": (
        "{imports}\nclass Helper:\n    def run(self): return {thing}()\n"
        "def job(): return Helper().run()"
    ),
    "attribute of an instance": (
        "{imports}\nclass Holder:\n    def __init__(self, f): self.f = f\n"
        "HOLDER = Holder({thing})\ndef job(): return HOLDER.f()"
    ),
    "decorated job": (
        "{imports}\ndef after(function):\n    def job(): return {thing}() + function()\n"
        "    return job\n@after\ndef job(): return 0"
    ),
    "map": "{imports}\ndef job(): return list(map(lambda f: f(), [{thing}]))[0]",
    "local function": (
        "{imports}\ndef job():\n    def inner(): return {thing}()\n    return inner()"
    ),
}  # fmt: skip
"""Modules whose `job` calls `thing`."""

PLACES = {
    "here": ("", "thing"),
    "from import": ("from lib import thing", "thing"),
    "import": ("import lib", "lib.thing"),
    "import as": ("import lib as other_name", "other_name.thing"),
}


class Case(NamedTuple):
    """How, what and where."""

    reach: str
    target: str
    place: str

    def project(self, number: int) -> dict[str, str]:
        """Return the modules of a version."""
        imports, name = PLACES[self.place]
        target = TARGETS[self.target].format(n=number)
        here = self.place == "here"
        text = REACHES[self.reach].format(imports=target if here else imports, thing=name)
        return {"pipeline": text} | ({} if here else {"lib": target})


ALL = [Case(*each) for each in product(REACHES, TARGETS, PLACES)]
SAMPLE = [case for number, case in enumerate(ALL) if number % 11 == 0]


def seen(home: Path, project: dict[str, str]) -> tuple[Any, str, bool]:
    """Return the result of the job, its key, and whether it runs every time."""
    with loaded(home, **project) as module:
        walk = Walk()
        walk.root(module.job)
        return module.job(), key_of(walk.components), bool(walk.unstable)


def check(home: Path, case: Case) -> None:
    before, key, unstable = seen(home, case.project(1))
    after, other, _ = seen(home, case.project(2))
    assert before != after, f"{case} shows nothing"
    assert unstable or key != other, f"false hit: {case}"
    again, same, _ = seen(home, case.project(1))
    assert before == again
    assert unstable or key == same, f"false miss: {case}"


def test_there_are_hundreds_of_cases() -> None:
    assert len(ALL) > 1_000
    assert {case.target for case in SAMPLE} == set(TARGETS)
    assert {case.reach for case in SAMPLE} == set(REACHES)
    assert {case.place for case in SAMPLE} == set(PLACES)


@pytest.mark.parametrize("case", SAMPLE, ids=" | ".join)
def test_another_result_means_another_key(case: Case, tmp_path: Path) -> None:
    check(tmp_path, case)


@pytest.mark.soak
@pytest.mark.parametrize("reach", REACHES)
def test_another_result_means_another_key_in_every_case(reach: str, tmp_path: Path) -> None:
    for number, case in enumerate(each for each in ALL if each.reach == reach):
        home = tmp_path / str(number)
        home.mkdir()
        check(home, case)
