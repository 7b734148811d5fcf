"""The backlog: messages that are stored and not in memory.

An earlier engine has left them, or there are too many of them for one execution, or the store could
not be read for a moment. All of it happens in the writer's thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from actorflow.engine import bodies
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.errors import ProcessEnded
from actorflow.engine.executions.loaded import WINDOW
from actorflow.engine.kind import ENDED, is_cancel
from actorflow.engine.stores.protocol import Change, NewDead
from actorflow.runtime.errors import Rejected
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.dead_lettering import DeadLettering
    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.quarantine import Quarantine
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, Page, Store
    from actorflow.runtime.environment import Environment

__all__ = ["CRASHES", "LOW", "StoredBacklog"]

CRASHES = 10
"""How often a message may end the process, running alone, before it is a dead letter.

Somebody may have killed the process during its run, and nobody can tell. If such kills hit 30 % of
the runs, as in our tests, six of a million innocent messages are hit ten times.
"""
LOW = WINDOW // 2
"""Messages of one execution in memory below which more are read."""

# Messages that are read together after a restart. Executions of a page are all in memory until they
# have run: with several thousand of them the garbage collector takes nearly as long as the runs.
_PAGE = 500


class _Later:
    """Makes the writer call a function after the pool has started all that was submitted before."""

    __slots__ = ("_call", "_writer")

    def __init__(self, writer: Writer, call: Callable[[], None]) -> None:
        self._writer = writer
        self._call = call

    def run(self) -> None:
        """Pass it on. Only the pool calls this."""
        self._writer.call(self._call)


class Target(Protocol):
    """What stored messages are handed to: the table of executions."""

    @property
    def find(self) -> Callable[[str], LoadedExecution | None]:
        """Returns an execution that is in memory."""

    def load(
        self, execution: str, kind: str | None, row: ExecutionRow | None
    ) -> LoadedExecution | None:
        """Load an execution; `None` if that is not possible now."""

    def deliver_stored(
        self,
        live: LoadedExecution,
        rows: list[MessageRow],
        waiters: dict[Any, Any],
        acks: Sequence[Any],
        *,
        accepted: bool = False,
    ) -> list[tuple[Any, Exception | None]]:
        """Deliver stored messages; return the callers to resolve now."""

    def take_waiters(self, execution: str) -> dict[Any, Any]:
        """Return the waiters of an execution that is not in memory, and forget them."""


class StoredBacklog:
    """Reads stored messages and hands them to the executions of a table, page by page."""

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        environment: Environment,
        kinds: dict[str, Kind],
        ownership: Ownership,
        letters: DeadLettering,
        quarantine: Quarantine,
        target: Target,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._writer = writer
        self._state = state
        self._environment = environment
        self._ownership = ownership
        self._letters = letters
        self._target = target
        self._scans = 0  # passes through the store that are under way
        self._looking = False  # one of them reads messages of other engines
        self._look_again = False
        self.quarantine = quarantine
        quarantine.read_on = self.read_on
        self._unread: set[str] = set()
        """Executions that are not in memory although the store has messages for them."""

    def add(self, execution: str) -> None:
        """Record that the store has messages of an execution that is not live."""
        self._unread.add(execution)

    def comes_first(self, execution: str) -> bool:
        """Return whether the store may have older messages of an execution that was just woken."""
        found = self._scans > 0 or execution in self._unread
        self._unread.discard(execution)
        return found

    def read_now(self, execution: str) -> None:
        """Deliver the stored messages of an execution that could not be woken before."""
        if self._target.find(execution) is not None or self._state.closed:
            return
        if not self._ownership.runs(execution):
            return
        row = self._store.execution(execution)
        if row is None or row.status in ENDED:
            return
        live = self._target.load(execution, None, row)
        if live is not None:
            self._unread.discard(execution)
            self.read_on(live)

    def look(self) -> None:
        """Deliver messages that other engines stored, page by page; one pass at a time."""
        self._look_again = self._looking
        if not self._looking:
            self._looking = True
            self.recover()

    def look_at(self, live: LoadedExecution) -> None:
        """Deliver messages that other engines stored for a loaded execution."""
        live.has_unread = True
        if live.unconsumed < LOW:
            self.read_on_soon(live)

    def recover(self, kind: str | None = None) -> None:
        """Deliver all stored messages, or those for one kind, page by page."""
        self._scans += 1
        self._scan(kind, None)

    def _scan(self, kind: str | None, cursor: Any) -> None:
        """Wake some executions; the next ones when the pool has started these.

        Otherwise many would occupy memory before their turn and slow down the running ones.
        """
        if self._state.closed:
            return
        try:
            page = self._store.pending(kind=kind, after=cursor, limit=_PAGE)
            self._wake(page)
        except Exception as error:  # noqa: BLE001 - it is all in the store: try again
            outage_of(self._store).failed(error, "the store cannot be read; trying again")
            self._clock.call_at(
                self._clock.now() + AGAIN,
                lambda: self._writer.call(partial(self._scan, kind, cursor)),
            )
            return
        if page.after is None:
            self._scans -= 1
            if self._looking and not self._scans:
                self._looking = False
                if self._look_again:
                    self._writer.call(self.look)
        else:
            self._environment.pool.submit(
                _Later(self._writer, partial(self._scan, kind, page.after))
            )

    def _wake(self, page: Page[MessageRow]) -> None:
        """Wake the receivers of a page of messages, except those already awake."""
        found: dict[str, list[MessageRow]] = {}
        for row in page.rows:
            found.setdefault(row.execution, []).append(row)
        asleep = [each for each in found if self._target.find(each) is None]
        fetched = self._store.executions(asleep)
        last = page.rows[-1].execution if page.rows else None
        self._mark(found, asleep)
        self._look_at_awake(found)
        for execution in asleep:
            rows, stored = found[execution], fetched.get(execution)
            if stored is None or stored.status in ENDED:
                self._drop(rows, stored)
                continue
            live = self._target.load(execution, None, stored)
            if live is not None:
                self._unread.discard(execution)
                self._feed(live, rows, more=execution == last and page.after is not None)

    def _look_at_awake(self, found: dict[str, list[MessageRow]]) -> None:
        """Deliver messages that other engines stored for loaded executions."""
        if not self._ownership.shared:
            return
        for execution, rows in found.items():
            live = self._target.find(execution)
            if live is None or live.seen_ids is None or live.has_unread:
                continue
            if any(row.id not in live.seen_ids for row in rows):
                self.look_at(live)

    def _mark(self, found: dict[str, list[MessageRow]], asleep: Sequence[str]) -> None:
        """Record the messages present at a crash; at a second crash they are suspects."""
        ownership = self._ownership
        changes = [
            Change(
                name,
                attempted=[row.id for row in found[name] if not row.attempts],
                epoch=ownership.epoch_of(name),
            )
            for name in asleep
            if ownership.is_suspect(name)
        ]
        self._writer.commit([change for change in changes if change.attempted])

    def _drop(self, rows: list[MessageRow], stored: ExecutionRow | None) -> None:
        """Make dead letters of messages to an execution that is gone or has ended.

        Messages that ask it to end are dropped instead.
        """
        kind = None if stored is None else self._kinds.get(stored.kind)
        error = "ExecutionEnded: the execution has ended"
        for waiter in self._target.take_waiters(rows[0].execution).values():
            waiter.resolve(Rejected(error))
        dead = [
            NewDead(row.id, row.execution, row.type, row.body, error)
            for row in rows
            if row.type == "message" and not _asks_to_end(kind, row)
        ]
        change = Change(
            rows[0].execution,
            at=self._clock.now(),
            consumed=[row.id for row in rows],
            dead=dead,
            epoch=self._ownership.epoch_of(rows[0].execution),
        )
        self._writer.submit(change, None, insist=True)

    def read_on_soon(self, live: LoadedExecution) -> None:
        """Continue reading the store after the messages of the last commit are delivered.

        Otherwise these messages would be read, and then delivered once more.
        """
        if not live.is_reading:
            live.is_reading = True
            self._writer.call(partial(self.read_on, live))

    def read_on(self, live: LoadedExecution) -> None:
        """Read on in the store, where an execution has more there than in memory."""
        live.is_reading = False
        if self._state.closed or live.has_ended or not live.has_unread or live.creates is not None:
            return
        if live.outdated:  # it is all for the one that takes its place
            return
        try:
            rows, more = self._rest(live)
        except Exception as error:  # noqa: BLE001 - they are stored, and read again
            self.read_later((live.id,), error)
            return
        self._feed(live, rows, more=more)

    def _rest(self, live: LoadedExecution) -> tuple[list[MessageRow], bool]:
        """Return stored messages that were not handed over, and whether there may be more."""
        store = self._store
        if live.seen_ids is None:
            page = store.pending(execution=live.id, after=live.last, limit=WINDOW)
            return page.rows, page.after is not None
        rows: list[MessageRow] = []
        cursor = None
        while True:
            page = store.pending(execution=live.id, after=cursor, limit=WINDOW)
            rows += [row for row in page.rows if row.id not in live.seen_ids]
            cursor = page.after
            if cursor is None or len(rows) >= WINDOW:
                return rows, cursor is not None

    def _feed(self, live: LoadedExecution, rows: list[MessageRow], *, more: bool) -> None:
        """Deliver stored messages; one that may have ended the process before goes alone."""
        chosen: list[MessageRow] = []
        behind = more
        notes = self._store.traits.notes_trials
        for at, row in enumerate(rows):
            if row.attempts > CRASHES:
                self._give_up_crasher(live, row, first=live.first is None and not chosen)
                continue
            if row.attempts:
                if chosen:
                    behind = True
                    break
                if self._ownership.is_suspect(live.id):  # else it was closed: no crash
                    if not self.quarantine.admit(live, row):
                        return  # it stays behind until its turn comes
                    if not notes and not self._count_attempt(live, row):
                        self.quarantine.end(live)
                        self.read_later((live.id,), None)
                        return
                chosen = [row]
                behind = more or at + 1 < len(rows)
                break
            chosen.append(row)
        deliver = self._target.deliver_stored
        told = deliver(live, chosen, live.waiters_of_unread, (), accepted=True) if chosen else ()
        live.has_unread = behind  # not earlier: a new message must not overtake these
        for waiter, error in told:
            waiter.resolve(error)
        if behind and not chosen:
            self._writer.call(partial(self.read_on, live))

    def _count_attempt(self, live: LoadedExecution, row: MessageRow) -> bool:
        """Record that a run begins again after a crash; return whether that is stored."""
        change = Change(live.id, attempted=(row.id,), epoch=live.epoch)
        return self._writer.commit([change]) is None

    def _give_up_crasher(self, live: LoadedExecution, row: MessageRow, *, first: bool) -> None:
        live.last = row.id
        if live.seen_ids is not None:
            live.seen_ids.add(row.id)
        error = ProcessEnded(
            f"the process ended {row.attempts - 1} times while only this was processed"
        )
        log.error("message given up: it ends the process", execution=live.id, attempts=row.attempts)
        change = Change(
            live.id,
            at=self._clock.now(),
            consumed=(row.id,),
            dead=(NewDead(row.id, live.id, row.type, row.body, f"ProcessEnded: {error}"),),
            epoch=live.epoch,
        )
        self._letters.commit(live, change, error, first=first)

    def read_later(self, executions: Iterable[str], error: Exception | None) -> None:
        """Read messages again that are stored and could not be handed over."""
        names = list(executions)
        if error is not None:
            outage_of(self._store).failed(error, "the store cannot be read; trying again")
        for name in names:
            live = self._target.find(name)
            if live is None:
                self._unread.add(name)
            else:
                live.has_unread = True
        self._clock.call_at(
            self._clock.now() + AGAIN, lambda: self._writer.call(partial(self.read_again, names))
        )

    def read_again(self, names: Sequence[str]) -> None:
        """Deliver messages that could not be read before."""
        if self._state.closed:
            return
        for name in names:
            live = self._target.find(name)
            if live is None and name in self._unread and self._has_messages(name):
                live = self._target.load(name, None, None)
                if live is not None:
                    self._unread.discard(name)
            if live is not None and live.has_unread and live.unconsumed < LOW:
                self.read_on(live)

    def _has_messages(self, name: str) -> bool:
        """Return whether something is stored for an execution; one that is not there has nothing.

        False also if the store cannot be read; then it is asked again later.
        """
        try:
            found = bool(self._store.pending(execution=name, limit=1).rows)
        except Exception as error:  # noqa: BLE001 - they are stored, and read again
            self.read_later((name,), error)
            return False
        if not found:
            self._unread.discard(name)
        return found


def _asks_to_end(kind: Any, row: MessageRow) -> bool:
    """Return whether a stored message asks its execution to end."""
    try:
        return is_cancel(kind, bodies.decode(row.body))
    except msgspec.DecodeError:
        return False
