"""Run the flows of a Markdown page: blocks that open with three backticks and ``flow``.

Comments in a block state the expected results::

    # => 3              the last ret
    # f.x => [ 1 ]      a field of the last payload
    # v.x => 1          a variable of the root
    # trace => a b      what `trace` left, joined by spaces
    # fails => text     a failure that nobody handles, whose text holds these words
    # waits => 0_1      the nodes that wait, for a task or forever

Words after ``flow`` prepare it: ``alice=stamp`` gives it a tasker (of a kind that
`actorflow.testing.flow_driver` knows), ``signal:go`` sends a signal once the flow has come to rest,
``cancel:0_1`` cancels a node then. Timers fire at once, in their order, at most twenty times.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.flows.language.parser import parse
from actorflow.flows.service.library import Library
from actorflow.testing.flow_driver import FlowDriver

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = re.compile(r"^```flow *(?P<words>.*?)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"^# *(?P<what>\S*) *=> (?P<value>.*)$", re.MULTILINE)
ROUNDS = 20


@dataclass(frozen=True)
class FlowBlock:
    """One flow on a page."""

    page: str
    line: int
    words: list[str]
    text: str

    def expected(self) -> list[tuple[str, str]]:
        return [(found["what"], found["value"].strip()) for found in EXPECTED.finditer(self.text)]

    def run(self) -> FlowDriver:
        """Run the flow until nothing moves any more."""
        taskers = dict(word.split("=", 1) for word in self.words if "=" in word)
        loader = Library({"limit": 100}, {"greet": parse('trace "hello $(f.name)"')})
        driver = FlowDriver(parse(self.text), payload={}, taskers=taskers, loader=loader).drive()
        for word in self.words:
            verb, _, argument = word.partition(":")
            if verb == "signal":
                driver.signal(argument)
            elif verb == "cancel":
                driver.cancel(argument)
            driver.drive()
        for _ in range(ROUNDS):
            if driver.state.status == "terminated" or not driver.fire_timers(within=1e9):
                break
        return driver

    def check(self) -> None:
        """Compare the results to the comments of the block."""
        driver = self.run()
        expected = self.expected()
        assert expected, "a flow on a page states its results: # => ..."
        for what, value in expected:
            found = self.found(driver, what)
            if what == "fails":
                assert value in found
            elif what in {"trace", "waits"}:
                assert found == value
            else:
                assert found == json.loads(value), (what, found)
        if not {"fails", "waits"} & {what for what, _ in expected}:
            assert driver.state.status == "terminated"

    @staticmethod
    def found(driver: FlowDriver, what: str) -> Any:
        payload = driver.payload or {}
        if what == "trace":
            return " ".join(driver.traces)
        if what == "fails":
            texts = [(node.failure or {})["error"]["msg"] for node in driver.state.failures()]
            return " ".join(texts)
        if what == "waits":
            live = driver.state.nodes.values()
            return " ".join(node.nid for node in live if not node.cnodes and node.state != "ended")
        if what.startswith("f."):
            return payload.get(what[2:])
        if what.startswith("v."):
            return (driver.state.nodes["0"].vars or {}).get(what[2:])
        assert what == "", f"{what} => is not a thing that can be expected"
        return payload.get("ret")


def flow_blocks(page: Path) -> list[FlowBlock]:
    """Return the flows of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        FlowBlock(
            page.name, text[: found.start()].count("\n") + 1, found["words"].split(), found["text"]
        )
        for found in BLOCK.finditer(text)
    ]
