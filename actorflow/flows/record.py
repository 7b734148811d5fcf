"""The history of an execution: one record per run, holding every message as it was processed.

Payloads and their parts that messages share are written once per run; a part that is larger than a
limit is replaced by a note, so that the history of a flow with a big payload stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.flows.brief import brief_children

if TYPE_CHECKING:
    from actorflow.flows.executor import Run
    from actorflow.flows.node import Message, Payload

__all__ = ["Recorder", "messages_of"]

_LARGEST = 16_384  # bytes of one field of a payload
_LONGEST = 1_000  # elements of one field of a payload
_encode = msgspec.msgpack.Encoder().encode


class Recorder:
    """Watches one run. Costs about a microsecond per message, and one write of its payloads."""

    def __init__(self, run: Run) -> None:
        """Note where the execution stands before the run."""
        self._run = run
        self._payloads: list[list[Any]] = []
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps the ids in `_places` from being used again
        self.messages: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {}
        """More to note about the run: when it was, how long it took."""
        self.before = [dict(run.counters), len(run.nodes)]

    def observe(self, message: Message, _emitted: list[Message], nodes: int) -> None:
        """Note a message that has been processed."""
        entry = message.copy()
        entry.pop("exid", None)
        payload = entry.get("payload")
        if payload is not None:
            entry["payload"] = self._payload(payload)
        node = self._run.nodes.get(message.get("nid") or "")
        tree = entry.get("tree")
        if tree is not None:
            entry["tree"] = [tree[0], tree[2], brief_children(tree)]
            entry["heap"] = None if node is None else node.heap
        if node is not None and node.vars:
            entry["seen"] = list(node.vars)
        entry["nodes"] = nodes
        self.messages.append(entry)

    def _payload(self, payload: Payload) -> int:
        place = self._places.get(id(payload))
        if place is None:
            flat: list[Any] = []
            for key, value in payload.items():
                if type(value) in (dict, list) and value:
                    flat += (key, 1, self._value(value))
                else:
                    flat += (key, 0, value)
            place = self._places[id(payload)] = len(self._payloads)
            self._kept.append(payload)
            self._payloads.append(flat)
        return place

    def _value(self, value: Any) -> int:
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self._values)
            self._kept.append(value)
            self._values.append(_limited(value))
        return place

    def entry(self, **fields: Any) -> dict[str, Any]:
        """Return the record of the run, plain data."""
        return {
            "run": self._run.counters["runs"],
            "before": self.before,
            "messages": self.messages,
            "payloads": self._payloads,
            "values": self._values,
            **self.fields,
            **fields,
        }


def _limited(value: Any) -> Any:
    if len(value) <= _LONGEST:
        data = _encode(value)
        if len(data) <= _LARGEST:
            return msgspec.Raw(data)
        return f"({len(data):,} bytes, not kept in the history)"
    return f"({len(value):,} elements, not kept in the history)"


def messages_of(entry: dict[str, Any]) -> list[Message]:
    """Return the messages of a stored record, with their payloads.

    The tree of an execute message is its head, its line and a short text; ``heap`` is the
    procedure in charge, ``seen`` the names of the node's variables, ``nodes`` how many nodes there
    were after the message.
    """
    values = entry["values"]
    payloads = [
        {
            flat[i]: values[flat[i + 2]] if flat[i + 1] else flat[i + 2]
            for i in range(0, len(flat), 3)
        }
        for flat in entry["payloads"]
    ]
    out = []
    for message in entry["messages"]:
        shown = dict(message)
        if "payload" in shown:
            shown["payload"] = payloads[shown["payload"]]
        out.append(shown)
    return out
