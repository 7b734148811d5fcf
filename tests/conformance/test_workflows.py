"""Workflows behave as recorded, step by step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.testing import conform
from actorflow.testing.golden import workflows as golden_workflows
from actorflow.testing.golden.notation import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT.parent / "shared" / "conformance" / "workflows"
DATA = SHARED if SHARED.is_dir() else Path(__file__).parent / "data" / "workflows"
FILES = sorted(DATA.glob("*.json"))


@pytest.mark.parametrize("decider", golden_workflows.DECIDERS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_history(path: Path, decider: str) -> None:
    golden = golden_workflows.GoldenWorkflow(path, golden_workflows.DECIDERS[decider])
    assert str(golden.check() or "") == ""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    for name in ("06_usecase2_slow_decision", "18_empty_parallel_and_noop"):
        shutil.copyfile(DATA / f"{name}.json", tmp_path / f"{name}.json")
    return tmp_path


def test_the_command_counts(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform.main(["workflows", str(golden)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        (
            "state",
            lambda state: state["executions"].append(9),
            "step 2 (decide) state executions: expected [0, 1, 2, 0, 3, 9]",
        ),
        (
            "state",
            lambda state: state["statuses"][0].update(sync=1),
            "step 2 (decide) state statuses[0] sync: expected 1, found true",
        ),
        (
            "sent",
            lambda sent: sent.clear(),
            "step 2 (decide) sent: expected []",
        ),
        (
            "decisions",
            lambda decisions: decisions[0].update(position="1.0"),
            'step 2 (decide) decisions[0] position: expected "1.0", found "0.0"',
        ),
    ],
)
def test_the_command_names_the_first_step_that_differs(
    golden: Path,
    capsys: pytest.CaptureFixture[str],
    part: str,
    change: object,
    words: str,
) -> None:
    assert callable(change)
    path = golden / "06_usecase2_slow_decision.json"
    data = json.loads(path.read_text())
    change(data["steps"][2][part])
    path.write_text(json.dumps(data))
    assert conform.main(["workflows", str(golden)]) == 1
    out = capsys.readouterr().out
    assert f"FAILED 06_usecase2_slow_decision.json: scripted: {words}" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


def test_properties_that_python_has_methods_for_are_fine(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden / "18_empty_parallel_and_noop.json"
    path.write_text(path.read_text().replace('"x"', '"now"'))
    assert "now" in golden_workflows.property_names(json.loads(path.read_text())["workflow"])
    assert conform.main(["workflows", str(golden)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_the_error_of_a_failed_work_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "10.json"
    data = json.loads((DATA / "10_failure_onFailure_retry.json").read_text())
    data["steps"][4]["state"]["statuses"][0]["error"]["message"] = "bang"
    path.write_text(json.dumps(data))
    found = golden_workflows.check_history(path) or ""
    assert "step 4 (failed) state statuses[0] error message" in found


def test_the_text_of_a_failure_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "failing.json"
    state = {"decision_mode": "failed", "decision_ongoing": False}
    path.write_text(
        json.dumps(
            {
                "workflow": {
                    "name": "W",
                    "properties": {},
                    "methods": {"handle": [{"op": "raise", "message": "no"}]},
                },
                "actions": [{"do": "start", "at": 0}, {"do": "decide", "at": 1}],
                "steps": [
                    {"action": {}},
                    {"action": {}, "decisions": {"status": "failed", "error": "whatever"}},
                ],
            }
        )
    )
    assert golden_workflows.check_history(path) is None
    data = json.loads(path.read_text())
    data["steps"][1]["decisions"]["status"] = "modified"
    data["steps"][1]["state"] = state
    path.write_text(json.dumps(data))
    assert "step 1 (decide) decisions" in (golden_workflows.check_history(path) or "")


def test_the_command_survives_a_broken_file(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (golden / "broken.json").write_text("{")
    (golden / "empty.json").write_text("{}")
    assert conform.main(["workflows", str(golden)]) == 1
    out = capsys.readouterr().out
    assert "broken.json: not JSON" in out
    assert "empty.json: the field 'workflow' is missing" in out
    assert out.splitlines()[-1] == "2 passed, 2 failed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda data: data.update(workflow=None),
            "got `null` - at `$.workflow`",
        ),
        (lambda data: data.update(actions=5), "Expected `array`, got `int` - at `$.actions`"),
        (lambda data: data["steps"].insert(0, None), "got `null` - at `$.steps[0]`"),
        (lambda data: data["actions"][0].update(at="x"), "got `str` - at `$.actions[0].at`"),
        (lambda data: data["actions"][1].update(messages=[5]), "at `$.actions[1].messages[0]`"),
        (lambda data: data["workflow"].update(methods=[]), "at `$.workflow.methods`"),
        (lambda data: data["actions"][0].pop("at"), "the field 'at' is missing"),
        (lambda data: data["actions"][0].update(do="tick"), "the first action must be `start`"),
        (
            lambda data: data["workflow"]["methods"].update(
                handle=[{"op": "while", "cond": True, "do": []}]
            ),
            "a `while` does not end",
        ),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file(
    golden: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Any], object], words: str
) -> None:
    path = golden / "06_usecase2_slow_decision.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    assert conform.main(["workflows", str(golden)]) == 1
    out = capsys.readouterr().out
    assert words in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


def test_a_history_that_expects_nothing_is_no_golden_history(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden / "06_usecase2_slow_decision.json"
    data = json.loads(path.read_text())
    data["steps"] = [{"action": step["action"]} for step in data["steps"]]
    path.write_text(json.dumps(data))
    assert conform.main(["workflows", str(golden)]) == 1
    assert "no step expects anything" in capsys.readouterr().out


def test_decisions_that_nobody_takes_are_missed(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden / "06_usecase2_slow_decision.json"
    data = json.loads(path.read_text())
    data["steps"][0]["decisions"] = [{"do": "set_output"}]
    data["actions"].append({"at": 99, "do": "decide"})
    path.write_text(json.dumps(data))
    assert conform.main(["workflows", str(golden)]) == 1
    assert "actions and" in capsys.readouterr().out
    del data["actions"][-1]
    path.write_text(json.dumps(data))
    assert conform.main(["workflows", str(golden)]) == 1
    assert "step 0 (start) decisions: expected" in capsys.readouterr().out


def test_the_command_wants_golden_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform.main(["workflows", str(tmp_path)]) == 2
    assert "contains no golden files" in capsys.readouterr().err


def test_names_that_are_not_set_are_null_and_sums_have_any_length() -> None:
    scope = Scope({"p": 1}, {})
    assert scope.value([{"prop": "q"}, {"var": "x"}, {"arg": "event_name"}]) == [None] * 3
    assert scope.value({"add": [{"prop": "p"}, 2, 3]}) == 6
    assert scope.value({"add": ["a", "b"]}) == "ab"


Step = dict[str, object]


def _played(decider: str, methods: Step, actions: list[Step]) -> list[Step]:
    """Return what a step of a golden history records, for each of these actions."""
    workflow = {"name": "W", "properties": {"n": 0}, "methods": methods}
    deciding = golden_workflows.DECIDERS[decider](workflow)
    try:
        player = golden_workflows.Player(workflow, deciding)
        return [player.play({"at": at, **action}) for at, action in enumerate(actions)]
    finally:
        deciding.close()


@pytest.mark.parametrize("decider", golden_workflows.DECIDERS)
def test_r23_an_instance_waits_for_a_work_that_the_code_no_longer_asks_for(decider: str) -> None:
    works = [{"task": "A"}, {"task": "B"}]
    steps = _played(
        decider,
        {"handle": [{"op": "execute", "works": works}]},
        [
            {"do": "start"},
            {"do": "decide"},
            {"do": "deploy", "methods": {"handle": [{"op": "return", "value": 1}]}},
            {"do": "restore"},
            {"do": "succeeded", "work": "0/0.0"},
            {"do": "decide"},
            {"do": "succeeded", "work": "0/0.1"},
            {"do": "decide"},
        ],
    )
    output = {"type": "set_output", "branch_key": 0, "output": 1}
    assert steps[5]["decisions"] == [output]
    assert steps[5]["sent"] == []
    assert steps[7]["sent"] == [{"job": "terminated", "output": 1}]


@pytest.mark.parametrize("decider", golden_workflows.DECIDERS)
def test_z64_a_dispatch_binds_nothing_even_once_its_work_has_ended(decider: str) -> None:
    handle = [
        {"op": "dispatch", "works": [{"task": "X"}], "as": "x"},
        {"op": "execute", "works": [{"task": "A", "input": {"var": "x"}}]},
        {"op": "return", "value": {"var": "x"}},
    ]
    steps = _played(
        decider,
        {"handle": handle},
        [
            {"do": "start"},
            {"do": "decide"},
            {"do": "succeeded", "work": "0/0.0", "output": "x"},
            {"do": "decide"},
            {"do": "succeeded", "work": "0/1.0", "output": "a"},
            {"do": "decide"},
        ],
    )
    assert steps[5]["sent"] == [{"job": "terminated", "output": None}]


def test_r14_a_wait_is_started_by_the_instance_only() -> None:
    handle = [{"op": "execute", "works": [{"wait": {"event": "E"}}]}]
    actions: list[Step] = [{"do": "start"}, {"do": "decide"}, {"do": "decide"}]
    steps = _played("scripted", {"handle": handle}, [*actions, {"do": "started", "work": "0/0.0"}])
    assert steps[3]["sent"] == []
    assert steps[3]["state"] == steps[2]["state"]
