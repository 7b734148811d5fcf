"""Finds the procedure of a node: what its head refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import UnknownProcedure, UnknownWord
from actorflow.flows.execution import names
from actorflow.flows.values.values import MISSING, Value, is_reference, is_regex, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import FlowRun
    from actorflow.flows.language.tree import Tree

_KNOWN = 512
_tasks: dict[int, tuple[Tree, str, Tree]] = {}


def resolve(run: FlowRun, node: Node, tree: Tree, message: Message) -> None:
    """Find the procedure of a node; set its heat and heap."""
    head = tree[0]
    if _resolve_procedure(run, node, tree, message):
        return
    heat = _heat(run, node, tree, message)
    if heat is MISSING:
        _resolve_unknown(run, node, tree, message)
        return
    kind = heat[0] if is_reference(heat) else None
    if kind is None and is_regex(heat):
        heat = heat[1]
    if kind is not None and heat[1].get(kind[1:]) != head:
        heat = _noted(run, node, head, heat, message)
    if (tree[1] == [] and head != "_") or kind is None:
        node.heap, node.heat = "_val", heat
    elif kind == "_proc":
        node.heap = to_text(heat[1].get("proc"))
        if len(heat[1]) > 1:
            node.heat = heat
    elif kind == "_func":
        node.heap, node.heat = "apply", heat
    else:
        node.heap, tasker = "task", to_text(heat[1].get("tasker"))
        message["tree"] = node.tree = run.trees[node.nid] = _task(tree, tasker)
    if node.heap not in run.procedures:
        node.heap = None
        run.orphans.append(node.nid)
        raise UnknownProcedure(f'don\'t know how to apply "{head}"')


def _resolve_procedure(run: FlowRun, node: Node, tree: Tree, message: Message) -> bool:
    """Resolve a head that is the name of a procedure, unless a variable hides it."""
    head = tree[0]
    if head not in run.procedures:
        return False
    if head[0] == "_":
        if tree[1] == []:
            node.heap, node.heat = "_val", ["_proc", {"proc": head}, -1]
        else:
            node.heap = head
        return True
    if not tree[1] or "heat" in message or names.owner_of(run, node, head) is not None:
        return False
    node.heap = head
    return True


def _task(tree: Tree, tasker: str) -> Tree:
    """Return ``task 'alice' ...`` for ``alice ...``.

    Cached, so that executions of the same flow share the trees.
    """
    known = _tasks.get(id(tree))
    if known is not None and known[0] is tree and known[1] == tasker:
        return known[2]
    name = ["_att", [["_sqs", tasker, tree[2]]], tree[2]]
    task = ["task", [name, *tree[1]], *tree[2:]]
    if len(_tasks) >= _KNOWN:
        _tasks.clear()
    _tasks[id(tree)] = (tree, tasker, task)
    return task


def _heat(run: FlowRun, node: Node, tree: Tree, message: Message) -> Value:
    """Return what the head of a tree refers to, or ``MISSING``."""
    if "heat" in message:
        return message["heat"]
    if tree[0] == "_":
        node.heat0 = "noeval"
        return ["_proc", {"proc": "noeval"}, -1]
    return names.variable(run, node, tree[0])


def _resolve_unknown(run: FlowRun, node: Node, tree: Tree, message: Message) -> None:
    head = tree[0]
    if message.get("accept_symbol") and tree[1] == []:
        message["tree"] = node.tree = run.trees[node.nid] = ["_sqs", head, *tree[2:]]
        node.heap = node.heat0 = "_sqs"
        return
    run.orphans.append(node.nid)
    if tree[1] == []:
        raise UnknownWord(f'cannot find "{head}"')
    raise UnknownProcedure(f'don\'t know how to apply "{head}"')


def _noted(run: FlowRun, node: Node, head: str, heat: Value, message: Message) -> Value:
    """Record the name by which something is called, in the payload as well."""
    called = called_as(run, node, head, heat)
    payload = message["payload"]
    if "heat" in message and payload.get("ret") is heat:
        message["payload"] = node.payload = {**payload, "ret": called}
    return called


def called_as(run: FlowRun, node: Node, name: str, function: Value) -> Value:
    """Record in a reference the name by which it is called; return the reference to use."""
    if id(function) not in run.fresh_functions:
        known = function
        function = [known[0], dict(known[1]), known[2]]
        run.fresh_functions[id(function)] = function
        owner = names.owner_of(run, node, name)
        if owner is not None and owner.vars is not None and owner.vars[name] is known:
            variables = run.touch(owner.nid).vars
            if variables is not None:
                variables[name] = function
    data = function[1]
    if "ref" in data:
        data.setdefault("oref", data["ref"])
    data["ref"] = name
    return function
