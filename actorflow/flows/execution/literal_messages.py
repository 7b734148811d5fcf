"""The messages of literal attributes, created only if something reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from actorflow.flows.execution.node import Message, child_id, child_nid
from actorflow.flows.language.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.flows.execution.node import Payload

__all__ = ["EACH", "LEAST", "Literals", "Part", "answer_of", "unfold"]

EACH = 4
"""Messages per attribute."""
LEAST = EACH - 1
"""The same without the answer to the parent, which for the last attribute is processed normally."""

Part: TypeAlias = "tuple[Tree, Tree, Payload]"
"""An attribute, the atom in it, and the payload with its value."""


class Literals(msgspec.Struct, gc=False):
    """Literal attributes that were processed together."""

    first: Message
    """The message that executes the first of them."""
    trees: tuple[Tree, ...]
    answer: Message
    """The answer of the last of them to the parent, still to be processed."""
    goes_on: bool
    """Whether the last of them has no node, since the parent simply continues."""

    @property
    def count(self) -> int:
        """How many messages were processed."""
        return EACH * len(self.trees) - 1

    def messages(self) -> list[Message]:
        """Return all messages, in order; the last is the answer."""
        payload = self.first["payload"]
        parts = (
            (tree, tree[1][0], {**payload, "ret": tree[1][0][1]})  # one part for each attribute
            for tree in self.trees
        )
        return unfold(self.first, parts, self.first["m"], self.first["pr"])


def unfold(message: Message, parts: Iterable[Part], m: int, runs: int) -> list[Message]:
    """Return all messages of literal attributes, beginning with ``message``, whose number is ``m``.

    All have been processed except the last, the answer of the last attribute to its parent.
    """
    passed: list[Message] = []
    for tree, atom, payload in parts:
        if passed:
            message = _next(passed[-1], m - 1, tree)
        passed += _messages(message, atom, payload, m, runs)
        m += EACH
    return passed


def _messages(message: Message, atom: Tree, payload: Payload, m: int, runs: int) -> list[Message]:
    """Return the four messages of an attribute; the last one is not numbered yet."""
    nid = message["nid"]
    inner = child_nid(nid, 0)
    message["m"], message["pr"] = m, runs
    entered: Message = {
        "point": "execute",
        "exid": message["exid"],
        "nid": inner,
        "from": nid,
        "sm": m,
        "payload": payload,
        "tree": atom,
        "accept_symbol": False,
        "er": runs,
        "m": m + 1,
        "pr": runs,
    }
    answered: Message = {
        "point": "receive",
        "exid": message["exid"],
        "nid": nid,
        "from": inner,
        "sm": m + 1,
        "payload": payload,
        "er": runs,
        "m": m + 2,
        "pr": runs,
    }
    if message.get("cause"):
        entered["cause"] = answered["cause"] = message["cause"]
    return [message, entered, answered, answer_of(message, nid, payload, m + 2, runs)]


def answer_of(message: Message, nid: str, payload: Payload, sm: int, runs: int) -> Message:
    """Return the answer of attribute ``nid`` to its parent; it is not numbered yet."""
    answer: Message = {
        "point": "receive",
        "exid": message["exid"],
        "nid": message["from"],
        "from": nid,
        "sm": sm,
        "payload": payload,
        "er": runs,
    }
    if message.get("cause"):
        answer["cause"] = message["cause"]
    return answer


def _next(reply: Message, m: int, tree: Tree) -> Message:
    """Process the answer of an attribute; return the message that executes the next one."""
    runs = reply["er"]
    reply["m"], reply["pr"] = m, runs
    nid = reply["nid"]
    message: Message = {
        "point": "execute",
        "exid": reply["exid"],
        "nid": child_nid(nid, child_id(reply["from"]) + 1),
        "from": nid,
        "sm": m,
        "payload": reply["payload"],
        "tree": tree,
        "er": runs,
    }
    if "cause" in reply:
        message["cause"] = reply["cause"]
    return message
