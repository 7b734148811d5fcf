"""What becomes of one message that an execution was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.envelopes import Message, pack

if TYPE_CHECKING:
    from actorflow.engine.execution.live import Live
    from actorflow.engine.stores.protocol import TaskRow

__all__ = ["Both", "Ticket"]


class Both:
    """Two callers that wait for one message: for its storing, and for its outcome."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Any, other: Any) -> None:
        self._one = one
        self._other = other

    def resolve(self, error: BaseException | None = None) -> None:
        """Resolve both."""
        self._one.resolve(error)
        self._other.resolve(error)


class Ticket:
    """What becomes of one message: its waiter learns of it, and the store if it is stored."""

    __slots__ = ("id", "item", "live", "open", "task", "waiter")

    def __init__(
        self,
        live: Live,
        id: Any,  # noqa: A002 - what it is
        item: Any,
        waiter: Any = None,
        task: TaskRow | None = None,
    ) -> None:
        self.live = live
        self.id = id
        """Under which it is stored; `None` if it is not, because its pusher waits anyway."""
        self.item = item
        """What the behaviour holds: an envelope, or the body of a message."""
        self.waiter = waiter
        self.task = task
        """The task that it answers, where only that is stored."""
        self.open = True

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Note that the runtime will not process it, if so. Thread-safe."""
        if error is not None and self.open:
            self.live.lost(self, error)

    def consume(self, error: BaseException | None = None) -> None:
        """Note that it is gone from the store; resolve the waiter. In the writer's thread."""
        if self.open:
            self.open = False
            if self.id is not None:
                self.live.held -= 1
                if self.live.known is not None:
                    self.live.known.discard(self.id)
        if self.waiter is not None:
            self.waiter.resolve(error)
            self.waiter = None

    def leave(self, error: BaseException) -> None:
        """Leave it in the store, for code that can read the execution. In the lane's thread."""
        if self.task is not None:  # only the task is stored
            self.live.core.board.store_answer(self.task, *self.packed())
        if self.waiter is not None:
            self.waiter.resolve(error)
            self.waiter = None

    def packed(self) -> tuple[str, bytes]:
        """Return the type and body under which it is stored."""
        item = self.item
        if self.live.options.bodies and not hasattr(item, "__struct_fields__"):
            return pack(Message(None, 0.0, item))
        return pack(item)
