"""The schedules of an engine: what happens by the clock, and the verbs to steer it."""

from __future__ import annotations

import asyncio
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.cron import next_time
from actorflow.engine.ids import MAX_LENGTH, check_id
from actorflow.engine.kind import ENDED
from actorflow.engine.kinds.cron import CronKind, occurrences
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.parts import EngineParts

__all__ = ["MOST", "Schedule", "Schedules"]

MOST = 100_000
"""Occurrences that one backfill makes up for, at most."""

_LONGEST = MAX_LENGTH - 33  # characters of a name, with room for what makes it an occurrence's id
_LATEST = 253_402_300_800.0  # the year 10,000, which calendars do not have


class Schedules:
    """The schedules of an engine, by name. Thread-safe."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Schedule]:
        """Yield all schedules in the order of their names."""
        after = None
        while True:
            page = self._parts.store.listing(kind=CronKind.name, after=after)
            for row in page.rows:
                if row.status not in ENDED:
                    yield Schedule(self._parts, row.id.partition(":")[2])
            after = page.after
            if after is None:
                return

    def get(self, name: str) -> Schedule:
        """Return a schedule that was set before.

        Raises:
            LookupError: no schedule has this name.

        """
        row = self._parts.store.execution(_id(name))
        if row is None or row.status in ENDED:
            msg = f"there is no schedule {name!r:.80}{near(name, (each.name for each in self))}"
            raise LookupError(msg)
        return Schedule(self._parts, name)

    def set(self, name: str, plan: dict[str, Any]) -> Schedule:
        """Set a schedule; return it once it is stored. See `CronKind` for what a plan is.

        Raises:
            BadOption: the cron line or the zone cannot be read.
            NotStorable: the body is not plain data.

        """
        parts = self._parts
        check_id(name, "a schedule", _LONGEST)
        next_time(plan["cron"], parts.clock.now(), plan["zone"])
        bodies.encode(plan["body"])
        id_ = _id(name)
        row = parts.store.execution(id_)
        anew = row is not None and row.status in ENDED
        reopened = ThreadTicket()
        parts.cancellation.reopen(id_, CronKind.name, reopened)
        parts.writer.wait_for(reopened, None, name)
        schedule = Schedule(parts, name)
        schedule._do({"set": plan, "anew": anew}, kind=CronKind.name)  # noqa: SLF001 - of one file
        return schedule


class Schedule:
    """Something that happens by the clock: the execution `cron:NAME`. Thread-safe.

    Each verb returns when what it did is committed. Verbs that begin with an `a` are for tasks of
    any event loop.
    """

    __slots__ = ("_parts", "name")

    def __init__(self, parts: EngineParts, name: str) -> None:
        self._parts = parts
        self.name = name

    def __repr__(self) -> str:
        return f"<schedule {self.name!r}>"

    def _state(self) -> dict[str, Any]:
        row = self._parts.row(_id(self.name))
        state: dict[str, Any] = bodies.decode(row.state or b"")
        return state

    @property
    def cron(self) -> str:
        """Its cron line."""
        return str(self._state()["cron"])

    @property
    def zone(self) -> str:
        """The time zone of its fields."""
        return str(self._state()["zone"])

    @property
    def kind(self) -> str:
        """The kind of execution that it starts, or sends a message to."""
        return str(self._state()["kind"])

    @property
    def running(self) -> str | None:
        """The instance of the last occurrence that has not ended, if there is an `overlap`."""
        found: str | None = self._state().get("running")
        return found

    @property
    def paused(self) -> bool:
        """Whether nothing happens until `resume`."""
        return bool(self._state()["paused"])

    @property
    def next(self) -> float | None:
        """When it comes due next, in seconds since the epoch; `None` while it is paused."""
        found: float | None = self._state()["next"]
        return found

    def pause(self) -> None:
        """Suspend the schedule until `resume`, also after a restart."""
        self._do({"do": "pause"})

    def resume(self) -> None:
        """Continue after `pause`. Occurrences missed meanwhile are skipped; see `backfill`."""
        self._do({"do": "resume"})

    def trigger(self, *, id: str | None = None) -> str:  # noqa: A002 - what it is
        """Trigger it now, even while it is paused; return the id of the started execution.

        Args:
            id: only the first trigger with the same id starts something. Made if not given.

        """
        given = uuid.uuid4().hex if id is None else check_id(id, "an occurrence")
        started = check_id(f"{self.name}@{given}", "what is started")
        self._do({"do": "trigger", "id": given})
        return started

    def backfill(self, begin: float, end: float) -> int:
        """Make up for all occurrences of an interval, both ends included; return how many.

        Each starts the execution that it would have started then, with the same id, so none is
        started twice. They are started a hundred at a time, also after a restart.

        Args:
            begin: seconds since the epoch.
            end: seconds since the epoch.

        Raises:
            BadOption: it is not an interval, or has more than 100,000 occurrences.

        """
        given: tuple[Any, Any] = begin, end
        if not all(type(each) in (int, float) for each in given) or not (
            0 <= begin <= end < _LATEST
        ):
            msg = (
                f"backfill({begin!r:.40}, {end!r:.40}) is not an interval: give two times, in "
                "seconds since the epoch, the earlier first"
            )
            raise BadOption(msg)
        count = sum(1 for _ in islice(occurrences(self._state(), begin, end), MOST + 1))
        if count > MOST:
            msg = (
                f"backfill({begin}, {end}) has more than {MOST:,} occurrences: take less at a time"
            )
            raise BadOption(msg)
        self._do({"do": "backfill", "begin": begin, "end": end})
        return count

    def delete(self) -> bool:
        """End it; return whether it was still there. What it has started goes on."""
        parts = self._parts
        if parts.row(_id(self.name)).status in ENDED:
            return False
        done = ThreadTicket()
        parts.state.require_open()
        parts.cancellation.cancel(_id(self.name), None, done)
        return bool(parts.writer.wait_for(done, None, self.name))

    async def apause(self) -> None:
        """Like `pause`."""
        await asyncio.to_thread(self.pause)

    async def aresume(self) -> None:
        """Like `resume`."""
        await asyncio.to_thread(self.resume)

    async def atrigger(self, *, id: str | None = None) -> str:  # noqa: A002 - what it is
        """Like `trigger`."""
        return await asyncio.to_thread(self.trigger, id=id)

    async def abackfill(self, begin: float, end: float) -> int:
        """Like `backfill`."""
        return await asyncio.to_thread(self.backfill, begin, end)

    async def adelete(self) -> bool:
        """Like `delete`."""
        return await asyncio.to_thread(self.delete)

    def _do(self, body: dict[str, Any], kind: str | None = None) -> None:
        """Send a message; return when what it led to is committed."""
        parts = self._parts
        parts.state.require_open()
        processed = ThreadTicket()
        parts.sender.append(_id(self.name), kind, (body,), processed=processed)
        parts.writer.wait_for(processed, None, body)


def _id(name: str) -> str:
    return f"cron:{check_id(name, 'a schedule')}"
