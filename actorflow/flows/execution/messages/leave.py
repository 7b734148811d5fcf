"""Leaves a node that has replied, and ``terminated``: the end of the execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.node import ROOT

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import Run


def leave(run: Run, node: Node, message: Message) -> list[Message]:
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
        _leave_orphans(run, nid)
    if node.tags:
        left = {"point": "left", "tags": node.tags, "exid": run.exid, "nid": nid}
        out.append({**left, "payload": message.get("payload")})
    return out


def _trailing(run: Run, node: Node, message: Message) -> list[Message]:
    """Return cancels for the remaining children, which keep their trees."""
    out = []
    procedure = run.procedures.get(node.heap or "")
    trails = procedure is None or procedure.trails
    for child in node.cnodes:
        live = run.nodes.get(child)
        if live is None:
            continue
        if live.tree is None:
            live = run.touch(child)
            live.tree = run.tree_of(live)
        if trails and not live.is_cancelled:
            cancel = run.follow(message, "cancel", child, node.nid)
            cancel["cancel_trailing"] = True
            if node.vars is not None and "idx" in node.vars:
                cancel["rvars"] = {"idx": node.vars["idx"]}
            out.append(cancel)
    return out


def _leave_orphans(run: Run, parent: str) -> None:
    for nid in run.orphans[:]:
        orphan = run.nodes.get(nid)
        if orphan is None or orphan.heap is not None:
            run.orphans.remove(nid)
        elif orphan.parent == parent:
            run.orphans.remove(nid)
            run.remove(nid)


def terminate(run: Run, message: Message) -> list[Message]:
    """Record the end of the execution."""
    run.terminated = True
    run.out.payload = message.get("payload")
    run.cancelled = any(
        cause["cause"] in ("cancel", "kill") and cause["nid"] == ROOT
        for cause in message.get("cause") or ()
    )
    return []
