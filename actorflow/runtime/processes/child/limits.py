"""Limits of the system for one call: memory and CPU time. In the worker process."""

from __future__ import annotations

import math
import os
import resource
import time
from contextlib import suppress

__all__ = ["limit", "resident", "unlimit"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_statm: int | None = None
_before: dict[int, tuple[int, int]] = {}


def _pages(which: int) -> int:
    """Return a figure of /proc/self/statm; 0 if the file does not exist."""
    global _statm  # noqa: PLW0603 - a file that stays open
    if _statm is None:
        try:
            _statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            _statm = -1
    if _statm < 0:
        return 0
    return int(os.pread(_statm, 128, 0).split()[which])


def resident() -> int:
    """Return how many bytes of memory the process has at the moment."""
    pages = _pages(1)
    if pages:
        return pages * _PAGE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the most it ever had


def limit(memory: int, cpu: float) -> None:
    """Limit what the process may use from now on; 0 means no limit.

    Raises:
        OSError, ValueError: the system does not allow that limit.

    """
    if memory:
        _set(resource.RLIMIT_AS, _pages(0) * _PAGE + memory)
    if cpu:
        _set(resource.RLIMIT_CPU, math.ceil(time.process_time() + cpu))


def unlimit() -> None:
    """Lift the limits again."""
    while _before:
        which, limits = _before.popitem()
        with suppress(OSError, ValueError):
            resource.setrlimit(which, limits)


def _set(which: int, soft: int) -> None:
    before = resource.getrlimit(which)
    hard = before[1]
    resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
    _before[which] = before
