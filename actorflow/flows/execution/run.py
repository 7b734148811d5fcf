"""The working state of one run, for messages and procedures; and the outcome of a run.

The state of the execution is not changed: nodes are forked as they are touched, so that a run whose
commit is lost can be discarded and repeated on a newer state.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from actorflow.flows.errors import FlowError, FlowMessageRefused, LimitExceeded
from actorflow.flows.execution.literal_messages import Literals
from actorflow.flows.execution.node import Message, Payload, child_id
from actorflow.flows.execution.state import ExecutionState, FlowStatus, FlowTimer
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.values.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from actorflow.flows.execution.environment import Loader, Taskers
    from actorflow.flows.execution.node import Node
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.values.values import Value

    Procedures: TypeAlias = Mapping[str, type[Any]]
    """Maps names to subclasses of `Procedure`, which in turn depends on `FlowRun`."""


@dataclass(frozen=True)
class RefusedMessage:
    """A message that had no effect, and why."""

    message: Message
    error: FlowError


class RunOutcome(msgspec.Struct, gc=False):
    """The outcome of a run. All of it is one commit; tasks are dispatched after that."""

    state: ExecutionState
    status: FlowStatus
    processed: list[Message | Literals] = []
    """The processed messages in order, as they were after processing; literals are together."""
    tasks: list[Message] = []
    """task and detask messages to dispatch after the commit."""
    timers: list[FlowTimer] = []
    """Timers to set."""
    cancelled_timers: list[str] = []
    """Ids of timers to cancel."""
    signals: list[Message] = []
    """Messages for other executions."""
    leftover: list[Message] = []
    """Messages that were not processed in this run."""
    refused: list[RefusedMessage] = []
    traces: list[dict[str, Any]] = []
    echoes: list[dict[str, Any]] = []
    """Texts for the log, with their nodes."""
    payload: Payload | None = None
    """The payload of the terminated message, if it was processed in this run."""

    @property
    def messages(self) -> list[Message]:
        """The processed messages, each of them: the history. Takes time linear in their number."""
        messages: list[Message] = []
        for one in self.processed:
            messages += one.messages()[:-1] if isinstance(one, Literals) else (one,)
        return messages


def is_inside(run: FlowRun, node: Node | None, nid: str | None) -> bool:
    """Return whether a node is the one called ``nid``, or below it."""
    while node is not None:
        if node.nid == nid:
            return True
        node = run.nodes.get(node.parent or "")
    return False


def is_live(run: FlowRun, nid: str | None) -> bool:
    """Return whether there is a node called ``nid`` that has not ended."""
    node = run.nodes.get(nid or "")
    return node is not None and node.state != "ended"


def topmost(run: FlowRun) -> list[str]:
    """Return the nids of the nodes that no other one waits for: the root, and detached nodes.

    Nodes that failed before they had a procedure are left out: they end with their parents.
    """
    nodes = run.nodes
    found = []
    for nid, node in nodes.items():
        parent = nodes.get(node.parent or "")
        if parent is None or parent.state == "ended":
            waited_for = False
        else:
            waited_for = node.heap is None or nid in parent.cnodes
        if not waited_for:
            found.append(nid)
    return found


class FlowRun:
    """The nodes of an execution, its environment, and its outcome so far, during one run."""

    def __init__(
        self,
        state: ExecutionState,
        *,
        procedures: Procedures,
        now: float,
        loader: Loader,
        taskers: Taskers,
        rng: Random | None,
        limits: Limits = LIMITS,
    ) -> None:
        """Begin with a state, which is forked node by node."""
        self.procedures = procedures
        self.exid = state.exid
        self.domain = state.domain
        self.now = now
        self.loader = loader
        self.taskers = taskers
        self.rng = rng
        self.sizes = Sizes(limits)
        self._is_full = state.stored > limits.state
        self.most_nodes = 0 if self._is_full else limits.nodes
        self.nodes: dict[str, Node] = dict(state.nodes)
        self.counters = dict(state.counters)
        self.traps = list(state.traps)
        self.timers = dict(state.timers)
        self.orphans = list(state.orphans)
        self.trees: dict[str, Tree] = {}
        self.fresh_functions: dict[int, Value] = {}
        self.applied: dict[str, Value] = {}
        self.many_functions = False
        self.queue: deque[Message] = deque()
        self.touched: set[str] = set()
        self.before = state
        self.terminated = state.terminated
        self.cancelled = state.cancelled
        self.out = RunOutcome(state, FlowStatus.ACTIVE)

    # -- nodes --------------------------------------------------------------------------------

    def find(self, nid: str) -> Node | None:
        """Return a node that may be changed, or None if it was removed."""
        if nid in self.touched:
            return self.nodes.get(nid)
        node = self.nodes.get(nid)
        if node is None:
            return None
        node = self.nodes[nid] = node.fork()
        self.touched.add(nid)
        return node

    def touch(self, nid: str) -> Node:
        """Return a node that may be changed. Raises FlowError if it was removed."""
        node = self.find(nid)
        if node is None:
            raise FlowError(f"node {nid} is gone")
        return node

    def parent_of(self, node: Node) -> Node | None:
        """Return the parent of a node, which may be changed, or None."""
        return None if node.parent is None else self.find(node.parent)

    def check_room(self, more: int) -> None:
        """Raise LimitExceeded if there is no room for ``more`` nodes, besides those queued."""
        if self._is_full:
            raise LimitExceeded(
                f"the execution is stored in {self.before.stored:,} bytes, and may have"
                f" {self.sizes.limits.state:,}: it starts no new nodes"
            )
        nodes = len(self.nodes) + len(self.queue) + more
        if nodes > self.sizes.limits.nodes:
            raise LimitExceeded(
                f"the execution would have {nodes:,} nodes at once, and may have"
                f" {self.sizes.limits.nodes:,}"
            )

    def remove(self, nid: str) -> None:
        """Remove a node."""
        self.nodes.pop(nid, None)
        self.trees.pop(nid, None)

    def tree_of(self, node: Node) -> Tree:
        """Return the tree of a node, which may be kept in one of its ancestors."""
        tree = self.trees.get(node.nid) or node.tree
        if tree is not None:
            return tree
        below: list[str] = []
        while tree is None:
            below.append(node.nid)
            parent = self.nodes.get(node.parent or "")
            if parent is None:
                raise FlowError(f"node {node.nid} has lost its tree")
            node = parent
            tree = self.trees.get(node.nid) or node.tree
        for nid in reversed(below):
            tree = tree[1][child_id(nid)]
            self.trees[nid] = tree
        return tree

    def keep_tree(self, node: Node, tree: Tree) -> None:
        """Store the tree in the node, unless it is the same as in the tree of a live parent."""
        if node.parent is not None:
            parent = self.nodes.get(node.parent)
            if parent is not None and not (parent.status and parent.state == "ended"):
                children = self.tree_of(parent)[1]
                index = child_id(node.nid)
                if type(children) is list and index < len(children):
                    held = children[index]
                    if held is tree or (held[0] == tree[0] and held == tree):
                        return
        node.tree = tree

    def has_live_children(self, node: Node) -> bool:
        """Return whether a child has not ended and will answer to ``node``."""
        nodes = self.nodes
        return any(
            (child := nodes.get(nid)) is not None and child.state != "ended" and not child.detached
            for nid in node.cnodes
        )

    def close(
        self, node: Node, message: Message, *, flavour: str | None = None, handled: bool = False
    ) -> None:
        """Mark a node as closed: it waits for its children and starts nothing new."""
        status: dict[str, Any] = {"status": "closed", "point": message["point"], "m": message["m"]}
        flavour = flavour or message.get("flavour")
        if flavour:
            status["flavour"] = flavour
        if message.get("from"):
            status["from"] = message["from"]
        if handled:
            status["handled"] = True
        if node.status and node.status[-1].get("m") == message["m"] and node.state != "ended":
            node.status.pop()
        node.status.append(status)

    def reopen(self, node: Node) -> None:
        """Mark a node as open again."""
        node.status.clear()

    # -- counting -----------------------------------------------------------------------------

    def next_sub(self) -> int:
        """Return a new number for a pass through a subtree."""
        number = self.counters["subs"] = self.counters.get("subs", 0) + 1
        return number

    def next_fun(self) -> int:
        """Return a new number for a function."""
        number = self.counters.get("funs", 0)
        self.counters["funs"] = number + 1
        return number

    def describe(self) -> dict[str, Any]:
        """Return what ``exe.`` paths can read."""
        return {
            "exid": self.exid,
            "domain": self.domain,
            "unit": self.before.unit,
            "counters": dict(self.counters),
            "start": self.before.start,
        }

    # -- output -------------------------------------------------------------------------------

    def follow(
        self, message: Message, point: str, nid: str | None, came_from: str | None
    ) -> Message:
        """Return a message caused by ``message``, with its payload and causes."""
        emitted: Message = {
            "point": point,
            "exid": self.exid,
            "nid": nid,
            "from": came_from,
            "sm": message["m"],
        }
        emitted["payload"] = message.get("payload")
        if message.get("cause"):
            emitted["cause"] = message["cause"]
        return emitted

    def refuse(self, message: Message, why: str) -> None:
        """Record that a message has no effect, and why."""
        self.out.refused.append(
            RefusedMessage(message, FlowMessageRefused(f"{message.get('point')} refused: {why}"))
        )

    def trace(self, nid: str, text: str) -> None:
        """Add a trace to the outcome."""
        self.out.traces.append({"nid": nid, "text": text})
