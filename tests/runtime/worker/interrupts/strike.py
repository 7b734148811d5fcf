"""Raise KeyboardInterrupt at one chosen place of our code, in the calling thread."""

from __future__ import annotations

import dis
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_OURS = tuple(actorflow.__path__)
_EXIT = ["LOAD_CONST", "LOAD_CONST", "LOAD_CONST"]


@cache
def _closed(code: CodeType) -> frozenset[int]:
    """Return the offsets that no signal can strike, but where a trace function could raise.

    The interpreter looks for signals after calls and at backward jumps only. So none can strike
    between the last instruction of a `with` body and its `__exit__`, and none at a NOP, which no
    exception handler covers (`try:` is one): an exception there would leave the context open.
    """
    steps = [one for one in dis.get_instructions(code) if one.opname not in ("PRECALL", "CACHE")]
    found: set[int] = set()
    for at, step in enumerate(steps):
        names = [one.opname for one in steps[at : at + 4]]
        if names == [*_EXIT, "CALL"] and all(one.argval is None for one in steps[at : at + 3]):
            found.update(range(step.offset, steps[at + 3].offset + 1))
            if steps[at - 1].opname == "SWAP":
                found.add(steps[at - 1].offset)
        elif names[:2] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
            found.update((step.offset, steps[at + 1].offset))
        elif step.opname == "NOP":
            found.add(step.offset)
    return frozenset(found)


class Strike:
    """One call with an interrupt at its `place`-th line, or opcode, of our code.

    With `anywhere`, also at places that no signal of today's interpreters can strike.
    """

    def __init__(self, place: int, *, opcodes: bool, anywhere: bool = False) -> None:
        self._left = place
        self._opcodes = opcodes
        self._anywhere = anywhere
        self.where: str | None = None
        """Where it struck; `None` if the call ended before."""

    def call(self, function: Callable[[], Any]) -> bool:
        """Call the function; return whether the interrupt came out of it."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._on_step

    def _on_step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        wanted = "opcode" if self._opcodes else "line"
        if (
            event == wanted
            and self._left >= 0
            and (self._anywhere or frame.f_lasti not in _closed(frame.f_code))
        ):
            self._left -= 1
            if self._left < 0:
                code = frame.f_code
                name = Path(code.co_filename).name
                self.where = f"{name}:{frame.f_lineno} (+{frame.f_lasti}) in {code.co_name}"
                raise KeyboardInterrupt
        return self._on_step
