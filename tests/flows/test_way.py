"""The way of one message through the rooms of flows, as docs/development.md tells it."""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.loop import run
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.language.parser import parse
from actorflow.flows.procedures.registry import all_procedures

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from actorflow.flows.execution.run import RunOutcome

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/development.md"
FLOWS = ROOT / "actorflow/flows"
FLOW = "sequence\n  set f.total (f.price * 2)\n"
ROOMS = "actorflow.flows."


def entered(call: Callable[[], Any]) -> tuple[list[str], Any]:
    """Return the modules of flows that a call enters, in order, and its result."""
    modules: list[str] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        name = str(frame.f_globals.get("__name__"))
        if event == "call" and name.startswith(ROOMS):
            modules.append(name.removeprefix(ROOMS))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        result = call()
    finally:
        sys.setprofile(before)
    return modules, result


def rooms(modules: list[str]) -> list[str]:
    return list(dict.fromkeys(module.partition(".")[0] for module in modules))


def launched() -> Callable[[], RunOutcome]:
    message = launch_message("x", parse(FLOW), payload={"price": 21})
    procedures = all_procedures()
    return lambda: run(ExecutionState("x"), [message], procedures=procedures, now=0.0)


def test_a_text_is_read_in_the_language_room_alone() -> None:
    modules, _ = entered(lambda: parse(FLOW))
    assert rooms(modules) == ["language"]


def test_a_run_goes_down_from_execution_through_procedures_to_values_and_nowhere_else() -> None:
    modules, outcome = entered(launched())
    assert outcome.payload["total"] == 42
    checked = len(modules) - modules[::-1].index("execution.messages.intake")
    assert set(rooms(modules[:checked])) == {"execution", "language", "values"}
    assert rooms(modules[checked:]) == ["execution", "procedures", "values"]


def test_each_message_is_processed_by_one_module_of_messages() -> None:
    """The loop hands a message to one module; no other one sees it but to leave its sender.

    One from outside is checked before.
    """
    modules, outcome = entered(launched())
    prefix = "execution.messages."
    steps = [module for module in modules if module == "execution.loop" or prefix in module]
    parts = [list(part) for loop, part in groupby(steps, lambda one: prefix not in one) if not loop]
    used = {frozenset(part) for part in parts}
    entering = {f"{prefix}enter", f"{prefix}resolve"}
    receiving = {f"{prefix}receive", f"{prefix}leave"}
    assert outcome.state.terminated
    alone = {frozenset({f"{prefix}leave"}), frozenset({f"{prefix}intake"})}
    assert used <= {frozenset(entering), frozenset(receiving)} | alone


def test_the_page_names_every_room_in_this_order() -> None:
    text = PAGE.read_text(encoding="utf-8")
    way = text[text.index("### The way of one message") :].partition("\n## ")[0]
    told = re.findall(r"^\d\. `(\w+)/`", way, re.MULTILINE)
    assert told == ["language", "service", "execution", "procedures", "values"]
    assert set(told) == {path.parent.name for path in FLOWS.glob("*/__init__.py")}
