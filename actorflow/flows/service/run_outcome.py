"""What a run of a flow leaves, as an outcome for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.engine.ids import check_id
from actorflow.engine.kind import Failure, NewTask, NewWatch, Outcome, Outgoing, SetTimer, Status
from actorflow.flows.execution.messages.traps import looks_elsewhere, trigger_from_elsewhere
from actorflow.flows.execution.names import visible_variables
from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.service.received_messages import task_id, with_packed_tree
from actorflow.flows.service.taskers import task_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.kind import Watch
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import RunOutcome as FlowOutcome
    from actorflow.flows.execution.state import ExecutionState
    from actorflow.flows.service.taskers import Directory

__all__ = ["outcome_of"]

_ANSWERS = frozenset(("return", "failed"))


def outcome_of(
    before: ExecutionState,
    out: FlowOutcome,
    directory: Directory,
    watches: Sequence[Watch],
    refused: list[str],
) -> Outcome:
    """Return all of an outcome but its state and its history; adds to `refused`."""
    after = out.state
    outcome = Outcome(state=None, status=_status(out))
    if outcome.status is Status.DONE:
        outcome.result = after.payload
    elif outcome.status is Status.STUCK:
        outcome.error = _failure(after)
    if out.timers:
        outcome.timers = [SetTimer(timer.id, timer.at) for timer in out.timers]
    outcome.cancelled_timers = out.cancelled_timers
    # Leftover messages are sent again, and so are batched with newer ones: a cancel must reach a
    # loop that never ends by itself.
    if out.leftover:
        outcome.messages = [Outgoing(after.exid, with_packed_tree(one)) for one in out.leftover]
    for one in out.signals:
        try:
            outcome.messages.append(Outgoing(check_id(one["exid"], "an execution"), one))
        except (TypeError, ValueError) as error:
            refused.append(f"{one['point']} refused: {error}")
    _tasks(before, out, outcome, directory)
    if after.traps or before.traps:
        _set_watches(before, after, outcome)
    if watches:
        _spring(out, outcome, watches)
    return outcome


def _status(out: FlowOutcome) -> Status:
    if out.status is FlowStatus.ACTIVE:
        return Status.ACTIVE
    if out.status is FlowStatus.FAILED:
        return Status.STUCK
    return Status.CANCELLED if out.state.cancelled else Status.DONE


def _failure(state: ExecutionState) -> Failure | None:
    """Return why the first node without an error handler failed."""
    for node in state.nodes.values():
        if node.state is None and node.failure is not None:
            error = node.failure.get("error", {})
            return Failure(str(error.get("kla", "")), f"node {node.nid}: {error.get('msg', '')}")
    return None


# Tasks.


def _tasks(
    before: ExecutionState, out: FlowOutcome, outcome: Outcome, directory: Directory
) -> None:
    """Hand out new tasks; withdraw tasks that were cancelled or have no node."""
    after = out.state
    given_back: dict[str, Message] = {}
    for message in out.tasks:
        nid = message["nid"]
        node = after.nodes.get(nid)
        found = directory.resolve(after.domain, message["tasker"])
        if node is None or found is None:
            continue  # ended in this very run
        handed = node.own.get("handed")
        if handed is None:
            if message["point"] == "detask":
                given_back[nid] = message  # failed before anybody had it
            continue
        if message["point"] == "detask":
            if directory.is_cancellable(found) and not node.own.get("answered"):
                given_back[nid] = message
        elif handed[0] == message["m"] and node.state is None:
            wants = directory.wants_variables(found)
            variables = visible_variables(after.nodes, node) if wants else None
            body = task_body(message, variables)
            outcome.tasks.append(NewTask(task_id(after.exid, nid, handed[0]), found, body))
        elif handed[0] == message["m"]:
            given_back.setdefault(nid, message)  # cancelled before anybody had it
    for nid, message in given_back.items():
        outcome.messages.append(Outgoing(after.exid, _given_back(after.nodes[nid], message)))
    _forget_tasks(before, out, outcome, given_back)


def _forget_tasks(
    before: ExecutionState, out: FlowOutcome, outcome: Outcome, given_back: dict[str, Message]
) -> None:
    """Cancel the tasks that no node waits for any more."""
    after = out.state
    for nid, node in before.nodes.items():
        if "handed" not in node.own or node.own.get("answered"):
            continue
        handed = node.own["handed"]
        now = after.nodes.get(nid)
        if (
            now is not None
            and now.own.get("handed") == handed
            and now.state != "ended"
            and nid not in given_back
        ):
            continue
        if not _was_answered(out, nid):
            outcome.cancelled_tasks.append(task_id(after.exid, nid, handed[0]))


def _was_answered(out: FlowOutcome, nid: str) -> bool:
    """Return whether the run processed the answer to the task of a node."""
    for one in out.processed:
        if type(one) is dict and one["point"] in _ANSWERS and one["nid"] == nid:
            return True
    return False


def _given_back(node: Node, message: Message) -> Message:
    """Return the answer to a task that its tasker does not have to give any more."""
    answer: Message = {
        "point": "return",
        "exid": message["exid"],
        "nid": node.nid,
        "tasker": (node.own.get("handed") or [None, message["tasker"]])[1],
        "payload": message["payload"],
    }
    if message.get("cause"):
        answer["cause"] = message["cause"]
    return answer


# Traps that watch other executions.


def _set_watches(before: ExecutionState, after: ExecutionState, outcome: Outcome) -> None:
    """Store the traps that watch other executions, where those can see them."""
    old = {trap["id"] for trap in before.traps if looks_elsewhere(trap)}
    new = {trap["id"]: trap for trap in after.traps if looks_elsewhere(trap)}
    outcome.watches = [
        NewWatch(name, {"domain": after.domain, "trap": trap})
        for name, trap in new.items()
        if name not in old
    ]
    outcome.cancelled_watches = [name for name in old if name not in new]


def _spring(out: FlowOutcome, outcome: Outcome, watches: Sequence[Watch]) -> None:
    """Send triggers to the executions whose traps a message of this run springs."""
    after = out.state
    messages = out.messages
    for watch in watches:
        if watch.execution == after.exid:
            continue
        owner, trap = watch.body["domain"], watch.body["trap"]
        for message in messages:
            trigger = trigger_from_elsewhere(watch.execution, owner, trap, message, after.domain)
            if trigger is not None:
                outcome.messages.append(Outgoing(watch.execution, trigger))
