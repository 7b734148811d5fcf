"""Messages and starts by the clock: an execution that sets one timer after the other."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.cron import moments, next_time
from actorflow.engine.kind import Message, Options, Outcome, Outgoing, SetTimer, TimerFired

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actorflow.engine.kind import Context, Envelope

__all__ = ["BACKFILL", "CronKind"]

BACKFILL = 100
"""Occurrences that one run makes up for; the rest is left to the next."""
_TICK = "tick"


class CronKind:
    """The kind of execution that a schedule is.

    Its messages: `{"set": plan}` sets it, and `"anew": True` forgets what it was; `{"do": ...}` is
    `"pause"`, `"resume"`, `"trigger"` with an `id`, or `"backfill"` with `begin` and `end`. A plan
    has `cron`, `zone`, `kind` and `body`, and either `to`, whom a message is sent at each
    occurrence, or `start`, which begins an execution of its own for each.
    """

    name = "cron"

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults: a schedule is an ordinary worker."""
        return Options()

    def decode(self, data: bytes | None) -> Any:
        """Return the plan, whether it is `paused`, and its `next` occurrence."""
        return None if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        """Return that as bytes."""
        return bodies.encode(state)

    @staticmethod
    def occurrence(schedule: str, moment: float) -> str:
        """Return the id of the execution that is started for an occurrence, always the same.

        >>> CronKind.occurrence("nightly", 0.0)
        'nightly@1970-01-01T00:00:00Z'
        """
        text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
        return f"{schedule}@{text.removesuffix('+00:00')}Z"

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        """Take what has arrived, and set the timer of the next occurrence."""
        outcome = Outcome(state=None if state is None else dict(state))
        before = None if state is None else state["next"]
        for envelope in batch:
            if type(envelope) is Message:
                self._message(context, envelope.body, outcome)
            elif type(envelope) is TimerFired and outcome.state is not None:
                self._fired(context, envelope.due, outcome)
        after = None if outcome.state is None else outcome.state["next"]
        if after is not None and after != before:
            outcome.timers = [SetTimer(_TICK, after)]
        elif after is None and before is not None:
            outcome.cancelled_timers = [_TICK]
        return outcome

    def _message(self, context: Context, body: dict[str, Any], outcome: Outcome) -> None:
        state = outcome.state
        if "set" in body:
            outcome.state = _set(context.now, state, body["set"], anew=body.get("anew", False))
        elif state is None:
            return  # it was never set
        elif body["do"] == "pause":
            state["paused"], state["next"] = True, None
        elif body["do"] == "resume":
            if state["paused"]:
                state["paused"], state["next"] = False, _next(state, context.now)
        elif body["do"] == "trigger":
            outcome.messages.append(_due(state, f"{_name(context.id)}@{body['id']}"))
        elif body["do"] == "backfill":
            self._backfill(context, body["begin"], body["end"], outcome)

    def _fired(self, context: Context, due: float, outcome: Outcome) -> None:
        state = outcome.state
        if due != state["next"]:
            return  # it was set anew meanwhile
        id_ = self.occurrence(_name(context.id), due)
        outcome.messages.append(_due(state, id_))
        state["next"] = _next(state, max(context.now, due))  # the clock may have been set back

    def _backfill(self, context: Context, begin: float, end: float, outcome: Outcome) -> None:
        for done, moment in enumerate(occurrences(outcome.state, begin, end)):
            if done == BACKFILL:
                rest = {"do": "backfill", "begin": moment, "end": end}
                outcome.messages.append(Outgoing(context.id, rest))
                return
            id_ = self.occurrence(_name(context.id), moment)
            outcome.messages.append(_due(outcome.state, id_))


def occurrences(plan: dict[str, Any], begin: float, end: float) -> Iterator[float]:
    """Yield the occurrences of a plan from one moment to another, both included."""
    due = moments(plan["cron"], begin - 1.0, plan["zone"])
    # Compared by `float`: an `int` leaves that to it, which `takewhile` would take for true.
    return takewhile(float(end).__ge__, dropwhile(float(begin).__gt__, due))


def _set(now: float, state: Any, plan: dict[str, Any], *, anew: bool) -> dict[str, Any]:
    """Return the state with another plan; an occurrence that is due stays so if it is in both."""
    if state is None or anew:
        return {**plan, "paused": False, "next": _next(plan, now)}
    same = (state["cron"], state["zone"]) == (plan["cron"], plan["zone"])
    kept = state["next"] if same or state["paused"] else _next(plan, now)
    return {**plan, "paused": state["paused"], "next": kept}


def _next(plan: dict[str, Any], now: float) -> float:
    return next_time(plan["cron"], now, plan["zone"])


def _name(execution: str) -> str:
    return execution.partition(":")[2]


def _due(plan: dict[str, Any], id_: str) -> Outgoing:
    """Return what an occurrence sends: to whom it is for, or to begin what is named by its id."""
    if plan.get("start"):
        return Outgoing(id_, plan["body"], plan["kind"], key="start")
    return Outgoing(plan["to"], plan["body"], plan["kind"])
