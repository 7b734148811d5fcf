"""What a run leaves: the new state, and all that goes out with its commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.flows.errors import FlowError
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.execution.state import Execution, Status, Timer


@dataclass(frozen=True)
class Refusal:
    """A message that had no effect, and why; the engine tells whoever sent it."""

    message: Message
    error: FlowError


@dataclass
class Outcome:
    """What a run leaves: all of it goes into one commit; tasks are handed out only after that."""

    state: Execution
    status: Status
    messages: list[Message] = field(default_factory=list)
    """Every message processed, in order, as it was after processing: the history."""
    tasks: list[Message] = field(default_factory=list)
    """task and detask messages to hand out after the commit."""
    timers: list[Timer] = field(default_factory=list)
    """Timers to set."""
    cancelled_timers: list[str] = field(default_factory=list)
    """Ids of timers to forget."""
    signals: list[Message] = field(default_factory=list)
    """Messages for other executions."""
    leftover: list[Message] = field(default_factory=list)
    """Messages that the budget left over, to be put in front of the next run."""
    refused: list[Refusal] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    echoes: list[dict[str, Any]] = field(default_factory=list)
    """Texts for the log, and the nodes that say them."""
    payload: Payload | None = None
    """The payload of the terminated message, when this run saw it."""
