"""Questions: events whose sender waits for the answer."""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import Displaced, Rejected
from actorflow.engine import bodies
from actorflow.engine.ids import check_id, read
from actorflow.workflows.errors import Refused
from actorflow.workflows.service.received_messages import event_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.parts import EngineParts
    from actorflow.workflows.instance.state import InstanceState

__all__ = ["Question", "Reader", "has_event", "is_unheard"]


class Reader:
    """Reads the history of an execution, on from where it was."""

    def __init__(self, parts: EngineParts, execution: str, cursor: Any = None) -> None:
        self._parts = parts
        self._execution = execution
        self.cursor = cursor

    def pending(self) -> Iterator[Any]:
        """Yield the messages that wait to be handed over."""
        parts, after = self._parts, None
        while True:
            page = read(parts.state, parts.store.pending, execution=self._execution, after=after)
            for row in page.rows:
                yield bodies.decode(row.body)
            after = page.after
            if after is None:
                return

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the entries that are new."""
        parts = self._parts
        while True:
            page = read(parts.state, parts.store.history, self._execution, after=self.cursor)
            for row in page.rows:
                self.cursor = row.id
                yield from bodies.decode(row.body)["entries"]
            if page.after is None:
                return


class Question:
    """An event whose sender waits for the answer, which is an entry of the history."""

    def __init__(
        self, name: str, data: Any, given: str | None, timeout: float | None, reader: Reader
    ) -> None:
        self._is_new = given is None
        self.id = uuid.uuid4().hex if given is None else check_id(given, "an event")
        self.body = event_body(name, data, self.id, asks=True)
        self.reader = reader
        self.answer: Any = None
        self.displaced: Displaced | Rejected | None = None
        """Why the instance never gets it."""
        self.handed_over = False
        """Whether it has left the inbox, alone or merged with others, unless it is pending."""
        self.waiting: Any = None
        """The ticket of the caller."""
        self.name = name
        self._timeout = timeout
        self._end = None if timeout is None else monotonic() + timeout

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Record what happened to the event in the inbox. Thread-safe."""
        if isinstance(error, (Displaced, Rejected)):
            self.displaced = error
        elif error is None:
            self.handed_over = True
        else:
            return  # the caller hears of it otherwise
        if self.waiting is not None:  # else the caller has not looked yet
            self.waiting.resolve()

    def find_answer(self) -> bool:
        """Read on; return whether the answer is there.

        Raises:
            Refused: the event was refused.

        """
        last = None  # an event that was refused may have been sent again
        for entry in self.reader.read():
            if entry.get("type") in ("refused", "answer") and entry.get("id") == self.id:
                last = entry
        if last is None:
            return False
        if last["type"] == "refused":
            raise Refused(last["error"])
        self.answer = last["output"]
        return True

    def is_pending(self) -> bool:
        """Return whether an older one of the same id still waits in the inbox."""
        if self._is_new:
            return False
        return any(
            type(body) is dict and body.get("id") == self.id for body in self.reader.pending()
        )

    def left(self) -> float | None:
        """Return how many seconds the answer may still take."""
        return None if self._end is None else max(self._end - monotonic(), 0.0)

    def late(self, handle: object) -> str:
        """Return what to say when it has not come in time."""
        return f"{handle!r} has not answered {self.name!r} within {self._timeout} s"


def has_event(state: InstanceState, event: str) -> bool:
    """Return whether an instance has received an event: its code has it, or will get it."""
    return any(branch.event_id == event for branch in state.branches) or any(
        action.data.get("event_id") == event for action in state.buffer
    )


def is_unheard(state: InstanceState, event: str) -> bool:
    """Return whether an instance has received an event while it was being cancelled."""
    cancellation = state.cancellation
    return cancellation is not None and any(each.id == event for each in cancellation.events)
