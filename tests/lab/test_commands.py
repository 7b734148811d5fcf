"""The command `actorflow lab`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from actorflow.lab import commands
from actorflow.lab.commands import run as run_commands
from actorflow.lab.commands import search as search_commands
from actorflow.lab.report.gallery import FIGURES
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
FULL = re.MULTILINE | re.DOTALL
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
    assert names == {f"{name}.png" for name in FIGURES}


def test_without_a_policy_all_are_tried() -> None:
    done = lab("simulate", *QUICK)
    assert done.exit_code == 0
    assert "adaptive(queue, 50ms)" in done.output


def test_a_trace_is_taken(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("time,key\n" + "".join(f"{n / 1000},{n % 3}\n" for n in range(500)))
    assert lab("simulate", "--trace", str(trace), "-s", "2ms", "unique").exit_code == 0


JOBS = """
number = 7
totals = []

def save(rows, total):
    totals.append(total)
    return total + len(rows)

def alone(batch): pass

def broken(batch, state):
    raise ValueError("no disk")

def picky(batch, state):
    import my_lab_sibling
    if any(message[0] % 2 for message in batch):
        raise ValueError("odd")
"""
MEASURE = ("measure", "--max-lag", "100%", "-t", "constant(2000, duration=10ms)", "queue")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_lab_jobs.py").write_text(JOBS)
    (tmp_path / "my_lab_sibling.py").touch()
    (tmp_path / "my_lab_ruin.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    assert sys.path == path
    for name in ("my_lab_jobs", "my_lab_sibling"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("jobs")
def test_measure_runs_a_job_of_yours_and_keeps_its_state() -> None:
    done = lab(*MEASURE, "--repetitions", "2", "--job", "my_lab_jobs:save", "--state", "0")
    assert done.exit_code == 0, done.output
    assert "±" in done.output
    assert "100.0%" not in done.output
    totals = sys.modules["my_lab_jobs"].totals
    assert totals.count(0) == 2
    assert max(totals) > 0
    assert lab(*MEASURE, "--repetitions", "1", "--job", "my_lab_jobs:alone").exit_code == 0


@pytest.mark.usefixtures("jobs")
def test_a_job_that_always_fails_ends_with_its_exception() -> None:
    done = lab(*MEASURE, "--job", "my_lab_jobs:broken", "--json", "-")
    assert done.exit_code == 1
    assert 'my_lab_jobs.py", line 12, in broken' in done.stderr
    assert "actorflow: not one of 20 messages was processed with queue" in done.stderr
    assert "ValueError: no disk" in done.stderr
    assert "actorflow/" not in done.stderr  # no frames of the library
    assert json.loads(done.stdout)["complete"] is False
    forgotten = lab(*MEASURE, "--job", "my_lab_jobs:save")
    assert forgotten.exit_code == 1
    assert "TypeError" in forgotten.stderr


@pytest.mark.usefixtures("jobs")
def test_a_job_that_fails_sometimes_is_a_warning() -> None:
    done = lab(*MEASURE[:-1], "chunk(queue, 1)", "--job", "my_lab_jobs:picky", "--repetitions", "1")
    assert done.exit_code == 0, done.output
    assert re.search(r"warning: chunk.*% of the messages failed.*ValueError: odd", done.stderr)


@pytest.mark.usefixtures("jobs")
def test_a_job_that_cannot_be_imported_is_refused() -> None:
    jobs = ("my_lab_jobs:nothing", "my_lab_jobs:number", "my_lab_jobs", "no_such:save", ":",
            "my_lab_ruin:save")  # fmt: skip
    for job in jobs:
        done = lab(*MEASURE, "--job", job)
        assert done.exit_code == 2
        assert "Traceback" not in done.output
    assert "ZeroDivisionError" in done.stderr


def test_advise_prints_code_to_paste() -> None:
    done = lab("advise", *QUICK, "--goal", "p99 < 50ms, no loss", "--best", "2")
    assert done.exit_code == 0, done.output
    assert "\n2. " in done.output
    assert "\n3. " not in done.output
    programs = re.findall(r"^import actorflow as af\n.*?^worker = [^\n]+\n", done.output, FULL)
    assert len(programs) == 2
    for program in programs:
        space: dict[str, Any] = {}
        exec(program, space)  # noqa: S102 - exactly the printed program, and nothing else
        with space["worker"] as worker:
            worker.push_block((1, 2, 3.0, 4.0))


def test_a_goal_that_no_policy_meets_names_one_that_can_be_met() -> None:
    done = lab("advise", *QUICK, "--goal", "p99 < 1us, no loss")
    assert done.exit_code == 1
    assert "reachable: --goal 'p99 < " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("simulate", *QUICK, "queue"), {"parameters", "complete", "results"}),
        (("advise", *QUICK, "-g", "p99 < 50ms"),
         {"parameters", "goals", "tried", "complete", "best", "queue"}),
        (("policies",), {"behaviours", "all", "traffic"}),
    ],
)  # fmt: skip
def test_json_on_standard_output_is_alone_there(
    arguments: tuple[str, ...], names: set[str], tmp_path: Path
) -> None:
    done = lab(*arguments, "--json", "-")
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)) == names
    path = tmp_path / "found.json"
    assert f"wrote {path}" in lab(*arguments, "--json", str(path)).stdout
    assert json.loads(path.read_text()) == json.loads(done.stdout)


def test_csv_on_standard_output_is_alone_there() -> None:
    done = lab("simulate", *QUICK, "queue", "stack", "--csv", "-")
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["policy", "queue", "stack"]


@pytest.mark.parametrize("option", ["--html", "--figures"])
def test_figures_without_matplotlib_say_what_to_install(option: str, tmp_path: Path) -> None:
    # As with the extra `cli` alone: matplotlib cannot be imported.
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from actorflow.cli import main; sys.argv[0] = 'actorflow'; main()"
    )
    target = str(tmp_path / "report")
    done = run("-c", script, "lab", "simulate", *QUICK, "queue", option, target)
    assert done.returncode == 1
    assert f"figures need matplotlib: {install_hint('lab')}" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""  # it is said before anything runs
    done = run("-c", script, "lab", "simulate", *QUICK, "queue")
    assert done.returncode == 0, done.stderr


def test_two_policies_are_compared() -> None:
    done = lab("compare", *QUICK, "linger(queue, 5ms)", "queue", "--on", "p99, busy")
    assert done.exit_code == 0, done.output
    assert re.search(r"p99: .* worse \(\+", done.output)
    assert re.search(r"busy: .* better \(-", done.output)
    assert "Traceback" not in lab("compare", *QUICK, "queue", "stack", "--on", "p98").output


def test_the_capacity_is_printed_drawn_and_written(tmp_path: Path) -> None:
    traffic = ("-t", "poisson(200)", "-s", "20ms")
    done = lab(
        "capacity", *traffic, "-g", "p99 < 50ms", "chunk(queue, 2)", "--figures", str(tmp_path),
        "--json", str(tmp_path / "c.json"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert re.search(r"chunk\(queue, 2\) sustains \d+ messages/s", done.output)
    assert "goals met" in done.output
    assert (tmp_path / "capacity.png").stat().st_size > 10_000
    [found] = json.loads((tmp_path / "c.json").read_text())
    assert 30 < found["rate"] < 100


def test_a_trace_is_fitted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"time": n, "batch": n % 9 + 1, "took": 0.002 + (n % 9 + 1) / 1e5} for n in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = lab("fit", str(path))
    assert done.exit_code == 0
    assert "--service '2ms + 10us*n'" in done.output
    assert lab("fit", str(tmp_path / "gone.jsonl")).exit_code == 2


def test_batches_are_written_for_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = lab("simulate", *QUICK, "queue", "unique", "--perfetto", str(path), "--concurrency", "2")
    assert done.exit_code == 0, done.output
    events = json.loads(path.read_text())["traceEvents"]
    calls = [each for each in events if each["ph"] == "X"]
    assert {each["tid"] for each in calls} <= {0, 1}
    assert {each["pid"] for each in calls} == {1, 2}
    assert sum(each["args"]["size"] for each in calls if each["pid"] == 1) > 1_900


def test_precision_and_goodput_are_shown() -> None:
    done = lab("simulate", *QUICK, "queue", "--precision", "10%", "--within", "5ms", "--price", "2")
    assert done.exit_code == 0, done.output
    assert re.search(r"queue: \d[\d.]*% in 5ms, [\d,]+ messages/s", done.output)
    assert "±" in done.output
    assert "executors cost" in done.output
    assert "queue: p99 is batch" in done.output
    few = lab("simulate", "-t", "constant(93, duration=1s)", "-s", "1ms", "queue")
    assert "n/a (needs 459)" in few.output
    assert lab("simulate", *QUICK, "queue", "--within", "5").exit_code == 2


@pytest.mark.usefixtures("jobs")
def test_a_measurement_passes_or_fails_its_goal() -> None:
    options = ("--job", "my_lab_jobs:alone", "--repetitions", "1", "--goal", "p50 < 1h, p99 < 1h")
    done = lab(*MEASURE, *options)
    assert done.exit_code == 0, done.output
    assert "queue: p50 < 3600s: pass" in done.output or "p50 < 3,600s: pass" in done.output
    assert "p99 < 3,600s: undecided" in done.output  # 20 messages are too few
    assert "the generator was late by" in done.output
    assert lab(*MEASURE, *options, "--max-lag", "1").exit_code == 2


def test_a_behaviour_of_your_own_is_named_by_its_module(tmp_path: Path) -> None:
    (tmp_path / "my_lab_policies.py").write_text(
        "from actorflow.behaviours import Chunk, Queue\n"
        "class Pairs(Chunk):\n"
        "    def __init__(self, size: int = 2) -> None:\n"
        "        super().__init__(Queue(), size)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", "lab", "simulate", *QUICK,
         "my_lab_policies:Pairs", "linger(my_lab_policies:Pairs(3), 5ms)", "--json", "-"],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
        timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["results"]
    assert [each["batch_max"] for each in found] == [2, 3]
    wrong = lab("simulate", *QUICK, "no_such_module:Pairs")
    assert wrong.exit_code == 2
    assert "cannot import 'no_such_module:Pairs'" in wrong.stderr


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
        (("simulate", *QUICK, "queue", "--json", "/nowhere/x.json"), "there is no folder"),
        (("simulate", *QUICK, "queue", "--html", "."), "it is a folder"),
        (("simulate", *QUICK, "--json", "-", "--csv", "-"), "cannot share standard output"),
        (("simulate", "-t", "constant(1, duration=500ms)", "-s", "1ms"), "there is no message"),
        (
            ("advise", "-t", "constant(1, duration=500ms)", "-s", "1ms", "-g", "no loss"),
            "no message",
        ),
        (("advise", *QUICK, "--goal", "p99 < 50"), "write 50ms or 50s"),
        (("measure", "-t", "poisson(5)", "--job", "json:dumps", "--state", "x"), "Python literal"),
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

    monkeypatch.setattr(run_commands, "simulate", interrupted)
    path = tmp_path / "r.json"
    done = lab("simulate", *QUICK, "queue", "unique", "stack", "fair", "--json", str(path))
    assert done.exit_code == 130
    assert "interrupted" in done.output
    found = json.loads(path.read_text())
    assert [each["policy"] for each in found["results"]] == ["queue", "unique"]
    assert found["complete"] is False


def test_ctrl_c_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_commands, "simulate", interrupted)
    monkeypatch.setattr(search_commands, "advise", interrupted)
    assert lab("simulate", *QUICK, "queue").exit_code == 130
    assert lab("advise", *QUICK, "-g", "no loss").exit_code == 130


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
