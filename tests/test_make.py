"""What `make` installs, and when: real make and shell, with a Python that records its calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 50  # seconds for a subprocess: less than a test's timeout, so that its output is seen
INHERITED = re.compile(r"MAKE.*|MFLAGS|VENV|PYTHON|JOBS|PYTEST_ARGS|BENCH.*")

# Stands in for Python alone, so that no test downloads packages: it records how it was called.
PYTHON = """\
#!/bin/sh
case "$*" in
  *--version) echo Python 3.11.0;;
  "-m venv"*) echo create >>calls; mkdir -p .venv/bin && cp "$0" .venv/bin/python;;
  "-m pip install"*)
    for extras; do :; done
    echo "install $extras" >>calls
    echo "Downloading mypy-2.4.1-cp311-cp311-manylinux2014_x86_64.whl (15.4 MB)"
    if [ -e offline ]; then echo "ERROR: there is no network" >&2; exit 1; fi
    echo "Installing collected packages: mypy, actorflow";;
  -c*) ;;
  *) echo "run $*" >>calls;;
esac
"""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


class Checkout:
    """A checkout on a fresh machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
            os.utime(folder / name, (0, 0))
        (folder / "benchmark.py").write_text("if __name__ == '__main__': ...\n")
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)

    def make(self, *arguments: str, python: str = "./python") -> subprocess.CompletedProcess[str]:
        kept = {key: each for key, each in os.environ.items() if not INHERITED.fullmatch(key)}
        return subprocess.run(
            ["make", *arguments, f"PYTHON={python}", "BENCH=benchmark.py"],  # noqa: S607 - any make
            cwd=self.folder,
            env=kept | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def calls(self, *arguments: str) -> list[str]:
        """Run make; return what it did with Python."""
        (self.folder / "calls").write_text("")
        done = self.make(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def installations(calls: list[str]) -> list[str]:
    return [call for call in calls if not call.startswith("run")]


def test_make_run_installs_the_library_alone_and_once(checkout: Checkout) -> None:
    assert checkout.calls("run") == ["create", "install .", "run examples/tour.py"]
    assert checkout.calls("run") == ["run examples/tour.py"]


def test_make_test_adds_the_tools_to_the_same_environment(checkout: Checkout) -> None:
    checkout.calls("run")
    assert installations(checkout.calls("test")) == ["install .[dev]"]
    assert installations(checkout.calls("test")) == []


def test_make_test_on_a_fresh_machine_installs_once_for_make_run_too(checkout: Checkout) -> None:
    assert installations(checkout.calls("test")) == ["create", "install .[dev]"]
    assert installations(checkout.calls("run", "test", "format", "docs-figures")) == []


def test_only_make_bench_installs_the_peers(checkout: Checkout) -> None:
    assert installations(checkout.calls("bench")) == ["create", "install .[bench-peers]"]
    assert installations(checkout.calls("run", "bench")) == []
    assert installations(checkout.calls("test")) == ["install .[dev]"]


def test_parallel_make_installs_one_set_after_the_other(checkout: Checkout) -> None:
    calls = checkout.calls("-j", "4", "bench", "test")
    assert installations(calls) == ["create", "install .[bench-peers]", "install .[dev]"]


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_the_dependencies_is_installed_by_each_command(
    changed: str, checkout: Checkout
) -> None:
    checkout.calls("test", "bench")
    stamp = (checkout.folder / ".venv/.library").stat().st_mtime
    for name in (".library", ".tools", ".peers"):
        os.utime(checkout.folder / ".venv" / name, (stamp - 20, stamp - 20))
    os.utime(checkout.folder / changed, (stamp - 10, stamp - 10))
    assert installations(checkout.calls("run")) == ["install ."]
    assert installations(checkout.calls("test")) == ["install .[dev]"]
    assert installations(checkout.calls("bench")) == ["install .[bench-peers]"]


def test_a_broken_environment_is_created_again(checkout: Checkout) -> None:
    checkout.calls("run")
    (checkout.folder / ".venv/bin/python").unlink()
    assert installations(checkout.calls("test")) == ["create", "install .[dev]"]


def test_an_installation_announces_its_steps(checkout: Checkout) -> None:
    lines = iter(checkout.make("run").stdout.splitlines())
    for step in (
        r"creating .venv with Python 3\.11\.0 \(about \d+ s\)",
        r"installing actorflow and its 5 dependencies \(\d+ MB to download, about \d+ s\)",
        r"  downloading mypy-2\.4\.1 \(15\.4 MB\)",
        r"  unpacking 2 packages",
        r"installed in \d+ s; .venv takes .+",
        r"running examples/tour.py.*",
    ):
        assert re.fullmatch(step, next(lines))


def test_a_failed_installation_shows_what_pip_said_and_is_tried_again(checkout: Checkout) -> None:
    (checkout.folder / "offline").touch()
    done = checkout.make("run")
    assert done.returncode != 0
    assert "ERROR: there is no network" in done.stderr
    assert "installed" not in done.stdout
    (checkout.folder / "offline").unlink()
    assert installations(checkout.calls("run")) == ["install ."]


def test_without_a_recent_python_the_error_says_what_to_do(checkout: Checkout) -> None:
    done = checkout.make("run", python="./nowhere")
    assert done.returncode != 0
    assert "actorflow needs Python 3.11 or newer; tried: ./nowhere" in done.stderr
    assert "make PYTHON=/path/to/python3.12" in done.stderr


def test_make_help_lists_every_command(checkout: Checkout) -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    listed = re.findall(r"^  make (\S+)", checkout.make().stdout, re.MULTILINE)
    assert sorted(listed) == sorted(phony[1].split())
