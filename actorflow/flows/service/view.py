"""A stored execution, as a snapshot for users."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Status
from actorflow.flows.execution.codec import decode
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.service.exids import parts_of
from actorflow.flows.service.history import messages_of
from actorflow.flows.service.received_messages import task_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.protocol import ExecutionRow, Store
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.execution.state import FlowTimer, Statistics

__all__ = ["FailedNode", "FlowExecution", "HeldTask"]


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that failed and waits for a repair."""

    nid: str
    kind: str
    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A dispatched task that a node waits for."""

    id: str
    nid: str
    tasker: str
    name: Any


class FlowExecution:
    """A snapshot of an execution. The history is read from the store on demand."""

    def __init__(self, row: ExecutionRow, store: Store) -> None:
        self._store = store
        self._row = row
        self.exid = row.id
        self.status = Status(row.status)

    def __repr__(self) -> str:
        return f"<flow {self.exid} {self.status} {self.counters}>"

    @functools.cached_property
    def state(self) -> ExecutionState:
        """The state, decoded on first use."""
        row = self._row
        state = (
            ExecutionState(row.id, *parts_of(row.id)) if row.state is None else decode(row.state)
        )
        if row.result is not None:
            state.payload = bodies.decode(row.result)
        return state

    @property
    def domain(self) -> str:
        """The domain that it belongs to."""
        return self.state.domain

    @property
    def unit(self) -> str:
        """The unit that it belongs to."""
        return self.state.unit

    @property
    def payload(self) -> Payload | None:
        """The payload with which it ended; `None` before that."""
        return self.state.payload

    @property
    def ret(self) -> Any:
        """The last result: the field `ret` of the payload."""
        return (self.payload or {}).get("ret")

    @property
    def nodes(self) -> dict[str, Node]:
        """The live nodes by their nid."""
        return self.state.nodes

    @property
    def counters(self) -> dict[str, int]:
        """The numbers of runs, of messages, and of messages to other executions."""
        return self.state.counters

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the root."""
        root = self.state.nodes.get("0")
        return {} if root is None else root.vars or {}

    @property
    def tags(self) -> dict[str, list[str]]:
        """The current tags, each with the nodes that have it."""
        found: dict[str, list[str]] = {}
        for nid, node in self.state.nodes.items():
            for tag in node.tags or ():
                found.setdefault(tag, []).append(nid)
        return found

    @property
    def timers(self) -> list[FlowTimer]:
        """The timers, the next one first."""
        return sorted(self.state.timers.values(), key=lambda timer: timer.at)

    @property
    def failures(self) -> list[FailedNode]:
        """The nodes that failed and were not repaired."""
        found = []
        for node in self.state.failures():
            if node.state is not None:
                continue  # a handler has handled it, or is about to
            error = (node.failure or {}).get("error", {})
            kind, text = str(error.get("kla", "")), str(error.get("msg", ""))
            found.append(FailedNode(node.nid, kind, text, error.get("lin")))
        return found

    @property
    def tasks(self) -> list[HeldTask]:
        """The tasks that have been dispatched and not returned."""
        return [
            HeldTask(
                task_id(self.exid, node.nid, node.own["handed"][0]),
                node.nid,
                node.own["handed"][1],
                node.own["task"]["name"],
            )
            for node in self.state.tasks()
            if "handed" in node.own and not node.own.get("answered") and node.failure is None
        ]

    def plain(self) -> dict[str, Any]:
        """Return what people look for in it, as plain data: for `actorflow show` and programs."""
        return {
            "payload": self.payload,
            "failures": self.failures,
            "tasks": self.tasks,
            "nodes": {nid: _node(node) for nid, node in self.nodes.items()},
            "variables": self.variables,
            "tags": self.tags,
            "timers": [
                {"nid": timer.nid, "type": timer.type, "schedule": timer.string, "at": timer.at}
                for timer in self.timers
            ],
            "counters": self.counters,
        }

    def statistics(self) -> Statistics:
        """Return counts."""
        return self.state.statistics()

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yield the records of its runs, oldest first, as far back as the history is kept.

        A record has the `messages` of the run, the `counters`, the number of `nodes` and the `size`
        after it, the counters and nodes `before` it, the time (`at`) and the duration (`took`).
        """
        cursor = None
        while True:
            page = self._store.history(self.exid, after=cursor)
            for row in page.rows:
                entry = bodies.decode(row.body)
                messages = messages_of(entry)
                del entry["payloads"], entry["values"]
                yield {**entry, "messages": messages, "took": row.at - entry["at"]}
            cursor = page.after
            if cursor is None:
                return

    def history(self) -> list[Message]:
        """Return every message, in order, as it was after processing."""
        return [message for entry in self.runs() for message in entry["messages"]]

    def traces(self) -> list[str]:
        """Return the texts of `trace`."""
        return [trace["text"] for entry in self.runs() for trace in entry.get("traces", ())]


def _node(node: Node) -> dict[str, Any]:
    """Return the view of one node: its procedure, place and payload."""
    return {
        "does": node.heat0,
        "parent": node.parent,
        "status": node.state or "open",
        "failed": node.failure is not None,
        "payload": node.payload,
    }
