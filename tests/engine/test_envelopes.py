"""Envelopes are read as they were stored."""

from __future__ import annotations

import pytest

from actorflow.engine.envelopes import (
    ChildEnded,
    Envelope,
    Failure,
    Message,
    TaskEnded,
    TaskStarted,
    TimerFired,
    pack,
    unpack,
)

FAILURE = Failure("ValueError", "no ink", "Traceback ...")


@pytest.mark.parametrize(
    "envelope",
    [
        Message(7, 1.5, {"a": [1]}),
        TimerFired(7, 1.5, "t", 1.25, {"a": 1}),
        TaskStarted(7, 1.5, "task", 2),
        TaskEnded(7, 1.5, "task", "ok", {"a": 1}),
        TaskEnded(7, 1.5, "task", "failed", error=FAILURE),
        ChildEnded(7, 1.5, "child", "done", [1]),
        ChildEnded(7, 1.5, "child", "failed", error=FAILURE),
    ],
)
def test_an_envelope_is_read_as_it_was_stored(envelope: Envelope) -> None:
    assert unpack(7, 1.5, *pack(envelope)) == envelope
