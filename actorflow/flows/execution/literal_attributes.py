"""A fast path for attributes that are literals, as in ``task 'alice' 'stage a'``.

Most messages of most flows are about those, and their course is known beforehand: the attribute is
entered, its value is entered, the value answers, the attribute answers, and the next attribute is
entered. The messages, their numbers and the resulting nodes are the same as if the procedures had
processed one message at a time; the messages are made only for those who look at each.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.literal_messages import EACH, LEAST, Literals, answer_of
from actorflow.flows.execution.node import Node, child_id, child_nid
from actorflow.flows.execution.procedure import Procedure

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.flows.execution.literal_messages import Part
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.run import Run
    from actorflow.flows.language.tree import Tree

__all__ = ["evaluate", "is_literal"]

_BETWEEN = ("receive", "receive_att", "execute_child", "wrap")
_ATOMS = frozenset(("_num", "_boo", "_sqs", "_nul"))


def is_literal(tree: Tree | None) -> bool:
    """Return whether a tree is an unkeyed attribute whose value is a literal."""
    try:
        if tree[0] != "_att" or len(tree[1]) != 1:  # type: ignore[index]
            return False
        atom = tree[1][0]  # type: ignore[index]
        return atom[0] in _ATOMS and atom[1] != []
    except (LookupError, TypeError):
        return False  # not a tree: the loop will raise the error


def evaluate(run: Run, message: Message, room: int) -> Literals | None:
    """Process the message that executes a literal attribute, and those that follow from it.

    Continues with the next attributes while they are literals and ``room`` allows. Does nothing and
    returns None if there is no room, or a trap, a handler or the parent might interfere.
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
    tree, payload = message["tree"], message["payload"]
    rest = _rest(run, parent, message)
    parts: list[Part] = []
    while True:
        atom = tree[1][0]
        entered = payload
        payload = entered.copy()
        payload["ret"] = atom[1]
        if parent.atts is not None:
            parent.atts.append([None, atom[1]])
        elif parent.rets is not None:
            parent.rets.append(atom[1])
        parts.append((tree, atom, payload))
        if not rest or EACH * len(parts) + LEAST > room or not is_literal(rest[-1]):
            break
        tree = rest.pop()
    nid = message["nid"]
    if len(parts) > 1:
        nid = child_nid(parent.nid, child_id(nid) + len(parts) - 1)
    _leave_entered(run, parent, nid, tree, entered)
    return _counted(run, message, parts, nid)


def _counted(run: Run, message: Message, parts: list[Part], nid: str) -> Literals:
    """Count the messages of literal attributes, the last of which is ``nid``."""
    counters = run.counters
    message["m"] = counters.get("msgs", 0) + 1
    runs = message["pr"] = counters["runs"]
    counters["msgs"] = message["m"] + EACH * len(parts) - 2
    answer = answer_of(message, nid, parts[-1][2], counters["msgs"], runs)
    return Literals(message, parts, answer)


@functools.lru_cache(maxsize=1024)
def _just_goes_on(cls: Hashable) -> bool:
    """Return whether a procedure has the default behaviour between two attributes."""
    return all(getattr(cls, name) is getattr(Procedure, name) for name in _BETWEEN)


def _rest(run: Run, parent: Node, message: Message) -> list[Tree]:
    """Return what follows an attribute, last first, if its parent simply continues with it."""
    cls: Any = run.procedures.get(parent.heap or "")
    if (
        cls is None
        or not _just_goes_on(cls)
        or parent.handlers is not None
        or parent.aret is not None
        or (parent.vars is not None and "idx" in parent.vars)
    ):
        return []
    children = run.tree_of(parent)[1]
    index = child_id(message["nid"])
    if index >= len(children) or children[index] is not message["tree"]:
        return []
    rest: list[Tree] = children[:index:-1]
    return rest


def _leave_entered(run: Run, parent: Node, nid: str, tree: Tree, payload: Payload) -> None:
    """Create the node of the attribute whose answer is still to be processed."""
    node = run.nodes[nid] = Node(nid, parent.nid, payload, "_att", "_att")
    run.touched.add(nid)
    run.trees[nid] = tree
    run.keep_tree(node, tree)
    if nid not in parent.cnodes:
        parent.cnodes.append(nid)
