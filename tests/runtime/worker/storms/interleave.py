"""Rare interleavings on purpose: random yields, and a pause at every single place in turn.

Both look at the code of the runtime and of the behaviours only, by tracing its opcodes or lines
in threads that they start themselves. The thread of the test is never traced, so a debugger,
coverage and the watchdog of the suite go on undisturbed.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow.runtime
from actorflow import behaviours

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Self

PATIENCE = 20.0
"""Seconds that a test waits for an expected event; only a failing test waits so long."""

_OURS = (*actorflow.runtime.__path__, *behaviours.__path__)


class Yields:
    """While open, threads that are started yield at random opcodes of our code.

    Half of the yields only let go of the interpreter lock, the others stay away for up to `pause`
    seconds, so that others get ahead. Threads differ: some never yield, some do it `often` (a
    share of the opcodes), some four times as often. The seed decides, though not what the others
    do meanwhile.
    """

    def __init__(self, seed: int, *, often: float = 0.004, pause: float = 2e-4) -> None:
        self._seed = seed
        self._often = often
        self._pause = pause
        self._own = threading.local()
        self._number = iter(range(sys.maxsize))
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = threading.gettrace()
        threading.settrace(self._on_call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        threading.settrace(self._before)

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_opcode

    def _on_opcode(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            own = self._own
            if not hasattr(own, "often"):
                dice = random.Random(f"{self._seed}/{next(self._number)}")
                own.draw = dice.random
                own.often = self._often * dice.choice((0, 1, 4))
            draw = own.draw
            if draw() < own.often:
                time.sleep(self._pause * max(0.0, 2 * draw() - 1))
        return self._on_opcode


class Paused:
    """A call in a thread of its own that stops when it reaches its `place`-th line of our code.

    Lines of code in `also` count as ours.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        place: int,
        *,
        also: tuple[CodeType, ...] = (),
        opcodes: bool = False,
    ) -> None:
        self._call = call
        self._left = place
        self._also = also
        self._opcodes = opcodes
        self._here = threading.Semaphore(0)
        self._go = threading.Event()
        self.where: str | None = None
        """Where it stopped; `None` if it came to its end before."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="paused", daemon=True)
        self._thread.start()
        assert self._here.acquire(timeout=PATIENCE), "neither stopped nor ended"

    def _run(self) -> None:
        sys.settrace(self._on_call)
        try:
            self._call()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        finally:
            sys.settrace(None)
            self._here.release()

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if self._left < 0 or not (code.co_filename.startswith(_OURS) or code in self._also):
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event != ("opcode" if self._opcodes else "line") or self._left < 0:
            return self._on_line
        self._left -= 1
        if self._left < 0:
            code = frame.f_code
            self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
            self._here.release()
            assert self._go.wait(PATIENCE), "never let go on"
        return self._on_line

    def finish(self) -> None:
        """Resume it and wait for its end; what it raised is in `error`."""
        self._go.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"hangs after a pause at {self.where}"
