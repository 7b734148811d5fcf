"""What the executor does for tasks, timers, traps, failures and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from actorflow.flows import recovery, traps
from actorflow.flows.execution import Timer
from actorflow.flows.failure import BadPayload, UnknownTasker
from actorflow.flows.node import ROOT, without_suffix
from actorflow.flows.showing import shown
from actorflow.flows.timing import next_time, settle
from actorflow.flows.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.executor import Run
    from actorflow.flows.node import Message

_LATE = 60.0
"""Seconds after which firings that were missed, the engine being down, are left out."""


def task(run: Run, message: Message) -> list[Message]:
    """Offer a task to the taskers; what no router takes is handed out after the commit."""
    node = run.find(message["nid"])
    if message.get("routed") is False:
        name = shown(message.get("tasker"))
        if node is not None and node.heat0 == message.get("tasker"):
            raise UnknownTasker(f"don't know how to apply {name}")
        raise UnknownTasker(f"tasker {name} not found")
    routed = run.taskers.offer(run.domain, message)
    if not routed:
        if node is not None and message["point"] == "task":
            node.own["handed"] = [message["m"], message["tasker"]]
        run.out.tasks.append(message)
        return []
    return [{**one, "exid": run.exid} for one in routed]


def give_back(run: Run, message: Message) -> list[Message]:
    """Take a task back: once; a second time is refused."""
    node = run.find(message["nid"])
    if node is not None and node.own.get("answered"):
        run.refuse(message, f"the task at node {node.nid} was given back already")
        return []
    emitted = {k: v for k, v in message.items() if k not in ("m", "pr", "sm", "from", "er")}
    emitted["point"] = "receive"
    emitted["exid"] = run.exid
    if type(emitted.get("payload")) is not dict:
        raise BadPayload(f"a payload is a JSON object, not {type(emitted.get('payload')).__name__}")
    if node is not None and "task" in node.own:
        node.own["answered"] = True
        if node.own.get("cause"):
            emitted["cause"] = node.own["cause"]
    return [emitted]


def schedule(run: Run, message: Message) -> list[Message]:
    """Set a timer."""
    kind, string = settle(message.get("type"), to_text(message["string"]))
    timer = Timer(
        f"{message['nid']}#{message['m']}",
        message["nid"],
        kind,
        string,
        next_time(kind, string, run.now),
        message["message"],
        message["m"],
        repeats=kind not in ("in", "at") or bool(message.get("repeats")),
    )
    run.timers[timer.id] = timer
    run.out.timers.append(timer)
    return []


def trigger(run: Run, message: Message) -> list[Message]:
    """Release what a timer or a trap held back; what a timer of a gone node held is gone, too."""
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


def _next_firing(run: Run, message: Message) -> None:
    """Forget a timer that is done, or set it again."""
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


def trap(run: Run, message: Message) -> list[Message]:
    """Set a trap."""
    run.traps.append({**message["trap"], "id": f"{message['nid']}#{message['m']}"})
    return []


def failed(run: Run, message: Message) -> list[Message]:
    """Mark the node, and look for a handler."""
    node = run.find(message.get("nid") or "")
    if node is None:
        return []
    node.failure = {k: v for k, v in message.items() if k != "payload"}
    return recovery.handle(run, node, message)


def terminate(run: Run, message: Message) -> list[Message]:
    """Note the end."""
    run.terminated = True
    run.out.payload = message.get("payload")
    run.cancelled = any(
        cause["cause"] in ("cancel", "kill") and cause["nid"] == ROOT
        for cause in message.get("cause") or ()
    )
    return []


def add(run: Run, message: Message) -> list[Message]:
    """Let a node grow."""
    node = run.find(message["nid"])
    if node is None or node.state is not None:
        return []
    procedure = run.procedure_for(node, message)
    return procedure.add_message()
