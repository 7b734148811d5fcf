"""``execute`` and ``add``: creates a node, and adds children to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import not_an_object
from actorflow.flows.execution.messages import resolve
from actorflow.flows.execution.node import Node
from actorflow.flows.execution.procedure import procedure_for

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.execution.run import Run

_HANDLERS = tuple((kind, f"on_{kind}_handler") for kind in ("error", "cancel", "timeout"))


def execute(run: Run, message: Message) -> list[Message]:
    """Enter a node."""
    node = run.nodes[message["nid"]]
    procedure: Procedure = run.procedures[node.heap or ""](run, node, message, message["tree"])
    out = procedure.execute()
    message["payload"] = procedure.payload
    return out


def create_node(run: Run, message: Message) -> None:
    """Create the node of an execute message, and resolve its procedure."""
    payload = message.get("payload")
    if type(payload) is not dict:
        message["payload"] = {}
        if payload is not None:
            raise not_an_object(payload)
    nid, tree = message["nid"], message["tree"]
    parent = message.get("from")
    node = Node(nid, parent, message["payload"], tree[0])
    variables = message.get("vars")
    if variables is not None:
        node.vars = dict(variables)
    elif parent is None:
        node.vars = {}
    if "cnid" in message:
        node.cnid = message["cnid"]
    run.nodes[nid] = node
    run.touched.add(nid)
    run.trees[nid] = tree
    if len(run.nodes) > run.most_nodes:
        node.tree = tree
        run.orphans.append(nid)
        run.check_room(0)
    for kind, key in _HANDLERS:
        given = message.get(key)
        if type(given) is list:
            node.handlers = {**(node.handlers or {}), kind: [given]}
    run.keep_tree(node, tree)
    resolve.resolve(run, node, tree, message)


def add(run: Run, message: Message) -> list[Message]:
    """Add trees or elements to a node."""
    node = run.find(message["nid"])
    if node is None or node.state is not None:
        return []
    procedure = procedure_for(run, node, message)
    return procedure.add_message()
