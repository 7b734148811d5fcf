"""The backlog: messages that are in the store and not in memory.

An earlier engine has left them, or there are too many of them for one execution, or the store could
not be read for a moment. All of it happens in the writer's thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import ProcessEnded
from actorflow.engine.execution.letters import bury
from actorflow.engine.execution.live import WINDOW
from actorflow.engine.execution.trials import Trials
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.kind import ENDED
from actorflow.engine.stores.protocol import Change, NewDead
from actorflow.runtime.errors import Rejected
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.execution.host import Host
    from actorflow.engine.execution.live import Live
    from actorflow.engine.execution.writing.writer import Writer
    from actorflow.engine.stores.protocol import MessageRow, Page

__all__ = ["CRASHES", "LOW", "OWN_CRASHES", "Backlog"]

CRASHES = 3
"""How often a message of a user may have ended the process before it is a dead letter."""
OWN_CRASHES = 10
"""The same for a message of the engine, which an execution waits for. Nobody knows whether it was
the message that ended the process: perhaps somebody killed it each time."""
LOW = WINDOW // 2
"""Messages of one execution in memory below which more are read."""

# Messages that are read together after a restart. Executions of a page are all in memory until they
# have run: with several thousand of them the garbage collector takes nearly as long as the runs.
_PAGE = 500


class _Later:
    """Makes the writer call a function once the pool has started all earlier submissions."""

    __slots__ = ("_call", "_writer")

    def __init__(self, writer: Writer, call: Callable[[], None]) -> None:
        self._writer = writer
        self._call = call

    def run(self) -> None:
        """Pass it on. Only the pool calls this."""
        self._writer.call(self._call)


class Backlog:
    """Reads what is stored and hands it to the executions of a host, page by page."""

    def __init__(self, core: Core, host: Host) -> None:
        self._core = core
        self._host = host
        self._scans = 0  # passes through the store that are under way
        self._looking = False  # one of them is there for what others have stored
        self._look_again = False
        self.trials = Trials(core, self.catch_up)
        self._unread: set[str] = set()
        """Executions that are not live although the store has messages for them."""

    def add(self, execution: str) -> None:
        """Note that the store has messages of an execution that is not live."""
        self._unread.add(execution)

    def comes_first(self, execution: str) -> bool:
        """Return whether the store may have older messages of an execution that was just woken."""
        found = self._scans > 0 or execution in self._unread
        self._unread.discard(execution)
        return found

    def read_now(self, execution: str) -> None:
        """Hand over what is stored for an execution that could not be woken before."""
        if self._host.find(execution) is not None or self._core.closed:
            return
        if not self._core.ownership.runs(execution):
            return
        row = self._core.store.execution(execution)
        live = None if row is None or row.status in ENDED else self._host.wake(execution, None, row)
        if live is not None:
            self._unread.discard(execution)
            self.catch_up(live)

    def look(self) -> None:
        """Hand over what others have stored, page by page; one pass at a time."""
        self._look_again = self._looking
        if not self._looking:
            self._looking = True
            self.recover()

    def look_at(self, live: Live) -> None:
        """Hand over what others have stored for an execution that is live."""
        live.behind = True
        if live.held < LOW:
            self.catch_up_soon(live)

    def recover(self, kind: str | None = None) -> None:
        """Hand over what is in the store, page by page: all of it, or that of one kind."""
        self._scans += 1
        self._scan(kind, None)

    def _scan(self, kind: str | None, cursor: Any) -> None:
        """Wake some executions; the next ones when the pool has started these.

        Otherwise many would occupy memory before their turn, and delay those that run.
        """
        core = self._core
        if core.closed:
            return
        try:
            page = core.store.pending(kind=kind, after=cursor, limit=_PAGE)
            self._wake(page)
        except Exception as error:  # noqa: BLE001 - it is all in the store: try again
            log.error("the store cannot be read; trying again", exc_info=error)
            core.clock.call_at(
                core.clock.now() + AGAIN,
                lambda: core.writer.call(partial(self._scan, kind, cursor)),
            )
            return
        if page.after is None:
            self._scans -= 1
            if self._looking and not self._scans:
                self._looking = False
                if self._look_again:
                    core.writer.call(self.look)
        else:
            POOL.submit(_Later(core.writer, partial(self._scan, kind, page.after)))

    def _wake(self, page: Page[MessageRow]) -> None:
        """Wake the executions that a page of messages is for; those that are awake are left out."""
        found: dict[str, list[MessageRow]] = {}
        for row in page.rows:
            found.setdefault(row.execution, []).append(row)
        asleep = [each for each in found if self._host.find(each) is None]
        fetched = self._core.store.executions(asleep)
        last = page.rows[-1].execution if page.rows else None
        self._mark(found, asleep)
        self._look_at_awake(found)
        for execution in asleep:
            rows, stored = found[execution], fetched.get(execution)
            if stored is None or stored.status in ENDED:
                self._drop(rows)
                continue
            live = self._host.wake(execution, None, stored)
            if live is not None:
                self._unread.discard(execution)
                self._feed(live, rows, more=execution == last and page.after is not None)

    def _look_at_awake(self, found: dict[str, list[MessageRow]]) -> None:
        """Hand over what others have stored for executions that are live."""
        if not self._core.ownership.shared:
            return
        for execution, rows in found.items():
            live = self._host.find(execution)
            if live is None or live.known is None or live.behind:
                continue
            if any(row.id not in live.known for row in rows):
                self.look_at(live)

    def _mark(self, found: dict[str, list[MessageRow]], asleep: Sequence[str]) -> None:
        """Note that a run with these begins, which perhaps ends the process: see `CRASHES`."""
        ownership = self._core.ownership
        changes = [
            Change(
                name,
                attempted=[row.id for row in found[name] if not row.attempts],
                epoch=ownership.epoch_of(name),
            )
            for name in asleep
            if ownership.is_suspect(name)
        ]
        self._core.writer.commit([change for change in changes if change.attempted])

    def _drop(self, rows: list[MessageRow]) -> None:
        """Make dead letters of messages to an execution that is gone or has ended."""
        error = "ExecutionEnded: the execution has ended"
        for waiter in self._host.take_late(rows[0].execution).values():
            waiter.resolve(Rejected(error))
        dead = [
            NewDead(row.id, row.execution, row.type, row.body, error)
            for row in rows
            if row.type == "message"
        ]
        change = Change(
            rows[0].execution,
            at=self._core.clock.now(),
            consumed=[row.id for row in rows],
            dead=dead,
            epoch=self._core.ownership.epoch_of(rows[0].execution),
        )
        self._core.writer.submit(change, None, insist=True)

    def catch_up_soon(self, live: Live) -> None:
        """Read on in the store once all that the last commit has stored is delivered.

        Otherwise what was stored by that commit would be read, and then delivered once more.
        """
        if not live.reading:
            live.reading = True
            self._core.writer.call(partial(self.catch_up, live))

    def catch_up(self, live: Live) -> None:
        """Read on in the store, where an execution has more there than in memory."""
        core = self._core
        live.reading = False
        if core.closed or live.has_ended or not live.behind or live.creates is not None:
            return
        if live.outdated:  # it is all for the one that takes its place
            return
        try:
            rows, more = self._rest(live)
        except Exception as error:  # noqa: BLE001 - they are stored, and read again
            self.read_later((live.id,), error)
            return
        self._feed(live, rows, more=more)

    def _rest(self, live: Live) -> tuple[list[MessageRow], bool]:
        """Return stored messages that were not handed over, and whether there may be more."""
        store = self._core.store
        if live.known is None:
            page = store.pending(execution=live.id, after=live.last, limit=WINDOW)
            return page.rows, page.after is not None
        rows: list[MessageRow] = []
        cursor = None
        while True:
            page = store.pending(execution=live.id, after=cursor, limit=WINDOW)
            rows += [row for row in page.rows if row.id not in live.known]
            cursor = page.after
            if cursor is None or len(rows) >= WINDOW:
                return rows, cursor is not None

    def _feed(self, live: Live, rows: list[MessageRow], *, more: bool) -> None:
        """Deliver stored messages; one that may have ended the process before goes alone."""
        chosen: list[MessageRow] = []
        behind = more
        for at, row in enumerate(rows):
            if row.attempts >= (CRASHES if row.type == "message" else OWN_CRASHES):
                self._bury_crasher(live, row, first=live.first is None and not chosen)
                continue
            if row.attempts:
                if chosen:
                    behind = True
                    break
                if self._core.ownership.is_suspect(live.id):  # else it was closed: no crash
                    if not self.trials.admit(live):
                        return  # it stays behind until its turn comes
                    if not self._count_attempt(live, row):
                        self.trials.end(live)
                        self.read_later((live.id,), None)
                        return
                chosen = [row]
                behind = more or at + 1 < len(rows)
                break
            chosen.append(row)
        let_in = self._host.let_in
        told = let_in(live, chosen, live.late, (), accepted=True) if chosen else ()
        live.behind = behind  # not before: what is not stored must not come in between
        for waiter, error in told:
            waiter.resolve(error)
        if behind and not chosen:
            self._core.writer.call(partial(self.catch_up, live))

    def _count_attempt(self, live: Live, row: MessageRow) -> bool:
        """Note that a run begins again after a crash; return whether that is stored."""
        change = Change(live.id, attempted=(row.id,), epoch=live.epoch)
        return self._core.writer.commit([change]) is None

    def _bury_crasher(self, live: Live, row: MessageRow, *, first: bool) -> None:
        live.last = row.id
        if live.known is not None:
            live.known.add(row.id)
        error = ProcessEnded(f"the process ended {row.attempts + 1} times while this was processed")
        log.error("message given up: it ends the process", execution=live.id, attempts=row.attempts)
        change = Change(
            live.id,
            at=self._core.clock.now(),
            consumed=(row.id,),
            dead=(NewDead(row.id, live.id, row.type, row.body, f"ProcessEnded: {error}"),),
            epoch=live.epoch,
        )
        bury(live, change, error, first=first)

    def read_later(self, executions: Iterable[str], error: Exception | None) -> None:
        """Read messages again that are stored and could not be handed over."""
        names = list(executions)
        if error is not None:
            log.error(
                "the store cannot be read; trying again", executions=names[:10], exc_info=error
            )
        core = self._core
        for name in names:
            live = self._host.find(name)
            if live is None:
                self._unread.add(name)
            else:
                live.behind = True
        core.clock.call_at(
            core.clock.now() + AGAIN, lambda: core.writer.call(partial(self.read_again, names))
        )

    def read_again(self, names: Sequence[str]) -> None:
        """Hand over what could not be read before."""
        if self._core.closed:
            return
        for name in names:
            live = self._host.find(name)
            if live is None and name in self._unread and self._has_messages(name):
                live = self._host.wake(name, None, None)
                if live is not None:
                    self._unread.discard(name)
            if live is not None and live.behind and live.held < LOW:
                self.catch_up(live)

    def _has_messages(self, name: str) -> bool:
        """Return whether something is stored for an execution; one that is not there has nothing.

        False also if the store cannot be read; then it is asked again later.
        """
        try:
            found = bool(self._core.store.pending(execution=name, limit=1).rows)
        except Exception as error:  # noqa: BLE001 - they are stored, and read again
            self.read_later((name,), error)
            return False
        if not found:
            self._unread.discard(name)
        return found
