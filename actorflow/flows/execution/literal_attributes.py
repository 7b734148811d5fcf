"""A fast path for attributes that are literals, as in ``task 'alice' 'stage a'``.

Most messages of most flows are about those, and their course is known beforehand: the attribute is
entered, its value is entered, the value answers, the attribute answers, and the next attribute is
entered. The messages, their numbers and the resulting nodes are the same as if the procedures had
processed one message at a time; the messages are created only if something reads them. If the
parent simply continues after the last attribute, that attribute gets no node.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.literal_messages import EACH, LEAST, Literals, answer_of
from actorflow.flows.execution.node import Node, child_id, child_nid
from actorflow.flows.execution.procedure import Procedure, procedure_for

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.run import FlowRun
    from actorflow.flows.language.tree import Tree

__all__ = ["evaluate", "go_on", "is_literal"]

_BETWEEN = ("receive", "receive_att", "execute_child", "wrap")
_ATOMS = frozenset(("_num", "_boo", "_sqs", "_nul"))
_MOST_KNOWN = 1_024
_known: dict[tuple[int, int], tuple[list[Tree], tuple[Tree, ...]]] = {}
"""Literal attributes by the children they are among and the place of the first; trees never change.
"""


def is_literal(tree: Tree | None) -> bool:
    """Return whether a tree is an unkeyed attribute whose value is a literal."""
    try:
        if tree[0] != "_att" or len(tree[1]) != 1:  # type: ignore[index]
            return False
        atom = tree[1][0]  # type: ignore[index]
        return atom[0] in _ATOMS and atom[1] != []
    except (LookupError, TypeError):
        return False  # not a tree: the loop will raise the error


def evaluate(run: FlowRun, message: Message, room: int) -> Literals | None:
    """Process the message that executes a literal attribute, and the messages that result.

    Continues with the next attributes while they are literals and ``room`` allows. Does nothing and
    returns None if there is no room, or a trap, a handler or the parent might interfere. If
    ``goes_on`` is set, the answer is to be processed by `go_on`.
    """
    parent = run.find(message.get("from") or "")
    if (
        room < LEAST
        or parent is None
        or parent.status
        or "child" in parent.own
        or type(message.get("payload")) is not dict
        or message.get("vars") is not None
        or run.traps
    ):
        return None
    trees = _literals_at(run, parent, message)
    goes_on = trees is not None
    if trees is None:
        trees = (message["tree"],)
    size = min(len(trees), (room + 1) // EACH)
    if size < len(trees):
        trees = trees[:size]
    values = [tree[1][0][1] for tree in trees]
    if parent.atts is not None:
        parent.atts += [[None, value] for value in values]
    elif parent.rets is not None:
        parent.rets += values
    nid, payload = message["nid"], message["payload"]
    if size > 1:
        nid = child_nid(parent.nid, child_id(nid) + size - 1)
    if EACH * size > room or nid in run.nodes:
        goes_on = False
    if not goes_on:
        entered = payload if size == 1 else {**payload, "ret": values[-2]}
        _leave_entered(run, parent, nid, trees[-1], entered)
    counters = run.counters
    m = message["m"] = counters.get("msgs", 0) + 1
    runs = message["pr"] = counters["runs"]
    m = counters["msgs"] = m + EACH * size - 2
    answer = answer_of(message, nid, {**payload, "ret": values[-1]}, m, runs)
    return Literals(message, trees, answer, goes_on)


def go_on(run: FlowRun, answer: Message) -> list[Message]:
    """Let the parent continue after the last of some literal attributes, which has no node."""
    procedure = procedure_for(run, run.nodes[answer["nid"]], answer)
    emitted = procedure.receive_att(child_id(answer["from"]))
    answer["payload"] = procedure.payload
    return emitted


@functools.lru_cache(maxsize=1024)
def _just_goes_on(cls: Hashable) -> bool:
    """Return whether a procedure has the default behaviour between two attributes."""
    return all(getattr(cls, name) is getattr(Procedure, name) for name in _BETWEEN)


def _literals_at(run: FlowRun, parent: Node, message: Message) -> tuple[Tree, ...] | None:
    """Return an attribute and the literal ones after it, if the parent simply goes on with them."""
    cls: Any = run.procedures.get(parent.heap or "")
    if (
        cls is None
        or not _just_goes_on(cls)
        or parent.handlers is not None
        or parent.aret is not None
        or (parent.vars is not None and "idx" in parent.vars)
    ):
        return None
    children = run.tree_of(parent)[1]
    index = child_id(message["nid"])
    if index >= len(children) or children[index] is not message["tree"]:
        return None
    known = _known.get((id(children), index))
    if known is not None and known[0] is children:
        return known[1]
    trees = tuple(itertools.takewhile(is_literal, children[index:]))
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[id(children), index] = (children, trees)
    return trees


def _leave_entered(run: FlowRun, parent: Node, nid: str, tree: Tree, payload: Payload) -> None:
    """Create the node of the attribute whose answer is still to be processed."""
    node = run.nodes[nid] = Node(nid, parent.nid, payload, "_att", "_att")
    run.touched.add(nid)
    run.trees[nid] = tree
    run.keep_tree(node, tree)
    if nid not in parent.cnodes:
        parent.cnodes.append(nid)
