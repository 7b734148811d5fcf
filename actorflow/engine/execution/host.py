"""The host: executions become workers when messages arrive, and retire when they are idle.

A live execution is a worker: its accumulator holds stored messages under the behaviour that its
kind chooses; its executor runs one batch, commits, and only then continues. The state in memory is
always one that has been committed.

Only the writer's thread wakes executions, hands messages to them and retires them.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import EngineClosed, UnknownKind, text_of
from actorflow.engine.execution.run import Run, answered
from actorflow.engine.kind import Status
from actorflow.engine.stores.protocol import Change, DeadRow
from actorflow.runtime.errors import Displaced, StopTimeout, WorkerStopped, near
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.runner import current_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.engine import Engine
    from actorflow.engine.execution.writer import Append, Writer
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, TaskRow
    from actorflow.runtime.clock import Timer
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.deferred import Deferred

__all__ = ["Host", "Live", "Stored"]

_SWEEP = 0.1  # seconds between looking for executions that can retire
_SWEPT = 2_000  # executions that are looked at each time
_PAGE = 1_000  # executions that are woken together after a restart

ENDED = {Status.DONE, Status.CANCELLED}


class Stored:
    """The ticket of a message: it learns what becomes of it and resolves the waiter."""

    __slots__ = ("body", "live", "number", "task", "waiter")

    def __init__(
        self, live: Live, number: int, body: Any, waiter: Any = None, task: TaskRow | None = None
    ) -> None:
        self.live = live
        self.number: int | None = number
        """Its id in the store; 0 if it is not stored, because its pusher waits anyway; `None`
        once it has been consumed."""
        self.body = body
        self.waiter = waiter
        self.task = task
        """The task that it answers, where only that is stored, until it has been consumed."""

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Note that the message was processed and committed, or why it was not."""
        if error is not None and self.number is not None:
            self.live.lost(self, error)

    def consume(self, error: BaseException | None = None) -> None:
        """Mark as removed from the store; resolve the waiter. In the writer's thread."""
        self.number = None
        if self.waiter is not None:
            self.waiter.resolve(error)
            self.waiter = None


def run_batch(batch: Any, live: Live) -> Deferred:
    """Run a batch of an execution and submit the outcome; done when that is committed.

    The job of every live execution; its state is the `Live` itself.
    """
    current = current_batch()
    tickets: Any = () if current is None else current.tickets or ()
    run = Run(live, batch, [ticket for _, ticket in reversed(tickets)])
    run.start()
    return run.deferred


class Live:
    """One execution in memory."""

    __slots__ = (
        "displaced", "engine", "fetched", "id", "kind", "loaded", "noted", "port", "revision",
        "state", "status",
    )  # fmt: skip

    def __init__(self, engine: Engine, execution: str, kind: Any, row: ExecutionRow | None) -> None:
        self.engine = engine
        self.fetched = row
        self.id = execution
        self.kind = kind
        self.loaded = False
        self.noted = False
        self.revision = 0
        self.state: Any = None
        self.status = Status.ACTIVE
        self.displaced: list[tuple[Stored, Displaced]] = []
        options: Any = {"clock": engine.worker_clock, **kind.options(execution), "state": self}
        self.port = Port.launch(run_batch, options, self._on_crash)

    def _on_crash(self, _reason: ExitReason) -> None:
        """Start another executor, in the writer's thread."""
        self.engine.writer.call(self.port.revive)

    def load(self) -> None:
        """Fetch the state from the store, if it is not here. In the lane's thread."""
        if self.loaded:
            return
        row, self.fetched = self.fetched, None
        if row is None:
            row = self.engine.store.execution(self.id)
        self.revision = 0 if row is None else row.revision
        self.state = self.kind.decode(None if row is None else row.state)
        self.status = Status.ACTIVE if row is None else Status(row.status)
        self.loaded = True

    @property
    def is_cut_off(self) -> bool:
        """Whether the engine was closed without waiting for it any longer."""
        return self.port.has_ended

    # Messages that are not processed.

    def lost(self, ticket: Stored, error: BaseException) -> None:
        """React to a message that will not be processed here. Thread-safe."""
        if isinstance(error, Displaced):
            self.displaced.append((ticket, error))
            self.engine.host.note(self)
        elif isinstance(error, WorkerStopped):
            if self.engine.closed:
                self.engine.host.keep_waiting(ticket)
            elif ticket.task is not None:  # not stored: it goes the long way
                self.engine.taskers.store_answer(ticket.task, bodies.encode(ticket.body))
            elif not ticket.number:
                self.engine.append_late(self.id, self.kind.name, ticket.body, ticket.waiter)
        else:
            self.give_up(ticket, error)

    def give_up(self, ticket: Stored, error: BaseException) -> None:
        """Turn a message into a dead letter. Thread-safe."""
        engine = self.engine
        text = f"{type(error).__name__}: {text_of(error)}"
        body = bodies.encode(ticket.body)
        number = ticket.number or 0
        dead = DeadRow(number, self.id, body, text, float(engine.clock.now()))
        consumed = (number,) if number else ()
        change = Change(
            self.id, consumed=consumed, dead=(dead,), finished_tasks=answered((ticket,))
        )
        engine.writer.submit(
            change, lambda _change, failure: ticket.consume(failure or error), insist=True
        )

    def take_displaced(self) -> list[tuple[Stored, Displaced]]:
        """Return what has been displaced since the last commit."""
        displaced = self.displaced[:]
        del self.displaced[: len(displaced)]
        return displaced

    def mark_displaced(self) -> None:
        """Consume what was displaced, where no run does so. In the writer's thread."""
        displaced = self.take_displaced()
        tickets = [ticket for ticket, _ in displaced]
        numbers = [ticket.number for ticket in tickets if ticket.number]

        def committed(_change: Change, error: Exception | None) -> None:
            for ticket, fate in displaced:
                ticket.consume(error or fate)

        change = Change(self.id, consumed=numbers, finished_tasks=answered(tickets))
        self.engine.writer.submit(change, committed, insist=True)


