"""The outcome of a run: the new state, and everything that is committed with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.flows.errors import FlowError
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.state import Execution, Status, Timer


@dataclass(frozen=True)
class RefusedMessage:
    """A message that had no effect, and why."""

    message: Message
    error: FlowError


@dataclass
class RunOutcome:
    """The outcome of a run. All of it is one commit; tasks are dispatched after that."""

    state: Execution
    status: Status
    messages: list[Message] = field(default_factory=list)
    """The processed messages in order, as they were after processing: the history."""
    tasks: list[Message] = field(default_factory=list)
    """task and detask messages to dispatch after the commit."""
    timers: list[Timer] = field(default_factory=list)
    """Timers to set."""
    cancelled_timers: list[str] = field(default_factory=list)
    """Ids of timers to cancel."""
    signals: list[Message] = field(default_factory=list)
    """Messages for other executions."""
    leftover: list[Message] = field(default_factory=list)
    """Messages that were not processed in this run."""
    refused: list[RefusedMessage] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    echoes: list[dict[str, Any]] = field(default_factory=list)
    """Texts for the log, with their nodes."""
    payload: Payload | None = None
    """The payload of the terminated message, if it was processed in this run."""
