"""Cancel messages: where they go, what caused them, and what waits for their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.execution.run import Run


MAX_CAUSES = 64
"""How many causes a message remembers: a loop that goes on for ever must not grow its messages."""


def cancel(run: Run, message: Message) -> list[Message]:
    """Cancel or kill a node; one that is gone or has ended takes no notice."""
    node = run.find(message["nid"])
    if node is None:
        return []
    if node.state == "ended":
        if message.get("payload") is None and message.get("flavour") != "kill":
            message["payload"] = node.payload
        return []
    if node.heap is None:
        return _cancel_orphan(run, node, message)
    procedure = run.procedure_for(node, message)
    if message.get("flavour") == "kill":
        return procedure.kill_message()
    out = procedure.cancel_message()
    if message.get("on_receive_last") and out and out[0]["point"] == "execute":
        message["on_receive_last"] = out
    message["payload"] = procedure.payload
    return out


def _cancel_orphan(run: Run, node: Node, message: Message) -> list[Message]:
    """End a node that never had a procedure, so that its parent can go on; or apply it anew."""
    if message.get("payload") is None:
        message["payload"] = node.payload
    waiting = waiting_messages(run, node, message)
    if waiting:
        return waiting
    return [run.follow(message, "receive", node.parent, node.nid)]


def waiting_messages(run: Run, node: Node, message: Message) -> list[Message]:
    """Return what a re-apply asks to be emitted once the node's children are gone."""
    waiting = []
    for one in message.get("on_receive_last") or ():
        copy = dict(one)
        copy["exid"] = run.exid
        if copy.get("from") == "parent":
            copy["from"] = node.parent
        if copy.get("payload") is None:
            copy["payload"] = message.get("payload") or node.payload
        waiting.append(copy)
    return waiting


def on_receive_last(run: Run, procedure: Procedure) -> list[Message]:
    """Return what is to be emitted once all children of a cancelled node are gone."""
    node, message = procedure.node, procedure.message
    if message.get("on_receive_last"):
        return waiting_messages(run, node, message)
    known = node.handlers or {}
    handlers = known.get("timeout") if message.get("flavour") == "timeout" else None
    handlers = handlers or known.get("cancel")
    if not handlers:
        return []
    shown = {**message, "payload": procedure.payload}
    arguments: list[list[Any]] = [["msg", shown], ["err", None]]
    return [run.apply(procedure, handler[1], arguments, line=handler[1][2]) for handler in handlers]


def add_cause(run: Run, message: Message) -> None:
    """Put a cancel or a trigger in front of the causes of its own message."""
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
