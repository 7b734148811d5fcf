"""Encodes and decodes the state of an execution.

Nodes share payloads in memory (a payload is never changed in place), and so do the bytes: whatever
several payloads have in common is written once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.flows.execution.payloads import SharedParts, restored
from actorflow.flows.execution.state import ExecutionState

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Node
    from actorflow.flows.language.tree import Tree


class _StoredState(msgspec.Struct, array_like=True):
    execution: ExecutionState
    payloads: list[Any]
    values: list[Any]
    trees: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_StoredState).decode


_PLACE = "#"
_KNOWN_TREES = 512
_tree_bytes: dict[int, tuple[Tree, bytes]] = {}


def tree_bytes(tree: Tree) -> bytes:
    """Return the bytes of a tree. Cached for recently used trees; trees never change."""
    known = _tree_bytes.get(id(tree))
    if known is not None and known[0] is tree:
        return known[1]
    data = _encode(tree)
    if len(_tree_bytes) >= _KNOWN_TREES:
        _tree_bytes.clear()
    _tree_bytes[id(tree)] = (tree, data)
    return data


@functools.lru_cache(maxsize=_KNOWN_TREES)
def tree_from(data: bytes) -> Tree:
    """Return the tree that ``tree_bytes`` encoded; executions of the same flow share it."""
    tree = msgspec.msgpack.decode(data, type=list)
    _tree_bytes.setdefault(id(tree), (tree, data))
    return tree


def encode(execution: ExecutionState) -> bytes:
    """Return the bytes of an execution, and note their number in it.

    What nodes share is written once.
    """
    gathered = SharedParts()
    trees: list[bytes] = []
    nodes: dict[str, Node] = {}
    for nid, node in execution.nodes.items():
        stored = nodes[nid] = node.__copy__()  # type: ignore[attr-defined]
        stored.payload = {_PLACE: gathered.place(node.payload)}
        if node.tree is not None:
            stored.tree = [_PLACE, len(trees)]
            trees.append(tree_bytes(node.tree))
    lean = execution.__copy__()  # type: ignore[attr-defined] # msgspec does not tell
    lean.nodes = nodes
    lean.stored = 0
    data = _encode(_StoredState(lean, gathered.payloads, gathered.values, trees))
    execution.stored = len(data)
    return data


def decode(data: bytes) -> ExecutionState:
    """Return the execution that ``encode`` encoded. Raises msgspec.MsgspecError for other bytes."""
    stored = _decode(data)
    payloads = restored(stored.payloads, stored.values)
    for node in stored.execution.nodes.values():
        node.payload = payloads[node.payload[_PLACE]]
        if node.tree is not None:
            node.tree = tree_from(stored.trees[node.tree[1]])
    stored.execution.stored = len(data)
    return stored.execution
