"""Flows behave as recorded, message by message."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from actorflow.testing import conform
from actorflow.testing.golden import flows as golden_flows

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT.parent / "shared" / "conformance" / "flows"
DATA = SHARED if SHARED.is_dir() else Path(__file__).parent / "data" / "flows"
FILES = sorted(path for path in DATA.glob("*.json") if path.name != "parse_cases.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_flow(path: Path) -> None:
    assert str(golden_flows.GoldenFlow(path).check() or "") == ""


def test_golden_parse_cases() -> None:
    passed, failures = golden_flows.check_parse_cases(DATA / "parse_cases.json")
    assert failures == []
    assert passed > 100


def test_the_seed_is_reproduced_run_by_run() -> None:
    driver = golden_flows.GoldenFlow(DATA / "seed_2017_routed.json").drive()
    assert [len(outcome.messages) for outcome in driver.outcomes] == [12, 14, 5]
    assert [len(outcome.state.nodes) for outcome in driver.outcomes] == [2, 2, 1]
    assert driver.state.counters == {"runs": 3, "msgs": 31, "omsgs": 0}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    for name in ("seq_two_atoms", "con_atoms"):
        shutil.copy(DATA / f"{name}.json", tmp_path)
    return tmp_path


def test_the_command_counts(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform.main(["flows", str(golden)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_the_command_names_the_first_message_that_differs(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden / "seq_two_atoms.json"
    data = json.loads(path.read_text())
    data["messages"][3]["payload"] = {"ret": "three"}
    path.write_text(json.dumps(data))
    assert conform.main(["flows", str(golden)]) == 1
    out = capsys.readouterr().out
    assert "FAILED seq_two_atoms.json: message 4 (execute 0_1) payload" in out
    assert '"three"' in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


def test_the_command_survives_a_broken_file(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (golden / "broken.json").write_text("{")
    (golden / "empty.json").write_text("{}")
    assert conform.main(["flows", str(golden)]) == 1
    out = capsys.readouterr().out
    assert "broken.json: not JSON" in out
    assert "empty.json: the field 'launch' is missing" in out or "empty.json" in out
    assert out.splitlines()[-1] == "2 passed, 2 failed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage"),
        (["nosuch", "."], "unknown kind 'nosuch'; there is: flows, workflows"),
        (["flows", "/no/such/place"], "is not a directory"),
    ],
)
def test_the_command_says_why_it_cannot_start(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conform.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_the_command_wants_golden_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform.main(["flows", str(tmp_path)]) == 2
    assert "contains no golden files" in capsys.readouterr().err
