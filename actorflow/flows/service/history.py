"""The history of an execution: one record per run, with every message as it was processed.

A message is a row: its point, nid, from, ``sm``, ``er``, its payload and the number of nodes after
it; for an execute message a digest of its tree and its procedure; then other fields. Its number and
its run follow from the record. The many messages of literal attributes are one row, with the tree
and the value of each: its payload is the one before with that ``ret``.

A payload without lists, objects and long strings stands in its row, unless it is that of the row
before. Any other is an index, and what such payloads share is written once per run. A part above a
limit is replaced by a note, so that the history of a flow with a large payload stays small.
"""

from __future__ import annotations

from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.flows.execution.environment import MORE_NODES, Observer
from actorflow.flows.execution.literal_messages import EACH, LEAST, unfold
from actorflow.flows.execution.payloads import SharedParts, is_plain, restored
from actorflow.flows.values.text import digest

if TYPE_CHECKING:
    from actorflow.flows.execution.literal_messages import Literals
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.execution.run import FlowRun
    from actorflow.flows.language.tree import Tree

__all__ = ["HistoryRecorder", "messages_of"]

_SAME = -1  # instead of a payload: it is that of the row before
_LARGEST = 16_384  # bytes of one field of a payload
_LONGEST = 1_000  # elements of one field of a payload
_COLUMNS = ("point", "nid", "from", "sm", "er", "payload", "nodes", "tree", "heap")
_MORE = len(_COLUMNS)  # the index of the fields that have no column
_IMPLIED = frozenset((*_COLUMNS, "exid", "m", "pr", "accept_symbol"))
_LITERALS = "literals"  # literal attributes whose messages are one row; the key is stored
_USUAL_FIELDS = ("point", "nid", "from", "sm", "er", "payload")
_usual_fields = itemgetter(*_USUAL_FIELDS)
_USUAL = len(_USUAL_FIELDS) + 3  # exid, m and pr
_WITH_TREE = _USUAL + 1
_SHAPES = 512  # combinations of fields, and literal attributes, that are remembered
_shapes: dict[tuple[str, ...], tuple[str, ...]] = {}
_literals: dict[tuple[int, int], tuple[tuple[Tree, ...], msgspec.Raw]] = {}
_encode = msgspec.msgpack.Encoder().encode


class HistoryRecorder(Observer):
    """Records one run. Costs about a microsecond per message, and one write of its payloads."""

    __slots__ = ("_gathered", "_nodes", "_payload", "_rows", "_run")

    def __init__(self, run: FlowRun) -> None:
        """Record a run that is about to begin."""
        self._run = run
        self._nodes = run.nodes
        self._gathered: SharedParts | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._payload: Any = None

    def observe(self, message: Message, _emitted: list[Message], nodes: int) -> None:
        """Record a processed message, which must stay alive until the run is stored."""
        fields = 0
        if "sm" in message:
            try:
                point, nid, came_from, sm, er, payload = _usual_fields(message)
                fields = len(message)
            except KeyError:  # from outside
                pass
        if not fields:
            point, nid, came_from, sm, er, payload = map(message.get, _USUAL_FIELDS)
        if payload is not self._payload:
            self._payload = payload
            if payload is not None:
                payload = self._stored(payload)
        elif payload is not None:
            payload = _SAME
        node = self._nodes.get(nid)
        if node is not None and node.vars:
            fields = 0
        row: tuple[Any, ...]
        if fields == _USUAL:
            row = (point, nid, came_from, sm, er, payload, nodes)
        elif fields == _WITH_TREE and "tree" in message:
            tree = message["tree"]
            heap = tree[0] if node is None else node.heap
            row = (point, nid, came_from, sm, er, payload, nodes, digest(tree), heap)
        else:
            row = (point, nid, came_from, sm, er, payload, nodes, *_rest(message, node))
        self._rows.append(row)

    def _stored(self, payload: Payload) -> Any:
        """Return a plain payload as it is, the index of any other."""
        if is_plain(payload):
            return payload
        if self._gathered is None:
            self._gathered = SharedParts(_limited)
        return self._gathered.place(payload)

    def observe_literals(self, literals: Literals, nodes: int) -> None:
        """Record the first message, and the parts of each attribute."""
        self.observe(literals.first, [], nodes)
        parts = _parts(literals.trees)
        self._payload = literals.answer["payload"]
        row = self._rows[-1]
        more = {**row[_MORE], _LITERALS: parts} if len(row) > _MORE else {_LITERALS: parts}
        parent = self._nodes.get(literals.first["from"])
        if parent is not None and parent.vars:
            more["seen"] = list(parent.vars)  # the variables of the parent when attributes answer
        self._rows[-1] = (*row[:_MORE], more)

    def record(self, **fields: Any) -> bytes:
        """Return the record of the run as it is stored; `fields` are more to note about it."""
        before, gathered = self._run.before, self._gathered
        fields["run"] = self._run.counters["runs"]
        fields["before"] = (before.counters, len(before.nodes))
        fields["messages"] = self._rows
        fields["payloads"] = () if gathered is None else gathered.payloads
        fields["values"] = () if gathered is None else gathered.values
        return _encode(fields)


