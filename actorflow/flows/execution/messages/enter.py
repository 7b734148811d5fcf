"""``execute`` and ``add``: creates a node, and adds children to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import not_an_object
from actorflow.flows.execution.messages import resolve
from actorflow.flows.execution.messages.leave import keep_trees, leave_orphans
from actorflow.flows.execution.node import Node
from actorflow.flows.execution.procedure import procedure_for
from actorflow.flows.execution.run import is_live

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.execution.run import FlowRun

_HANDLERS = {f"on_{kind}_handler": kind for kind in ("error", "cancel", "timeout")}


def execute(run: FlowRun, message: Message) -> list[Message]:
    """Create a node and enter it."""
    return start(run, create_node(run, message), message)


def start(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """Enter a node that was just created."""
    procedure: Procedure = run.procedures[node.heap or ""](run, node, message, message["tree"])
    try:
        out = procedure.execute()
    except Exception:
        _orphan(run, node)
        raise
    message["payload"] = procedure.payload
    if "trailing" in message and not is_live(run, node.parent):
        out.append(procedure.wrap("cancel", node.nid))  # its parent was left before it was counted
    return out


def _orphan(run: FlowRun, node: Node) -> None:
    """Record that a node has failed before its parent counted it among its children, if so."""
    parent = run.nodes.get(node.parent or "")
    if parent is not None and node.nid not in parent.cnodes:
        node.heap = None
        run.orphans.append(node.nid)


def create_node(run: FlowRun, message: Message) -> Node:
    """Return the node of an execute message, which is new, with its procedure resolved."""
    payload = message.get("payload")
    if type(payload) is not dict:
        message["payload"] = {}
        if payload is not None:
            raise not_an_object(payload)
        payload = message["payload"]
    nid, tree = message["nid"], message["tree"]
    if (replaced := run.nodes.get(nid)) is not None:
        _set_aside_children(run, replaced)
    parent = message.get("from")
    node = run.nodes[nid] = Node(nid, parent, payload, tree[0])
    variables = message.get("vars")
    if variables is not None:
        node.vars = dict(variables)
    elif parent is None:
        node.vars = {}
    if "cnid" in message:
        node.cnid = message["cnid"]
    if "detached" in message:
        node.detached = True
    run.touched.add(nid)
    run.trees[nid] = tree
    if len(run.nodes) > run.most_nodes:
        node.tree = tree
        run.orphans.append(nid)
        run.check_room(0)
    if not _HANDLERS.keys().isdisjoint(message):
        _add_handlers(node, message)
    run.keep_tree(node, tree)
    resolve.resolve(run, node, tree, message)
    return node


def _set_aside_children(run: FlowRun, replaced: Node) -> None:
    """Let the children of a node that is replaced end on their own: they answer to nobody."""
    keep_trees(run, replaced)
    leave_orphans(run, replaced.nid)
    for nid in replaced.cnodes:
        if nid in run.nodes:
            run.touch(nid).detached = True


def _add_handlers(node: Node, message: Message) -> None:
    for key, kind in _HANDLERS.items():
        if key in message and type(message[key]) is list:
            node.handlers = {**(node.handlers or {}), kind: [message[key]]}


def add(run: FlowRun, message: Message) -> list[Message]:
    """Add trees or elements to a node."""
    node = run.find(message["nid"])
    if node is None or node.state is not None:
        return []
    procedure = procedure_for(run, node, message)
    return procedure.add_message()
