"""Group commit: one worker whose batch is one transaction.

While a commit is being synced, what arrives accumulates; the next commit takes all of it. An idle
engine commits at once. So latency is that of one commit, and throughput grows with the load.

The writer's thread is also where everything that is stored is handed on: messages are delivered,
executions woken and retired, timers fired, all by one thread, in the order of the commits. So
none of these needs a lock, and no message can slip between "stored" and "delivered".
"""

from __future__ import annotations

from _thread import allocate_lock
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine.errors import EngineClosed, StoreRefused
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import WorkerStopped
from actorflow.runtime.log import log
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.spec import spawn
from actorflow.runtime.worker.tickets import resolve_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.stores.protocol import MessageRow, Store

__all__ = ["AGAIN", "Append", "Writer"]

AGAIN = 1.0
"""Seconds after which a commit that the store refused is tried again."""

_LARGEST = 10_000  # entries in one transaction
_GATHER = 0.001  # seconds that a commit waits at most for callers who may have more
_SOON = 0.002  # seconds that a commit may wait for others if nobody waits for it


class Append:
    """Messages from outside to one execution, and who waits for them."""

    __slots__ = ("bodies", "execution", "kind", "processed", "stored")

    def __init__(
        self,
        execution: str,
        kind: str | None,
        bodies: Sequence[bytes],
        stored: Any = None,
        processed: Any = None,
    ) -> None:
        self.execution = execution
        self.kind = kind
        self.bodies = bodies
        self.stored = stored
        """Resolved when they are stored and accumulated."""
        self.processed = processed
        """Resolved when the last of them has been processed."""


class _Request:
    """A change with its owner."""

    __slots__ = ("change", "insist", "then")

    def __init__(
        self,
        change: Change,
        then: Callable[[Change, Exception | None], None] | None,
        *,
        insist: bool,
    ) -> None:
        self.change = change
        self.then = then
        self.insist = insist


_Entry: TypeAlias = "Append | _Request | Callable[[], None]"
_Deliver: TypeAlias = (
    "Callable[[list[Append], Sequence[MessageRow]], list[tuple[Any, Exception | None]]]"
)