def _rest(message: Message, node: Node | None) -> tuple[Any, ...]:
    """Return the columns of a row that most messages do not have."""
    shape = tuple(message)
    fields = _shapes.get(shape)
    if fields is None:
        if len(_shapes) >= _SHAPES:
            _shapes.clear()
        fields = _shapes[shape] = tuple(field for field in shape if field not in _IMPLIED)
    more = {field: message[field] for field in fields} if fields else {}
    if node is not None and node.vars:
        more["seen"] = list(node.vars)
    tree = message.get("tree")
    if tree is None:
        return (None, None, more) if more else ()
    heap = tree[0] if node is None else node.heap
    return (digest(tree), heap, more) if more else (digest(tree), heap)


def _parts(trees: tuple[Tree, ...]) -> msgspec.Raw:
    """Return the parts of literal attributes as they are stored; those used lately are known."""
    key = (id(trees[0]), len(trees))
    known = _literals.get(key)
    if known is not None and all(map(is_, known[0], trees)):
        return known[1]
    parts: list[Any] = []
    for tree in trees:
        atom = tree[1][0]
        parts += (digest(tree), digest(atom), atom[1])
    if len(_literals) >= _SHAPES:
        _literals.clear()
    stored = msgspec.Raw(_encode(parts))
    _literals[key] = (trees, stored)
    return stored


def _limited(value: Any) -> Any:
    if type(value) is str:
        if len(value) <= _LARGEST:
            return value
        return f"({len(value):,} characters, not kept in the history)"
    if len(value) <= _LONGEST:
        data = _encode(value)
        if len(data) <= _LARGEST:
            return msgspec.Raw(data)
        return f"({len(data):,} bytes, not kept in the history)"
    return f"({len(value):,} elements, not kept in the history)"


def messages_of(entry: dict[str, Any]) -> list[Message]:
    """Return the messages of a stored record, with their payloads.

    The tree of an execute message is its head, its line and a short text. ``heap`` is the
    procedure, ``seen`` the names of the variables of the node, ``nodes`` the number of nodes after
    the message.
    """
    payloads = restored(entry["payloads"], entry["values"])
    rows, run = entry["messages"], entry["run"]
    m = entry["counters"]["msgs"] - sum(map(_count, rows)) + 1
    messages: list[Message] = []
    payload: Payload | None = None
    for row in rows:
        message = dict(row) if type(row) is dict else _message(row)
        if message.get("payload", _SAME) != _SAME:
            payload = _found(message["payload"], payloads)
        if "payload" in message:
            message["payload"] = payload
        message["m"], message["pr"] = m, run
        literals = message.pop(_LITERALS, None)
        if literals is None:
            messages.append(message)
        else:
            messages += _unfolded(message, literals)
            payload = messages[-1]["payload"]
        m += _count(row)
    return messages


def _found(stored: Any, payloads: list[Payload]) -> Payload:
    """Return a payload, which is stored as it is or as an index."""
    return payloads[stored] if type(stored) is int else stored


def _count(row: Any) -> int:
    """Return how many messages a row represents."""
    if type(row) is dict or len(row) <= _MORE or _LITERALS not in row[_MORE]:
        return 1
    return EACH * len(row[_MORE][_LITERALS]) // 3 - 1


def _message(row: list[Any]) -> Message:
    message: Message = dict(zip(_COLUMNS, row, strict=False))
    for key in ("payload", "tree", "heap"):
        if message.get(key) is None:
            message.pop(key, None)
    if len(row) > _MORE:
        message |= row[_MORE]
    return message


def _unfolded(message: Message, stored: list[Any]) -> list[Message]:
    """Return the messages of literal attributes, from the first one and the parts of each."""
    payload = message["payload"]
    parts = (
        (stored[at], stored[at + 1], {**payload, "ret": stored[at + 2]})
        for at in range(0, len(stored), 3)
    )
    before, seen = message["nodes"], message.pop("seen", None)
    messages = unfold({**message, "exid": None}, parts, message["m"], message["pr"])[:-1]
    for place, one in enumerate(messages):
        del one["exid"]
        one.pop("accept_symbol", None)
        one["nodes"] = before + MORE_NODES[place % EACH]
        if "tree" in one:
            one["heap"] = one["tree"][0]
        elif seen and place % EACH == LEAST:
            one["seen"] = seen
    return messages
