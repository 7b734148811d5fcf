"""The state of one execution between two runs: nodes, timers, traps, counters; all JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from actorflow.flows.execution.node import Message, Node, Payload


class FlowStatus(StrEnum):
    """The status of an execution after a run."""

    ACTIVE = "active"
    FAILED = "failed"
    TERMINATED = "terminated"


class FlowTimer(msgspec.Struct, omit_defaults=True):
    """A message to release later: once (``in``, ``at``) or repeatedly (``cron``, ``every``)."""

    id: str
    nid: str
    type: str | None
    string: str
    at: float
    message: Message
    m: int
    count: int = 0
    repeats: bool = False

    def trigger(self, exid: str) -> Message:
        """Return the message that the engine sends when the timer is due."""
        return {
            "point": "trigger",
            "exid": exid,
            "nid": self.nid,
            "bnid": self.nid,
            "type": self.type,
            "schedule": self.string,
            "message": self.message,
            "sm": self.m,
            "timer": self.id,
        }


def _hold(condition: object, text: str) -> None:
    if not condition:
        raise AssertionError(text)


@dataclass(frozen=True)
class Statistics:
    """The size of an execution."""

    runs: int
    messages: int
    nodes: int
    failures: int
    tasks: int
    timers: int
    traps: int


class ExecutionState(msgspec.Struct, omit_defaults=True, gc=False):
    """An instance of a flow: its nodes, counters, timers and traps.

    ``orphans`` are nodes that failed before they had a procedure; they are removed with their
    parent, or when cancelled. ``collect_at`` is the number of nodes that triggers the next garbage
    collection.
    """

    exid: str
    domain: str = ""
    unit: str = ""
    nodes: dict[str, Node] = {}
    counters: dict[str, int] = {}
    traps: list[dict[str, Any]] = []
    timers: dict[str, FlowTimer] = {}
    orphans: list[str] = []
    start: float | None = None
    end: float | None = None
    duration: float | None = None
    terminated: bool = False
    collect_at: int = 0
    payload: Payload | None = None
    """The payload with which it ended."""
    cancelled: bool = False
    """Whether it ended because its root was cancelled or killed."""
    stored: int = 0
    """Bytes it took when it was last stored; not stored itself."""

    @property
    def status(self) -> FlowStatus:
        """Terminated, failed (a node waits for a repair; others may continue), or active."""
        ended, failed = self.terminated, False
        for node in self.nodes.values():
            state = node.state
            if state != "ended":
                ended = False
            if state is None and node.failure is not None:
                failed = True
        return (
            FlowStatus.TERMINATED if ended else FlowStatus.FAILED if failed else FlowStatus.ACTIVE
        )

    def statistics(self) -> Statistics:
        """Return counts. Takes one pass over the nodes."""
        return Statistics(
            runs=self.counters.get("runs", 0),
            messages=self.counters.get("msgs", 0),
            nodes=len(self.nodes),
            failures=len(self.failures()),
            tasks=len(self.tasks()),
            timers=len(self.timers),
            traps=len(self.traps),
        )

    def check(self) -> None:
        """Verify the invariants; raises AssertionError if one does not hold. For tests."""
        for nid, node in self.nodes.items():
            _hold(nid == node.nid, f"node {node.nid} is kept as {nid}")
            _hold(len(set(node.cnodes)) == len(node.cnodes), f"node {nid} counts a child twice")
            above: Node | None = node
            while above is not None and above.tree is None and above.state != "ended":
                _hold(above.parent in self.nodes, f"node {above.nid} has lost its tree")
                above = self.nodes[above.parent or ""]
        for timer in self.timers.values():
            _hold(timer.nid in self.nodes, f"timer {timer.id} outlives its node")
        for trap in self.traps:
            _hold(trap["nid"] in self.nodes, f"trap of node {trap['nid']} outlives it")

    def failures(self) -> list[Node]:
        """Return the nodes that failed and have not been repaired yet."""
        return [node for node in self.nodes.values() if node.failure is not None]

    def tasks(self) -> list[Node]:
        """Return the nodes that wait for a tasker."""
        return [node for node in self.nodes.values() if node.heap == "task" and "task" in node.own]
