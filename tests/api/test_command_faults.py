"""What people get wrong at the command line, in real processes: one line, and the right code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import actorflow as af
from tests.api.ledger import Ledger
from tests.engine.kinds import rows, until

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 50
MODULES = {
    "torn.py": "def (\n",
    "raises.py": "def check():\n    raise RuntimeError('no database')\n\n\ncheck()\n",
    "makes.py": "def plan():\n    raise KeyError('rows')\n\n\ndef needs(path):\n    return path\n",
    "good.py": "import actorflow as af\n\nplan = af.Plan()\nplan.job(len, 'abc')\n",
    "ok.flo": "sequence\n  set f.a 1\n",
    "long.flo": "sequence\n" + "  set f.a 1\n" * 3_000,
}
SIMULATE = ("lab", "simulate", "-t", "poisson(100, duration=1s)", "-s", "1ms", "queue")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with af.Engine(tmp_path / "s.db", durability="off") as engine:
        engine.register(Ledger())
        engine.start("ledger", "tea", id="order-1")
        until(engine, lambda: not rows(engine, "messages"))
    return tmp_path


def actorflow(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actorflow.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("serve", "x.db", "--app", "torn:setup"), 1, "cannot be loaded: SyntaxError"),
        (("serve", "x.db", "--app", "raises:setup"), 1, "RuntimeError: no database"),
        (("serve", "x.db", "--app", ".torn:setup"), 1, "'.torn:setup' cannot be loaded"),
        (("flow", "run", "ok.flo", "--tasker", "torn:f"), 1, "cannot be loaded: SyntaxError"),
        (("flow", "run", "ok.flo", "--tasker", "raises:f"), 1, "RuntimeError: no database"),
        (("flow", "trace", "s.db", "order-1"), 4, "not a flow but of kind 'ledger'"),
        (("flow", "run", "ok.flo", "--payload", '{"a": NaN}'), 2, "NaN is not a JSON number"),
        (("plan", "run", "torn.py"), 2, "torn.py cannot be imported: SyntaxError"),
        (("plan", "show", "raises"), 2, "RuntimeError: no database"),
        (("plan", "why", "makes.py"), 1, "makes.py raised KeyError: 'rows'"),
        (("plan", "run", "makes.py:needs"), 1, "makes.py:needs raised TypeError"),
        (("plan", "run", ""), 2, "'' cannot be imported"),
        (("plan", "run", "good.py", "--plot", "gantt.xyz"), 2, "must end with one of .png"),
        (("plan", "run", "good.py", "--plot", "no/gantt.png"), 2, "there is no folder 'no'"),
        ((*SIMULATE, "--csv", "-", "--html", "-"), 2, "--csv - and --html - cannot share"),
        (("send", "s.db", "order-1", "1e999"), 2, "1e999 is not a JSON number"),
        (("retry", "s.db", "--letter", "9" * 30), 2, "letter=9"),
        (("purge", "s.db", "--days", "inf"), 2, "--days"),
        (("import", ""), 2, "'' is not a path"),
        (("workflows", "check", "none.json", "--app", "makes:needs"), 2, "none.json cannot be"),
        (("cluster", "dev", "--app", "makes:plan", "--directory", ""), 2, "--directory ''"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(
    folder: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = actorflow(folder, *arguments, COLUMNS="200")
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / ".actorflow-cache").exists()  # no job of a plan was run


def test_the_place_where_a_module_raised_is_named(folder: Path) -> None:
    done = actorflow(folder, "serve", "x.db", "--app", "raises:setup")
    assert done.stderr.endswith("raises.py, line 2)\n")


def test_a_flow_that_cannot_be_rewritten_is_told_in_a_line(folder: Path) -> None:
    command = f"ulimit -f 0; exec {sys.executable} -m actorflow.cli flow format ok.flo --write"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "actorflow: [Errno 27] File too large\n")


def test_a_number_that_json_cannot_hold_is_exported_as_bytes(folder: Path) -> None:
    with af.Engine(folder / "s.db", durability="off") as engine:
        engine.send("waits", float("inf"), kind="not-here")
    lines = actorflow(folder, "export", "s.db").stdout.splitlines()

    def refuse(text: str) -> None:
        pytest.fail(f"{text} is not JSON")

    exported = [json.loads(line, parse_constant=refuse) for line in lines]
    (body,) = [row["body"] for row in exported if row.get("table") == "messages"]
    assert set(body) == {"base64"}
    (folder / "lines").write_text("\n".join(lines))
    with (folder / "lines").open() as given:
        made = subprocess.run(
            [sys.executable, "-m", "actorflow.cli", "import", "copy.db"],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=given, check=True,
            capture_output=True,
        )  # fmt: skip
    assert made.stderr == b""
    assert actorflow(folder, "export", "copy.db").stdout.splitlines() == lines


@pytest.mark.parametrize(
    "command",
    [
        "flow trace s.db long",
        "flow format long.flo",
        "plan show good.py",
        "ps s.db",
        "lab policies",
    ],
)
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(folder: Path, command: str) -> None:
    if "trace" in command:
        with af.Engine(folder / "s.db", durability="off") as engine:
            engine.launch(MODULES["long.flo"][:2_000].rstrip() + "\n", id="long")
            engine.wait("long", PATIENCE)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_html_on_standard_output_is_alone_there(folder: Path) -> None:
    done = actorflow(folder, *SIMULATE, "--html", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<!doctype html>")


def test_no_color_is_respected_on_a_terminal(folder: Path) -> None:
    screen, terminal = pty.openpty()
    advise = ("lab", "advise", *SIMULATE[2:], "--goal", "p99 < 50ms")
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", *advise],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "xterm-256color"},
        stdout=terminal,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )
    os.close(terminal)
    with open(screen, "rb", closefd=True) as shown:  # noqa: PTH123 - a descriptor
        text = shown.read1(65_536)
    assert done.returncode == 0, done.stderr
    assert b"from actorflow.behaviours import Queue" in text
    assert b"\x1b[32m" not in text
