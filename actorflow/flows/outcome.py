"""The two ends of a run: what it is given besides messages, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.flows.failure import FlowError, UnknownTasker
from actorflow.flows.values import MISSING, Value

if TYPE_CHECKING:
    from actorflow.flows.execution import Execution, Status, Timer
    from actorflow.flows.node import Message, Payload, Tree


class Loader(Protocol):
    """Where variables of a domain and subflows come from."""

    def variable(self, domain: str, name: str) -> Value:
        """Return a variable of the domain (or of one above it), or ``MISSING``."""

    def subflow(self, domain: str, name: str) -> Tree | None:
        """Return the tree of a subflow, or None."""


class Taskers(Protocol):
    """Who can be given tasks.

    ``offer`` runs inside the run and must neither block nor have effects.
    """

    def knows(self, domain: str, name: str) -> bool:
        """Tell whether somebody of that name is known in the domain or above it."""

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Return what a router makes of a task, or nothing when it is to be handed out as it is.

        Raises UnknownTasker when nobody is there to take it.
        """


class Observer:
    """Sees the messages of a run as they are processed."""

    def observe(self, message: Message, emitted: list[Message], nodes: int) -> None:
        """See a message, what it has led to, and how many nodes there are then."""

    def observe_plain(self, messages: list[Message], nodes: int) -> None:
        """See the messages of plain attributes, which are processed at once; the last one is not.

        ``nodes`` is how many there were before.
        """
        for place, message in enumerate(messages[:-1]):
            more = MORE_NODES[place % len(MORE_NODES)]
            self.observe(message, [messages[place + 1]], nodes + more)


class NoLoader:
    """A loader that knows nothing."""

    def variable(self, domain: str, name: str) -> Value:
        """Return ``MISSING``."""
        return MISSING

    def subflow(self, domain: str, name: str) -> Tree | None:
        """Return None."""
        return None


class NoTaskers:
    """Nobody to give tasks to."""

    def knows(self, domain: str, name: str) -> bool:
        """Return False."""
        return False

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Raise UnknownTasker."""
        raise UnknownTasker(f'tasker "{message.get("tasker")}" not found in domain "{domain}"')


MORE_NODES = (1, 2, 1, 0)
"""How many nodes there are more, after each of the messages of a plain attribute."""


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
