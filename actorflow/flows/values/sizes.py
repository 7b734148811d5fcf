"""How large values are, and whether they are within the limits.

Values share what they have in common, so a few messages can nest an array in itself until it would
fill the memory when it is written out. Therefore the size when written out counts. Values
never change, so a size is measured once in each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from actorflow.flows.errors import LimitExceeded
from actorflow.flows.values.values import Value, is_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.flows.limits import Limits

__all__ = ["Size", "Sizes", "check_elements"]

_SMALL = 1_000
"""Elements and characters of a part that need no look at the whole it is put into.

Each such part takes a message, and what grows with the messages is limited by the stored size.
"""


class Size(NamedTuple):
    """What a value holds, everything in it included."""

    elements: int = 0
    characters: int = 0
    depth: int = 0


_PLAIN = Size()


def check_elements(count: float, limits: Limits, what: str) -> None:
    """Raise LimitExceeded if ``what`` would make an array of too many elements."""
    if count > limits.elements:
        raise LimitExceeded(
            f"{what} would make an array of {count:,.0f} elements, and it may have"
            f" {limits.elements:,}"
        )


class Sizes:
    """The sizes of the values of one run."""

    __slots__ = ("_known", "limits")

    def __init__(self, limits: Limits) -> None:
        """Know none yet."""
        self.limits = limits
        self._known: dict[int, tuple[Value, Size]] = {}

    def measure(self, value: Value) -> Size:
        """Return the size of a value: O(its containers) the first time, then O(1).

        Raises LimitExceeded when it is nested too deep.
        """
        return self._measure(value, self.limits.depth)

    def _measure(self, value: Value, room: int) -> Size:
        kind = type(value)
        if kind is str:
            return Size(0, len(value), 0)
        if kind is not list and kind is not dict:
            return _PLAIN
        known = self._known.get(id(value))
        if known is not None:
            size = known[1]
            if size.depth > room:
                raise self._too_deep()
            return size
        if is_reference(value):
            return Size(1, 0, 1)
        if room == 0:
            raise self._too_deep()
        size = self._measure_parts(value, room)
        self._known[id(value)] = value, size
        return size

    def _measure_parts(self, value: Value, room: int) -> Size:
        parts = value
        elements, characters, depth = len(value), 0, 0
        if type(value) is dict:
            characters = sum(map(len, value))
            parts = value.values()
        for one in parts:
            if type(one) is str:
                characters += len(one)
            elif type(one) is list or type(one) is dict:
                inner = self._measure(one, room - 1)
                elements += inner.elements
                characters += inner.characters
                depth = max(depth, inner.depth)
        return Size(elements, characters, depth + 1)

    def check(self, value: Value) -> Value:
        """Return a value that is within the limits.

        Raises LimitExceeded when it is not.
        """
        limits = self.limits
        elements, characters, _ = self.measure(value)
        if elements > limits.elements:
            raise LimitExceeded(
                f"an array or object of {elements:,} elements, nested ones included, is too large:"
                f" it may have {limits.elements:,}"
            )
        if characters > limits.characters:
            raise self._too_long(characters)
        return value

    def check_parts(self, whole: Value, parts: Iterable[Value], levels: int = 1) -> Value:
        """Return an array or object that was made by putting ``parts`` into another one.

        They stand ``levels`` below it. It is measured only if a part is large. Raises LimitExceeded
        when it is beyond the limits.
        """
        if len(whole) > self.limits.elements:
            return self.check(whole)
        room = max(self.limits.depth - levels, 0)
        for part in parts:
            kind = type(part)
            if kind is list or kind is dict:
                size = self._measure(part, room)
                if size.elements + size.characters > _SMALL:
                    return self.check(whole)
            elif kind is str and len(part) > _SMALL:
                return self.check(whole)
        return whole

    def join(self, texts: Iterable[str]) -> str:
        """Return the texts as one. Raises LimitExceeded when it is too long."""
        texts = list(texts)
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise self._too_long(characters)
        return "".join(texts)

    def _too_long(self, characters: int) -> LimitExceeded:
        return LimitExceeded(
            f"a text of {characters:,} characters is too long: it may have"
            f" {self.limits.characters:,}"
        )

    def _too_deep(self) -> LimitExceeded:
        return LimitExceeded(
            f"arrays and objects are nested deeper than {self.limits.depth} levels"
        )
