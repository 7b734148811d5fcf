"""Leaves a node that has replied, and ``terminated``: the end of the execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.node import ROOT

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import FlowRun


def leave(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """End and remove a node that has replied; cancel its children; emit ``left`` for its tags."""
    nid = node.nid
    out: list[Message] = []
    kept = nid == ROOT or node.closures
    if kept:
        node = run.touch(nid)
        node.status.append({"status": "ended", "point": "receive", "m": message["m"]})
    if node.cnodes:
        out = _trailing(run, node, message)
    if not kept:
        run.nodes.pop(nid)
        run.trees.pop(nid, None)
    if run.orphans:
        leave_orphans(run, nid)
    if node.tags:
        left = {"point": "left", "tags": node.tags, "exid": run.exid, "nid": nid}
        out.append({**left, "payload": message.get("payload")})
    return out


def _trailing(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """Return cancels for the remaining children, which keep their trees."""
    out = []
    procedure = run.procedures.get(node.heap or "")
    trails = procedure is None or procedure.trails
    keep_trees(run, node)
    for child in node.cnodes:
        live = run.nodes.get(child)
        if live is not None and trails and not live.is_cancelled:
            cancel = run.follow(message, "cancel", child, node.nid)
            cancel["cancel_trailing"] = True
            if node.vars is not None and "idx" in node.vars:
                cancel["rvars"] = {"idx": node.vars["idx"]}
            out.append(cancel)
    return out


def keep_trees(run: FlowRun, node: Node) -> None:
    """Store their trees in the children of a node that is about to go."""
    for nid in node.cnodes:
        child = run.nodes.get(nid)
        if child is not None and child.tree is None:
            child = run.touch(nid)
            child.tree = run.tree_of(child)


def leave_orphans(run: FlowRun, parent: str) -> None:
    """Remove the children of a node that failed before they had a procedure."""
    for nid in run.orphans[:]:
        orphan = run.nodes.get(nid)
        if orphan is None or orphan.heap is not None:
            run.orphans.remove(nid)
        elif orphan.parent == parent:
            run.orphans.remove(nid)
            run.remove(nid)


def terminate(run: FlowRun, message: Message) -> list[Message]:
    """Record the end of the execution."""
    run.terminated = True
    run.out.payload = message.get("payload")
    run.cancelled = any(
        cause["cause"] in ("cancel", "kill") and cause["nid"] == ROOT
        for cause in message.get("cause") or ()
    )
    return []
