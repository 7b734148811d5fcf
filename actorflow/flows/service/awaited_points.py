"""Waiting for something to happen inside an execution: ``"0_1 task; terminated"``.

The awaited event is a processed and committed message, which may be old. The waiting caller
searches the history, and after each commit the new part of it.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.flows.errors import PointMissed
from actorflow.flows.service.history import messages_of
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.stores.protocol import Store
    from actorflow.flows.execution.node import Message

__all__ = ["AwaitedPoint", "Search", "missed", "steps_of"]

_STEP = re.compile(
    r"(?:(?P<nid>[0-9][0-9_]*(?:-[0-9]+)?)\s+)?(?P<points>[a-z][^\s|]*(?:\s*\|\s*[^\s|]+)*)"
)
_NAMED = {"entered": "tags", "left": "tags", "signal": "name"}
"""What the word after a point is about; else it is the tasker."""


@dataclass(frozen=True, slots=True)
class AwaitedPoint:
    """One thing to wait for: a message of one of some points, for a node or for any."""

    text: str
    nid: str | None
    points: tuple[tuple[str, str | None], ...]
    """Each with the tag, the signal or the tasker that it has to be about, if there is one."""

    def fits(self, message: Message) -> bool:
        """Return whether a message matches."""
        if self.nid is not None and message.get("nid") != self.nid:
            return False
        return any(_fits(message, point, about) for point, about in self.points)


def _fits(message: Message, point: str, about: str | None) -> bool:
    if message["point"] != point:
        return False
    if about is None:
        return True
    found = message.get(_NAMED.get(point, "tasker"))
    return about in found if type(found) is list else about == found


def steps_of(text: str) -> list[AwaitedPoint]:
    """Return the steps to wait for.

    >>> [(step.nid, step.points) for step in steps_of("0_1 task:alice; terminated")]
    [('0_1', (('task', 'alice'),)), (None, (('terminated', None),))]

    Raises:
        BadOption: it cannot be read.

    """
    steps = []
    for part in map(str.strip, text.split(";")):
        found = _STEP.fullmatch(part)
        if found is None:
            msg = f"{part!r} is nothing to wait for: say 'task', '0_1 task:alice' or 'a|b'"
            raise BadOption(msg)
        points = [point.strip().partition(":") for point in found["points"].split("|")]
        wanted = tuple((point, about or None) for point, _, about in points)
        steps.append(AwaitedPoint(part, found["nid"], wanted))
    return steps


class Search:
    """Looks through the history of an execution for one step after the other."""

    def __init__(self, store: Store, exid: str, steps: Sequence[AwaitedPoint], after: int) -> None:
        self._store = store
        self._exid = exid
        self._steps = deque(steps)
        self._after = after
        self._cursor: Any = None

    @property
    def wanted(self) -> str:
        """The first step that is missing."""
        return self._steps[0].text

    def look(self) -> Message | None:
        """Look through the runs that are new; return the message that was the last one wanted."""
        while True:
            page = self._store.history(self._exid, after=self._cursor)
            for row in page.rows:
                self._cursor = row.id
                found = self._look_at(bodies.decode(row.body))
                if found is not None:
                    return found
            if page.after is None:
                return None

    def _look_at(self, entry: dict[str, Any]) -> Message | None:
        end: Message = {"point": "end", "nid": None, "m": entry["counters"]["msgs"]}
        for message in (*messages_of(entry), end):
            if message["m"] > self._after and self._steps[0].fits(message):
                self._steps.popleft()
                if not self._steps:
                    return message
        return None


def missed(exid: str) -> PointMissed:
    """Return the error of waiting for an execution that has ended."""
    return PointMissed(f"execution {exid!r} has ended before the awaited point was reached")
