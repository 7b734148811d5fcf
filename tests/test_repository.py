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
from actorflow.engine.engine import BareEngine
from actorflow.runtime.errors import install_hint
from tests.snippets import Snippet, SnippetError, snippets

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PATIENCE = 50  # seconds for a subprocess: less than a test's timeout, so that its output is seen


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python(
    *arguments: str | Path, cwd: Path = ROOT, patience: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run our interpreter with the repository importable; warnings are errors there too."""
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience,
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
        ("actorflow/behaviours/chunk.py", "actorflow.runtime", "Imports only go down"),
        ("actorflow/behaviours/chunk.py", "pykka", "Behaviours stay plain"),
        ("actorflow/runtime/clock.py", "actorflow.flows", "Imports only go down"),
        ("actorflow/runtime/clock.py", "actorflow", "Imports only go down"),
        ("actorflow/runtime/clock.py", "actorflow.testing", "Nothing imports the test kit"),
        ("actorflow/cluster/status.py", "actorflow.engine", "Imports only go down"),
        ("actorflow/flows/execution/node.py", "actorflow.plans", "Imports only go down"),
        ("actorflow/flows/execution/run.py", "actorflow.flows.procedures", "The rooms of flows"),
        ("actorflow/flows/values/paths.py", "actorflow.flows.execution", "The rooms of flows"),
        ("actorflow/flows/language/tree.py", "actorflow.flows.language.parser", "No cycles"),
        ("actorflow/api/addresses.py", "actorflow.cli", "Imports only go down"),
        ("actorflow/lab/models/traffic.py", "actorflow.lab.run", "The rooms of the lab"),
        ("actorflow/lab/run/simulate.py", "actorflow.lab.report", "The rooms of the lab"),
        (
            "actorflow/workflows/instance/state.py",
            "actorflow.workflows.suspended",
            "The rooms of wor",
        ),
        ("actorflow/cluster/ring/member.py", "actorflow.engine", "The ring of workers stays pure"),
        (
            "actorflow/engine/commit/writer.py",
            "actorflow.engine.executions",
            "The engine is a pipeline",
        ),
    ],
)
def test_an_import_that_goes_up_is_reported(
    module: str, imports: str, contract: str, tmp_path: Path
) -> None:
    packages = [
        "behaviours",
        "runtime",
        "engine",
        "flows",
        "plans",
        "cluster",
        "testing",
        "api",
        "cli",
        "lab",
    ]
    packages += [f"flows/{room}" for room in ("language", "values", "execution", "procedures")]
    packages += ["lab/models", "lab/run", "lab/report"]
    packages += ["workflows", "workflows/instance", "workflows/suspended", "cluster/ring"]
    packages += ["runtime/worker", "runtime/worker/pair"]
    packages += [f"engine/{part}" for part in ("stores", "commit", "executions")]
    for package in ("actorflow", *(f"actorflow/{each}" for each in packages)):
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
    graph = grimp.build_graph("actorflow", include_external_packages=True, cache_dir=None)
    inside = {"actorflow.behaviours", *graph.find_descendants("actorflow.behaviours")}
    outside = set[str]().union(*map(graph.find_modules_directly_imported_by, inside)) - inside
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


def test_import_actorflow_imports_nothing_else_of_it() -> None:
    done = python("-c", "import sys, actorflow; print(*sys.modules)")
    assert_succeeds(done)
    assert [each for each in done.stdout.split() if each.startswith("actorflow.")] == []


def test_the_installed_version_is_that_of_the_package() -> None:
    assert importlib.metadata.version("actorflow") == actorflow.__version__


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
        "actorflow.runtime.errors",
        "typer",
        "actorflow.api.cli.register",
        "actorflow.api.cli.table",
    ],
)
def test_ctrl_c_while_the_command_is_imported_ends_it_quietly(module: str) -> None:
    command = PYPROJECT["project"]["scripts"]["actorflow"]
    done = python("-c", INTERRUPTED_IMPORT.format(module=module, command=command))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


COMMAND = """
import sys
from actorflow.cli import main
sys.argv = {}
try:
    main()
finally:
    print(*sys.modules)
"""
LATE = {"actorflow.flows.execution", "actorflow.workflows.service", "actorflow.plans.plan"}


def test_a_list_of_executions_imports_no_kinds_and_help_no_engine(tmp_path: Path) -> None:
    with BareEngine(tmp_path / "s.db"):
        pass
    done = python("-c", COMMAND.format(["actorflow", "ps", str(tmp_path / "s.db")]))
    loaded = set(done.stdout.split())
    assert "actorflow.engine.engine" in loaded, done.stderr
    assert loaded & LATE == set()
    done = python("-c", COMMAND.format(["actorflow", "--help"]))
    loaded = set(done.stdout.split())
    assert "actorflow.cli" in loaded, done.stderr
    assert loaded & {"actorflow.engine.engine", "actorflow.api.verbs.table", "pydantic"} == set()


def test_the_command_without_typer_says_what_to_install() -> None:
    missing = "import sys; sys.modules['typer'] = None; from actorflow.cli import main; main()"
    done = python("-c", missing)
    assert done.returncode == 1
    assert install_hint("cli") in done.stderr


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


def test_every_changelog_fragment_is_found_by_towncrier() -> None:
    fragments = [each for each in (ROOT / "changelog.d").iterdir() if each.name != ".gitignore"]
    named = re.compile(r"\+[a-z0-9-]+\.(feature|change|fix)\.md")
    assert [each.name for each in fragments if not named.fullmatch(each.name)] == []

    done = python("-m", "towncrier", "build", "--draft", "--version", "1.2.3")

    assert_succeeds(done)
    draft = " ".join(done.stdout.split())
    texts = [" ".join(each.read_text(encoding="utf-8").split()) for each in fragments]
    assert [text for text in texts if text not in draft] == []


# --- examples and pages --------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    assert_succeeds(python(example, cwd=tmp_path))


SNIPPETS = [each for page in PAGES for each in snippets(page)]
PROGRAMS = [each for each in SNIPPETS if each.runs]


def place(snippet: Snippet) -> str:
    return f"{name(snippet.page)}:{snippet.line}"


@pytest.mark.parametrize("snippet", PROGRAMS, ids=place)
def test_each_snippet_is_a_program(snippet: Snippet, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(snippet.source, encoding="utf-8")
    done = python("program.py", cwd=tmp_path)
    assert_succeeds(done)
    assert done.stdout or snippet.page.name != "README.md", "a program of the README shows nothing"


def test_the_other_snippets_are_python() -> None:
    for snippet in SNIPPETS:
        snippet.compile()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_the_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    inside = [target for target in targets if "://" not in target and "mailto:" not in target]
    assert [target for target in inside if not (page.parent / target).exists()] == []


PAGE = """\
# A page

```python
first = 1
```

- in a list:

  ```python
  1 / 0
  ```

```text
not python at all
```

```python no-run
await something()
```
"""


def test_the_snippets_of_a_page_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = list(snippets(page))
    assert [(each.line, each.source, each.runs) for each in found] == [
        (4, "first = 1\n", True),
        (10, "1 / 0\n", True),
        (18, "await something()\n", False),
    ]
    with pytest.raises(ZeroDivisionError) as caught:
        exec(found[1].compile(), {})  # noqa: S102 - ours
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno) == (page, 9)


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


@pytest.mark.timeout(170)  # three tests hang, and a busy machine starts them slowly
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

    options += ["-p", "no:randomly", "-n", jobs]
    done = python("-m", "pytest", *options, hanging, cwd=tmp_path, patience=160)

    assert done.returncode == 1, done.stdout + done.stderr
    for test in ("waits_for_ever_on_a_lock", "swallows_what_it_is_told", "hangs_under_hypothesis"):
        assert f"test_{test} did not end within 1 s" in done.stdout
    assert "--- MainThread (non-daemon)" in done.stdout
    assert "threads left running: left-over" in done.stdout
    assert "in sleep_in_a_thread" in done.stdout
    assert "3 failed, 2 passed, 1 error" in done.stdout
