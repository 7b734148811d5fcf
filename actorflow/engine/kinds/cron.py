"""Messages by the clock: an execution that sets one timer after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.cron import next_time
from actorflow.engine.kind import Outcome, Outgoing, SetTimer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CronKind"]


class CronKind:
    """The kind of execution that a schedule is."""

    name = "cron"

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def options(self, _execution: str) -> dict[str, Any]:
        """Give nothing: a schedule is an ordinary worker."""
        return {}

    def decode(self, data: bytes | None) -> Any:
        """Give what is to be sent when, and to whom."""
        return None if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        """Make bytes of that."""
        return bodies.encode(state)

    def run(
        self, _execution: str, state: Any, batch: list[Any], _keep_going: Callable[[], bool]
    ) -> Outcome:
        """Set the first timer, or send the message and set the next."""
        outcome = Outcome(state=state)
        for message in batch:
            if "set" in message:
                outcome.state = message["set"]
            elif outcome.state is not None:
                told = outcome.state
                outcome.messages = [Outgoing(told["to"], told["body"], told["kind"])]
        plan = outcome.state
        due = next_time(plan["cron"], self._clock.now(), plan["zone"])
        outcome.timers = [SetTimer("tick", due, {"tick": due})]
        return outcome
