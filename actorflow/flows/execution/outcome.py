"""The outcome of a run: the new state, and everything that is committed with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.flows.execution.literal_messages import Literals
from actorflow.flows.execution.node import Message, Payload
from actorflow.flows.execution.state import Execution, Status, Timer

if TYPE_CHECKING:
    from actorflow.flows.errors import FlowError


@dataclass(frozen=True)
class RefusedMessage:
    """A message that had no effect, and why."""

    message: Message
    error: FlowError


class RunOutcome(msgspec.Struct, gc=False):
    """The outcome of a run. All of it is one commit; tasks are dispatched after that."""

    state: Execution
    status: Status
    processed: list[Message | Literals] = []
    """The processed messages in order, as they were after processing; literals are together."""
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

    @property
    def messages(self) -> list[Message]:
        """The processed messages, each of them: the history. Takes time linear in their number."""
        messages: list[Message] = []
        for one in self.processed:
            messages += one.messages()[:-1] if isinstance(one, Literals) else (one,)
        return messages
