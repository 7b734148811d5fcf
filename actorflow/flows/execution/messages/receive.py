"""``receive``: a node has answered; remove it, and let its parent continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.messages.leave import leave
from actorflow.flows.execution.node import ROOT, child_id
from actorflow.flows.execution.procedure import procedure_for

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.execution.run import FlowRun

_ASIDE = frozenset(("flank", "part"))
"""Answers after which the parent continues while the node stays."""


def receive(run: FlowRun, message: Message) -> list[Message]:
    """Leave the node that has answered, and let its parent continue."""
    came_from, nid = message.get("from"), message.get("nid")
    flavour = message.get("flavour")
    out: list[Message] = []
    if came_from is not None and not message.get("virtual"):
        child = run.nodes.get(came_from)
        if child is None or (child.status and child.state == "ended"):
            return _receive_stale(run, message, came_from, nid)
        if flavour is None or flavour not in _ASIDE:
            out = leave(run, child, message)
    if nid is None:
        return out if flavour == "flank" else [*out, _end_message(run, message, came_from)]
    node = run.find(nid)
    if node is None:
        if message.get("tasker"):
            run.refuse(message, f"the task at node {nid} was already returned, or cancelled")
        return out
    if node.status and node.state == "ended":
        if came_from in node.cnodes:
            node.cnodes.remove(came_from)
        return out
    procedure = procedure_for(run, node, message)
    if came_from is not None and flavour != "flank" and came_from in node.cnodes:
        node.cnodes.remove(came_from)
    emitted = _hear(procedure)
    message["payload"] = procedure.payload
    return out + emitted if out else emitted


def _receive_stale(
    run: FlowRun, message: Message, came_from: str, nid: str | None
) -> list[Message]:
    """Refuse the answer of a node that was removed or has ended."""
    if nid is None and came_from != ROOT:
        return [_end_message(run, message, came_from)]
    if nid is None or nid in run.nodes:
        run.refuse(message, f"node {came_from} is not a live child of node {nid}")
    return []


def _end_message(run: FlowRun, message: Message, came_from: str | None) -> Message:
    point = "terminated" if came_from == ROOT else "ceased"
    return run.follow(message, point, None, came_from)


def _hear(procedure: Procedure) -> list[Message]:
    """Pass an answer to the procedure, according to the status of its node."""
    node = procedure.node
    if procedure.message.get("disable"):
        return procedure.reply(disabled=True)
    if node.status:
        return procedure.receive_when_closed()
    if node.handlers is not None and "receive" in node.handlers:
        return _hear_through_handler(procedure)
    return procedure.receive()


def _hear_through_handler(procedure: Procedure) -> list[Message]:
    """Apply the on_receive function to an answer, and continue with its result."""
    node, message = procedure.node, procedure.message
    own = node.own
    came_from = message.get("from")
    applied = own.get("receiving")
    if applied is not None and applied[0] == came_from:
        own.pop("receiving")
        procedure.message = {**message, "from": applied[1]}
        out = procedure.receive()
        waiting = own.get("received")
        if waiting:
            following = waiting.pop(0)
            return out + _apply_receiver(procedure, following)
        return out
    children = procedure.tree[1]
    is_att = came_from is not None and child_id(came_from) < len(children)
    if came_from is None or (
        is_att and children[child_id(came_from)][0] in ("_att", "on_receive", "on", "def")
    ):
        return procedure.receive()
    if applied is not None and applied[0] in procedure.run.nodes:
        own.setdefault("received", []).append(message)
        return []
    return _apply_receiver(procedure, message)


def _apply_receiver(procedure: Procedure, message: Message) -> list[Message]:
    function = (procedure.node.handlers or {})["receive"][0][1]
    emitted = procedure.apply(function, [["msg", message]], payload=message.get("payload"))
    procedure.node.own["receiving"] = [emitted["nid"], message.get("from")]
    return [emitted]
