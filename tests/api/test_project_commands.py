"""`actorflow new` and `actorflow doctor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.engine.engine import BareEngine

ROOT = Path(__file__).parents[2]
SLOW = 300.0


def run(*arguments: object, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOW,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.mark.timeout(SLOW)
def test_a_new_project_runs_and_passes_its_tests(tmp_path: Path) -> None:
    assert run("new", "demo", cwd=tmp_path) == "made demo: cd demo && make test\n"
    home = tmp_path / "demo"
    assert {each.name for each in home.iterdir()} == {
        ".gitignore", "Dockerfile", "Makefile", "README.md", "app.py", "test_app.py",
    }  # fmt: skip
    for target, shown in (("test", "OK"), ("run", "o-1 is on its way")):
        done = subprocess.run(
            ["make", target],  # noqa: S607 - the one on the path
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=SLOW,
        )
        assert shown in done.stdout + done.stderr
    for file in home.rglob("*"):
        if file.is_file() and file.suffix in (".py", ".md", "", ".txt"):
            text = file.read_text("utf-8") if "data" not in file.parts else ""
            assert "NAME" not in text
            assert "INTERPRETER" not in text


@pytest.mark.parametrize(
    ("name", "problem"),
    [("Demo", "cannot be the name of a project"), ("here", "exists already")],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert problem in run("new", name, cwd=tmp_path, code=2)
    assert [each.name for each in tmp_path.iterdir()] == ["here"]


def test_the_doctor_looks_at_the_machine_and_the_store(tmp_path: Path) -> None:
    with BareEngine(tmp_path / "orders.db"):
        pass
    found = json.loads(run("doctor", "orders.db", "--json", cwd=tmp_path))
    checks = {each["check"]: each for each in found["checks"]}
    assert found["ok"]
    assert checks["store"]["verdict"] == "ok"
    assert {"python", "sqlite", "extra cli", "open files", "disk", "sync"} <= checks.keys()
    assert not list(tmp_path.glob(".actorflow-doctor*"))


def test_the_doctor_names_the_fix_and_exits_with_1(tmp_path: Path) -> None:
    shown = run("doctor", tmp_path / "missing" / "orders.db", cwd=tmp_path, code=1)
    assert "does not exist" in shown
    assert f"fix: mkdir -p {tmp_path / 'missing'}" in shown
    (tmp_path / "broken.db").write_bytes(b"not a store" * 1_000)
    assert "failed  store" in run("doctor", "broken.db", cwd=tmp_path, code=1)
