"""Nodes, the parts of a flow that are being executed, and their ids.

A nid is ``0`` for the root, ``p_i`` for child ``i`` of ``p``; a suffix ``-n`` marks repeated passes
(``0_1_2-3``) and is inherited by the children.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from actorflow.flows.language.tree import Tree

Payload = dict[str, Any]
Message = dict[str, Any]

ROOT = "0"
NID = re.compile(r"\d+(?:_\d+)*(?:-\d+)?")
"""What the id of a node looks like."""


class Node(msgspec.Struct, omit_defaults=True, gc=False):
    """One node of an execution.

    Everything in it is JSON, and its payload is never changed in place.

    ``own`` is private to the node's procedure (loop suffix, collected results, task...). ``status``
    is a stack; an empty one means open.
    """

    nid: str
    parent: str | None = None
    payload: Payload = {}
    heat0: str = ""
    heap: str | None = None
    heat: Any = None
    tree: Tree | None = None
    cnodes: list[str] = []
    status: list[dict[str, Any]] = []
    vars: dict[str, Any] | None = None
    cnid: str | None = None
    atts: list[list[Any]] | None = None
    rets: list[Any] | None = None
    tags: list[str] | None = None
    closures: list[int] | None = None
    failure: Message | None = None
    handlers: dict[str, list[list[Any]]] | None = None
    on_receive_last: list[Message] | None = None
    detached: bool = False
    aret: list[Any] | None = None
    own: dict[str, Any] = {}

    def fork(self) -> Node:
        """Return a copy that can be changed independently. Payload and trees are shared."""
        node: Node = self.__copy__()  # type: ignore[attr-defined] # msgspec does not tell
        node.cnodes = self.cnodes.copy()
        node.status = self.status.copy()
        if self.vars is not None:
            node.vars = self.vars.copy()
        if self.atts is not None:
            node.atts = self.atts.copy()
        if self.rets is not None:
            node.rets = self.rets.copy()
        if self.tags is not None:
            node.tags = self.tags.copy()
        if self.closures is not None:
            node.closures = self.closures.copy()
        if self.handlers is not None:
            node.handlers = {k: v.copy() for k, v in self.handlers.items()}
        node.own = self.own.copy()
        for key, value in self.own.items():
            if type(value) is list or type(value) is dict:
                node.own[key] = value.copy()
        return node

    @property
    def state(self) -> str | None:
        """Return ``None`` (open), ``closed`` or ``ended``."""
        status = self.status
        return status[-1]["status"] if status else None

    @property
    def is_cancelled(self) -> bool:
        """Return whether a cancel has closed this node, so that another one has no effect."""
        if not self.status or self.status[-1]["status"] != "closed":
            return False
        top = self.status[-1]
        return top.get("point") == "cancel" and top.get("flavour") not in ("continue", "move")

    def unkeyed_atts(self) -> list[Any]:
        """Return the values of the kept attributes without a key."""
        return [value for key, value in self.atts or () if key is None]

    @property
    def flavour(self) -> str | None:
        """Return the flavour of the message that gave this node its current status."""
        status = self.status
        return status[-1].get("flavour") if status else None


def suffix_of(nid: str) -> str:
    """Return the pass suffix of a nid, dash included, or an empty string.

    >>> suffix_of("0_1_2-3"), suffix_of("0_1")
    ('-3', '')
    """
    dash = nid.rfind("-")
    return "" if dash < 0 else nid[dash:]


def child_nid(nid: str, index: int, sub: int | None = None) -> str:
    """Return the nid of child ``index``.

    ``sub`` starts a new pass, else the parent's suffix is inherited.

    >>> child_nid("0_1-3", 2), child_nid("0_1", 0), child_nid("0_1-3", 2, 9)
    ('0_1_2-3', '0_1_0', '0_1_2-9')
    """
    dash = nid.rfind("-")
    if dash < 0:
        return f"{nid}_{index}" if sub is None else f"{nid}_{index}-{sub}"
    return f"{nid[:dash]}_{index}{nid[dash:]}" if sub is None else f"{nid[:dash]}_{index}-{sub}"


def without_suffix(nid: str) -> str:
    """Return the nid without its pass suffix.

    >>> without_suffix("0_1_2-3")
    '0_1_2'
    """
    dash = nid.rfind("-")
    return nid if dash < 0 else nid[:dash]


@functools.lru_cache(maxsize=4096)
def child_id(nid: str) -> int:
    """Return the position of a node among its siblings.

    >>> child_id("0_1_2-3"), child_id("0")
    (2, 0)
    """
    dash = nid.rfind("-")
    return int(nid[nid.rfind("_") + 1 : len(nid) if dash < 0 else dash])


def sub_of(nid: str) -> int:
    """Return the pass number of a nid, or 0."""
    dash = nid.rfind("-")
    return 0 if dash < 0 else int(nid[dash + 1 :])
