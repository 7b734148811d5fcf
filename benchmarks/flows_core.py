"""How fast the pure core of flows is, in memory: messages per CPU second, with big payloads too.

Run with ``python benchmarks/flows_core.py``. One run handles at most 77 messages, as in production;
nothing is stored.
"""

from __future__ import annotations

import time
from typing import Any

from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.loop import run
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.procedures.registry import all_procedures

PUSHES = 1_000


def push_flow(count: int) -> list[Any]:
    """Return the tree of ``sequence`` with ``count`` lines ``push f.l i``."""
    lines = []
    for i in range(count):
        line = i + 2
        path = ["_ref", [["_sqs", "f", line], ["_sqs", "l", line]], line]
        lines.append(["push", [["_att", [path], line], ["_att", [["_num", i, line]], line]], line])
    return ["sequence", lines, 1]


def loop_flow(rounds: int) -> list[Any]:
    """Return the tree of a loop that maps over three elements, ``rounds`` times."""
    square = ["def", [["_att", [["x", [], 4]], 4], ["*", [["x", [], 4], ["x", [], 4]], 4]], 4]
    numbers = ["_arr", [["_num", 1, 4], ["_num", 2, 4], ["_num", 3, 4]], 4]
    up = [
        "set",
        [["_att", [["i", [], 3]], 3], ["_att", [["+", [["i", [], 3], ["_num", 1, 3]], 3]], 3]],
        3,
    ]
    stop = [
        "_if",
        [
            ["==", [["i", [], 5], ["_num", rounds, 5]], 5],
            ["break", [["_att", [["_", [], 5]], 5]], 5],
        ],
        5,
    ]
    start = ["set", [["_att", [["i", [], 1]], 1], ["_att", [["_num", 0, 1]], 1]], 1]
    each = ["map", [["_att", [numbers], 4], ["_att", [square], 4]], 4]
    return ["sequence", [start, ["loop", [up, each, stop], 2]], 0]


def measure(
    tree: list[Any], payload: dict[str, Any], *, store: bool = False
) -> tuple[int, float, ExecutionState]:
    """Run a flow to its end; return messages, CPU seconds and the last state."""
    state = ExecutionState("bench-u-1")
    inbox = [launch_message("bench-u-1", tree, payload=payload)]
    messages = 0
    procedures = all_procedures()
    started = time.process_time()
    while inbox:
        outcome = run(state, inbox, procedures=procedures, now=0.0)
        messages += len(outcome.messages)
        state, inbox = outcome.state, outcome.leftover
        if store:
            state = decode(encode(state))
    return messages, time.process_time() - started, state


def main() -> None:
    """Print the table."""
    big: dict[str, Any] = {
        "l": [],
        "big": [{"id": i, "name": f"object {i}"} for i in range(10_000)],
    }
    rows: list[tuple[str, list[Any], dict[str, Any], bool]] = [
        ("push f.l x 1,000", push_flow(PUSHES), {"l": []}, False),
        ("the same, payload of 10,000 objects", push_flow(PUSHES), big, False),
        ("the same, state stored after each run", push_flow(PUSHES), {"l": []}, True),
        ("map in a loop, 1,000 rounds", loop_flow(1_000), {}, False),
    ]
    print(f"{'':42} {'messages':>10} {'per CPU s':>12} {'nodes left':>11} {'state bytes':>12}")
    for title, tree, payload, store in rows:
        messages, seconds, state = min(
            (measure(tree, payload, store=store) for _ in range(3)), key=lambda row: row[1]
        )
        size = len(encode(state))
        print(
            f"{title:42} {messages:>10,} {messages / seconds:>12,.0f}"
            f" {len(state.nodes):>11} {size:>12,}"
        )


if __name__ == "__main__":
    main()
