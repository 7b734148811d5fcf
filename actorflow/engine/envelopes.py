"""What an execution receives: typed envelopes, and how each is stored as one message.

Every envelope has the `id` under which it is stored (opaque; ordered within one execution) and the
moment `at` which the store received it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from actorflow.behaviours.errors import kind_of
from actorflow.engine import bodies
from actorflow.runtime.errors import text_of, traceback_of

__all__ = [
    "ChildEnded",
    "ChildResumed",
    "Envelope",
    "EnvelopeType",
    "Failure",
    "Message",
    "TaskEnded",
    "TaskStarted",
    "TimerFired",
    "decode_failure",
    "encode_failure",
    "failure_of",
    "pack",
    "unpack",
]

MessageId: TypeAlias = Any


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed, as plain data: the class of the error, its text and its traceback."""

    type: str
    message: str
    traceback: str = ""
    code: int | str | None = None
    """The code of the failure in other systems: an HTTP status, an error number of a database."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


_FRAMES = 20  # the innermost ones of a traceback that are kept


def failure_of(error: BaseException) -> Failure:
    """Return an error as plain data, with its traceback."""
    lines = ""
    if error.__traceback__ is not None or error.__cause__ is not None:
        lines = traceback_of(error, limit=-_FRAMES)
    return Failure(kind_of(error), text_of(error), lines)


encode_failure = msgspec.msgpack.Encoder().encode
"""Return a failure as it is stored."""
decode_failure = msgspec.msgpack.Decoder(Failure).decode
"""Return a failure that is stored."""


class EnvelopeType(StrEnum):
    """Under which name an envelope is stored."""

    MESSAGE = "message"
    TIMER = "timer"
    STARTED = "started"
    ENDED = "ended"
    CHILD = "child"
    RESUMED = "resumed"


class Message(msgspec.Struct, frozen=True):
    """A message that was sent to the execution."""

    id: MessageId
    at: float
    body: Any


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that the execution had set; `due` is when it should have fired."""

    id: MessageId
    at: float
    timer: str
    due: float
    body: Any = None


class TaskStarted(msgspec.Struct, frozen=True):
    """A tasker has begun a task that was handed out with `NewTask.tell_start`."""

    id: MessageId
    at: float
    task: str
    attempt: int = 1


class TaskEnded(msgspec.Struct, frozen=True):
    """A task has ended.

    It is `"ok"` with a value; `"failed"` if the tasker raised or refused; or `"crashed"` if
    whatever ran it died, or it gave no sign of life in time.
    """

    id: MessageId
    at: float
    task: str
    outcome: Literal["ok", "failed", "crashed"]
    value: Any = None
    error: Failure | None = None

    @property
    def ok(self) -> bool:
        """Whether the task was done."""
        return self.outcome == "ok"


class ChildEnded(msgspec.Struct, frozen=True):
    """A child has ended, or is stuck: `status` is done, failed, cancelled or stuck."""

    id: MessageId
    at: float
    child: str
    status: str
    result: Any = None
    error: Failure | None = None


class ChildResumed(msgspec.Struct, frozen=True):
    """A child that was stuck is active again."""

    id: MessageId
    at: float
    child: str


Envelope: TypeAlias = Message | TimerFired | TaskStarted | TaskEnded | ChildEnded | ChildResumed

_encode = bodies.encode
_CLASSES: dict[str, Any] = {
    EnvelopeType.TIMER: TimerFired,
    EnvelopeType.STARTED: TaskStarted,
    EnvelopeType.ENDED: TaskEnded,
    EnvelopeType.CHILD: ChildEnded,
    EnvelopeType.RESUMED: ChildResumed,
}
_TYPES = {cls: str(name) for name, cls in _CLASSES.items()}
_DECODERS = {str(name): msgspec.msgpack.Decoder(dict[str, Any]) for name in _CLASSES}


def pack(envelope: Envelope) -> tuple[str, bytes]:
    r"""Return the type and the body under which an envelope is stored, without its id and time.

    >>> pack(Message(None, 0.0, 7))
    ('message', b'\x07')
    >>> unpack(1, 0.0, *pack(TaskEnded(None, 0.0, "t", "failed", error=Failure("E", "no")))).error
    Failure(type='E', message='no', traceback='', code=None)
    """
    if type(envelope) is Message:
        return "message", _encode(envelope.body)
    fields = {
        name: getattr(envelope, name)
        for name in envelope.__struct_fields__
        if name not in ("id", "at")
    }
    if fields.get("error") is not None:
        fields["error"] = msgspec.to_builtins(fields["error"])
    return _TYPES[type(envelope)], _encode(fields)


def unpack(id: MessageId, at: float, type: str, body: bytes) -> Envelope:  # noqa: A002 - the columns' names
    """Return the envelope that a stored message is.

    Raises:
        ValueError: this version knows no such type.

    """
    if type == "message":
        return Message(id, at, bodies.decode(body))
    decoder = _DECODERS.get(type)
    if decoder is None:
        msg = f"a stored message has the type {type!r}, which this version does not know"
        raise ValueError(msg)
    if body[0] in bodies.EXTENSIONS:
        _, body = bodies.split_context(body)
    fields = decoder.decode(body)
    if fields.get("error") is not None:
        fields["error"] = msgspec.convert(fields["error"], Failure)
    found: Envelope = _CLASSES[type](id, at, **fields)
    return found
