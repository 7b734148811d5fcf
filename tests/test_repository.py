"""The repository as a whole: layers, light import, versions, examples, pages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

import actorflow
from tests.snippets import SnippetError, snippets

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = sorted(page for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")) if page.exists())
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PATIENCE = 50  # seconds for a subprocess: less than a test's timeout, so that its output is seen


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run our interpreter with the repository importable; warnings are errors there too."""
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def assert_succeeds(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


# --- layers --------------------------------------------------------------------------------------

LINT_IMPORTS = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS],
        cwd=directory,
        env={**os.environ, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert_succeeds(done)
    assert f"{len(PYPROJECT['tool']['importlinter']['contracts'])} kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "imports", "contract"),
    [
        ("behaviours/chunk.py", "actorflow.runtime", "Imports only go down"),
        ("behaviours/chunk.py", "pykka", "Behaviours stay plain"),
        ("actorflow/runtime/clock.py", "actorflow.flows", "Imports only go down"),
        ("actorflow/runtime/clock.py", "actorflow", "Imports only go down"),
        ("actorflow/runtime/clock.py", "actorflow.testing", "Nothing imports the test kit"),
        ("actorflow/engine/engine.py", "actorflow.cluster", "Imports only go down"),
        ("actorflow/flows/execution/node.py", "actorflow.plans", "Imports only go down"),
        ("actorflow/flows/execution/run.py", "actorflow.flows.procedures", "The rooms of flows"),
        ("actorflow/flows/values/paths.py", "actorflow.flows.execution", "The rooms of flows"),
        ("actorflow/flows/language/tree.py", "actorflow.flows.language.parser", "No cycles"),
        ("actorflow/web/app.py", "actorflow.cli", "Imports only go down"),
        ("actorflow/lab/models/traffic.py", "actorflow.lab.run", "The rooms of the lab"),
        ("actorflow/lab/run/simulate.py", "actorflow.lab.report", "The rooms of the lab"),
        ("actorflow/workflows/instance/state.py", "actorflow.workflows.frames", "The rooms of wor"),
        ("actorflow/cluster/ring/member.py", "actorflow.engine", "The ring of workers stays pure"),
    ],
)
def test_an_import_that_goes_up_is_reported(
    module: str, imports: str, contract: str, tmp_path: Path
) -> None:
    packages = ["runtime", "engine", "flows", "plans", "cluster", "testing", "web", "cli", "lab"]
    packages += [f"flows/{room}" for room in ("language", "values", "execution", "procedures")]
    packages += ["lab/models", "lab/run", "lab/report"]
    packages += ["workflows", "workflows/instance", "workflows/frames", "cluster/ring"]
    for package in ("behaviours", "actorflow", *(f"actorflow/{each}" for each in packages)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "actorflow/__init__.py").write_text("import actorflow.flows\n")
    parser = tmp_path / "actorflow/flows/language/parser.py"
    parser.write_text("import actorflow.flows.language.tree\n")
    (parser.parent / "tree.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert_succeeds(lint_imports(tmp_path))

    (tmp_path / module).write_text(f"import {imports}\n")

    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert re.search(rf"{re.escape(contract)}.* BROKEN", done.stdout), done.stdout


def test_every_package_has_its_layer() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    placed = set(re.findall(r"actorflow\.\w+", str([each.get("layers") for each in contracts])))
    packages = {f"actorflow.{path.parent.name}" for path in ROOT.glob("actorflow/*/__init__.py")}
    assert packages <= placed


def test_behaviours_import_only_sortedcontainers_and_the_standard_library() -> None:
    graph = grimp.build_graph("behaviours", include_external_packages=True, cache_dir=None)
    outside = {each for each in graph.modules if graph.is_module_squashed(each)}
    assert {each.split(".")[0] for each in outside} - sys.stdlib_module_names <= {
        "sortedcontainers"
    }


# --- the package ---------------------------------------------------------------------------------

HEAVY = {
    "click",
    "fastapi",
    "hypothesis",
    "matplotlib",
    "nats",
    "networkx",
    "numpy",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "pytest",
    "rich",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
}


def test_import_actorflow_is_light() -> None:
    done = python("-c", "import sys, actorflow; print(*sys.modules)")
    assert_succeeds(done)
    assert set(done.stdout.split()) & HEAVY == set()


def test_the_version_is_the_same_everywhere() -> None:
    version = PYPROJECT["project"]["version"]
    assert actorflow.__version__ == version
    assert importlib.metadata.version("actorflow") == version


def test_the_command_prints_the_version() -> None:
    done = python("-m", "actorflow.cli", "version")
    assert_succeeds(done)
    assert done.stdout.strip() == actorflow.__version__


INTERRUPTED_IMPORT = """
import os, pkgutil, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv = ["actorflow", "version"]
sys.exit(pkgutil.resolve_name({command!r})())
"""


@pytest.mark.parametrize(
    "module",
    [
        "actorflow",
        "actorflow.runtime.errors",
        "actorflow.cli",
        "typer",
        "actorflow.web.commands.mounting",
        "actorflow.engine.kind",
    ],
)
def test_ctrl_c_while_the_command_is_imported_ends_it_quietly(module: str) -> None:
    command = PYPROJECT["project"]["scripts"]["actorflow"]
    done = python("-c", INTERRUPTED_IMPORT.format(module=module, command=command))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_command_without_typer_says_what_to_install() -> None:
    missing = "import sys; sys.modules['typer'] = None; from actorflow.cli import main; main()"
    done = python("-c", missing)
    assert done.returncode == 1
    assert "pip install 'actorflow[cli]'" in done.stderr


def test_the_packages_are_typed() -> None:
    assert (ROOT / "actorflow/py.typed").exists()
    assert (ROOT / "behaviours/py.typed").exists()


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    assert pins == sorted(pins)


def test_every_dependency_is_pinned() -> None:
    project = PYPROJECT["project"]
    ranges = sum(project["optional-dependencies"].values(), project["dependencies"])
    needed = {re.split(r"[\[<>=]", each)[0] for each in ranges} - {"actorflow"}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert needed - {pin.partition("==")[0] for pin in pins} == set()


# --- examples and pages --------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    assert_succeeds(python(example, cwd=tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_snippets_of_the_page_run(page: Path, tmp_path: Path) -> None:
    assert_succeeds(python("-m", "tests.snippets", page, cwd=tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_the_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    inside = [target for target in targets if "://" not in target and "mailto:" not in target]
    assert [target for target in inside if not (page.parent / target).exists()] == []


PAGE = """\
# A page

```python
seen = ["first"]
```

- in a list:

  ```python
  seen.append("second")
  ```

```text
not python at all
```

```python no-run
seen.append(await from_a_server())
```

```python
import asyncio
seen.append(await asyncio.sleep(0, "third"))
print(seen)
{last}
```
"""


def test_snippets_run_in_order_in_one_namespace(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE.format(last=""))
    done = python("-m", "tests.snippets", "page.md", cwd=tmp_path)
    assert_succeeds(done)
    assert done.stdout == "['first', 'second', 'third']\n"


def test_a_failing_snippet_is_found_by_page_and_line(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE.format(last="1 / 0"))
    done = python("-m", "tests.snippets", "page.md", cwd=tmp_path)
    assert done.returncode == 1
    assert 'page.md", line 25, in <module>' in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("```python\n1\n", "never closed"), ("```python norun\n1\n```\n", "only no-run is known")],
)
def test_a_page_that_cannot_be_read_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(SnippetError, match=complaint):
        list(snippets(page))


# --- the watchdog --------------------------------------------------------------------------------

HANGING = """\
import threading

import pytest
from hypothesis import given, strategies

swallowed = []

@pytest.mark.timeout(1)
def test_waits_for_ever_on_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

@pytest.mark.timeout(1)
def test_swallows_what_it_is_told():
    try:
        threading.Event().wait()
    except BaseException as error:
        swallowed.append(error)
    threading.Event().wait()

@pytest.mark.timeout(1)
@given(strategies.integers())
def test_hangs_under_hypothesis(number):
    threading.Event().wait()

def sleep_in_a_thread():
    threading.Event().wait()

def test_leaves_a_thread():
    threading.Thread(target=sleep_in_a_thread, name="left-over").start()

def test_is_innocent():
    threading.Thread(target=sleep_in_a_thread, name="allowed", daemon=True).start()
"""


@pytest.mark.parametrize("jobs", ["0", "1"])
def test_a_test_that_hangs_fails_with_all_stacks_and_the_rest_goes_on(
    jobs: str, tmp_path: Path
) -> None:
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text(HANGING)
    options: list[str | Path] = [
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-p",
        "tests.conftest",
    ]

    done = python("-m", "pytest", *options, "-p", "no:randomly", "-n", jobs, hanging, cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    for test in ("waits_for_ever_on_a_lock", "swallows_what_it_is_told", "hangs_under_hypothesis"):
        assert f"test_{test} did not end within 1 s" in done.stdout
    assert "--- MainThread (non-daemon)" in done.stdout
    assert "threads left running: left-over" in done.stdout
    assert "in sleep_in_a_thread" in done.stdout
    assert "3 failed, 2 passed, 1 error" in done.stdout
