"""Clusters with one safeguard removed: each must be noticed by the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import Member
from actorflow.cluster.ring.leases import Leases
from actorflow.cluster.ring.trackers import Trackers
from actorflow.engine.stores.protocol import NEVER_RUN, Change
from actorflow.testing.simulation import Driver, Parts, SharedStore
from actorflow.testing.simulation.runs import timer_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.cluster.ring import Action, CheckIn, View
    from actorflow.engine.errors import StoreRefused
    from actorflow.engine.stores.protocol import MessageRow, NewMessage, TaskRow, TimerRow
    from actorflow.testing.simulation.driver import Part


class WithoutEpochs(SharedStore):
    """C5: a commit is accepted whatever epoch it was made in."""

    def is_fenced(self, change: Change) -> bool:
        return False


class WithoutCompareAndSet(SharedStore):
    """C7: a run may replace a state that it has not seen."""

    def commit_as(self, who: str, number: int, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.expected is not None:
                row = self.execution(change.execution)
                change.expected = NEVER_RUN if row is None else row.revision
            super().commit_as(who, number, [change])


class Steals(SharedStore):
    """C4: a partition is taken whose lease has not ended."""

    def check_in(self, request: CheckIn) -> View:
        for number in request.take:
            self.roll.holdings[number] = self.roll.holdings[number]._replace(until=0.0)
        return super().check_in(request)


class WithoutKeys(SharedStore):
    """C15: what a client sends again is stored again."""

    def commit_as(self, who: str, number: int, changes: Sequence[Change]) -> None:
        for change in changes:
            change.messages = [each._replace(key=None) for each in change.messages]
        super().commit_as(who, number, changes)


class WithoutSweep(Member):
    """C13: nobody looks for what a lost wake-up has missed."""

    def _sweep(self, now: float) -> list[Action]:
        return []


class _NoStones(Trackers):
    def discard(self, tracker: Any, until: float) -> None:
        super().discard(tracker, until)
        self._stones.clear()

    def add(self, tracker: Any, oldest: float) -> bool:
        return super().add(tracker, 0.0)


class WithoutTombstones(Member):
    """B10: a timer that has fired may come back with a late copy of the cycle."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._trackers = self._rounds._trackers = _NoStones()


class WithoutMemory(Member):
    """B10: the executor does not know which timers it has acted on."""

    def _process(self, work: Any, now: float) -> list[Action]:
        self._handled.clear()
        return super()._process(work, now)


class _Endless(Leases):
    def expire(self, now: float) -> list[Action]:
        return []

    def owns(self, partition: int, now: float) -> bool:
        return partition in self.held and partition not in self.draining


class WithoutDeadline(Member):
    """C3: a worker goes on until the store tells it that its lease has ended."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._leases = _Endless(self.name, self.options, self._leases.taskers)


class ReadsOn(Driver):
    """C13: messages are read from the last position on, as if transactions ended in order."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last: dict[tuple[int, int], int] = {}

    def unread(self, part: Part, rows: Sequence[MessageRow]) -> Sequence[MessageRow]:
        positions = self._store.positions
        key = part.number, part.epoch
        last = self._last.get(key, 0)
        self._last[key] = max([last, *(positions[row.id] for row in rows)])
        return [row for row in rows if positions[row.id] > last]


class FiresInTwo(Driver):
    """C17: the message of a timer is stored first, and the timer removed afterwards."""

    def fire(self, part: Part, name: str, timers: Sequence[TimerRow]) -> None:
        messages = [timer_message(timer) for timer in timers]
        first = Change(name, at=self._store.now, epoch=part.epoch, messages=messages)
        gone = [(timer.execution, timer.id) for timer in timers]
        second = Change(name, at=self._store.now, epoch=part.epoch, cancelled_timers=gone)
        part.again.add(name)
        self._submit(
            first, lambda *_: self._submit(second, lambda *said: self._ran(part, name, *said))
        )


class HandsOutOnce(Driver):
    """C20: a task that was handed out is never handed out again."""

    def claim(self, part: Part, task: TaskRow, now: float) -> None:
        if not task.attempts:
            super().claim(part, task, now)


class AnswersTwice(Driver):
    """C20: an answer counts although the task has been answered already."""

    def _answer(self, task: TaskRow, message: NewMessage) -> None:
        change = Change(
            task.execution, at=self._store.now, messages=(message,), finished_tasks=(task.id,)
        )

        def answered(_change: Change, error: StoreRefused | None) -> None:
            if error is None:
                self._finish()
            else:
                self._worker.after(0.2, lambda: self._answer(task, message))

        self._submit(change, answered)


MUTANTS: dict[str, Parts] = {
    "epoch check": Parts(store=WithoutEpochs),
    "compare-and-set": Parts(store=WithoutCompareAndSet),
    "sweep": Parts(member=WithoutSweep),
    "tombstones": Parts(member=WithoutTombstones),
    "B10": Parts(member=WithoutMemory),
    "C3": Parts(member=WithoutDeadline),
    "C4": Parts(store=Steals),
    "C13": Parts(driver=ReadsOn),
    "C15": Parts(store=WithoutKeys),
    "C17": Parts(driver=FiresInTwo),
    "C20": Parts(driver=HandsOutOnce),
    "C20, answers": Parts(driver=AnswersTwice),
}
