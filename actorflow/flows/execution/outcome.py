"""The outcome of a run: the new state, and everything that is committed with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from actorflow.flows.errors import FlowError
    from actorflow.flows.execution.literal_attributes import Literals
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.state import Execution, Status, Timer


@dataclass(frozen=True)
class RefusedMessage:
    """A message that had no effect, and why."""

    message: Message
    error: FlowError


class RunOutcome(msgspec.Struct):
    """The outcome of a run. All of it is one commit; tasks are dispatched after that."""

    state: Execution
    status: Status
    messages: list[Message | Literals] = []
    """The processed messages in order, as they were after processing: the history."""
    tasks: list[Message] = []
    """task and detask messages to dispatch after the commit."""
    timers: list[Timer] = []
    """Timers to set."""
    cancelled_timers: list[str] = []
    """Ids of timers to cancel."""
    signals: list[Message] = []
    """Messages for other executions."""
    leftover: list[Message] = []
    """Messages that were not processed in this run."""
    refused: list[RefusedMessage] = []
    traces: list[dict[str, Any]] = []
    echoes: list[dict[str, Any]] = []
    """Texts for the log, with their nodes."""
    payload: Payload | None = None
    """The payload of the terminated message, if it was processed in this run."""
