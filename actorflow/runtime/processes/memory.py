"""Memory that two processes share, without a name: it is gone when neither has it open any more.

A *segment* carries the large parts of one frame. The receiver owns it: it is mapped, and
unpickled values refer to the mapping, so nothing is copied. A *page* belongs to one worker
process for its whole life: the process writes there which call it has begun, and the parent which
calls are to be skipped.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["SharedPage", "read_segment", "write_segment"]

_ALIGN = 64
_MAPPED_MOST = 128
"""How many mappings a process may hold: each has a file descriptor, and 1,024 is a usual limit."""

_FLAGS = 256  # more than a process ever holds calls


def _anonymous_file() -> int:
    """Open a file in memory that has no name.

    Raises:
        OSError: there are too many open files, or no memory is left.

    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("actorflow", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Return where each part begins, and where the last one ends."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // _ALIGN) * _ALIGN)
    return offsets


def write_segment(parts: Sequence[Buffer]) -> int:
    """Copy the parts into a new segment; return its file descriptor.

    Raises:
        OSError: there are too many open files, or no memory is left.

    """
    views = [memoryview(part).cast("B") for part in parts]
    file = _anonymous_file()
    try:
        for view, offset in zip(views, _offsets([view.nbytes for view in views]), strict=False):
            done = 0
            while done < view.nbytes:  # the system writes at most 2 GB at once
                done += os.pwrite(file, view[done:], offset + done)
    except BaseException:
        os.close(file)
        raise
    return file


class _Mapping(mmap.mmap):
    """A mapping that is counted: it keeps a file descriptor until it is released."""

    count = 0

    def __del__(self) -> None:
        _Mapping.count -= 1


def read_segment(file: int, sizes: Sequence[int]) -> list[Any]:
    """Return the parts of a segment, and close its file descriptor."""
    *offsets, end = _offsets(sizes)
    try:
        whole = memoryview(_mapped(file, end) or _copied(file, end))
    finally:
        os.close(file)
    return [whole[at : at + size] for at, size in zip(offsets, sizes, strict=True)]


def _mapped(file: int, size: int) -> _Mapping | None:
    """Map a segment; `None` if there are many mappings, or the system refuses another one."""
    if not size or _Mapping.count >= _MAPPED_MOST:
        return None
    try:
        mapping = _Mapping(file, os.fstat(file).st_size)
    except OSError:
        return None
    _Mapping.count += 1
    return mapping


def _copied(file: int, size: int) -> bytearray:
    whole = bytearray(size)
    done = 0
    while (got := os.preadv(file, [memoryview(whole)[done:]], done)) > 0:
        done += got
    return whole


class SharedPage:
    """What a worker process and its parent see of each other at any time."""

    __slots__ = ("_begun", "_flags", "file")

    def __init__(self, file: int | None = None) -> None:
        self.file = _anonymous_file() if file is None else file
        """Its file descriptor, until `take`."""
        os.ftruncate(self.file, mmap.PAGESIZE)
        whole = memoryview(mmap.mmap(self.file, mmap.PAGESIZE))
        self._begun = whole[:8].cast("Q")
        self._flags = whole[64 : 64 + _FLAGS]

    def take(self) -> int:
        """Return the file descriptor, which the caller closes; the page stays."""
        file, self.file = self.file, -1
        return file

    @property
    def begun(self) -> int:
        """The number of the last call that the process has begun; 0 before the first."""
        return self._begun[0]

    def begin(self, sequence: int) -> bool:
        """Report that a call begins; return whether it may. In the worker process."""
        before = self._begun[0]
        self._begun[0] = sequence  # first: the parent looks here after it has set the flag
        at = sequence % _FLAGS
        if not self._flags[at]:
            return True
        self._flags[at] = 0
        self._begun[0] = before
        return False

    def skip(self, sequence: int) -> None:
        """Ask the process not to begin a call. In the parent."""
        self._flags[sequence % _FLAGS] = 1

    def forget(self, sequence: int) -> None:
        """Withdraw `skip`: the call was begun before."""
        self._flags[sequence % _FLAGS] = 0
