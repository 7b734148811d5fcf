"""``cancel``: cancels or kills a node, and records the causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.node import ROOT
from actorflow.flows.execution.procedure import messages_of_re_apply, procedure_for, reply_cancelled
from actorflow.flows.execution.run import topmost

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.execution.run import FlowRun


MAX_CAUSES = 64
"""How many causes a message keeps, so that the messages of an endless loop do not grow."""


def cancel(run: FlowRun, message: Message) -> list[Message]:
    """Cancel or kill a node; does nothing if it was removed or has ended.

    A cancel of the root from outside means the execution: if the root has ended, what still goes on
    aside is cancelled instead.
    """
    node = run.find(message["nid"])
    if node is None:
        return []
    if node.state == "ended":
        if message.get("payload") is None and message.get("flavour") != "kill":
            message["payload"] = node.payload
        return _cancel_the_rest(run, message) if means_the_rest(run, message) else []
    if node.heap is None:
        return _cancel_orphan(run, node, message)
    procedure = procedure_for(run, node, message)
    if message.get("flavour") == "kill":
        return _kill(procedure)
    out = procedure.cancel_message()
    if message.get("on_receive_last") and out and out[0]["point"] == "execute":
        message["on_receive_last"] = out
    message["payload"] = procedure.payload
    return out


def means_the_rest(run: FlowRun, message: Message) -> bool:
    """Return whether a cancel from outside is for an execution whose root has ended."""
    if message["nid"] != ROOT or message.get("from") is not None or "on_receive_last" in message:
        return False
    root = run.nodes.get(ROOT)
    return root is not None and root.state == "ended"


def _cancel_the_rest(run: FlowRun, message: Message) -> list[Message]:
    """Cancel or kill the nodes that continue after the root has ended."""
    flavour = message.get("flavour")
    out = []
    for nid in topmost(run):
        node = run.nodes[nid]
        if node.state == "ended" or (node.is_cancelled and flavour != "kill"):
            continue
        one = run.follow(message, "cancel", nid, None)
        one["payload"] = None  # each has its own
        if flavour is not None:
            one["flavour"] = flavour
        out.append(one)
    return out


def _cancel_orphan(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """End a node that never had a procedure, so that its parent can continue; or re-apply it."""
    if message.get("payload") is None:
        message["payload"] = node.payload
    if node.status:  # its parent has been answered
        return []
    waiting = messages_of_re_apply(run, node, message)
    run.close(node, message)
    if waiting:
        return waiting
    return [run.follow(message, "receive", node.parent, node.nid)]


def _kill(procedure: Procedure) -> list[Message]:
    """Kill the children and reply at once; neither handlers nor taskers are involved."""
    node = procedure.node
    if node.state == "ended":
        return []
    procedure.run.close(node, procedure.message)
    nodes = procedure.run.nodes
    kills = [procedure.wrap("cancel", nid, flavour="kill") for nid in node.cnodes if nid in nodes]
    if procedure.message.get("payload") is not None:
        return kills + reply_cancelled(procedure)
    for kill in kills:
        kill.pop("payload")
    kept, procedure.payload = procedure.payload, node.payload
    replies = reply_cancelled(procedure)
    procedure.payload = kept
    return kills + replies


def add_cause(run: FlowRun, message: Message) -> None:
    """Add a cancel or a trigger to the causes of its own message, first."""
    point = message["point"]
    flavour = message.get("flavour")
    kind = (
        "trigger" if point == "trigger" else flavour if flavour in ("kill", "timeout") else "cancel"
    )
    entry = {
        "cause": kind,
        "m": message["m"],
        "sm": message.get("sm"),
        "nid": message.get("nid"),
        "type": message.get("type"),
        "at": run.now,
    }
    message["cause"] = [entry, *(message.get("cause") or ())][:MAX_CAUSES]
