"""The write-ahead log that a crash has left: whether its end is torn, or it is damaged.

SQLite reads such a log frame by frame and stops, silently, at the first that is wrong. After a
power cut that is a commit which was never finished, so nothing is missed. But a flipped bit looks
the same, and then everything behind it, synced and acknowledged, would vanish without a word.

The two can be told apart where each commit was synced before the next one was begun: if a later
commit builds upon that of the wrong frame, then this frame was right once, and has been damaged.
So damage of the very last commit is not found: it cannot be told from one that was not finished.

The layout of a log is part of SQLite's file format (https://sqlite.org/fileformat2.html): a header
of 32 bytes, then frames: 24 bytes and one page each. Checksums go on from frame to frame.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from actorflow.engine.errors import StoreBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["find_damage", "sync_log", "verify_log"]

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}  # of bytes, in which checksums are made
_SUMMED = 24  # bytes of the header that its checksum is of
_SECTOR = 512  # bytes that a disk writes all together, or not at all
_BITS = 32
_MASK = 0xFFFF_FFFF

_Sum: TypeAlias = tuple[int, int]


def verify_log(path: Path) -> None:
    """Refuse a store whose log is damaged. O(size of the log): 1 s for some 40 MB.

    Only for a log whose commits were all synced. It must not be written meanwhile.

    Raises:
        StoreBroken: there was more in the log than SQLite would read.

    """
    try:
        with Path(f"{path}-wal").open("rb") as log, path.open("rb") as file:
            file.seek(16)
            size = int.from_bytes(file.read(2), "big")
            where = find_damage(log, 65_536 if size == 1 else size)
    except FileNotFoundError:
        return
    if where is not None:
        msg = (
            f"{path}-wal is damaged ({where}): what was committed after that would be lost; "
            "restore a backup, or open it with check=False to go on without"
        )
        raise StoreBroken(msg)


def sync_log(path: Path) -> None:
    """Sync a log whose commits may not have been, so that from now on all of it is."""
    try:
        with Path(f"{path}-wal").open("r+b") as log:
            os.fsync(log.fileno())
    except FileNotFoundError:
        return


def find_damage(log: BinaryIO, page_size: int) -> str | None:
    """Say where a log is damaged; `None` if it is whole, empty, or torn at its end.

    Args:
        log: the file, at its beginning.
        page_size: that of the store; needed where the header cannot be trusted.

    """
    header = log.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, _, own_size, _, *rest = _HEADER.unpack(header)
    salts, checksum = (rest[0], rest[1]), (rest[2], rest[3])
    order = _ORDERS.get(magic)
    if order is not None and _checksum(header[:_SUMMED], order, (0, 0)) == checksum:
        return _examine(_frames(log, own_size, order), salts, checksum)
    # It is synced before the first frame is written, so it was right if one builds upon it.
    for order in _ORDERS.values():
        log.seek(_HEADER.size)
        made = _checksum(header[:_SUMMED], order, (0, 0))
        first = next(_frames(log, page_size, order), None)
        if first is not None and first.builds_upon(checksum, made):
            return "its header"
    return None


class _Frame:
    """One page of the log, as it is found."""

    __slots__ = ("_data", "_order", "checksum", "number", "salts", "size")

    def __init__(self, number: int, data: bytes, order: str) -> None:
        fields = _FRAME.unpack_from(data)
        self.number = number
        self.size: int = fields[1]
        """Of the store, in pages, after the commit that this frame ends; 0 if it ends none."""
        self.salts: _Sum = fields[2:4]
        self.checksum: _Sum = fields[4:6]
        self._data = data
        self._order = order

    def made_upon(self, before: _Sum, size: int | None = None) -> _Sum:
        """Give the checksum that is right if this one comes after a frame with that checksum."""
        shown = self.size if size is None else size
        data = self._data[:4] + shown.to_bytes(4, "big") + self._data[_FRAME.size :]
        return _checksum(data, self._order, before)

    def builds_upon(self, *candidates: _Sum) -> bool:
        """Tell whether it was written after a frame with one of these checksums."""
        return any(self.made_upon(before) == self.checksum for before in candidates)

    @property
    def is_in_one_sector(self) -> bool:
        """Whether its fields are of one age, since a disk writes them together."""
        start = _HEADER.size + (self.number - 1) * len(self._data)
        return start % _SECTOR <= _SECTOR - _FRAME.size

    def ended_commit(self, before: _Sum) -> bool:
        """Tell whether it ends a commit, or did until one bit of its size was flipped."""
        return self.size != 0 or any(
            self.made_upon(before, 1 << bit) == self.checksum for bit in range(_BITS)
        )


def _frames(log: BinaryIO, page_size: int, order: str) -> Iterator[_Frame]:
    """Give the frames of a log, from where it is read; half a frame at its end is none."""
    whole = _FRAME.size + page_size
    number = 0
    while len(data := log.read(whole)) == whole:
        number += 1
        yield _Frame(number, data, order)


def _examine(frames: Iterable[_Frame], salts: _Sum, before: _Sum) -> str | None:
    """Look for a wrong frame with a later commit behind it.

    Behind the last commit there may be anything: frames of an older log (their salts are not
    ours), of a commit that was torn, of one that was rolled back. But none of these goes on from
    the end of a commit of this log.
    """
    wrong = 0
    ended = False  # the frame before ended the commit of the wrong frame, or a later one
    candidates: tuple[_Sum, ...] = (before,)
    for frame in frames:
        ours = frame.salts == salts
        right = (ours or not wrong) and frame.builds_upon(*candidates)
        if right and ended:
            return f"frame {wrong}"
        if ours and right and not wrong:
            candidates = (frame.checksum,)
            continue
        known = (right and not wrong) or (ours and (right or frame.is_in_one_sector))
        wrong = wrong or frame.number
        ended = known and frame.ended_commit(candidates[0])
        candidates = (frame.checksum, frame.made_upon(candidates[0]))
    return None


def _checksum(data: bytes, order: str, before: _Sum) -> _Sum:
    """Go on with SQLite's checksum: two sums, each of which takes in the other."""
    first, second = before
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
