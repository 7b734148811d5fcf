"""The commands `actorflow plan run | show | why`, in processes of their own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 50

PIPELINE = """
import actorflow as af

FACTOR = 2

def load():
    print("loading")
    return [1, 2, 3]

def scale(rows):
    return [FACTOR * row for row in rows]

def total(rows):
    return sum(rows)

plan = af.Plan()
plan.job(total, plan.job(scale, plan.job(load)))

def failing():
    plan = af.Plan()
    plan.job(int, "x", name="bad")
    plan.job(abs, plan["bad"], name="after")
    plan.job(load)
    return plan

def circle():
    return af.Plan.from_mapping({"a": load, "b": load}, [("a", "b"), ("b", "a")])

def waits():
    import pathlib, threading
    def wait():
        pathlib.Path("begun").write_text("yes")
        threading.Event().wait()
    plan = af.Plan()
    plan.job(wait)
    return plan
"""


def command(folder: Path, *arguments: str) -> list[str]:
    (folder / "pipeline.py").write_text(PIPELINE)
    return [sys.executable, "-m", "actorflow.cli", "plan", *arguments]


def actorflow(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_run_reports_and_runs_again_only_what_has_changed(tmp_path: Path) -> None:
    first = actorflow(tmp_path, "run", "pipeline.py:plan", "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert "3 done" in first.stdout
    assert "loading" in first.stdout

    again = actorflow(tmp_path, "run", "pipeline.py", "--workers", "2")
    assert again.returncode == 0, again.stderr
    assert "3 cached" in again.stdout

    why = actorflow(tmp_path, "why", "pipeline.py", "scale")
    assert why.stdout.split("  ", 1)[1].strip() == "up to date"

    forced = actorflow(tmp_path, "run", "pipeline.py:plan", "--force", "--plot", "gantt.svg")
    assert "3 done" in forced.stdout, forced.stderr
    assert "<svg" in (tmp_path / "gantt.svg").read_text(encoding="utf-8")

    none = actorflow(tmp_path, "run", "pipeline", "--no-cache")
    assert "3 done" in none.stdout, none.stderr


def test_why_names_what_has_changed(tmp_path: Path) -> None:
    assert actorflow(tmp_path, "run", "pipeline.py").returncode == 0
    command(tmp_path)
    changed = PIPELINE.replace("FACTOR = 2", "FACTOR = 3")
    (tmp_path / "pipeline.py").write_text(changed)
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", "plan", "why", "pipeline.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert lines["load"] == "up to date"
    assert "FACTOR" in lines["scale"]


def test_show_draws_without_running(tmp_path: Path) -> None:
    done = actorflow(tmp_path, "show", "pipeline.py:plan", "--draw", "plan.mmd")
    assert done.returncode == 0, done.stderr
    assert "scale" in done.stdout
    assert "load" in (tmp_path / "plan.mmd").read_text(encoding="utf-8")
    assert not (tmp_path / ".actorflow-cache").exists()


def test_a_failure_is_told_with_its_traceback_and_exit_code_1(tmp_path: Path) -> None:
    done = actorflow(tmp_path, "run", "pipeline.py:failing", "--no-cache", "--workers", "1")
    assert done.returncode == 1
    assert "job 'bad' failed: ValueError: invalid literal" in done.stderr
    assert "1 failed" in done.stdout
    going = actorflow(tmp_path, "run", "pipeline.py:failing", "--no-cache", "--keep-going")
    assert going.returncode == 1
    assert "1 done, 1 failed, 1 skipped" in going.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("show", "pipeline.py:circle"), 1, "a -> b -> a"),
        (("run", "pipeline.py:nothing"), 2, "has no plan called 'nothing'"),
        (("run", "missing.py"), 2, "there is no file missing.py"),
        (("run", "missing"), 2, "missing cannot be imported"),
        (("run", "pipeline.py", "--workers", "0"), 2, "workers"),
        (("why", "pipeline.py", "lode"), 1, "no job 'lode'; did you mean 'load'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: tuple[str, ...], code: int, text: str, tmp_path: Path
) -> None:
    done = actorflow(tmp_path, *arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_it_with_a_report_and_exit_code_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    begun = os.open(tmp_path / "begun", os.O_RDONLY | os.O_NONBLOCK)
    runner = subprocess.Popen(
        command(tmp_path, "run", "pipeline.py:waits", "--no-cache", "--workers", "1"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert select.select([begun], [], [], PATIENCE)[0], "the job should have begun"
    os.close(begun)
    os.killpg(runner.pid, signal.SIGINT)
    out, err = runner.communicate(timeout=PATIENCE)
    assert runner.returncode == 130, err
    assert "1 skipped" in out
    assert "Traceback" not in err