class _Later:
    """Makes the writer call a function once the pool has started all earlier submissions."""

    __slots__ = ("_call", "_writer")

    def __init__(self, writer: Writer, call: Callable[[], None]) -> None:
        self._writer = writer
        self._call = call

    def run(self) -> None:
        """Pass it on. Only the pool calls this."""
        self._writer.call(self._call)


class Host:
    """The live executions of an engine."""

    def __init__(self, engine: Engine, max_live: int) -> None:
        self._engine = engine
        self._max_live = max_live
        self._live: dict[str, Live] = {}
        self._noted: deque[Live] = deque()
        self._sweep: Timer | None = None
        self._unknown: set[str] = set()
        self._waiting: deque[Stored] = deque()
        self._told = False
        self._kept: dict[str, dict[str, list[tuple[int, bytes, Any]]]] = {}
        """By kind and execution: what an earlier engine has left and was not delivered yet."""

    def __len__(self) -> int:
        return len(self._live)

    # The writer's thread.

    def _fetch(self, executions: Iterable[str]) -> dict[str, ExecutionRow]:
        """Read those that have to be woken, all in one read of the store."""
        asleep = [each for each in executions if each not in self._live]
        return self._engine.store.executions(asleep) if asleep else {}

    def _wake(self, execution: str, kind: str | None, row: ExecutionRow | None) -> Live | None:
        """Return a live execution, waking it if need be; `None` if its kind is not known yet."""
        live = self._live.get(execution)
        if live is not None and not live.port.has_ended:
            return live
        if row is None:
            row = self._engine.store.execution(execution)
        try:
            live = self._live[execution] = Live(self._engine, execution, self._kind(kind, row), row)
        except UnknownKind as error:
            if str(error) not in self._unknown:
                self._unknown.add(str(error))
                log.warning("messages wait for their kind", error=str(error))
            return None
        return live

    def _kind(self, kind: str | None, row: ExecutionRow | None) -> Any:
        if kind is None:
            kind = "" if row is None else row.kind
        found = self._engine.kinds.get(kind)
        if found is None:
            msg = f"kind {kind!r} is not registered{near(kind, self._engine.kinds)}"
            raise UnknownKind(msg)
        return found

    def deliver(
        self, appends: list[Append], rows: Sequence[MessageRow]
    ) -> list[tuple[Any, Exception | None]]:
        """Hand messages from outside to their executions; return the tickets to resolve."""
        arrived: dict[str, list[tuple[int, bytes, Any]]] = {}
        kinds: dict[str, str | None] = {}
        at = 0
        for append in appends:
            there = arrived.get(append.execution)
            if there is None:
                there = arrived[append.execution] = []
            kinds[append.execution] = append.kind
            for body in append.bodies:
                there.append((rows[at].id, body, None))
                at += 1
            if append.processed is not None:
                there[-1] = (rows[at - 1].id, append.bodies[-1], append.processed)
        refused: dict[int, Exception] = {}
        fetched = self._fetch(arrived)
        for execution, items in arrived.items():
            row = fetched.get(execution)
            refused.update(self._hand_over(execution, kinds[execution], items, row))
        told = []
        at = 0
        for append in appends:
            at += len(append.bodies)
            if append.stored is not None:
                told.append((append.stored, refused.get(rows[at - 1].id)))
        return told

    def deliver_rows(self, rows: Sequence[MessageRow], kind: str | None = None) -> None:
        """Hand stored messages to their executions: of one kind, or of any."""
        arrived: dict[str, list[tuple[int, bytes, Any]]] = {}
        for row in rows:
            arrived.setdefault(row.execution, []).append((row.id, row.body, None))
        fetched = self._fetch(arrived)
        for execution, items in arrived.items():
            self._hand_over(execution, kind, items, fetched.get(execution))

    def recover(self, rows: Iterable[MessageRow], kind: str) -> None:
        """Hand over what an earlier engine has left for a kind, page by page."""
        kept = self._kept[kind] = {}
        for row in rows:
            kept.setdefault(row.execution, []).append((row.id, row.body, None))
        self._recover_page(kind)

    def _recover_page(self, kind: str) -> None:
        """Wake some executions; the next ones when the pool has started these.

        Otherwise many would occupy memory before their turn, and delay those that run.
        """
        kept = self._kept[kind]
        page = list(islice(kept, _PAGE))
        fetched = self._fetch(page)
        for execution in page:
            self._hand_over(execution, kind, [], fetched.get(execution))
        if kept and not self._engine.closed:
            POOL.submit(_Later(self._engine.writer, partial(self._recover_page, kind)))
        else:
            del self._kept[kind]

    def _hand_over(
        self,
        execution: str,
        kind: str | None,
        items: list[tuple[int, bytes, Any]],
        row: ExecutionRow | None,
    ) -> dict[int, Exception]:
        """Accumulate stored messages; return those that the behaviour refused."""
        for kept in self._kept.values():  # older messages come first
            items = [*kept.pop(execution, ()), *items]
        if self._engine.closed:
            self._refuse(items, EngineClosed("the engine has been closed; the message is stored"))
            return {}
        try:
            live = self._wake(execution, kind, row)
            if live is None:
                return {}
            decode = bodies.decode
            pairs = [
                (body := decode(data), Stored(live, number, body, waiter))
                for number, data, waiter in items
            ]
            refused = live.port.offer(pairs)
        except Exception as error:  # noqa: BLE001 - a kind's options, a behaviour: the others go on
            log.error("messages kept for later", execution=execution, exc_info=error)
            self._refuse(items, error)
            return {}
        found: dict[int, Exception] = {}
        ticket: Any
        for ticket, refusal in refused:
            found[ticket.number] = refusal
            live.give_up(ticket, refusal)
        return found

    def _refuse(self, items: list[tuple[int, bytes, Any]], error: Exception) -> None:
        for _, _, waiter in items:
            if waiter is not None:
                waiter.resolve(error)

    def settle(self, live: Live) -> None:
        """Retire an execution that has ended; note one that may retire soon."""
        if live.status in ENDED and not live.displaced and self._retire(live):
            return
        if live.status in ENDED or len(self._live) > self._max_live:
            self.note(live)

    def _retire(self, live: Live) -> bool:
        """Release an execution that has nothing to do; return whether that was so."""
        if not live.port.retire():
            return False
        if self._live.get(live.id) is live:
            del self._live[live.id]
        return True

    def _on_sweep(self) -> None:
        """Retire executions that are idle."""
        self._sweep = None
        for _ in range(min(len(self._noted), _SWEPT)):
            live = self._noted.popleft()
            live.noted = False
            if live.port.has_ended:
                continue
            if (
                not live.port.is_idle
            ):  # it has committed, but its lane may not have come to rest yet
                self.note(live)
                continue
            if live.displaced:
                live.mark_displaced()
            full = live.status in ENDED or len(self._live) > self._max_live
            if full and not self._retire(live):
                self.note(live)
        if self._noted:
            self._set_sweep()

    # Thread-safe.

    def note(self, live: Live) -> None:
        """Schedule a look at an execution that may be able to retire."""
        if not live.noted:
            live.noted = True
            self._noted.append(live)
        self._set_sweep()

    def _set_sweep(self) -> None:
        if self._sweep is None and not self._engine.closed:
            engine = self._engine
            self._sweep = engine.clock.call_at(
                engine.clock.now() + _SWEEP, lambda: engine.writer.call(self._on_sweep)
            )

    def offer(
        self, execution: str, body: Any, waiter: Any = None, task: TaskRow | None = None
    ) -> bool:
        """Deliver a message that is not stored; return whether a live execution took it.

        It need not be: either its pusher waits for the outcome, or it answers a task, which is
        stored until the answer has been consumed.
        """
        live = self._live.get(execution)
        if live is None:
            return False
        ticket = Stored(live, 0, body, waiter, task)
        try:
            refused = live.port.offer([(body, ticket)])
        except WorkerStopped:
            return False
        for _, error in refused:
            live.give_up(ticket, error)
        return True

    def keep_waiting(self, ticket: Stored) -> None:
        """Keep a message that is not processed because the engine is being closed.

        Its run may have been cut off while it was being committed, so its waiter is resolved after
        the last commit.
        """
        self._waiting.append(ticket)
        if self._told:
            self.tell_waiting()

    def tell_waiting(self) -> None:
        """Resolve the remaining waiters: the engine was closed. After the last commit."""
        self._told = True
        error = EngineClosed("the engine was closed before the message was processed")
        while self._waiting:
            self._waiting.popleft().consume(error)

    def close(self, timeout: float) -> None:
        """Let all executions finish the batch they are running, for `timeout` seconds.

        Those that do not are cut off: their outcome is not committed any more, so their messages
        stay in the store and run again with the next engine.
        """
        if self._sweep is not None:
            self._sweep.cancel()
        lives = list(self._live.values())
        for live in lives:
            live.port.finish()
        end = monotonic() + timeout
        for live in lives:
            try:
                live.port.worker.stop(drain=False, timeout=max(end - monotonic(), 0.0))
            except StopTimeout:
                log.warning(
                    "execution did not end in time; it runs again with the next engine",
                    execution=live.id, timeout=timeout,
                )  # fmt: skip
        self._live.clear()
