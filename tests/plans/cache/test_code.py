"""What changes a job's key, and what does not."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.plans.cache.fingerprint.components import Component, ComponentKind
from actorflow.plans.cache.fingerprint.walk import Walk
from tests.plans.cache.project import changes, components, loaded

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).parents[3]
PAIRS = {
    block.partition("\n")[0]: block.partition("\n")[2]
    for block in Path(__file__).with_name("pairs.txt").read_text("utf-8").split("### ")[1:]
}


@pytest.mark.parametrize("case", PAIRS)
def test_the_key_and(case: str, tmp_path: Path) -> None:
    before, _, rest = PAIRS[case].partition("--->\n")
    after, _, expected = rest.partition("=>")
    first = components(tmp_path, pipeline=before)
    assert ", ".join(changes(first, components(tmp_path, pipeline=after))) == expected.strip()


TOOLS = "ALPHA = 1\nUNUSED = 1\ndef clean(x): return x\ndef other(x): return x\n"
REACHED = {
    "from tools import clean, ALPHA\ndef job(x): return clean(x) + ALPHA\n",
    "import tools\ndef job(x): return tools.clean(x) + tools.ALPHA\n",
    "import tools as t\ndef job(x): return t.clean(x) + t.ALPHA\n",
    "def job(x):\n    import tools\n    return tools.clean(x) + tools.ALPHA\n",
    "def job(x):\n    import tools as t\n    return t.clean(x) + t.ALPHA\n",
    "def job(x):\n    from tools import clean as c, ALPHA\n    return c(x) + ALPHA\n",
}


@pytest.mark.parametrize("pipeline", sorted(REACHED))
def test_helpers_and_constants_of_other_modules_count(pipeline: str, tmp_path: Path) -> None:
    first = components(tmp_path, pipeline=pipeline, tools=TOOLS)
    second = components(tmp_path, pipeline=pipeline, tools=TOOLS.replace("ALPHA = 1", "ALPHA = 2"))
    unused = components(
        tmp_path, pipeline=pipeline, tools=TOOLS.replace("UNUSED = 1", "UNUSED = 2")
    )
    assert changes(first, second) == ["global `ALPHA`"]
    assert changes(first, unused) == []


@pytest.mark.parametrize("pipeline", sorted(REACHED))
def test_only_the_helpers_that_are_used_count(pipeline: str, tmp_path: Path) -> None:
    first = components(tmp_path, pipeline=pipeline, tools=TOOLS)
    clean = TOOLS.replace("clean(x): return x", "clean(x): return -x")
    other = TOOLS.replace("other(x): return x", "other(x): return -x")
    assert changes(first, components(tmp_path, pipeline=pipeline, tools=clean)) == [
        "helper `clean`"
    ]
    assert changes(first, components(tmp_path, pipeline=pipeline, tools=other)) == []


@pytest.mark.parametrize(
    "pipeline",
    [
        "import pkg.tools\ndef job(x): return pkg.tools.clean(x)\n",
        "from pkg import tools\ndef job(x): return tools.clean(x)\n",
        "def job(x):\n    import pkg.tools\n    return pkg.tools.clean(x)\n",
        "def job(x):\n    import pkg.tools as t\n    return t.clean(x)\n",
        "def job(x):\n    from pkg import tools\n    return tools.clean(x)\n",
        "def job(x):\n    from pkg.tools import clean\n    return clean(x)\n",
    ],
)
def test_helpers_inside_packages_count(pipeline: str, tmp_path: Path) -> None:
    modules = {"pkg____init__": "", "pipeline": pipeline}
    first = components(tmp_path, **modules, pkg__tools="def clean(x): return x\n")
    second = components(tmp_path, **modules, pkg__tools="def clean(x): return -x\n")
    assert changes(first, second) == ["helper `clean`"]


def test_a_relative_import_inside_a_function_counts(tmp_path: Path) -> None:
    modules = {
        "pkg____init__": "",
        "pkg__work": "def run(x):\n    from .tools import clean\n    return clean(x)\n",
        "pipeline": "from pkg.work import run as job\n",
    }
    first = components(tmp_path, **modules, pkg__tools="def clean(x): return x\n")
    second = components(tmp_path, **modules, pkg__tools="def clean(x): return -x\n")
    assert changes(first, second) == ["helper `clean`"]


@pytest.mark.parametrize("use", ["getattr(tools, x)()", "list(map(vars, [tools]))"])
def test_all_of_a_module_counts_that_is_handed_around(use: str, tmp_path: Path) -> None:
    pipeline = f"import tools\ndef job(x): return {use}\n"
    first = components(tmp_path, pipeline=pipeline, tools="def a(): return 1\nN = 1\n")
    second = components(tmp_path, pipeline=pipeline, tools="def a(): return 2\nN = 2\n")
    assert changes(first, second) == ["global `N`", "helper `a`"]


def test_a_module_that_cannot_be_imported_is_no_obstacle(tmp_path: Path) -> None:
    pipeline = "def job(x):\n    import broken, absent_from_here\n    return broken.x\n"
    first = components(tmp_path, pipeline=pipeline, broken="1 / 0\n")
    assert changes(first, components(tmp_path, pipeline=pipeline, broken="x = 1\n")) == [
        "code",
        "global `x`",
    ]


def test_installed_packages_count_by_name_only(tmp_path: Path) -> None:
    pipeline = "import json\nimport pytest as np\ndef job(x): return np.mark, json.dumps(x)\n"
    found = components(tmp_path, pipeline=pipeline)
    assert found.keys() == {Component(ComponentKind.CODE, "")}


def test_a_package_that_is_not_the_users_is_never_imported_for_the_key(tmp_path: Path) -> None:
    assert "this" not in sys.modules
    pipeline = "def job(x):\n    import this\n    return this.s\n"
    components(tmp_path, pipeline=pipeline)
    assert "this" not in sys.modules


def test_a_file_that_was_edited_after_its_import_does_not_count(tmp_path: Path) -> None:
    with loaded(tmp_path, pipeline="def job(x): return 1\n") as module:
        first = _walked(module.job)
        (tmp_path / "pipeline.py").write_text("def job(x): return 2\n")
        edited = _walked(module.job)
        (tmp_path / "pipeline.py").write_text("def job(x): return 1\n")
        assert _walked(module.job) == first
    with loaded(tmp_path, pipeline="def job(x): return 2\n") as module:
        assert _walked(module.job) not in (first, edited)


def _walked(job: Callable[..., Any]) -> dict[Component, str]:
    walk = Walk()
    walk.root(job)
    return walk.components


def _made(text: str) -> Callable[..., Any]:
    """Return a function that has no source."""
    names: dict[str, Any] = {"__name__": "typed_in"}
    exec(compile(text, "<typed in>", "exec"), names)  # noqa: S102 - our own text
    job: Callable[..., Any] = names["job"]
    return job


WITHOUT_SOURCE = [
    (
        "def job(x):\n    y = x + 1\n    return y\n",
        "def job(x):\n    z = x + 1\n    return z\n",
        [],
    ),
    ("def job(x):\n    return 1\n", "def job(x):\n    'doc'\n\n    return 1\n", []),
    ("def job(x):\n    return 1\n", "def job(x):\n    return 2\n", ["code"]),
    ("def job(x):\n    return 1\n", "def job(x):\n    return True\n", ["code"]),
    ("def job(x):\n    return x.a\n", "def job(x):\n    return x.b\n", ["code"]),
    ("def job(x):\n    return x in {1, 2}\n", "def job(x):\n    return x in {1, 3}\n", ["code"]),
    (
        "def job(x):\n    for i in x:\n        if i: break\n    return lambda: x\n",
        "def job(x):\n    for j in x:\n\n        if j: break\n    return lambda: x\n",
        [],
    ),
    ("A = 1\ndef job(x): return A\n", "A = 2\ndef job(x): return A\n", ["global `A`"]),
]


@pytest.mark.parametrize(("before", "after", "expected"), WITHOUT_SOURCE)
def test_code_without_a_source_is_compared_by_its_instructions(
    before: str, after: str, expected: list[str]
) -> None:
    assert changes(_walked(_made(before)), _walked(_made(after))) == expected


def test_native_functions_and_partials_of_them_are_known_by_name() -> None:
    assert _walked(sum) == _walked(sum)
    assert changes(_walked(sum), _walked(len)) == ["code"]
    assert changes(_walked(functools.partial(int, base=2)), _walked(functools.partial(int))) == [
        "code"
    ]


def test_the_walk_ends_on_recursive_data_and_code(tmp_path: Path) -> None:
    pipeline = """
        LOOP = []
        LOOP.append(LOOP)
        class Node:
            def __init__(self): self.me = self
            def f(self): return NODE, Node
        NODE = Node()
        def job(x): return job, LOOP, NODE.f(), TABLE
        TABLE = {"job": job}
        """
    assert components(tmp_path, pipeline=pipeline) == components(tmp_path, pipeline=pipeline)


def test_a_long_chain_of_helpers_needs_no_recursion(tmp_path: Path) -> None:
    chain = "".join(f"def f{at}(): return f{at + 1}()\n" for at in range(3000))
    pipeline = f"{chain}def f3000(): return 1\ndef job(x): return f0()\n"
    first = components(tmp_path, pipeline=pipeline)
    assert len(first) == 3002
    second = components(tmp_path, pipeline=pipeline.replace("return 1", "return 2"))
    assert changes(first, second) == ["helper `f3000`"]


def test_an_object_that_holds_its_own_method_has_a_digest(tmp_path: Path) -> None:
    pipeline = """
        class A:
            def __init__(self, n): self.n, self.call = n, self.f
            def f(self): return self.n
        a = A({n})
        def job(x): return a.call()
        """
    first = components(tmp_path, pipeline=pipeline.format(n=1))
    assert changes(first, components(tmp_path, pipeline=pipeline.format(n=1))) == []
    assert changes(first, components(tmp_path, pipeline=pipeline.format(n=2))) == ["global `a`"]


@pytest.mark.parametrize(
    ("pipeline", "component", "text"),
    [
        ("FILE = open(__file__)\ndef job(x): return FILE\n", "global `FILE`", "TextIOWrapper"),
        ("GEN = (i for i in ())\ndef job(x): return GEN\n", "global `GEN`", "generator"),
        ("def job(x, f=open(__file__)): return f\n", "default argument `f`", "TextIOWrapper"),
    ],
)
def test_what_lives_in_this_process_only_is_named(
    pipeline: str, component: str, text: str, tmp_path: Path
) -> None:
    with loaded(tmp_path, pipeline=pipeline) as module:
        walk = Walk()
        walk.root(module.job)
        for name in ("FILE", "f"):
            held = getattr(module, name, None) or (module.job.__defaults__ or [None])[0]
            if hasattr(held, "close"):
                held.close()
    [(found, why)] = walk.unstable.items()
    assert str(found) == component
    assert text in why


STEADY = {
    "functions of random": "from random import choice\ndef job(x): return choice(x)",
    "the environment": "from os import environ\ndef job(x): return environ[x]",
    "a JSON encoder": "import json\nE = json.JSONEncoder()\ndef job(x): return E.encode(x)",
    "a struct": "import struct\nS = struct.Struct('<I')\ndef job(x): return S.pack(x)",
    "a pattern": "import re\nP = re.compile('a+')\ndef job(x): return P.match(x)",
    "a set of texts": "S = {'a', 'b', 'c', 'd', 'e'}\ndef job(x): return x in S",
    "a typed class": """
        import typing
        T = typing.TypeVar("T")
        class Point(typing.NamedTuple):
            x: "int | None"
            y: typing.Optional["Point"] = None
        class Box(typing.Generic[T]):
            def get(self: "Box[T]") -> T: ...
        class Shape(typing.TypedDict):
            size: "float"
        def job(x): return Point(1), Box[int](), Shape(size=1.0)
        """,
    "an abstract class": """
        import abc
        class Base(abc.ABC):
            @abc.abstractmethod
            def f(self): ...
        class A(Base):
            def f(self): return super().f()
        def job(x): return A().f()
        """,
    "a dataclass": """
        import dataclasses
        @dataclasses.dataclass(frozen=True, slots=True, order=True)
        class A:
            items: list[int] = dataclasses.field(default_factory=list)
        def job(x): return A()
        """,
    "a dispatching function": """
        import functools
        @functools.singledispatch
        def show(x): return 1
        @show.register
        def _(x: int): return 2
        class A:
            @functools.cached_property
            def p(self): return 3
        def job(x): return show(x), A().p
        """,
    "a struct of msgspec": """
        import msgspec
        class A(msgspec.Struct, frozen=True):
            n: int = 1
        def job(x): return A()
        """,
    "a model of pydantic": """
        import pydantic
        class A(pydantic.BaseModel):
            n: int = 1
            @pydantic.field_validator("n")
            @classmethod
            def positive(cls, n): return abs(n)
        def job(x): return A()
        """,
    "arrays": "import numpy as np\nA = np.arange(9)\ndef job(x): return A @ x, np.random.rand()",
}
WALK = """\
import sys
sys.path[:0] = sys.argv[1:]
from actorflow.plans.cache.fingerprint.components import key_of
from actorflow.plans.cache.fingerprint.walk import Walk
import pipeline
walk = Walk()
walk.root(pipeline.job)
print(key_of(walk.components), walk.unstable)
"""


@pytest.mark.parametrize("case", STEADY)
def test_the_key_is_the_same_in_every_process(case: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(dedent(STEADY[case]))
    found = {
        subprocess.run(
            [sys.executable, "-B", "-c", WALK, str(tmp_path), str(ROOT)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert found.pop().endswith(" {}\n")


def test_locks_and_loggers_are_no_data(tmp_path: Path) -> None:
    pipeline = """
        import logging, threading
        log = logging.getLogger("a")
        lock = threading.Lock()
        def job(x):
            with lock:
                log.info("x")
        """
    assert components(tmp_path, pipeline=pipeline) == components(tmp_path, pipeline=pipeline)
