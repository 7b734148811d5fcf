"""The log of an execution reads as that of the seed; the command line shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.flows.service.commands import commands
from actorflow.flows.service.trace import trace_lines
from tests.flows.engines import PATIENCE, Desk

GOLDEN = Path(__file__).parent.parent.parent / "conformance/data/flows/seed_2017_routed.json"
SEED_RUNS = [
    # Each line of the seed's log, without its id: the text before " f.ret".
    [
        '0 exe [sequence L2] [task,[[_att,[[_sqs,alpha,3]],3],[_att,[[_sqs,"s... m1s_',
        '0_0 exe [task L3] [_att,[[_sqs,alpha,3]],3],[_att,[[_sqs,"stage a"... m2s1r1>1 from 0',
        "0_0_0 exe [_att L3] [_sqs,alpha,3] m3s2r1>1 from 0_0",
        "0_0_0_0 exe [_sqs L3] alpha m4s3r1>1 from 0_0_0",
        "0_0_0 rec [_att L3] hp:_att m5s4r1>1 from 0_0_0_0",
        "0_0 rec [task L3] hp:task m6s5r1>1 from 0_0_0",
        '0_0_1 exe [_att L3] [_sqs,"stage a",3] m7s6r1>1 from 0_0',
        '0_0_1_0 exe [_sqs L3] "stage a" m8s7r1>1 from 0_0_1',
        "0_0_1 rec [_att L3] hp:_att m9s8r1>1 from 0_0_1_0",
        "0_0 rec [task L3] hp:task m10s9r1>1 from 0_0_1",
        "0_0 tas [task L3] hp:task m11s10r1>1 from 0_0",
        "0_0 tas [task L3] hp:task m12s10r1>1 from 0_0",
    ],
    [
        "0_0 ret [task L3] hp:task m13s_",
        "0_0 rec [task L3] hp:task m14s_r2>2",
        "0 rec [sequence L2] hp:sequence m15s14r2>2 from 0_0",
        '0_1 exe [task L4] [_att,[[_sqs,bravo,4]],4],[_att,[[_sqs,"stage b"... m16s15r2>2 from 0',
        "0_1_0 exe [_att L4] [_sqs,bravo,4] m17s16r2>2 from 0_1",
        "0_1_0_0 exe [_sqs L4] bravo m18s17r2>2 from 0_1_0",
        "0_1_0 rec [_att L4] hp:_att m19s18r2>2 from 0_1_0_0",
        "0_1 rec [task L4] hp:task m20s19r2>2 from 0_1_0",
        '0_1_1 exe [_att L4] [_sqs,"stage b",4] m21s20r2>2 from 0_1',
        '0_1_1_0 exe [_sqs L4] "stage b" m22s21r2>2 from 0_1_1',
        "0_1_1 rec [_att L4] hp:_att m23s22r2>2 from 0_1_1_0",
        "0_1 rec [task L4] hp:task m24s23r2>2 from 0_1_1",
        "0_1 tas [task L4] hp:task m25s24r2>2 from 0_1",
        "0_1 tas [task L4] hp:task m26s24r2>2 from 0_1",
    ],
    [
        "0_1 ret [task L4] hp:task m27s_",
        "0_1 rec [task L4] hp:task m28s_r3>3",
        "0 rec [sequence L2] hp:sequence m29s28r3>3 from 0_1",
        "rec m30s29r3>3 from 0",
        "ter m31s30r3>3 from 0",
    ],
]
SEED_COUNTS = [(1, 12, 2), (2, 26, 2), (3, 31, 1)]


@pytest.fixture
def seed(tmp_path: Path) -> tuple[Path, str, dict[str, Any]]:
    """Run the flow of the seed on a real engine: its routed tasks, given back by hand."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    store = tmp_path / "seed.db"
    desk = Desk()
    with af.Engine(store, durability="off") as engine:
        engine.tasker("nato", desk)
        engine.flows.router(lambda message: "nato")
        exid = engine.launch(
            golden["flow"], payload={}, vars=golden["launch"]["vars"], domain="golden"
        )
        for count in (1, 2):
            task = desk.wait_for(count)[count - 1]
            engine.flows.return_task(exid, task.nid, task.payload)
        engine.wait(exid, PATIENCE)
    return store, exid, golden


def test_the_seed_is_reproduced_on_the_engine(seed: tuple[Path, str, dict[str, Any]]) -> None:
    store, exid, golden = seed
    with af.Engine(store) as engine:
        found = engine.execution(exid).view
        history = found.history()
        assert len(history) == 31
        for expected, message in zip(golden["messages"], history, strict=True):
            for key in (
                "m",
                "sm",
                "er",
                "pr",
                "point",
                "nid",
                "from",
                "nodes",
                "tasker",
                "taskname",
            ):
                assert message.get(key) == expected.get(key), (expected["m"], key)
            assert message["payload"] == expected["payload"]
        assert found.payload == golden["final_payload"]
        assert found.variables == golden["final_vars"]
        runs = [
            (run["counters"]["runs"], run["counters"]["msgs"], run["nodes"]) for run in found.runs()
        ]
        assert runs == SEED_COUNTS


