"""One run of an execution, as a pure function of what was fetched: which change it amounts to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.core import Core
from actorflow.engine.envelopes import Message, TimerFired, pack, unpack
from actorflow.engine.errors import text_of
from actorflow.engine.execution.run import change_of, message_to_parent
from actorflow.engine.kind import ENDED, Context, Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change, NewDead, NewMessage
from actorflow.testing.kinds import awaited
from behaviours import Queue, Rejected
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, TimerRow
    from actorflow.testing.simulation.store import Fetched

__all__ = ["UnknownKind", "change_for", "timer_message"]


class UnknownKind(Exception):
    """No kind of that name is simulated."""


def timer_message(timer: TimerRow) -> NewMessage:
    """Return the message of a timer that fires."""
    fired = TimerFired(None, 0.0, timer.id, timer.due, bodies.decode(timer.body))
    return NewMessage(timer.execution, *pack(fired))


def change_for(
    name: str,
    fetched: Fetched,
    messages: Sequence[MessageRow],
    kinds: Mapping[str, Kind],
    keep_going: Callable[[], bool],
) -> Change:
    """Return what comes of some messages of an execution; it has to be committed.

    A message that makes the run raise becomes a dead letter, and the others run without it.
    """
    row = fetched.row
    if row is None or row.status in ENDED:
        return _refused(name, messages, fetched.now)
    kind = kinds.get(row.kind)
    if kind is None:
        msg = f"execution {name!r} is of kind {row.kind!r}; simulated are {', '.join(kinds)}"
        raise UnknownKind(msg)
    cancels = [each for each in messages if each.type == "cancel"]
    if cancels:
        return _cancelled(row, kind, cancels, fetched.now)
    try:
        batch, consumed = _accumulated(name, kind, messages)
        change = _run(name, fetched, kind, batch, keep_going)
    except Exception as error:  # noqa: BLE001 - as the engine does
        if len(messages) > 1:
            return change_for(name, fetched, messages[:1], kinds, keep_going)
        return _dead(row, kind, messages[0], error, fetched.now)
    change.consumed = consumed
    return change


def _refused(name: str, messages: Sequence[MessageRow], now: float) -> Change:
    """Consume what arrived too late."""
    return Change(
        name,
        at=now,
        consumed=[each.id for each in messages],
        dead=[
            NewDead(each.id, name, each.type, each.body, "ExecutionEnded: the execution has ended")
            for each in messages
            if each.type == "message"
        ],
    )


def _cancelled(row: ExecutionRow, kind: Kind, cancels: Sequence[MessageRow], now: float) -> Change:
    """End an execution as its parent asked for, or ask it to."""
    consumed = [each.id for each in cancels]
    ask = getattr(kind, "cancel", None)
    body = None if ask is None else ask(None)
    if body is not None:
        message = NewMessage(row.id, "message", bodies.encode(body))
        return Change(row.id, at=now, consumed=consumed, messages=(message,))
    change = Change(
        row.id, kind=row.kind, expected=row.revision, state=row.state, version=row.version,
        status=Status.CANCELLED, at=now, clear=True, consumed=consumed,
    )  # fmt: skip
    if row.parent is not None:
        change.messages = (message_to_parent(row.parent, row.id, Status.CANCELLED),)
    return change


def _accumulated(name: str, kind: Kind, messages: Sequence[MessageRow]) -> tuple[Any, list[Any]]:
    """Return the batch that the behaviour makes, and the ids of the messages that it stands for."""
    options = kind.options(name)
    behaviour = adapt(Queue if options.behaviour is None else options.behaviour)
    items: list[tuple[Any, Any]] = []
    for row in messages:
        item: Any = unpack(row.id, row.at, row.type, row.body)
        if options.bodies and type(item) is Message:
            item = item.body
        items.append((row.id, item))
    if behaviour.traits.timed:  # its waiting is not the matter here
        behaviour = adapt(Queue)
    for place, (_, item) in enumerate(items):
        try:
            behaviour.add(item)
        except Rejected:
            if not place:
                raise
            del items[place:]  # there is no room: they wait in the store
            break
    batch = behaviour.take()
    later: set[int] = set()
    while len(behaviour):
        rest = behaviour.take()
        later.update(map(id, rest if isinstance(rest, list) else [rest]))
    return batch, [number for number, item in items if id(item) not in later]


def _run(
    name: str, fetched: Fetched, kind: Kind, batch: Any, keep_going: Callable[[], bool]
) -> Change:
    row = fetched.row
    assert row is not None
    context = Context(
        name, fetched.now, keep_going, seed=row.revision, parent=row.parent,
        watches=fetched.watches,
    )  # fmt: skip
    live: Any = SimpleNamespace(
        id=name,
        kind=kind,
        revision=row.revision,
        parent=row.parent,
        status=row.status,
        core=Core,
    )
    state = Core.decode(live, kind, row)
    change = change_of(live, awaited(kind.run(context, state, batch)))
    change.at = fetched.now
    return change


def _dead(
    row: ExecutionRow, kind: Kind, message: MessageRow, error: Exception, now: float
) -> Change:
    """Return the change that makes a dead letter of one message."""
    text = f"{type(error).__name__}: {text_of(error)}"
    letter = NewDead(message.id, row.id, message.type, message.body, text)
    change = Change(row.id, at=now, consumed=(message.id,), dead=(letter,))
    if row.revision == NEVER_RUN and not kind.options(row.id).bodies:
        change.kind, change.expected = row.kind, NEVER_RUN
        change.version, change.status = getattr(kind, "version", 1), Status.FAILED
    return change
