"""What figures depend on besides the code: the machine, the interpreter, the versions."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import resource
import sys
import time
from pathlib import Path

__all__ = ["Others", "busy", "describe", "processors", "resident"]


def describe() -> dict[str, str]:
    """Return the facts about the machine and the software of a run."""
    load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
    return {
        "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_model()}, {processors()} processors, {platform.system()} "
        f"{platform.release()}",
        "load before the run": load,
        "python": f"{platform.python_implementation()} {platform.python_version()}, "
        f"switch interval {sys.getswitchinterval():g} s",
        "actorflow": importlib.metadata.version("actorflow"),
        "pykka": importlib.metadata.version("pykka"),
        "sortedcontainers": importlib.metadata.version("sortedcontainers"),
        "asyncio, queue, threading": "of that Python",
    }


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy() -> float | None:
    """Return the load of the last minute if it is too high to measure; else `None`."""
    load = os.getloadavg()[0]
    return load if load > 0.5 * processors() else None


class Others:
    """What other processes take of the processors while a child process is measured."""

    def __init__(self) -> None:
        self._begin = self._look()

    def share(self) -> float | None:
        """Return their share since the beginning, from 0 to 1; `None` where it is unknown."""
        if self._begin is None or (now := self._look()) is None:
            return None
        wall, everything, ours = (
            after - before for before, after in zip(self._begin, now, strict=True)
        )
        return max(everything - ours, 0.0) / max(wall * processors(), 1e-9)

    @staticmethod
    def _look() -> tuple[float, float, float] | None:
        try:
            text = Path("/proc/stat").read_text(encoding="ascii")
        except OSError:
            return None
        user, nice, system, _idle, _waiting, *interrupts = map(
            int, text.split("\n")[0].split()[1:8]
        )
        everything = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic(), everything, used.ru_utime + used.ru_stime


def resident() -> int:
    """Return the resident memory of the process in bytes; its peak where that is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
