"""The way of a stranger: a fresh environment, README's first program, a new project, the views."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.snippets import snippets
from tests.test_packaging import Environment, build

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PATIENCE = 50.0
SLOW = 600.0


class Stranger:
    """Somebody with a Python that has actorflow installed from a wheel, and a folder."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.python = python
        self._environment = {
            key: each for key, each in os.environ.items() if key not in ("PYTHONPATH", "CI")
        } | {"COLUMNS": "120", "TMPDIR": str(folder)}

    def run(self, *command: str, code: int = 0, folder: str = ".") -> str:
        """Run a command; return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder / folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SLOW,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def actorflow(self, *arguments: str, code: int = 0) -> str:
        """Run the command `actorflow`."""
        return self.run(str(self.python), "-m", "actorflow.cli", *arguments, code=code)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command `actorflow`."""
        return subprocess.Popen(
            [str(self.python), "-m", "actorflow.cli", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Return somebody whose environment has a wheel of this checkout, and the extras of ours."""
    folder = tmp_path_factory.mktemp("stranger")
    environment = Environment(folder, build("wheel", ROOT, tmp_path_factory.mktemp("wheel")))
    environment.install(environment.wheel)
    return Stranger(folder, folder / "venv/bin/python")


def test_the_installed_tour_runs(stranger: Stranger) -> None:
    printed = stranger.actorflow("tour", "--all", "batches", "behaviours")
    assert "  > the job gets [1]" in printed
    assert "pip install 'actorflow[all]'" in printed


def test_the_first_program_of_the_readme_runs_as_a_file(stranger: Stranger) -> None:
    first = next(iter(snippets(ROOT / "README.md")))
    (stranger.folder / "first.py").write_text(first.source)
    assert "saved 1 rows in one transaction" in stranger.run(str(stranger.python), "first.py")


def test_a_new_project_passes_its_tests(stranger: Stranger) -> None:
    assert "cd demo && make test" in stranger.actorflow("new", "demo")
    assert "OK" in stranger.run("make", "test", folder="demo")


def test_top_shows_a_demonstration(stranger: Stranger) -> None:
    stranger.actorflow("top", "--demo", "--seconds", "1")


def test_the_hint_of_an_error_installs_from_where_the_wheel_came(stranger: Stranger) -> None:
    code = "from actorflow.runtime.errors import install_hint; print(install_hint('web'))"
    hint = stranger.run(str(stranger.python), "-c", code)
    assert re.fullmatch(r"pip install '/\S+\.whl\[web\]'\n", hint)


@pytest.fixture
def dashboard(stranger: Stranger) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with stranger.start("web", "--demo", "--port", "0") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+/", line)
            assert found, line
            yield process, found[0]
        finally:
            process.kill()


def test_the_dashboard_of_a_demonstration_has_a_page(
    dashboard: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = dashboard
    with urllib.request.urlopen(f"{url}executions", timeout=PATIENCE) as answer:  # noqa: S310 - http
        assert "order-open" in answer.read().decode()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) in (0, 130)


@pytest.mark.soak
@pytest.mark.timeout(SLOW)
def test_a_fresh_clone_runs_the_tour_with_what_make_installs(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    stranger = Stranger(tmp_path, Path(sys.executable))
    stranger.run("git", "clone", "--quiet", str(ROOT), str(clone))
    printed = stranger.run("make", "run", folder="clone")
    assert "Three commands to try next" in printed
    assert "  .venv/bin/actorflow web --demo" in printed
    assert "not installed" in stranger.run(
        str(clone / ".venv/bin/python"), "-c", "import typer", code=1
    ).replace("No module named", "not installed")
