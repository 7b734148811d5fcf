"""Envelopes come back from the store as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.engine.envelopes import (
    ChildEnded,
    ChildResumed,
    Failure,
    Message,
    TaskEnded,
    TaskStarted,
    TimerFired,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from actorflow.engine.envelopes import Envelope

FAILURE = Failure("ValueError", "no", "a traceback")


@pytest.mark.parametrize(
    "envelope",
    [
        Message(7, 1.5, {"a": [1, None, b"\xff"]}),
        TimerFired(7, 1.5, "tick", 1.25, {"n": 1}),
        TaskStarted(7, 1.5, "task", 3),
        TaskEnded(7, 1.5, "task", "ok", [1]),
        TaskEnded(7, 1.5, "task", "failed", error=FAILURE),
        TaskEnded(7, 1.5, "task", "crashed", error=Failure("TaskCrashed", "gone")),
        ChildEnded(7, 1.5, "child", "done", {"sum": 3}),
        ChildEnded(7, 1.5, "child", "failed", error=FAILURE),
        ChildResumed(7, 1.5, "child"),
    ],
    ids=lambda envelope: type(envelope).__name__,
)
def test_an_envelope_comes_back_as_it_was(envelope: Envelope) -> None:
    assert unpack(7, 1.5, *pack(envelope)) == envelope


def test_an_envelope_of_a_newer_version_is_named() -> None:
    with pytest.raises(ValueError, match="'teleported'"):
        unpack(1, 0.0, "teleported", b"")
