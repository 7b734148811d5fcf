"""The wheel, installed by pip beside an unrelated distribution that owns the name `behaviours`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
PATIENCE = 50  # seconds for a subprocess: less than a test's timeout, so that its output is seen

INFO = "behaviours-0.1.0.dist-info"
OTHER = {
    "behaviours/__init__.py": "owner = 'somebody else'\n",
    f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: behaviours\nVersion: 0.1.0\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
WORKS = """
from actorflow.behaviours import Queue, Unique
import actorflow as af
handled = []
def job(batch, state):
    handled.extend(batch)
with af.spawn(job, behaviour=Unique(key=lambda item: item)) as worker:
    worker.push_block("row")
assert handled == ["row"]
"""
SAME = """
import actorflow.behaviours, behaviours
assert behaviours.__all__ == actorflow.behaviours.__all__
for name in behaviours.__all__:
    assert getattr(behaviours, name) is getattr(actorflow.behaviours, name), name
"""


def run(
    command: Sequence[str | Path], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={key: each for key, each in os.environ.items() if key != "PYTHONPATH"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def build(target: str, project: Path, into: Path) -> Path:
    """Build a distribution as pip does, but without an environment of its own."""
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into], cwd=project)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


class Environment:
    """A virtual environment that has the dependencies of actorflow, but not actorflow."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        self.other = folder / "behaviours-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.other, "w") as archive:
            for name, text in OTHER.items():
                archive.writestr(name, text)
            rows = "".join(f"{name},,\n" for name in OTHER)
            archive.writestr(f"{INFO}/RECORD", rows)
        venv.create(folder / "venv", symlinks=True)
        self._python = folder / "venv/bin/python"
        site = self.run("import sysconfig; print(sysconfig.get_path('purelib'))")
        # Python does not process the .pth files of a folder that a .pth file names: the editable
        # installation of actorflow in it stays invisible.
        dependencies = sysconfig.get_path("purelib")
        (Path(site.strip()) / "dependencies.pth").write_text(f"{dependencies}\n")

    def run(self, code: str) -> str:
        return run([self._python, "-W", "error", "-c", code], cwd=self.folder).stdout

    def install(self, distribution: Path) -> None:
        self._pip("install", "--no-deps", "--no-index", "--quiet", str(distribution))

    def uninstall(self, name: str) -> None:
        self._pip("uninstall", "--quiet", "--yes", name)

    def _pip(self, *arguments: str) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "--python", self._python, *arguments], cwd=self.folder)


@pytest.fixture
def environment(tmp_path: Path, wheel: Path) -> Environment:
    return Environment(tmp_path, wheel)


def owner(environment: Environment) -> str:
    code = "import behaviours; print(getattr(behaviours, 'owner', 'actorflow'))"
    return environment.run(code).strip()


def test_both_imports_give_the_same_objects(environment: Environment) -> None:
    environment.install(environment.wheel)
    environment.run(WORKS)
    environment.run(SAME)


def test_another_behaviours_installed_later_and_removed_again_breaks_nothing(
    environment: Environment,
) -> None:
    environment.install(environment.wheel)
    environment.install(environment.other)
    assert owner(environment) == "somebody else"
    environment.run(WORKS)
    environment.uninstall("behaviours")
    with pytest.raises(AssertionError, match="has no attribute 'Queue'"):
        environment.run("import behaviours; behaviours.Queue")
    environment.run(WORKS)


def test_another_behaviours_installed_before_breaks_nothing(environment: Environment) -> None:
    environment.install(environment.other)
    environment.install(environment.wheel)
    environment.run(WORKS)
    environment.run(SAME)
    environment.uninstall("behaviours")
    environment.run(WORKS)


def test_an_editable_checkout_works_beside_another_behaviours(
    tmp_path: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = Environment(tmp_path, wheel)
    environment.install(build("wheel:editable", ROOT, tmp_path_factory.mktemp("editable")))
    environment.run(WORKS)
    environment.run(SAME)
    environment.install(environment.other)
    assert owner(environment) == "somebody else"
    environment.run(WORKS)


ALONE = """
import actorflow as af
with af.Engine(":memory:") as engine:
    done = engine.wait(engine.launch("sequence\\n  set f.a 1"), timeout=30)
    assert done.view.payload["a"] == 1, done
    failed = engine.wait(engine.launch("match? 'abc' r/b/"), timeout=30)
    assert "[flows]" in failed.view.failures[0].text, failed
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["wheel", "sdist"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_an_empty_environment_gets_what_it_needs(tmp_path: Path, version: str, target: str) -> None:
    found = shutil.which(f"python{version}")
    starts = (
        found and not subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode
    )
    if not starts:
        pytest.skip(f"there is no Python {version} here")
    built = build(target, ROOT, tmp_path / "built")
    run([f"python{version}", "-m", "venv", "empty"], cwd=tmp_path)
    pip = [tmp_path / "empty/bin/python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*map(str, pip), "install", "--quiet", str(built)], check=True, cwd=tmp_path, timeout=500
    )
    run([tmp_path / "empty/bin/python", "-W", "error", "-c", WORKS], cwd=tmp_path)
    run([tmp_path / "empty/bin/python", "-W", "error", "-c", ALONE], cwd=tmp_path)


def test_a_module_of_the_user_may_be_called_behaviours(tmp_path: Path) -> None:
    script = tmp_path / "behaviours.py"
    script.write_text(WORKS)
    run([sys.executable, script], cwd=tmp_path, PYTHONPATH=str(ROOT))


def test_the_wheel_has_one_copy_of_the_behaviours_and_one_file_of_their_other_name(
    wheel: Path,
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {each.relative_to(ROOT).as_posix() for each in ROOT.glob("behaviours/**/*.py")}
    assert {f"actorflow/{each}" for each in sources} <= names
    twice = {each for each in names if each.startswith("behaviours/")}
    assert twice == {"behaviours/__init__.py", "behaviours/py.typed"}


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    again = build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(again) as theirs:
        assert ours.namelist() == theirs.namelist()
        assert all(ours.read(each) == theirs.read(each) for each in ours.namelist())
