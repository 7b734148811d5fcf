"""Waiting for something to happen inside an execution: ``"0_1 task; terminated"``.

What is waited for is a message that was processed and committed, be it long ago: the history is
looked through first, then each run as it is committed. The thread that waits does the looking; the
writer's thread only hands records over.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from actorflow.engine import bodies
from actorflow.engine.errors import WaitTimeout
from actorflow.engine.kind import Status
from actorflow.flows.service.history import messages_of
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.stores.protocol import Change
    from actorflow.flows.execution.node import Message

__all__ = ["PointMissed", "Step", "Waiter", "Waiters", "missed", "steps_of"]

_STEP = re.compile(
    r"(?:(?P<nid>[0-9][0-9_]*(?:-[0-9]+)?)\s+)?(?P<points>[a-z][^\s|]*(?:\s*\|\s*[^\s|]+)*)"
)
_NAMED = {"entered": "tags", "left": "tags", "signal": "name"}
"""What the word after a point is about; else it is the tasker."""
_ENDED = frozenset((Status.DONE, Status.CANCELLED))


class PointMissed(ActorflowError):
    """The execution has ended, and what was waited for has not happened."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to wait for: a message of one of some points, for a node or for any."""

    text: str
    nid: str | None
    points: tuple[tuple[str, str | None], ...]
    """Each with the tag, the signal or the tasker that it has to be about, if there is one."""

    def fits(self, message: Message) -> bool:
        """Tell whether a message is what is waited for."""
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


def steps_of(text: str) -> list[Step]:
    """Read what is to be waited for.

    >>> [(step.nid, step.points) for step in steps_of("0_1 task:alice; terminated")]
    [('0_1', (('task', 'alice'),)), (None, (('terminated', None),))]

    Raises BadOption when it cannot be read.
    """
    steps = []
    for part in map(str.strip, text.split(";")):
        found = _STEP.fullmatch(part)
        if found is None:
            msg = f"{part!r} is nothing to wait for: say 'task', '0_1 task:alice' or 'a|b'"
            raise BadOption(msg)
        points = [point.strip().partition(":") for point in found["points"].split("|")]
        wanted = tuple((point, about or None) for point, _, about in points)
        steps.append(Step(part, found["nid"], wanted))
    return steps


class Waiter:
    """One wait: what is still to come, and the records that were not looked at yet."""

    def __init__(self, steps: Sequence[Step], after: int) -> None:
        self._steps = deque(steps)
        self._after = after
        self._run = 0  # the last one that was looked at
        self._records: deque[bytes | BaseException | None] = deque()
        self._bell = threading.Semaphore(0)

    def add(self, record: bytes | BaseException | None) -> None:
        """Take the record of a run, the reason why there will be none, or a mark. Any thread."""
        self._records.append(record)
        self._bell.release()

    def look(self, record: bytes) -> Message | None:
        """Look through a run; return the message that was the last one to wait for."""
        entry = bodies.decode(record)
        if entry["run"] <= self._run:
            return None
        self._run = entry["run"]
        end: Message = {"point": "end", "nid": None, "m": entry["counters"]["msgs"]}
        for message in (*messages_of(entry), end):
            if message["m"] > self._after and self._steps[0].fits(message):
                self._steps.popleft()
                if not self._steps:
                    return message
        return None

    def wait_for_mark(self) -> None:
        """Let pass what comes, up to a mark, or the reason why there will be none."""
        while True:
            self._bell.acquire()
            if not isinstance(self._records.popleft(), bytes):
                return

    def wait(self, timeout: float | None) -> Message:
        """Look through runs as they come.

        Raises what was added in place of a record, and WaitTimeout.
        """
        end = None if timeout is None else monotonic() + timeout
        while True:
            left = None if end is None else max(end - monotonic(), 0.0)
            if not self._bell.acquire(timeout=left):
                msg = f"{self._steps[0].text!r} did not happen within {timeout} s"
                raise WaitTimeout(msg)
            record = self._records.popleft()
            if isinstance(record, BaseException):
                raise record
            found = None if record is None else self.look(record)
            if found is not None:
                return found


class Waiters:
    """Who waits for what inside executions. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[Waiter]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, exid: str, waiter: Waiter) -> None:
        """Have a waiter told of the runs of an execution, from now on."""
        with self._lock:
            self._waiters.setdefault(exid, []).append(waiter)

    def remove(self, exid: str, waiter: Waiter) -> None:
        """Forget a waiter."""
        with self._lock:
            waiting = self._waiters[exid]
            waiting.remove(waiter)
            if not waiting:
                del self._waiters[exid]

    def tell(self, change: Change) -> None:
        """Hand over what a commit says. In the writer's thread."""
        with self._lock:
            waiting = list(self._waiters.get(change.execution, ()))
        for waiter in waiting:
            for record in change.history:
                waiter.add(record)
            if change.status in _ENDED:
                waiter.add(missed(change.execution))

    def close(self, error: BaseException) -> None:
        """Tell all that nothing more will come."""
        with self._lock:
            waiting = [waiter for each in self._waiters.values() for waiter in each]
        for waiter in waiting:
            waiter.add(error)


def missed(exid: str) -> PointMissed:
    """Return the error for those who wait for something in an execution that has ended."""
    return PointMissed(f"execution {exid!r} has ended, and what was waited for did not happen")