def test_flow_trace_prints_the_layout_of_the_seed(seed: tuple[Path, str, dict[str, Any]]) -> None:
    store, exid, _ = seed
    done = CliRunner().invoke(commands, ["trace", str(store), exid])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("    /--- run starts")]
    assert len(starts) == 3
    for start, messages, (runs, msgs, nodes) in zip(starts, SEED_RUNS, SEED_COUNTS, strict=True):
        assert lines[start] == f"    /--- run starts {exid}"
        assert re.fullmatch(r"    \|   \{counters:\{.*\},nodes:\d+,size:\d+\}", lines[start + 1])
        for expected, line in zip(messages, lines[start + 2 :], strict=False):
            assert line.startswith(f"   {exid[-4:]} {expected} f.ret "), line
        end = start + 2 + len(messages)
        assert lines[end] == f"    |   run ends {exid}"
        assert re.fullmatch(r'    \|   \{started:"[-\dT:.]+Z",took:[\d.e-]+\}', lines[end + 1])
        assert lines[end + 2] == f"    |   {{consumed:{len(messages)},traps:0}}"
        assert lines[end + 3].startswith(
            f"    |   {{counters:{{runs:{runs},msgs:{msgs},omsgs:0}},nodes:{nodes},size:"
        )
        assert lines[end + 4] == "    \\--- ."
    assert lines[2].endswith(" f.ret null vars:var0,_path,root,name")
    assert ' f.ret "stage b" vars:var0,_path,root,name' in lines[starts[2] + 4]


def test_a_trace_shows_failures_and_what_was_left_over() -> None:
    with af.Engine(":memory:", max_messages=3) as engine:
        exid = engine.launch("sequence\n  1\n  fail 'no'")
        found = engine.wait(exid, PATIENCE).view
        text = "\n".join(trace_lines(exid, found.runs()))
    assert "r1>2" in text
    assert "err:FlowError no" in text or "err:" in text


# --- the command line ----------------------------------------------------------------------------


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def alice(task: Any) -> dict[str, Any]:
    return {**task.payload, "by": f"alice {task.name}"}


def test_flow_run_prints_the_payload(tmp_path: Path) -> None:
    flow = tmp_path / "a.flow"
    flow.write_text("sequence\n  alice 'x'\n  set f.n (f.n + 1)\n")
    name = f"alice={__name__}:alice"
    done = invoke(
        "run", flow, "--payload", '{"n": 1}', "--tasker", name, "--store", tmp_path / "s.db"
    )
    assert done.exit_code == 0, done.output
    assert '"by": "alice x"' in done.output
    assert '"n": 2' in done.output
    exid = next(line for line in done.output.splitlines() if line.startswith("main-u0-"))
    shown = invoke("trace", tmp_path / "s.db", exid)
    assert "0_0 tas [task L2] hp:task" in shown.output


def test_flow_run_tells_what_failed(tmp_path: Path) -> None:
    flow = tmp_path / "a.flow"
    flow.write_text("sequence\n  nada 1\n")
    done = invoke("run", flow)
    assert done.exit_code == 1
    assert "node 0_0, line 2: UnknownProcedure" in done.output


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["run", "{flow}", "--payload", "{"], "--payload is not JSON", 2),
        (["run", "{flow}", "--payload", "[1]"], "must be a JSON object", 2),
        (["run", "{flow}", "--tasker", "x"], "write MODULE:FN", 2),
        (["run", "{flow}", "--tasker", "nosuch_module:f"], "nosuch_module", 1),
        (["run", "/no/such.flow"], "cannot be read", 2),
        (["check", "{broken}"], "line 2", 1),
        (["format", "{broken}"], "line 2", 1),
        (["trace", "/no/such.db", "nosuch"], "/no/such.db", 3),
    ],
)
def test_commands_say_what_is_wrong(
    tmp_path: Path, arguments: list[str], words: str, code: int
) -> None:
    (tmp_path / "a.flow").write_text("1\n")
    (tmp_path / "b.flow").write_text("sequence\n  push f.l (1\n")
    places = {"flow": tmp_path / "a.flow", "broken": tmp_path / "b.flow"}
    given = [
        argument.format(**places) if argument in {"{flow}", "{broken}"} else argument
        for argument in arguments
    ]
    done = invoke(*given)
    assert done.exit_code == code
    assert words in done.output


def test_flow_check_and_format(tmp_path: Path) -> None:
    flow = tmp_path / "a.flow"
    flow.write_text("sequence\n     set   a 1\n")
    checked = invoke("check", flow)
    assert checked.exit_code == 0
    assert "ok" in checked.output
    assert invoke("format", flow).output == "sequence\n  set a 1\n"
    assert invoke("format", flow, "--write").exit_code == 0
    assert flow.read_text() == "sequence\n  set a 1\n"
