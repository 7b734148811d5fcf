"""A program that is killed: runs flows, and notes each task that it is given.

`flow_runner.py STORE NOTES` launches flows unless NOTES say that it has, resumes the executions in
the store, and prints how each of them ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.application import Engine

if TYPE_CHECKING:
    from actorflow.flows.service.taskers import FlowTask

FLOW = """
sequence
  set f.l []
  push f.l 1
  alice 'first'
  concurrence
    sequence
      push f.l 2
      bob 'second'
    sequence
      sleep '1ms'
      set f.slept true
  cursor
    push f.l 3
    continue _ if (length f.l) < 7
  alice 'last'
  push f.l 'end'
"""
COUNT = 3


def main(store: str, notes: str) -> None:
    file = Path(notes)

    def note(text: str) -> None:
        with file.open("a", encoding="utf-8") as out:
            out.write(f"{text}\n")

    def do(task: FlowTask) -> dict[str, object]:
        note(f"task {task.id}")
        return {**task.payload, "l": [*task.payload["l"], task.name]}

    with Engine(store, max_messages=20) as engine:
        engine.tasker("alice", do, retries=20)  # each kill counts as an attempt
        engine.tasker("bob", do, retries=20)
        if "launched" not in (file.read_text(encoding="utf-8") if file.exists() else ""):
            engine.flows.launch_many(FLOW, ({"number": number} for number in range(COUNT)))
            note("launched")
        engine.resume()
        ended = []
        for row in list(engine.executions()):
            found = engine.wait(row.id, timeout=50).view
            numbers = [message["m"] for message in found.history()]
            runs = [run["run"] for run in found.runs()]
            ended.append(
                {
                    "exid": row.id,
                    "status": found.status,
                    "payload": found.payload,
                    "numbers": numbers == list(range(1, len(numbers) + 1)),
                    "runs": runs == list(range(1, len(runs) + 1)),
                    "messages": len(numbers),
                    "tasks": len(found.tasks),
                }
            )
        counts = engine.parts.store.counts([one["exid"] for one in ended]).values()
        left = {
            table: sum(getattr(each, table) for each in counts)
            for table in ("messages", "tasks", "timers", "dead")
        }
    print(json.dumps({"ended": ended, "left": left}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
