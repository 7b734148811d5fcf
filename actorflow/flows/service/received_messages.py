"""What an execution receives, as messages of a flow.

The engine delivers envelopes; a run processes messages. An envelope that cannot be translated is
refused alone, so that it does not hold up the others of its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.envelopes import Message as Sent
from actorflow.engine.envelopes import TaskEnded, TimerFired
from actorflow.flows.errors import FlowMessageRefused
from actorflow.flows.execution.codec import tree_bytes, tree_from
from actorflow.flows.execution.messages.intake import point_fault
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.service.exids import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.envelopes import Envelope
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.language.tree import Tree

__all__ = ["launch_body", "new_execution", "received", "task_id", "with_packed_tree"]

_PLACE = ("domain", "unit")


def task_id(exid: str, nid: str, m: int) -> str:
    """Return the id of a task: the same after a crash, another one when the node is re-applied."""
    return f"{exid}/{nid}#{m}"


def _task_place(task: str, exid: str) -> tuple[str, int]:
    nid, _, m = task[len(exid) + 1 :].rpartition("#")
    return nid, int(m)


def with_packed_tree(message: Message) -> Message:
    """Return a message with its tree as bytes, which executions of one flow share."""
    tree: Tree | None = message.get("tree")
    return message if tree is None else {**message, "tree": tree_bytes(tree)}


def launch_body(launch: Message, domain: str, unit: str) -> Message:
    """Return the body under which the message that starts an execution is stored."""
    body = {**with_packed_tree(launch), "domain": domain, "unit": unit}
    del body["exid"]  # the receiver knows it
    return body


def new_execution(exid: str, batch: Sequence[Envelope]) -> ExecutionState:
    """Return an execution that never ran; its launch says where it belongs."""
    for envelope in batch:
        body = envelope.body if type(envelope) is Sent else None
        if type(body) is dict:
            domain, unit = body.get("domain"), body.get("unit")
            if type(domain) is str and type(unit) is str:
                return ExecutionState(exid, domain, unit)
    return ExecutionState(exid, *parts_of(exid))


def received(state: ExecutionState, batch: Sequence[Envelope]) -> tuple[list[Message], list[str]]:
    """Return the messages of a batch, and why others were refused."""
    messages: list[Message] = []
    refused: list[str] = []
    for envelope in batch:
        try:
            messages.append(_message(state, envelope))
        except FlowMessageRefused as error:
            refused.append(str(error))
    return messages, refused


def _message(state: ExecutionState, envelope: Envelope) -> Message:
    if type(envelope) is Sent:
        return _sent(state.exid, envelope.body)
    if type(envelope) is TaskEnded:
        return _task_ended(state, envelope)
    if type(envelope) is TimerFired:
        timer = state.timers.get(envelope.timer)
        if timer is None:
            raise FlowMessageRefused(f"timer {envelope.timer!r} refused: it is not set any more")
        return timer.trigger(state.exid)
    raise FlowMessageRefused(
        f"{type(envelope).__name__} refused: flows do not ask for such messages"
    )


def _sent(exid: str, body: Any) -> Message:
    """Return a message from outside; the run checks its contents."""
    if type(body) is not dict:
        raise FlowMessageRefused(
            f"{body!r:.100} refused: a message to a flow is a dict with a point, such as"
            " {'point': 'signal', 'name': 'go', 'payload': {}}; use the verbs of engine.flows"
        )
    message: Message = {"exid": exid, **body}
    why = point_fault(message)
    if why is not None:
        raise FlowMessageRefused(f"{message.get('point')} refused: {why}")
    for place in _PLACE:
        message.pop(place, None)
    tree = message.get("tree")
    if type(tree) is bytes:
        message["tree"] = _unpacked(tree)
    return message


def _unpacked(data: bytes) -> Tree:
    try:
        return tree_from(data)
    except Exception as error:
        raise FlowMessageRefused(f"execute refused: its tree cannot be read: {error}") from error


def _task_ended(state: ExecutionState, ended: TaskEnded) -> Message:
    try:
        nid, m = _task_place(ended.task, state.exid)
    except ValueError:
        raise FlowMessageRefused(
            f"the end of task {ended.task!r} refused: it is not a task of this execution"
        ) from None
    node = state.nodes.get(nid)
    handed = None if node is None else node.own.get("handed")
    if node is None or handed is None or handed[0] != m:
        raise FlowMessageRefused(f"the end of task {ended.task!r} refused: no node waits for it")
    if ended.outcome == "ok" and type(ended.value) is dict:
        return {
            "point": "return",
            "exid": state.exid,
            "nid": nid,
            "tasker": handed[1],
            "payload": ended.value,
        }
    described = {"kla": "TaskFailed", "msg": ""}
    if ended.outcome == "ok":
        described["msg"] = f"the answer must be a payload, a JSON object, not {ended.value!r:.100}"
    if ended.error is not None:
        described = {"kla": ended.error.type, "msg": ended.error.message}
    return {
        "point": "failed",
        "exid": state.exid,
        "nid": nid,
        "tasker": handed[1],
        "from": nid,
        "payload": _payload_at_task(node),
        "fpoint": "task",
        "fm": m,
        "error": described,
    }


def _payload_at_task(node: Node) -> Payload:
    """Return the payload that a task was handed out with."""
    ret = node.payload.get("ret")
    if node.atts:
        key, value = node.atts[-1]
        ret = value if key is None else None
    return {**node.payload, "ret": ret}