class Writer:
    """Commits changes and notifies the owner of each.

    Args:
        store: where changes are committed.
        clock: schedules another try after a refusal.
        deliver: takes messages from outside once they are stored, in the writer's thread; returns
            the tickets to resolve now.

    """

    def __init__(self, store: Store, clock: Any, deliver: _Deliver) -> None:
        self._store = store
        self._clock = clock
        self._deliver = deliver
        self._again: list[_Request] = []
        self._alarm: Any = None
        self._soon: list[_Request] = []
        self._soon_set = False
        self._soon_due = 0.0
        self._expected = 0  # entries after the last commit, if all who were told come back
        self._wanted = 0  # entries that the writer waits for
        self._bell = allocate_lock()
        self._bell.acquire()
        self.expects_more = False
        """Callers that were just told that their messages are stored may send others."""
        self._closing = False
        self._unstored: list[None] = []  # one for each entry from outside that is not stored yet
        self.refusal: tuple[float, str] | None = None
        """When and why the store last refused a commit, if it has not taken one since."""
        self.commits = 0
        self.changes = 0
        self.messages = 0
        self.refused = 0
        self.lost = 0
        self._worker = spawn(self._write, executor="thread")
        self._port = Port(self._worker)

    # Thread-safe.

    def append(self, entry: Append) -> None:
        """Store messages from outside and deliver them. O(1)."""
        self._unstored.append(None)
        try:
            self._worker.push(entry)
        except WorkerStopped:
            msg = "the engine has been closed"
            raise EngineClosed(msg) from None
        if self._wanted and self._port.depth >= self._wanted:
            self._wanted = 0
            with suppress(RuntimeError):  # another producer has rung
                self._bell.release()

    def submit(
        self,
        change: Change,
        then: Callable[[Change, Exception | None], None] | None = None,
        *,
        insist: bool = False,
        may_block: bool = False,
    ) -> None:
        """Commit a change; `then(change, error)` is called in the writer's thread.

        With `insist`, a change that the store refuses is tried again until it succeeds or the
        engine is closed; once it is closed, `then` is called at once. With `may_block`, this
        thread acts as the writer if that is idle: for lane threads only, which no signal
        interrupts.
        """
        request = _Request(change, then, insist=insist)
        try:
            if may_block and self._worker.is_idle:
                self._port.help(request)
            else:
                self._worker.push(request)
        except WorkerStopped:
            if then is not None:
                then(change, EngineClosed("the engine has been closed"))

    def submit_soon(self, change: Change, then: Callable[[Change, Exception | None], None]) -> None:
        """Commit a change that nobody waits for: with the next commit, or soon. Insists.

        Where callers wait for one commit after the other, a commit of its own would only delay
        them.
        """
        self._soon.append(_Request(change, then, insist=True))
        if not self._soon_set:
            self._soon_set = True
            self._soon_due = perf_counter() + _SOON
            SYSTEM.call_at(SYSTEM.now() + _SOON, self._on_soon)

    def _on_soon(self) -> None:
        """Commit what has waited long enough. In the clock's thread."""
        self._soon_set = False
        self._soon_due = 0.0
        if self._soon:
            self.call(_nothing)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the writer's thread, after the commit that is under way.

        Once the engine is closed, it is not called at all.
        """
        with suppress(WorkerStopped):
            self._worker.push(function)

    @property
    def quiet(self) -> bool:
        """Whether everything from outside that was appended so far is stored and delivered."""
        return not self._unstored

    @property
    def waiting(self) -> int:
        """Entries that are not being committed yet."""
        return len(self._worker) + len(self._again) + len(self._soon)

    def stop_insisting(self) -> None:
        """Try what was refused once more, then notify its owners."""
        self._closing = True
        self.call(_nothing)

    def close(self) -> None:
        """Commit what there is; then end."""
        self.call(_nothing)
        self._worker.stop()
        if self._alarm is not None:
            self._alarm.cancel()

    # The writer's thread.

    def _write(self, batch: list[_Entry], _state: None) -> None:
        if self._again:
            batch = [*self._again, *batch]
            self._again = []
        if self._soon and (perf_counter() >= self._soon_due or not _is_appends(batch)):
            count = len(self._soon)
            batch = [*self._soon[:count], *batch]
            del self._soon[:count]
        self._expected = 0
        begin = perf_counter()
        for first in range(0, len(batch), _LARGEST):
            self._write_part(batch[first : first + _LARGEST])
        if self._expected:
            self._gather(perf_counter() - begin)

    def _gather(self, patience: float) -> None:
        """Wait a moment for the callers that were just told: many of them have more to store.

        Otherwise the next commit would hold only the first of them, and the others would wait for
        the one after. No longer than the last commit took, so that no wait is more than doubled.
        """
        self._wanted = self._expected
        if self._port.depth < self._wanted:
            self._bell.acquire(timeout=min(patience, _GATHER))
        self._wanted = 0
        self._bell.acquire(blocking=False)

    def _write_part(self, entries: list[_Entry]) -> None:
        groups = _group(entries, self._clock.now())
        changes = [change for change, _ in groups if change is not None]
        error = self.commit(changes) if changes else None
        if error is None:
            for change, owner in groups:
                self._settle(change, owner, None)
        elif isinstance(error, StoreRefused):
            self._refuse(groups, error)
        else:  # one of them is not acceptable: find out which
            for change, owner in groups:
                found = None if change is None else self.commit([change])
                self._settle(change, owner, found)

    def commit(self, changes: list[Change]) -> Exception | None:
        """Commit now, in the writer's thread; return what the store raised."""
        try:
            self._store.commit(changes)
        except Exception as error:  # noqa: BLE001 - each owner is notified
            if self.refusal is None or not isinstance(error, StoreRefused):
                log.error("commit failed", changes=len(changes), error=str(error))
            if isinstance(error, StoreRefused):
                self.refusal = (self._clock.now(), str(error))
            self.refused += 1
            return error
        if self.refusal is not None:
            log.info("the store takes commits again")
            self.refusal = None
        self.commits += 1
        self.changes += len(changes)
        return None

    def _refuse(self, groups: list[tuple[Change | None, Any]], error: Exception) -> None:
        """Notify owners that do not insist; try the others once more alone, then keep them."""
        insisting = []
        for change, owner in groups:
            if type(owner) is _Request and owner.insist:
                insisting.append(owner)
            else:
                self._settle(change, owner, None if change is None else error)
        if not insisting:
            return
        failure = error
        if len(insisting) < len(groups):
            again = self.commit([request.change for request in insisting])
            if again is None or not isinstance(again, StoreRefused) or self._closing:
                for request in insisting:
                    self._settle(request.change, request, again)
                return
            failure = again
        if self._closing:
            for request in insisting:
                self._settle(request.change, request, failure)
            return
        self._again += insisting
        if self._alarm is None:
            self._alarm = self._clock.call_at(self._clock.now() + AGAIN, self._on_alarm)

    def _on_alarm(self) -> None:
        """Try again. In the clock's thread."""
        self._alarm = None
        self.call(_nothing)

    def _settle(self, change: Change | None, owner: Any, error: Exception | None) -> None:
        try:
            if change is None:
                owner()
            elif type(owner) is _Request:
                if owner.then is not None:
                    owner.then(change, error)
            elif error is None:
                self.messages += len(change.rows)
                told = self._deliver(owner, change.rows)
                del self._unstored[: len(owner)]
                self.expects_more = bool(told)
                if len(told) > 1:
                    self._expected = self._port.depth + len(told)
                resolve_many(told)
            else:
                del self._unstored[: len(owner)]
                self._tell_lost(owner, error)
        except Exception as failure:  # noqa: BLE001 - the others are notified all the same
            log.error("owner of a change failed", owner=repr(owner), exc_info=failure)

    def _tell_lost(self, appends: list[Append], error: Exception) -> None:
        told = []
        for append in appends:
            waiting = [each for each in (append.stored, append.processed) if each is not None]
            if not waiting:
                self.lost += len(append.bodies)
            told += [(each, error) for each in waiting]
        resolve_many(told)


def _is_appends(entries: list[_Entry]) -> bool:
    return all(type(entry) is Append for entry in entries)


def _nothing() -> None:
    """Do nothing: the call makes the writer look at what it keeps."""


def _group(entries: list[_Entry], now: float) -> list[tuple[Change | None, Any]]:
    """Group entries into changes; adjacent messages from outside become one change."""
    groups: list[tuple[Change | None, Any]] = []
    appends: list[Append] = []
    for entry in entries:
        if type(entry) is Append:
            if not appends:
                groups.append((Change("", at=now), appends))
            appends.append(entry)
            continue
        appends = []
        groups.append((entry.change, entry) if type(entry) is _Request else (None, entry))
    for change, owner in groups:
        if type(owner) is list and change is not None:
            change.messages = [(each.execution, body) for each in owner for body in each.bodies]
            change.creates = list(
                {(each.execution, each.kind): None for each in owner if each.kind is not None}
            )
    return groups
