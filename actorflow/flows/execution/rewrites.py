"""Rewrites of trees that outlive their evaluation.

When a tree is evaluated, the words that are keys of an object become strings, and the candidates of
a match become patterns. The next pass of a loop and the next call of a function see the rewritten
tree. Trees are never changed in place: the path to a replaced part is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.node import child_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.flows.execution.node import Node
    from actorflow.flows.execution.run import FlowRun
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.values.values import Value

_LOOPS = frozenset(("cursor", "loop", "until", "while"))


def replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    """Return ``tree`` with the part that is ``old`` replaced, or ``tree`` itself.

    >>> part = ["b", [], 1]
    >>> replaced(["a", [part, ["b", [], 1]], 1], part, ["_sqs", "b", 1])
    ['a', [['_sqs', 'b', 1], ['b', [], 1]], 1]
    """
    if tree is old:
        return new
    children = tree[1]
    if type(children) is not list:
        return tree
    for index, child in enumerate(children):
        changed = replaced(child, old, new)
        if changed is not child:
            return [tree[0], [*children[:index], changed, *children[index + 1 :]], *tree[2:]]
    return tree


def _ancestors(run: FlowRun, node: Node) -> Iterator[Node]:
    above = run.nodes.get(node.parent or "")
    while above is not None:
        yield above
        above = run.nodes.get(above.parent or "")


def replace_around(run: FlowRun, node: Node, old: Tree, new: Tree) -> None:
    """Replace a part of a tree in the loops and functions around ``node``."""
    around: list[Node] = []
    for one in _ancestors(run, node):
        around.append(one)
        is_body = one.heap == "_apply"
        if _replace_in_function(run, one, old, new) if is_body else _is_rewritten(run, one):
            break
    if any(one.heap in _LOOPS for one in around):
        for one in around:
            _replace_in_node(run, one, old, new)


def _replace_in_function(run: FlowRun, body: Node, old: Tree, new: Tree) -> bool:
    """Replace a part of a function; return whether the function has a tree of its own.

    With a single parameter, it does not share its tree with its definition.
    """
    if body.nid not in run.applied:
        return True
    function = run.applied[body.nid]
    head, data, line = function
    tree = data["tree"]
    changed = replaced(tree, old, new)
    caller = run.find(body.parent or "")
    if id(function) in run.fresh_functions:
        data["tree"] = changed
    elif caller is not None and caller.own.get("fun") is function:
        caller.own["fun"] = run.applied[body.nid] = [head, {**data, "tree": changed}, line]
    _replace_in_siblings(run, body.nid, function, old, new)
    params = [child[1][0][0] for child in tree[1] if child[0] == "_att"]
    return len(params) == 1 and params[0] != "_ref"


def _replace_in_siblings(run: FlowRun, body: str, function: Value, old: Tree, new: Tree) -> None:
    """Replace a part of a function in its other applications that are running."""
    siblings = [nid for nid, applied in run.applied.items() if applied is function and nid != body]
    for nid in siblings:
        run.applied[nid] = run.applied[body]
    waiting = {message["nid"] for message in run.queue if message["point"] == "execute"}
    if not any(nid in run.nodes or nid in waiting for nid in siblings):
        return
    for nid, tree in run.trees.items():
        changed = replaced(tree, old, new)
        if changed is not tree:
            run.trees[nid] = changed
            if nid in run.nodes and run.nodes[nid].tree is not None:
                run.touch(nid).tree = changed
    for message in run.queue:
        if message["point"] == "execute":
            message["tree"] = replaced(message["tree"], old, new)


def _is_rewritten(run: FlowRun, node: Node) -> bool:
    """Return whether a node has a copy of its tree with another head."""
    parent = run.nodes.get(node.parent or "")
    if node.tree is None or parent is None or node.heap == "task":
        return False
    children, place = run.tree_of(parent)[1], child_id(node.nid)
    return place >= len(children) or bool(children[place][0] != node.tree[0])


def _replace_in_node(run: FlowRun, node: Node, old: Tree, new: Tree) -> None:
    known = run.tree_of(node)
    changed = replaced(known, old, new)
    if changed is not known:
        run.trees[node.nid] = changed
        if node.tree is not None:
            run.touch(node.nid).tree = changed
