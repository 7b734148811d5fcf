"""What a run is given besides messages: domain variables, subflows, taskers, an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from actorflow.flows.errors import UnknownTasker
from actorflow.flows.values.values import MISSING, Value

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


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
        """Return whether somebody of that name is known in the domain or above it."""

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
