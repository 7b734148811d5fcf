"""A kind of execution that tests control: its messages say how to react, or are noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import (
    Message,
    NewTask,
    Options,
    Outcome,
    SetTimer,
    Status,
    TaskEnded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.kind import Context, Envelope

PATIENCE = 20.0
"""Seconds that a test waits for something that must happen."""


class Ledger:
    """Its messages: `{"hold": TASK}`, `{"end": RESULT}`, `{"raise": TEXT}`; others are noted."""

    name = "ledger"

    def options(self, _execution: str) -> Options:
        return Options()

    def decode(self, data: bytes | None) -> Any:
        return [] if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def cancel(self, target: Any) -> Any:
        return None if target is None else {"strike": target}

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        outcome = Outcome(state=state, history=[f"a batch of {len(batch)}"])
        for envelope in batch:
            if isinstance(envelope, TaskEnded):
                outcome.state.append([envelope.task, envelope.outcome, envelope.value])
                continue
            assert isinstance(envelope, Message)
            self._do(envelope.body, outcome)
        return outcome

    def _do(self, body: Any, outcome: Outcome) -> None:
        match body:
            case {"hold": task}:
                outcome.tasks.append(NewTask(task, "desk", body))
            case {"later": at}:
                outcome.timers.append(SetTimer("later", at))
            case {"end": result}:
                outcome.status, outcome.result = Status.DONE, result
            case {"raise": text}:
                raise ValueError(text)
            case {"strike": part}:
                outcome.state = [each for each in outcome.state if each != part]
            case _:
                outcome.state.append(body)
