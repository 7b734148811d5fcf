"""Which procedure takes charge of a node: what its head stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows import lookup
from actorflow.flows.failure import UnknownProcedure, UnknownWord
from actorflow.flows.procedures import registry
from actorflow.flows.values import MISSING, Value, is_reference

if TYPE_CHECKING:
    from actorflow.flows.executor import Run
    from actorflow.flows.node import Message, Node, Tree


def resolve(run: Run, node: Node, tree: Tree, message: Message) -> None:
    """Find the procedure for a node: set its heat and heap."""
    head = tree[0]
    if head[0] == "_" and head in registry.NAMES:
        node.heap = head
        return
    heat = _heat(run, node, tree, message)
    if heat is MISSING:
        _resolve_unknown(run, node, tree, message)
        return
    kind = heat[0] if is_reference(heat) else None
    if kind == "_func":
        heat = called_as(run, node, head, heat)
    if tree[1] == [] or kind is None:
        node.heap, node.heat = "_val", heat
    elif kind == "_proc":
        node.heap = heat[1]["proc"]
        if len(heat[1]) > 1:
            node.heat = heat
    elif kind == "_func":
        node.heap, node.heat = "apply", heat
    else:
        node.heap = "task"
        name = ["_att", [["_sqs", heat[1]["tasker"], tree[2]]], tree[2]]
        message["tree"] = node.tree = run.trees[node.nid] = [
            "task",
            [name, *tree[1]],
            *tree[2:],
        ]
    if node.heap not in registry.NAMES:
        node.heap = None
        run.orphans.append(node.nid)
        raise UnknownProcedure(f'don\'t know how to apply "{head}"')


def _heat(run: Run, node: Node, tree: Tree, message: Message) -> Value:
    """Return what the head of a tree stands for, or ``MISSING``."""
    if "heat" in message:
        return message["heat"]
    if tree[0] == "_" and tree[1]:
        return ["_proc", {"proc": "noeval"}, -1]
    return lookup.variable(run, node, tree[0])


def _resolve_unknown(run: Run, node: Node, tree: Tree, message: Message) -> None:
    head = tree[0]
    if message.get("accept_symbol") and tree[1] == []:
        message["tree"] = node.tree = run.trees[node.nid] = ["_sqs", head, *tree[2:]]
        node.heap = node.heat0 = "_sqs"
        return
    run.orphans.append(node.nid)
    if tree[1] == []:
        raise UnknownWord(f'cannot find "{head}"')
    raise UnknownProcedure(f'don\'t know how to apply "{head}"')


def called_as(run: Run, node: Node, name: str, function: Value) -> Value:
    """Note in a function value the name it is called by; return the value to go on with."""
    number = function[1].get("fun")
    if run.fresh_functions.get(number) is not function:
        known = function
        function = [known[0], dict(known[1]), known[2]]
        run.fresh_functions[number] = function
        owner = lookup.owner_of(run, node, name)
        if owner is not None and owner.vars is not None and owner.vars[name] is known:
            variables = run.touch(owner.nid).vars
            if variables is not None:
                variables[name] = function
    data = function[1]
    if "ref" in data:
        data.setdefault("oref", data["ref"])
    data["ref"] = name
    return function
