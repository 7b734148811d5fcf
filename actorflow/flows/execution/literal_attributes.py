"""A fast path for attributes that are literals, as in ``task 'alice' 'stage a'``.

Most messages of most flows are about those, and their course is known beforehand: the attribute is
entered, its value is entered, the value answers, the attribute answers, and the next attribute is
entered. The messages, their numbers and the resulting nodes are the same as if the procedures had
processed one message at a time; the messages are made only for those who look at each. If the
parent simply goes on after the last attribute, that has no node: nobody would see it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.literal_messages import EACH, LEAST, Literals, answer_of
from actorflow.flows.execution.node import Node, child_id, child_nid
from actorflow.flows.execution.procedure import Procedure, procedure_for

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.flows.execution.literal_messages import Part
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.run import Run
    from actorflow.flows.language.tree import Tree

__all__ = ["evaluate", "go_on", "is_literal"]

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
    tree, payload = message["tree"], message["payload"]
    rest = _rest(run, parent, message)
    atts, rets = parent.atts, parent.rets
    parts: list[Part] = []
    while True:
        atom = tree[1][0]
        entered = payload
        payload = entered.copy()
        payload["ret"] = atom[1]
        if atts is not None:
            atts.append([None, atom[1]])
        elif rets is not None:
            rets.append(atom[1])
        parts.append((tree, atom, payload))
        room -= EACH
        if not rest or room < LEAST or not is_literal(rest[-1]):
            break
        tree = rest.pop()
    nid = message["nid"]
    if len(parts) > 1:
        nid = child_nid(parent.nid, child_id(nid) + len(parts) - 1)
    goes_on = rest is not None and room >= 0 and nid not in run.nodes
    if not goes_on:
        _leave_entered(run, parent, nid, tree, entered)
    counters = run.counters
    m = message["m"] = counters.get("msgs", 0) + 1
    runs = message["pr"] = counters["runs"]
    m = counters["msgs"] = m + EACH * len(parts) - 2
    return Literals(message, parts, answer_of(message, nid, payload, m, runs), goes_on)


def go_on(run: Run, answer: Message) -> list[Message]:
    """Let the parent continue after the last of some literal attributes, which has no node."""
    procedure = procedure_for(run, run.nodes[answer["nid"]], answer)
    emitted = procedure.receive_att(child_id(answer["from"]))
    answer["payload"] = procedure.payload
    return emitted


@functools.lru_cache(maxsize=1024)
def _just_goes_on(cls: Hashable) -> bool:
    """Return whether a procedure has the default behaviour between two attributes."""
    return all(getattr(cls, name) is getattr(Procedure, name) for name in _BETWEEN)


def _rest(run: Run, parent: Node, message: Message) -> list[Tree] | None:
    """Return what follows an attribute, last first, or None if its parent does more than go on."""
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
