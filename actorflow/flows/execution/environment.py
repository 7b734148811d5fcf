"""What a run needs besides messages: domain variables, subflows, taskers, an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from actorflow.flows.errors import UnknownTasker
from actorflow.flows.values.values import MISSING, Value

if TYPE_CHECKING:
    from actorflow.flows.execution.literal_messages import Literals
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


class Loader(Protocol):
    """Finds domain variables and subflows."""

    def variable(self, domain: str, name: str) -> Value:
        """Return a variable of the domain or of a parent domain, or ``MISSING``."""

    def subflow(self, domain: str, name: str) -> Tree | None:
        """Return the tree of a subflow, or None."""


class Taskers(Protocol):
    """Finds taskers. Called during a run: must neither block nor have side effects."""

    def knows(self, domain: str, name: str) -> bool:
        """Return whether there is a tasker of that name in the domain or a parent domain."""

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Return the messages of a router for a task, or nothing to dispatch the task as it is.

        Raises UnknownTasker if there is no such tasker.
        """


class Observer:
    """Is called with the messages of a run as they are processed."""

    __slots__ = ()

    def observe(self, message: Message, emitted: list[Message], nodes: int) -> None:
        """Take a processed message, the messages it emitted, and the number of nodes."""

    def observe_literals(self, literals: Literals, nodes: int) -> None:
        """Take literal attributes, which are processed together.

        ``nodes`` is their number before the first message.
        """
        messages = literals.messages()
        for place, message in enumerate(messages[:-1]):
            more = MORE_NODES[place % len(MORE_NODES)]
            self.observe(message, [messages[place + 1]], nodes + more)


class NoLoader:
    """A loader without variables and subflows."""

    def variable(self, domain: str, name: str) -> Value:
        """Return ``MISSING``."""
        return MISSING

    def subflow(self, domain: str, name: str) -> Tree | None:
        """Return None."""
        return None


class NoTaskers:
    """No taskers at all."""

    def knows(self, domain: str, name: str) -> bool:
        """Return False."""
        return False

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Raise UnknownTasker."""
        raise UnknownTasker(f'tasker "{message.get("tasker")}" not found in domain "{domain}"')


MORE_NODES = (1, 2, 1, 0)
"""By how much the number of nodes has grown after each message of a literal attribute."""
