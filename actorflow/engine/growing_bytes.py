"""Bytes that grow: a whole first, then an entry for each change, until a whole is written anew.

Each entry stands after its length. Once the additions are longer than the whole, the next change
writes a whole again. So a change costs the same however much there is, and reading costs little
more than it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SMALL", "GrowingBytes", "entries", "entry"]

SMALL = 4_096
"""Bytes up to which the whole is always written."""

_LENGTH = 4  # bytes of the length of an entry


def entry(body: bytes) -> bytes:
    """Return a body after its length.

    >>> [bytes(each) for each in entries(entry(b"all") + entry(b"more"))]
    [b'all', b'more']
    """
    return len(body).to_bytes(_LENGTH, "big") + body


def entries(data: bytes) -> Iterator[memoryview]:
    """Yield the bodies of entries."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        begin = at + _LENGTH
        at = begin + int.from_bytes(view[at:begin], "big")
        yield view[begin:at]


class GrowingBytes:
    """All entries of a state: those of before, and the last one."""

    __slots__ = ("before", "data", "size", "whole")

    def __init__(self, data: bytes, before: GrowingBytes | None = None) -> None:
        self.data = data
        """The last entry; all of them, if it was read."""
        self.before = before
        self.whole: int = before.whole if before else _LENGTH + _length_of(data)
        """The size of the whole that it began with."""
        self.size: int = len(data) + (before.size if before else 0)

    @property
    def grows(self) -> bool:
        """Whether it is long enough for additions to be worth it."""
        return self.size > SMALL

    def has_room(self, more: bytes) -> bool:
        """Return whether an entry may be added; otherwise it is time for a whole."""
        return self.size - self.whole + len(more) <= self.whole

    def joined(self) -> bytes:
        """Return all of them. O(their number)."""
        parts = []
        each: GrowingBytes | None = self
        while each is not None:
            parts.append(each.data)
            each = each.before
        return b"".join(reversed(parts))


def _length_of(data: bytes) -> int:
    return int.from_bytes(data[:_LENGTH], "big")
