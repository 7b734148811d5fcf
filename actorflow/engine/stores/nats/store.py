"""A store on NATS JetStream. Many engines may share it; each owns some of its partitions.

Every engine keeps all rows in memory, as the store in memory does, and all changes go through one
log: a commit is a record, and whether it is applied is decided when it is read back, in the same
way by every engine, because all read the same records in the same order. So a commit is all or
nothing, a stale epoch or revision is refused, and a commit is acknowledged once the stream has it.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import uuid
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Any

from nats.js.errors import NoStreamResponseError

from actorflow.cluster.membership import Membership
from actorflow.cluster.ring import (
    CheckIn,
    EpochJournal,
    Holding,
    JournalEntry,
    MemberEntry,
    RingOptions,
    Roll,
    check_in,
)
from actorflow.engine.errors import OutcomeUnknown, StoreConflict, StoreRefused
from actorflow.engine.stores.member_store import MemberStore
from actorflow.engine.stores.memory.status import tables_status
from actorflow.engine.stores.memory.store import MemoryStore
from actorflow.engine.stores.memory.tables import Tables, concerned
from actorflow.engine.stores.nats.address import NatsAddress
from actorflow.engine.stores.nats.connection import FAILURES, explain
from actorflow.engine.stores.nats.log import StreamLog
from actorflow.engine.stores.nats.records import (
    Checked,
    Commit,
    Fill,
    Purge,
    Record,
    decode,
    encode,
    frozen,
)
from actorflow.engine.stores.nats.snapshots import Snapshots, pack
from actorflow.engine.stores.protocol import StoreTraits, partition_of
from actorflow.engine.stores.validation import validate_ids
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.fork import after_fork
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.cluster.ring import View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.protocol import Change, TaskRow, Wake

__all__ = ["NatsStore", "from_url"]

_REMEMBERED = 10_000  # records by which one that is published twice is recognised
_SNAPSHOT_EVERY = 5_000  # records
_READ_BACK = 2.0  # seconds for a stored record to come back before another reader is started
_AGAIN = 0.2  # seconds before a record is published once more
_CLOSING = 5.0  # seconds for a store that is closed to release what it owns
_MAX_BATCH = 2_000
_SHORT = 6  # characters of its token at the end of the name of a member


class _PendingRecord:
    """A caller that waits for the verdict on a record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def decide(self, record: Record, value: Any, error: BaseException | None) -> None:
        """Pass on the verdict on the record that was read back."""
        if isinstance(record, Commit) and isinstance(self.record, Commit):
            for mine, read in zip(self.record.changes, record.changes, strict=True):
                mine.committed, mine.refusal = read.committed, read.refusal
                mine.revision, mine.rows, mine.resulting_messages = (
                    read.revision,
                    read.rows,
                    read.resulting_messages,
                )
        self.value, self.error = value, error
        self.done.set()


class _Unconfirmed(StoreRefused):
    """No server has confirmed a record, but it may be stored."""


