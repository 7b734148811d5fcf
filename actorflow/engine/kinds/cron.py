"""Messages and starts by the clock: an execution that sets one timer after the other."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.cron import moments, next_time
from actorflow.engine.kind import (
    ENDED,
    ChildEnded,
    Message,
    NewChild,
    Options,
    Outcome,
    Outgoing,
    SetTimer,
    TimerFired,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actorflow.engine.kind import Context, Envelope

__all__ = ["ALLOW", "BACKFILL", "OVERLAPS", "QUEUED", "CronKind"]

BACKFILL = 100
"""Occurrences that one run makes up for; the rest is left to the next."""
QUEUED = 1_000
"""Occurrences that wait for their turn, at most; later ones are left out."""
ALLOW = "allow"
"""Occurrences may run at the same time."""
OVERLAPS = (ALLOW, "skip", "queue", "cancel")
_TICK = "tick"
_TURNS = ("running", "waiting")


class CronKind:
    """The kind of execution that a schedule is.

    Its messages: `{"set": plan}` sets it, and `"anew": True` forgets what it was; `{"do": ...}` is
    `"pause"`, `"resume"`, `"trigger"` with an `id`, or `"backfill"` with `begin` and `end`. A plan
    has `cron`, `zone`, `kind` and `body`, and either `to`, whom a message is sent at each
    occurrence, or `start`, which begins an execution of its own for each. With an `overlap`, the
    executions of occurrences by the clock are children of the schedule, and never run together.
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
        """Handle the batch and set the timer of the next occurrence."""
        outcome = Outcome(state=None if state is None else dict(state))
        before = None if state is None else state["next"]
        for envelope in batch:
            if type(envelope) is Message:
                self._message(context, envelope.body, outcome)
            elif type(envelope) is TimerFired and outcome.state is not None:
                self._fired(context, envelope.due, outcome)
            elif type(envelope) is ChildEnded and envelope.status in ENDED:
                _child_ended(outcome.state, envelope.child)
        if outcome.state is not None:
            _start_next(outcome)
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
        if state.get("overlap", ALLOW) == ALLOW:
            outcome.messages.append(_due(state, id_))
        else:
            _arrange(state, id_, outcome)
        state["next"] = _next(state, max(context.now, due))  # the clock may have been set back

    def _backfill(self, context: Context, begin: float, end: float, outcome: Outcome) -> None:
        state = outcome.state
        # Later occurrences are the clock's: two with one id would wait for each other.
        last = None if state.get("overlap", ALLOW) == ALLOW else state["next"] or context.now
        for done, moment in enumerate(occurrences(state, begin, end)):
            if last is not None and moment >= last:
                return
            if done == BACKFILL:
                rest = {"do": "backfill", "begin": moment, "end": end}
                outcome.messages.append(Outgoing(context.id, rest))
                return
            id_ = self.occurrence(_name(context.id), moment)
            outcome.messages.append(_due(outcome.state, id_))


def _start_next(outcome: Outcome) -> None:
    """Start the next occurrence that waits, once the one before has ended."""
    state = outcome.state
    waiting = state.get("waiting")
    if waiting and state.get("running") is None and not state["paused"]:
        state["running"], state["waiting"] = waiting[0], waiting[1:]
        outcome.children.append(NewChild(waiting[0], state["kind"], state["body"]))


def _arrange(state: dict[str, Any], id_: str, outcome: Outcome) -> None:
    """Let an occurrence wait for its turn, or leave it out, as the overlap of the plan says."""
    running, waiting = state.get("running"), state.get("waiting", [])
    if state["overlap"] == "skip":
        if running is None and not waiting:
            state["waiting"] = [id_]
    elif state["overlap"] == "cancel":
        state["waiting"] = [id_]
        if running is not None:
            outcome.cancelled_children.append(running)
    elif len(waiting) < QUEUED:
        state["waiting"] = [*waiting, id_]


def _child_ended(state: Any, child: str) -> None:
    if state is not None and state.get("running") == child:
        state["running"] = None


def occurrences(plan: dict[str, Any], begin: float, end: float) -> Iterator[float]:
    """Yield the occurrences of a plan from one moment to another, both included."""
    due = moments(plan["cron"], begin - 1.0, plan["zone"])
    # Compared by `float`: an `int` leaves that to it, which `takewhile` would take for true.
    return takewhile(float(end).__ge__, dropwhile(float(begin).__gt__, due))


def _set(now: float, state: Any, plan: dict[str, Any], *, anew: bool) -> dict[str, Any]:
    """Return the state with another plan; an occurrence that is due stays so if it is in both."""
    if state is None or anew:
        return {**plan, "paused": False, "next": _next(plan, now)}
    turns = {name: state[name] for name in _TURNS if name in state}
    same = (state["cron"], state["zone"]) == (plan["cron"], plan["zone"])
    kept = state["next"] if same or state["paused"] else _next(plan, now)
    return {**turns, **plan, "paused": state["paused"], "next": kept}


def _next(plan: dict[str, Any], now: float) -> float:
    return next_time(plan["cron"], now, plan["zone"])


def _name(execution: str) -> str:
    return execution.partition(":")[2]


def _due(plan: dict[str, Any], id_: str) -> Outgoing:
    """Return the message of an occurrence: to its target, or to a new execution with its own id."""
    if plan.get("start"):
        return Outgoing(id_, plan["body"], plan["kind"], key="start")
    return Outgoing(plan["to"], plan["body"], plan["kind"])
