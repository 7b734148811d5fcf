"""The path of a crash: which modules it enters on its way to the restart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tests.runtime.supervision.kit import BOOM, names, ref

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.runtime.supervision.kit import Stage

SUPERVISION = "actorflow.runtime.supervision."


def modules_entered(call: Callable[[], None]) -> set[str]:
    """Call a function and return the modules of actorflow whose code ran in this thread."""
    entered: set[str] = set()

    def trace(frame: FrameType, _event: str, _argument: Any) -> None:
        entered.add(str(frame.f_globals.get("__name__")))

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return {name for name in entered if name.startswith("actorflow.")}


def test_crash_to_restart_enters_at_most_four_modules_of_supervision(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"))
    first = ref(supervisor, "a")

    def crash() -> None:
        first.tell(BOOM)
        stage.run()

    entered = modules_entered(crash)
    assert names(supervisor) == "a2 b1"
    parts = {name.removeprefix(SUPERVISION) for name in entered if name.startswith(SUPERVISION)}
    assert parts <= {"actor", "handles", "family", "children"}