class NatsStore(MemberStore, MemoryStore):
    """Keeps executions in a stream, and a copy of them in memory.

    Args:
        url: `nats://user:password@host:4222,other:4222/name?replicas=3`; see `NatsAddress`.
        name: of this worker, as `cluster status` shows it; by default the host name.

    Raises:
        StoreRefused: no server can be reached, or denies access.
        StoreBroken: the server is older than 2.12 or has no JetStream, or the stream is of a newer
            version or not ours. Nothing of it was changed.
        BadOption: the URL cannot be read.

    """

    def __init__(self, url: str, *, name: str | None = None) -> None:
        super().__init__()
        self.address = NatsAddress(url)
        self._token = uuid.uuid4().hex[:12]
        self._count = 0
        self._waiting: dict[str, _PendingRecord] = {}
        self._verdicts = threading.Lock()
        self._applied = 0
        self._time = 0.0
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._since_snapshot = 0
        self._wakes: list[Wake] = []
        self._caught_up = threading.Event()
        self._log = StreamLog(self.address, self._take, self._recover, outage_of(self))
        self.traits = StoreTraits(
            shared=True, partitions=self._log.partitions, max_batch=_MAX_BATCH
        )
        self._roll = Roll.of(self._log.partitions)
        self._journal = EpochJournal()  # by the ends of the names of members
        self._snapshots = Snapshots(self.address, self._log.js)
        # A worker that is started again must not be taken for the one that died.
        self.name = f"{name or socket.gethostname()}-{self._token[:_SHORT]}"
        self._membership = Membership(self.name, self, RingOptions(lease=self.address.lease))
        self._latest = math.inf
        """When a store that is being closed gives up."""
        try:
            self._load()
        except BaseException:
            self._log.close()
            raise
        after_fork(self._forked)

    def _load(self) -> None:
        """Read the last snapshot, and the records after it."""
        connection = self._log.connection
        self._applied = connection.call(self._recover(), timeout=60.0)
        end = connection.call(self._log.last())
        self._log.follow(self._applied)
        deadline = monotonic() + 60.0
        while self._applied < end:
            self._caught_up.wait(0.05)
            if self._log.failure is not None:
                raise self._log.failure
            if monotonic() > deadline:
                msg = f"{self.address.shown}: the log could not be read in 60 s"
                raise StoreRefused(msg)

    # Records, in the order of the log. On the thread of the connection.

    def _take(self, number: int, at: float, data: bytes) -> None:
        """Apply a record."""
        id_, record = decode(data)
        if id_ in self._recent:
            return  # it was published twice
        self._time = max(self._time, at)  # another leader's clock may be behind
        value, error = self._apply_record(record)
        if isinstance(record, Commit):
            self._note(record.changes, id_[:_SHORT])
        self._recent[id_] = None
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        self._applied = number
        self._since_snapshot += 1
        with self._verdicts:
            waiting = self._waiting.pop(id_, None)
            if waiting is not None:
                waiting.decide(record, value, error)
        if waiting is None and error is None:
            self._tell(record)
        if self._since_snapshot >= _SNAPSHOT_EVERY and 0 in self.owned():
            self._since_snapshot = 0
            self._log.connection.start(self._write_snapshot())

    def _note(self, changes: Sequence[Change], member: str) -> None:
        """Note in the journal who has committed changes."""
        with self._lock:
            for change in changes:
                if change.committed and change.epoch is not None:
                    self._journal.note(self._partition_of(change.execution), change.epoch, member)

    def _apply_record(self, record: Record) -> tuple[Any, BaseException | None]:
        """Apply a record; return the verdict, which is the same in every engine."""
        try:
            match record:
                case Commit(changes):
                    super().commit(changes)
                    return None, None
                case Checked(request):
                    return check_in(self._roll, request, self._time), None
                case Purge(before, keys_before, limit, only):
                    purged = super().purge(
                        before=before, keys_before=keys_before, limit=limit, only=only
                    )
                    return purged, None
                case Fill(rows):
                    return super().restore(iter(rows)), None
        except (ActorflowError, TypeError) as error:
            return None, error

    def _tell(self, record: Record) -> None:
        """Wake the executions that a record of another engine concerns."""
        if isinstance(record, Checked):
            if record.request.release or record.request.leave:
                self._membership.hurry()
            return
        if not isinstance(record, Commit):
            self.look()
            return
        done = [change for change in record.changes if change.committed]
        if any(change.watches or change.cancelled_watches for change in done):
            self.look()
            return
        if any(task.worker == self.name for change in done for task in change.retried):
            for wake in list(self._wakes):
                wake(())
        names = dict.fromkeys(name for change in done for name in concerned(change))
        if names:
            for wake in list(self._wakes):
                wake(tuple(names))

    # Writing.

    def commit(self, changes: Sequence[Change]) -> None:
        """Append the changes to the log, and wait until they are decided. O(their rows)."""
        self._require_open()
        validate_ids(changes)
        try:
            self._submit(Commit(list(changes)))
        except _Unconfirmed as error:
            raise OutcomeUnknown(str(error)) from error
        for change in changes:
            if change.refusal is not None and change.refusal.reason == "fenced":
                self._membership.fenced(self._partition_of(change.execution))

    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        """Forget what ended before a moment, with all that is stored of it."""
        self._require_open()
        named = None if only is None else list(only)
        count: int = self._submit(Purge(before, keys_before, limit, named))
        return count

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store; return how many rows."""
        self._require_open()
        count: int = self._submit(Fill(list(rows)))
        return count

    def _submit(self, record: Record) -> Any:
        """Append a record and wait until it is decided; return the verdict.

        It is published again until it is stored, or time is up: its id makes it count once.

        Raises:
            StoreRefused: no server takes it. Whether it was stored before the connection was lost
                is then not known.
            StoreBroken: the stream is gone.

        """
        self._count += 1
        id_ = f"{self._token}{self._count:016x}"
        data = encode(id_, record)
        waiting = self._waiting[id_] = _PendingRecord(record)
        deadline = monotonic() + self.address.timeout
        try:
            while not waiting.done.is_set():
                error = self._publish(data, waiting, min(deadline, self._latest))
                if error is not None and monotonic() >= min(deadline, self._latest):
                    raise error
        finally:
            with self._verdicts:  # from here on nobody changes what the caller holds
                self._waiting.pop(id_, None)
        if waiting.error is not None:
            raise waiting.error
        return waiting.value

    def _publish(
        self, data: bytes, waiting: _PendingRecord, deadline: float
    ) -> ActorflowError | None:
        """Try to append a record; return why that cannot be done now."""
        if self._log.failure is not None:
            raise self._log.failure
        future = self._log.connection.start(self._log.append(data))
        try:
            future.result(max(deadline - monotonic(), 0.1))
        except FAILURES as error:
            future.cancel()
            if isinstance(error, NoStreamResponseError):  # perhaps it is gone: look at once
                self._log.hurry()
            waiting.done.wait(_AGAIN)
            found = explain(error, self.address)
            if type(found) is StoreRefused and "refused" not in str(found):  # no room: it is not
                found = _Unconfirmed(f"{found}; whether this was stored is not known")
            return found
        while not waiting.done.wait(_READ_BACK) and monotonic() < deadline:
            self._log.hurry()
        if waiting.done.is_set():
            return None
        return _Unconfirmed(f"{self.address.shown}: it is stored, and cannot be read back now")

    # Snapshots.

    async def _recover(self) -> int:
        """Continue from the last snapshot; return the number of its last record."""
        number, content = await self._snapshots.newest()
        if content is None or number <= self._applied:
            if self._applied:
                msg = f"{self.address.shown}: the log was shortened, and there is no snapshot"
                raise StoreRefused(msg)
            return 0
        rows, members, holdings, recent, self._time, *more = content
        tables = Tables.load(rows)
        with self._lock:
            self._tables = tables
        self._roll = Roll(
            {each[0]: MemberEntry(*frozen(each)) for each in members},
            [Holding(*each) for each in holdings],
        )
        with self._lock:
            self._journal = EpochJournal(*more)  # an older snapshot has none
        self._recent = OrderedDict.fromkeys(recent)
        self._applied = number
        self.look()
        return number

    async def _write_snapshot(self) -> None:
        """Store a snapshot, and shorten the log."""
        with self._lock:
            rows, journal = self._tables.dump(), self._journal.entries()
        content = (
            rows, list(self._roll.members.values()), list(self._roll.holdings), list(self._recent),
            self._time, journal,
        )  # fmt: skip
        number = self._applied
        try:
            await self._snapshots.put(number, await asyncio.to_thread(pack, content))
        except (*FAILURES, ActorflowError) as error:
            log.warning("no snapshot of the store was written", error=str(error))

    # Ownership.

    def _partition_of(self, execution: str) -> int:
        return partition_of(execution, self.traits.partitions)

    def _epoch_of(self, execution: str) -> int:
        return self._roll.holdings[self._partition_of(execution)].epoch

    def _is_visible(self, execution: str) -> bool:
        return not self._joined or self._partition_of(execution) in self._membership.owned()

    def _check_joinable(self) -> None:
        self._require_open()

    def follow(self, execution: str) -> None:
        """Do nothing: every engine reads all commits from the log."""

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return tasks lent to `worker`, or all lent tasks in owned partitions.

        O(all open tasks).
        """

        def wanted(row: TaskRow) -> bool:
            if worker is not None:
                return row.worker == worker
            return row.worker is not None and self._is_visible(row.execution)

        with self._lock:
            self._require_open()
            return [row for row in self._tables.tasks.rows.values() if wanted(row)]

    def status(self) -> ClusterStatus:
        """Return the members, their leases and partitions, and the waiting messages.

        O(active executions).
        """
        now = self.time()
        with self._lock:
            self._require_open()
            return tables_status(self._tables, self._roll.view(now))

    def journal(self) -> tuple[list[JournalEntry], list[Holding]]:
        """Return the first commit of each member in each epoch, and the register. O(n).

        Members that are not in the register any more appear by the end of their names.
        """
        with self._lock:
            self._require_open()
            holdings = list(self._roll.holdings)
            names = {*self._roll.members, *(each.owner for each in holdings if each.owner)}
            known = {name[-_SHORT:]: name for name in names}
            return [
                each._replace(member=known.get(each.member, each.member))
                for each in self._journal.entries()
            ], holdings

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register, which is part of the log. For the membership."""
        view: View = self._submit(Checked(request))
        return view

    def hint(self, member: str) -> None:
        """Do nothing: all members read the releases of others in the log."""

    # Wake-ups.

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake(executions)` when others have stored something; return how to end that."""
        self._wakes.append(wake)

        def end() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)

        return end

    def look(self) -> None:
        """Wake all subscribers to look at everything."""
        for wake in list(self._wakes):
            wake(None)

    # Ending.

    def _forked(self) -> None:
        """Refuse everything in a forked child: the connection is the parent's."""
        self._lock = threading.Lock()
        self._closed = True

    def close(self) -> None:
        """Close the store, and release the partitions."""
        if self._closed:
            return
        self._latest = monotonic() + _CLOSING
        if self._leave():
            try:
                self.check_in(CheckIn(self.name, self.address.lease, leave=True))
            except (StoreRefused, StoreConflict) as error:
                log.warning(
                    "leases were not released; they expire", member=self.name, error=str(error)
                )
        super().close()
        self._log.close()


def from_url(url: str, *, name: str | None = None, **_options: Any) -> NatsStore:
    """Open the store that a URL names; `name` is that of the worker."""
    return NatsStore(url, name=name)
