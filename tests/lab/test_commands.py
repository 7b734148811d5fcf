"""The command `actorflow lab`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from actorflow.lab import commands
from actorflow.lab.run.simulate import simulate

ROOT = Path(__file__).parent.parent.parent
QUICK = ("-t", "poisson(2000, duration=1s)", "-s", "2ms + 10us*n")


def lab(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "160", "TERM": "dumb"}).invoke(commands.app, list(arguments))


def test_simulate_prints_a_table_and_writes_files(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"report.{name}" for name in ("json", "csv", "html")}
    options = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    done = lab(
        "simulate", *QUICK, "linger(queue, {5ms, 20ms})", "queue", *options,
        "--figures", str(tmp_path / "pictures"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "linger(queue, 20ms)" in done.output
    assert [each["policy"] for each in json.loads(paths["json"].read_text())["results"]] == [
        "linger(queue, 5ms)", "linger(queue, 20ms)", "queue",
    ]  # fmt: skip
    assert paths["csv"].read_text().count("\n") == 4
    assert "poisson(2000, duration=1s)" in paths["html"].read_text()
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {"latency.png", "batches.png", "depth.png", "frontier.png"}


def test_without_a_policy_all_are_tried() -> None:
    done = lab("simulate", *QUICK)
    assert done.exit_code == 0
    assert "adaptive(queue, 50ms)" in done.output


def test_a_trace_is_taken(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("time,key\n" + "".join(f"{n / 1000},{n % 3}\n" for n in range(500)))
    assert lab("simulate", "--trace", str(trace), "-s", "2ms", "unique").exit_code == 0


def test_measure_runs_a_job_of_yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_lab_job.py").write_text("def save(batch): pass\nnumber = 7\n")
    monkeypatch.chdir(tmp_path)
    traffic = ("-t", "constant(2000, duration=10ms)", "queue", "--repetitions", "2")
    done = lab("measure", *traffic, "--job", "my_lab_job:save")
    assert done.exit_code == 0, done.output
    assert "±" in done.output
    for job in ("my_lab_job:nothing", "my_lab_job:number", "my_lab_job", "no_such:save", ":"):
        assert lab("measure", *traffic, "--job", job).exit_code == 2


def test_advise_prints_code_to_paste() -> None:
    done = lab("advise", *QUICK, "--goal", "p99 < 50ms, no loss", "--best", "2")
    assert done.exit_code == 0, done.output
    assert "from behaviours import" in done.output
    assert "worker = af.spawn(job, behaviour=" in done.output
    assert "2. " in done.output
    assert "3. " not in done.output


def test_policies_lists_what_there_is() -> None:
    done = lab("policies")
    assert done.exit_code == 0
    assert "bounded(inner, size, when_full)" in done.output
    assert "bursty(rate, on, off" in done.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("simulate", *QUICK, "quee"), "did you mean 'queue'"),
        (("simulate", "-t", "poison(5)", "-s", "1ms"), "did you mean 'poisson'"),
        (("simulate", "-t", "gone.csv", "-s", "1ms"), "there is no trace"),
        (("simulate", "-t", "poisson(5)", "-s", "1mm"), "cannot read"),
        (("simulate", *QUICK, "queue", "--on-failure", "retri"), "did you mean 'retry'"),
        (("simulate", *QUICK, "queue", "--json", "/nowhere/x.json"), "No such file"),
        (("advise", *QUICK, "--goal", "p99 < 1us, no loss"), "reachable: --goal 'p99 < "),
        (("advise", *QUICK, "--goal", "p98 < 1us"), "did you mean 'p99'"),
        (("measure", "-t", "poisson(5)"), "give either --service"),
    ],
)
def test_mistakes_are_told_without_a_traceback(arguments: tuple[str, ...], complaint: str) -> None:
    done = lab(*arguments)
    assert done.exit_code == 2
    assert complaint in done.output
    assert "Traceback" not in done.output


def test_a_bad_trace_line_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"time": 0}\n{"time": 1}\n{"tim": 2}\n')
    done = lab("simulate", "-t", str(trace), "-s", "1ms", "queue")
    assert done.exit_code == 2
    assert "t.jsonl, line 3: no 'time'" in done.output


def test_ctrl_c_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(traffic: Any, service: Any, policy: Any, **options: Any) -> Any:
        if str(policy) == "stack":
            raise KeyboardInterrupt
        return simulate(traffic, service, policy, **options)

    monkeypatch.setattr(commands, "simulate", interrupted)
    path = tmp_path / "r.json"
    done = lab("simulate", *QUICK, "queue", "unique", "stack", "fair", "--json", str(path))
    assert done.exit_code == 130
    assert "interrupted" in done.output
    found = json.loads(path.read_text())
    assert [each["policy"] for each in found["results"]] == ["queue", "unique"]
    assert found["complete"] is False


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_command_reaches_the_lab() -> None:
    done = run("-m", "actorflow.cli", "lab", "simulate", *QUICK, "queue", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "queue" in done.stdout
    done = run("-m", "actorflow.cli", "lab", "--help")
    assert "advise" in done.stdout
    assert run("-m", "actorflow.cli", "lab", "simulate", "--no-such").returncode == 2


def test_the_version_stays_light_and_so_does_the_lab_without_pictures() -> None:
    script = "import sys; from actorflow.cli import application\ntry: application()(['{}'])\n"
    script += "except SystemExit: print(*sys.modules)"
    loaded = set(run("-c", script.format("version")).stdout.split())
    assert not {"actorflow.lab.commands", "matplotlib", "numpy"} & loaded
    done = run("-c", "import sys, actorflow.lab.commands; print(*sys.modules)")
    assert not {"matplotlib", "numpy"} & set(done.stdout.split())
    assert "actorflow.lab.commands" in done.stdout
