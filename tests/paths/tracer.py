"""Count what a path through the package costs: Python calls, modules, and switches between them.

Unlike a time, these figures do not depend on the machine. They are taken in a process of their own
(`python -m tests.paths`), in which every thread is traced from its start. Calls of other packages
and of the standard library are not counted.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from dataclasses import astuple, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["ROOT", "Cost", "Recording", "install", "record", "trace"]

ROOT = Path(__file__).parent.parent.parent
_PACKAGES = tuple(f"{ROOT / name}/" for name in ("actorflow", "behaviours"))

_stack_here: Any = import_module("greenlet").getcurrent
"""Return the greenlet that runs: a thread without any counts as one."""

_COUNTED = 16  # times that a path is counted
_QUIET = 0.006  # seconds without a call, after which a path has ended in all threads


@dataclass(frozen=True, slots=True)
class Cost:
    """What one path costs."""

    calls: int
    modules: int
    switches: int

    def is_within(self, limit: Cost) -> bool:
        """Return whether no figure is above that of the limit."""
        return all(mine <= most for mine, most in zip(astuple(self), astuple(limit), strict=True))

    def __str__(self) -> str:
        return f"{self.calls:,} / {self.modules} / {self.switches:,}"


class Recording:
    """The calls of all threads while a path is taken once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # modules and functions
        self.switches: list[None] = []  # a list, because threads may append at the same time
        self._stacks: defaultdict[Any, list[str]] = defaultdict(list)

    def called(self, module: str, function: str) -> None:
        """Note that a function of a module begins."""
        stack = self._stacks[_stack_here()]
        if stack and stack[-1] != module:
            self.switches.append(None)
        stack.append(module)
        self.calls.append((module, function))

    def returned(self, module: str) -> None:
        """Note that a function of a module ends, unless it began before the recording."""
        stack = self._stacks[_stack_here()]
        if stack:
            stack.pop()
            if stack and stack[-1] != module:
                self.switches.append(None)

    def cost(self) -> Cost:
        """Return the figures."""
        return Cost(len(self.calls), len({module for module, _ in self.calls}), len(self.switches))


_current: Recording | None = None


def _profile(frame: FrameType, event: str, _argument: Any) -> None:
    recording = _current
    if recording is None:
        return
    if event == "call":
        module = frame.f_code.co_filename
        if module.startswith(_PACKAGES):
            recording.called(module, frame.f_code.co_qualname)
    elif event == "return":
        module = frame.f_code.co_filename
        if module.startswith(_PACKAGES):
            recording.returned(module)


def install() -> None:
    """Trace this thread, and all threads that are started from now on."""
    threading.setprofile(_profile)
    sys.setprofile(_profile)


def trace(path: Callable[[], object], warm: int) -> Cost:
    """Return the cost of a path once it was taken `warm` times: the lower quartile of several.

    On a busy machine some of them are longer: a usually quick step is then treated as slow.
    """
    for _ in range(warm):
        path()
    costs = [record(path).cost() for _ in range(_COUNTED)]
    return Cost(
        *(sorted(figures)[_COUNTED // 4] for figures in zip(*map(astuple, costs), strict=True))
    )


def record(path: Callable[[], object]) -> Recording:
    """Return the calls of a path that is taken once."""
    global _current  # noqa: PLW0603 - what the hook of every thread looks at
    _current = recording = Recording()
    path()
    _wait_until_quiet(recording)
    _current = None
    return recording


def _wait_until_quiet(recording: Recording) -> None:
    """Wait until other threads have done the rest of a path."""
    never = threading.Event()
    seen = -1
    while len(recording.calls) != seen:
        seen = len(recording.calls)
        never.wait(_QUIET)
