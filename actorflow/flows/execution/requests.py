"""Messages from outside: they start and steer executions, and return tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.node import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.language.tree import Tree


def launch_message(
    exid: str,
    tree: Tree,
    *,
    payload: Payload | None = None,
    variables: dict[str, Any] | None = None,
) -> Message:
    """Return the message that starts an execution."""
    return {
        "point": "execute",
        "exid": exid,
        "nid": ROOT,
        "tree": tree,
        "payload": payload if payload is not None else {},
        "vars": variables if variables is not None else {},
    }


def cancel_message(exid: str, nid: str = ROOT, *, kill: bool = False) -> Message:
    """Return the message that cancels a node, or kills it: no handler runs."""
    message: Message = {"point": "cancel", "exid": exid, "nid": nid}
    if kill:
        message["flavour"] = "kill"
    return message


def re_apply_message(exid: str, nid: str, tree: Tree, payload: Payload | None = None) -> Message:
    """Return the message that cancels a node and executes a tree in its place."""
    fields: Message = {} if payload is None else {"payload": payload}
    execute: Message = {
        "point": "execute",
        "exid": exid,
        "nid": nid,
        "from": "parent",
        "tree": tree,
        **fields,
    }
    return {**cancel_message(exid, nid), "on_receive_last": [execute], **fields}


def signal_message(exid: str, name: str, payload: Payload | None = None) -> Message:
    """Return the message that signals an execution."""
    return {"point": "signal", "exid": exid, "name": name, "payload": payload or {}}


def add_branches_message(exid: str, nid: str, at: int, trees: Sequence[Tree]) -> Message:
    """Return the message that inserts trees among the children of a node, before child ``at``."""
    tnid = f"{nid}_{at}"
    return {"point": "add", "exid": exid, "nid": nid, "tnid": tnid, "trees": list(trees)}


def add_elements_message(exid: str, nid: str, elements: Sequence[Any]) -> Message:
    """Return the message that gives an iterator more elements."""
    return {"point": "add", "exid": exid, "nid": nid, "elements": list(elements)}


def return_message(exid: str, nid: str, tasker: str, payload: Payload) -> Message:
    """Return the message that returns a task."""
    return {"point": "return", "exid": exid, "nid": nid, "tasker": tasker, "payload": payload}
