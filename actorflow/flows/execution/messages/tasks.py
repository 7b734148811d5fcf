"""``task``, ``detask`` and ``return``: tasks go to taskers and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import UnknownTasker, not_an_object
from actorflow.flows.values.text import shown

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import FlowRun


_NOT_PASSED = ("m", "pr", "sm", "from", "er")


def task(run: FlowRun, message: Message) -> list[Message]:
    """Offer a task to the routers; a task that none takes is dispatched after the commit."""
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


def give_back(run: FlowRun, message: Message) -> list[Message]:
    """Take the answer of a tasker; a second one is refused."""
    node = run.find(message["nid"])
    if node is not None and node.own.get("answered"):
        run.refuse(message, f"the task at node {node.nid} was already returned")
        return []
    if node is not None and "task" not in node.own:
        run.refuse(message, f"node {node.nid} waits for no task")
        return []
    if node is None and not message.get("tasker"):
        run.refuse(message, f"there is no node {message['nid']}")
        return []
    emitted: Message = {**message, "point": "receive", "exid": run.exid}
    for key in _NOT_PASSED:
        emitted.pop(key, None)
    if type(emitted.get("payload")) is not dict:
        raise not_an_object(emitted.get("payload"))
    if node is not None and "task" in node.own:
        node.own["answered"] = True
        if node.own.get("cause"):
            emitted["cause"] = node.own["cause"]
    return [emitted]
