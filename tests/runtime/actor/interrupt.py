"""Ctrl-C at every single place: KeyboardInterrupt raised at the n-th opcode of our code."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow.runtime
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_OURS = tuple(actorflow.runtime.__path__)


class Interrupted:
    """A call in a thread of its own that gets a KeyboardInterrupt at its `place`-th opcode."""

    def __init__(
        self, call: Callable[[], Any], place: int, also: tuple[CodeType, ...] = ()
    ) -> None:
        self._call = call
        self._also = also
        self._left = place
        self.where: str | None = None
        """Where it was interrupted; `None` if the call returned before."""
        self.error: BaseException | None = None
        thread = threading.Thread(target=self._run, name="interrupted", daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"hangs after Ctrl-C at {self.where}"

    def _run(self) -> None:
        sys.settrace(self._on_call)
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        ours = code.co_filename.startswith(_OURS) or code in self._also
        if self.where is not None or not ours:
            return None
        frame.f_trace_opcodes = True
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode" and self.where is None:
            self._left -= 1
            if self._left < 0:
                code = frame.f_code
                self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
                raise KeyboardInterrupt
        return self._on_opcode


def every_place(
    make: Callable[[], tuple[Callable[[], Any], Callable[[str], None]]],
    also: tuple[CodeType, ...] = (),
) -> int:
    """Interrupt a call at each of its opcodes in turn; return how many there were.

    `make` returns the call and a check, which gets the place where the interrupt struck. Code in
    `also` counts as ours.
    """
    place = 0
    while True:
        call, check = make()
        interrupted = Interrupted(call, place, also)
        if interrupted.where is None:
            assert place, "the call runs none of our code"
            return place
        check(interrupted.where)
        place += 1
