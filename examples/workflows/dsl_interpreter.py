"""Run a process that is data: steps in sequence and in parallel, read from JSON.

Temporal calls it *DSL*. (`engine.launch` runs a whole language of that kind: see docs/flows.)
"""

import asyncio
import json
import sys
from typing import Any

import actorflow as af

PROCESS = """
{"sequence": [
    {"do": "fetch"},
    {"parallel": [{"do": "resize"}, {"sequence": [{"do": "scan"}, {"do": "label"}]}]},
    {"do": "store"}
]}
"""


@af.task
def do(what: str) -> str:
    """Do one step."""
    print("doing", what)
    return what


class Interpreter(af.Workflow[str]):
    """Runs a process."""

    def __init__(self, process: dict[str, Any]) -> None:
        self.process = process

    async def handle(self) -> str:
        """Return the steps in their order."""
        return await self.run(self.process)

    async def run(self, node: dict[str, Any]) -> str:
        """Run one node of the process."""
        if "sequence" in node:
            return " ".join([await self.run(each) for each in node["sequence"]])
        if "parallel" in node:
            parts = await asyncio.gather(*map(self.run, node["parallel"]))
            return f"({' | '.join(parts)})"
        return await do(node["do"])


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Interpreter(json.loads(PROCESS)), id="photo").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
