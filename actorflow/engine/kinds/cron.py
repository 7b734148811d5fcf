"""Messages by the clock: an execution that sets one timer after the other. cronsim reads cron."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from actorflow.engine import bodies
from actorflow.engine.kind import Outcome, Outgoing, SetTimer
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CronKind", "next_time"]

_SIX = 6  # fields, the first of them seconds


def next_time(cron: str, after: float, zone: str = "UTC") -> float:
    """Give the next moment after another that a cron expression stands for.

    >>> next_time("30 9 * * *", 0.0)
    34200.0
    >>> next_time("*/15 * * * * *", 14.0)
    15.0

    Raises:
        BadOption: the expression or the zone cannot be read, or the moment never comes.

    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - not every engine has schedules

    fields = cron.split()
    try:
        here = ZoneInfo(zone)
        start = datetime.fromtimestamp(after, UTC).astimezone(here)
        if len(fields) != _SIX:
            return next(CronSim(cron, start)).timestamp()
        seconds = sorted(_seconds(fields[0]))
        minutes = CronSim(" ".join(fields[1:]), start.replace(second=0, microsecond=0))
        this = start.replace(second=0, microsecond=0).timestamp()
        first = CronSim(
            " ".join(fields[1:]), datetime.fromtimestamp(this - 60, UTC).astimezone(here)
        )
        if next(first).timestamp() == this:
            for second in seconds:
                if this + second > after:
                    return this + second
        return next(minutes).timestamp() + seconds[0]
    except (CronSimError, StopIteration, KeyError, ValueError, OSError, OverflowError) as error:
        msg = f"cron {cron!r} in zone {zone!r} cannot be used: {error!r}"
        raise BadOption(f"{msg}; write for example '30 9 * * *'") from error


def _seconds(field: str) -> set[int]:
    """Read the field of seconds: `*`, `*/n`, `a-b`, `a,b`."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = ("0", "", "59") if span == "*" else span.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    if not found or min(found) < 0 or max(found) > 59:  # noqa: PLR2004 - seconds in a minute
        msg = f"{field!r} are not seconds between 0 and 59"
        raise ValueError(msg)
    return found


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
