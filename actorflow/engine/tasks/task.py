"""Tasks: what a tasker gets, `HOLD` instead of a result, stored progress, and open tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never

import msgspec
from msgspec import Struct

from actorflow.engine import bodies

if TYPE_CHECKING:
    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.runtime.clock import Timer

__all__ = ["HELD", "HOLD", "MARKS", "OpenTask", "TaskAttempt", "split", "with_progress"]


class _Hold:
    """The type of `HOLD`."""

    def __repr__(self) -> str:
        return "HOLD"

    def __reduce__(self) -> str:
        return "HOLD"  # the same one in every process


HELD: Any = _Hold()
"""`HOLD`, to compare values with."""
HOLD: Never = HELD
"""Return this from a tasker or a task to answer later, with `engine.return_task(id, value)`.

A function that returns it is declared to return the later value, so its type fits any.
"""


def _wanted(*_progress: Any) -> bool:
    return True


class TaskAttempt(Struct, frozen=True):
    """What a tasker is called with."""

    id: str
    """Stable: the same over retries and restarts. Deduplicate by it."""
    execution: str
    tasker: str
    body: Any
    attempt: int
    """1 for the first."""
    priority: int = 0
    timeout: float | None = None
    """Seconds for this attempt, if the task has a time of its own."""
    last_progress: Any = None
    """What an earlier attempt has noted last with `progress`."""
    batch: tuple[TaskAttempt, ...] = ()
    """In a function with `batch=`: the task of each item, in the order of the items."""
    _beat: Callable[..., bool] = _wanted

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} for {self.tasker!r}: {self.body!r:.200}>"

    def heartbeat(self) -> bool:
        """Report that the attempt goes on; return whether the task is still wanted."""
        return self._beat()

    def progress(self, value: Any) -> bool:
        """Like `heartbeat`, but note how far the attempt has come: plain data.

        The next attempt finds the last value in `last_progress`, also after a crash. The value is
        stored soon after, not before this returns.

        Raises:
            NotStorable: the value is not plain data.

        """
        return self._beat(value)


_CODE = 1
_LENGTH = 4
MARKS = bodies.EXTENSIONS
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode


def with_progress(body: bytes, progress: Any) -> bytes:
    """Return the body of a row with this progress, instead of any that it had.

    Raises:
        NotStorable: the progress is not plain data.

    """
    noted = bodies.encode(progress)
    plain, _ = split(body)
    return _encode(msgspec.msgpack.Ext(_CODE, len(noted).to_bytes(_LENGTH, "big") + noted + plain))


def split(body: bytes) -> tuple[bytes, Any]:
    """Return the body of a task and its progress, `None` without any."""
    if not body or body[0] not in MARKS:
        return body, None
    found = _decode(body)
    if found.code != _CODE:  # the context of tracing
        return body, None
    both = bytes(found.data)
    end = _LENGTH + int.from_bytes(both[:_LENGTH], "big")
    return both[end:], bodies.decode(both[_LENGTH:end])


class OpenTask:
    """A task that waits for its result."""

    __slots__ = ("begun", "expired", "lease", "limit", "noting", "recovered", "row", "start")

    def __init__(self, row: TaskRow, *, recovered: bool = False) -> None:
        self.row = row
        self.recovered = recovered
        """Its attempt may be the next of one that nobody has counted: note it before it begins."""
        self.begun = False
        """Its tasker has called the function. Set under the lock of the table."""
        self.start: Timer | None = None
        self.lease: Timer | None = None
        """Ends the attempt unless it is renewed by a heartbeat."""
        self.limit: Timer | None = None
        """Ends the attempt, whatever it reports."""
        self.noting: bytes | None = None
        """The body, with its progress, that is about to be stored."""
        self.expired: Callable[[Exception], None] | None = None

    def cancel_timers(self) -> None:
        """Cancel what the clock was to do about this attempt."""
        for timer in (self.start, self.lease, self.limit):
            if timer is not None:
                timer.cancel()
