"""Messages by the clock: an execution that sets one timer after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.cron import next_time
from actorflow.engine.kind import Message, Options, Outcome, Outgoing, SetTimer, TimerFired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.kind import Context, Envelope

__all__ = ["CronKind"]


class CronKind:
    """The kind of execution that a schedule is."""

    name = "cron"

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults: a schedule is an ordinary worker."""
        return Options()

    def decode(self, data: bytes | None) -> Any:
        """Return what is to be sent when, and to whom."""
        return None if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        """Return that as bytes."""
        return bodies.encode(state)

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        """Set the first timer, or send the message and set the next."""
        outcome = Outcome(state=state)
        for envelope in batch:
            if type(envelope) is Message:
                outcome.state = envelope.body["set"]
            elif type(envelope) is TimerFired and outcome.state is not None:
                told = outcome.state
                outcome.messages = [Outgoing(told["to"], told["body"], told["kind"])]
        plan = outcome.state
        outcome.timers = [SetTimer("tick", next_time(plan["cron"], context.now, plan["zone"]))]
        return outcome
