"""The stored form of payloads: what they share is stored once.

Payloads are never changed in place, so the nodes and messages of an execution share whole payloads,
and payloads share the lists, objects and long strings in them. A payload without such values is
stored as it is, any other as a flat list: key, 1 and the index of the value in ``values``, or key,
0 and the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.flows.execution.node import Payload

__all__ = ["SharedParts", "is_plain", "restored"]

_LONG = 1_000  # characters of a string that is shared


def is_plain(payload: Payload) -> bool:
    """Return whether a payload holds no lists, objects and long strings. O(its keys)."""
    for value in payload.values():
        kind = type(value)
        if kind is str:
            if len(value) > _LONG:
                return False
        elif kind is dict or kind is list:
            return False
    return True


class SharedParts:
    """Collects payloads and the values in them, each once.

    ``keep`` returns the stored form of a value. Payloads must stay alive until all are stored,
    because they are compared by identity.
    """

    __slots__ = ("_keep", "_payload_places", "_value_places", "payloads", "values")

    def __init__(self, keep: Callable[[Any], Any] | None = None) -> None:
        self.payloads: list[Any] = []
        self.values: list[Any] = []
        self._keep = keep
        self._payload_places: dict[int, int] = {}
        self._value_places: dict[int, int] = {}

    def place(self, payload: Payload) -> int:
        """Return the index of a payload, which is added if it is new. O(its keys) for a new one."""
        place = self._payload_places.get(id(payload))
        if place is None:
            place = self._payload_places[id(payload)] = len(self.payloads)
            self.payloads.append(payload if is_plain(payload) else self._flat(payload))
        return place

    def _flat(self, payload: Payload) -> list[Any]:
        flat: list[Any] = []
        for key, value in payload.items():
            kind = type(value)
            if kind is str:
                shared = len(value) > _LONG
            else:
                shared = (kind is dict or kind is list) and bool(value)
            if shared:
                flat += (key, 1, self._value(value))
            else:
                flat += (key, 0, value)
        return flat

    def _value(self, value: Any) -> int:
        place = self._value_places.get(id(value))
        if place is None:
            place = self._value_places[id(value)] = len(self.values)
            self.values.append(value if self._keep is None else self._keep(value))
        return place


def restored(payloads: Sequence[Any], values: Sequence[Any]) -> list[Payload]:
    """Return the payloads that were gathered."""
    return [
        stored
        if type(stored) is dict
        else {
            stored[at]: values[stored[at + 2]] if stored[at + 1] else stored[at + 2]
            for at in range(0, len(stored), 3)
        }
        for stored in payloads
    ]
