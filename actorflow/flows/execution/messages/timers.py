"""``schedule`` and ``trigger``: sets timers; releases the messages of timers and traps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from actorflow.flows.errors import LimitExceeded
from actorflow.flows.execution.messages import traps
from actorflow.flows.execution.node import without_suffix
from actorflow.flows.execution.state import FlowTimer
from actorflow.flows.values.times import next_time, settle
from actorflow.flows.values.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import FlowRun

_LATE = 60.0
"""Seconds after which firings that were missed while no engine ran are skipped."""


def schedule(run: FlowRun, message: Message) -> list[Message]:
    """Set a timer."""
    kind, string = settle(message.get("type"), to_text(message["string"]))
    repeats = kind not in ("in", "at") or bool(message.get("repeats"))
    at = next_time(kind, string, run.now)
    least = run.sizes.limits.period
    if repeats and at - run.now < least and kind != "cron":
        raise LimitExceeded(
            f'"{string:.100}" is too often: a timer repeats every {least} s at most'
        )
    timer = FlowTimer(
        f"{message['nid']}#{message['m']}",
        message["nid"],
        kind,
        string,
        at,
        message["message"],
        message["m"],
        repeats=repeats,
    )
    run.timers[timer.id] = timer
    run.out.timers.append(timer)
    return []


def trigger(run: FlowRun, message: Message) -> list[Message]:
    """Release the message of a timer or a trap, unless the node of the timer was removed."""
    if message.get("type") != "trap" and message["nid"] not in run.nodes:
        return []
    if "trap_id" in message and not traps.take_from_elsewhere(run, message):
        return []
    _next_firing(run, message)
    released = dict(message["message"])
    released["exid"] = run.exid
    if released["point"] == "execute":
        released["nid"] = f"{without_suffix(released['nid'])}-{run.next_sub()}"
        message["message"] = released
    released = dict(released)
    released["cause"] = message["cause"]
    return [released]


def _next_firing(run: FlowRun, message: Message) -> None:
    """Remove a timer that is done, or set it again."""
    timer = run.timers.get(message.get("timer") or "")
    if timer is None:
        return
    if not timer.repeats:
        del run.timers[timer.id]
        return
    at = next_time(timer.type, timer.string, timer.at)
    if at < run.now - _LATE:
        at = next_time(timer.type, timer.string, run.now)
    again = msgspec.structs.replace(timer, at=at, count=timer.count + 1)
    run.timers[timer.id] = again
    run.out.timers.append(again)
