"""How a node comes to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import BadPayload
from actorflow.flows.execution.messages import resolve
from actorflow.flows.execution.node import Node, child_id

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import Run
    from actorflow.flows.language.tree import Tree

_HANDLERS = tuple((kind, f"on_{kind}_handler") for kind in ("error", "cancel", "timeout"))


def create_node(run: Run, message: Message) -> None:
    """Create the node an execute message is for, and find its procedure."""
    payload = message.get("payload")
    if type(payload) is not dict:
        message["payload"] = {}
        if payload is not None:
            raise BadPayload(
                f"a payload is a JSON object, not {type(payload).__name__}: {payload!r:.100}"
            )
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
    run.mine.add(nid)
    run.trees[nid] = tree
    if len(run.nodes) > run.most_nodes:
        node.tree = tree
        run.orphans.append(nid)
        run.check_room(0)
    for kind, key in _HANDLERS:
        given = message.get(key)
        if type(given) is list:
            node.handlers = {**(node.handlers or {}), kind: [given]}
    keep_tree(run, node, tree)
    resolve.resolve(run, node, tree, message)


def keep_tree(run: Run, node: Node, tree: Tree) -> None:
    """Keep the tree in the node, unless the parent's tree holds the same one at its place."""
    if node.parent is not None:
        parent = run.nodes.get(node.parent)
        if parent is not None:
            children = run.tree_of(parent)[1]
            index = child_id(node.nid)
            if type(children) is list and index < len(children):
                held = children[index]
                if held is tree or (held[0] == tree[0] and held == tree):
                    return
    node.tree = tree


def add(run: Run, message: Message) -> list[Message]:
    """Let a node grow."""
    node = run.find(message["nid"])
    if node is None or node.state is not None:
        return []
    procedure = run.procedure_for(node, message)
    return procedure.add_message()
