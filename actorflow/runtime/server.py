"""Several workers under one supervisor: a server addresses them by id, a pool chooses one."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import choice, count, key_function
from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import (
    BadBehaviour,
    BadOption,
    RequestRefused,
    StartFailed,
    StopTimeout,
    UnknownWorker,
    WorkerStopped,
)
from actorflow.runtime.exits import Crash, ExitReason, Normal
from actorflow.runtime.supervision.handles import successor
from actorflow.runtime.supervision.spec import Child, Flags
from actorflow.runtime.supervision.supervisor import Supervisor, SupervisorRef
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.options import check_known
from actorflow.runtime.worker.pair.requests import request_stop
from actorflow.runtime.worker.pair.states import StopMode
from actorflow.runtime.worker.ref import DEFAULT_TIMEOUT, WorkerRef
from actorflow.runtime.worker.spec import Worker, spawn

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.restarts import Backoff
    from actorflow.runtime.supervision.spec import Grace, RestartName
    from actorflow.runtime.worker.statistics import WorkerStatistics

__all__ = ["Pool", "Restart", "Server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How a server's own supervisor treats its workers.

    >>> Restart("transient", shutdown=2.0).max_restarts
    3
    """

    restart: RestartName = "permanent"
    shutdown: Grace = 5.0
    max_restarts: int = 3
    within: float = 5.0
    backoff: Backoff | None = None

    def __init__(self, restart: RestartName = "permanent", **options: Any) -> None:
        known = {field.name: field.default for field in fields(Restart)}
        check_known(options, known, "Restart")
        for name, value in {**known, **options, "restart": restart}.items():
            object.__setattr__(self, name, value)
        # Validate here and now, with the names that the caller used.
        Child("worker", Worker, restart=self.restart, shutdown=self.shutdown)
        Flags(max_restarts=self.max_restarts, within=self.within, backoff=self.backoff)


class Server:
    """Starts workers and passes messages to them by id. Thread-safe.

    Without a supervisor the workers are *linked*: if one ends abnormally, all of them end with
    that reason, and every waiting caller gets it. With a supervisor they are not: a worker that
    crashes is restarted, with its first state and all that was accumulated. The server is linked
    to the supervisor, and ends with it.

    Args:
        workers: their specifications; the ids must differ.
        supervisor: `Restart(...)` for a supervisor of its own, or the ref of a dynamic
            `Supervisor` of yours.
        clock: where time comes from; tests give a virtual one.

    Raises:
        StartFailed: one of them did not start; those before it have been stopped again.

    """

    def __init__(
        self,
        workers: Iterable[Worker],
        *,
        supervisor: Restart | SupervisorRef | None = None,
        clock: Clock | None = None,
    ) -> None:
        specs = _checked(workers, clock)
        self._workers: dict[Hashable, WorkerRef] = {}
        self._exit_reason: ExitReason | None = None
        self._own = isinstance(supervisor, Restart)
        self._supervisor: SupervisorRef | None = None
        self._how = supervisor if isinstance(supervisor, Restart) else Restart()
        if supervisor is not None:
            self._supervisor = self._find_supervisor(supervisor, clock)
        try:
            for spec in specs:
                self._workers[spec.id] = self._start(spec)
        except BaseException:
            self.stop(now=True)
            raise
        if self._supervisor is None:
            for worker in self._workers.values():
                worker.watch(self._on_exit)
        else:
            self._supervisor.watch(self._on_supervisor_exit)

    def _find_supervisor(self, given: Any, clock: Clock | None) -> SupervisorRef:
        if isinstance(given, Restart):
            return Supervisor(
                strategy="dynamic",
                max_restarts=given.max_restarts,
                within=given.within,
                backoff=given.backoff,
                clock=clock or SYSTEM,
            ).start()
        if not isinstance(given, SupervisorRef) or not given.actor.dynamic:
            msg = (
                f"supervisor={given!r} must be Restart(...), or the ref of a running supervisor "
                "with strategy='dynamic'"
            )
            raise BadOption(msg)
        return given

    def _start(self, spec: Worker) -> WorkerRef:
        if self._supervisor is None:
            return spec()
        how = self._how
        child = Child(spec.id, spec, restart=how.restart, shutdown=how.shutdown)
        try:
            worker: WorkerRef = self._supervisor.start_child(child).ref
        except RequestRefused as error:
            raise StartFailed(f"worker {spec.id!r}", error) from error.__cause__
        return worker

    def _on_exit(self, _worker: Any, reason: ExitReason) -> None:
        if not isinstance(reason, Normal):
            self._end(reason)

    def _on_supervisor_exit(self, _supervisor: Any, reason: ExitReason) -> None:
        if self._exit_reason is None:
            self._exit_reason = reason

    def _end(self, reason: ExitReason) -> None:
        if self._exit_reason is not None:
            return  # all workers that end with it report the same reason
        self._exit_reason = reason
        for worker in self._workers.values():
            request_stop(worker.actor, StopMode.NOW, reason)

    @property
    def supervisor(self) -> SupervisorRef | None:
        """The supervisor of the workers, if they have one."""
        return self._supervisor

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why the whole structure ended; `None` while it lives."""
        return self._exit_reason

    def worker(self, worker_id: Hashable) -> WorkerRef:
        """Return the ref of a worker. O(1).

        It stays the same when the worker crashes and is started again; not when it was stopped,
        and its supervisor has made a new one.

        Raises:
            UnknownWorker: no worker has that id; the error names similar ones.

        """
        try:
            worker = self._workers[worker_id]
        except KeyError:
            raise UnknownWorker(worker_id, self._workers) from None
        if self._supervisor is not None and worker.exit_reason is not None:
            worker = self._workers[worker_id] = successor(worker)
        return worker

    def push(self, worker_id: Hashable, message: Any) -> None:
        """Send a message to a worker and go on; see `WorkerRef.push`."""
        self.worker(worker_id).push(message)

    def push_many(self, worker_id: Hashable, messages: Iterable[Any]) -> None:
        """Send many messages to a worker; see `WorkerRef.push_many`."""
        self.worker(worker_id).push_many(messages)

    def push_ack(self, worker_id: Hashable, message: Any, timeout: float | None = 5.0) -> None:
        """Send a message and return once it is accumulated; see `WorkerRef.push_ack`."""
        self.worker(worker_id).push_ack(message, timeout)

    def push_block(
        self, worker_id: Hashable, message: Any, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Send a message and return once it was processed; see `WorkerRef.push_block`."""
        self.worker(worker_id).push_block(message, timeout)

    async def apush_ack(
        self, worker_id: Hashable, message: Any, timeout: float | None = 5.0
    ) -> None:
        """Like `push_ack`, from a task of any event loop."""
        await self.worker(worker_id).apush_ack(message, timeout)

    async def apush_block(
        self, worker_id: Hashable, message: Any, timeout: float | None = 5.0
    ) -> None:
        """Like `push_block`, from a task of any event loop."""
        await self.worker(worker_id).apush_block(message, timeout)

    def ask(self, worker_id: Hashable, message: Any, *, timeout: float | None = None) -> Any:
        """Send a message and return the job's answer to it; see `WorkerRef.ask`."""
        return self.worker(worker_id).ask(message, timeout=timeout)

    async def aask(self, worker_id: Hashable, message: Any, *, timeout: float | None = None) -> Any:
        """Like `ask`, from a task of any event loop."""
        return await self.worker(worker_id).aask(message, timeout=timeout)

    async def apush(self, worker_id: Hashable, message: Any, timeout: float | None = None) -> None:
        """Like `push`, but wait for room without blocking the loop; see `WorkerRef.apush`."""
        await self.worker(worker_id).apush(message, timeout)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self._workers

    def statistics(self) -> dict[Hashable, WorkerStatistics]:
        """Return the statistics of each worker, by id."""
        return {worker_id: worker.statistics() for worker_id, worker in self._workers.items()}

    def stop(
        self, *, drain: bool | None = None, now: bool = False, timeout: float | None = None
    ) -> None:
        """Stop the workers, the last one first; see `WorkerRef.stop`.

        A supervisor of the server's own is stopped with them; yours goes on without them.

        Raises:
            StopTimeout: one did not end in time and was cut off; all others have been stopped.

        """
        supervisor = self._supervisor
        late: StopTimeout | None = None
        mode = StopMode.asked_for(drain=drain, now=now)
        for worker in [self.worker(worker_id) for worker_id in reversed(self._workers)]:
            try:
                if supervisor is None:
                    worker.unwatch(self._on_exit)
                    worker.stop(drain=drain, now=now, timeout=timeout)
                elif supervisor.is_alive():
                    worker.actor.lifecycle.final_mode = mode
                    _terminate(supervisor, worker, timeout)
            except StopTimeout as error:
                late = late or error
        if supervisor is not None:
            supervisor.unwatch(self._on_supervisor_exit)
            if self._own:
                supervisor.stop(timeout=timeout)
        if self._exit_reason is None:
            reasons = [worker.exit_reason for worker in self._workers.values()]
            crashes = [reason for reason in reasons if isinstance(reason, Crash)]
            self._exit_reason = crashes[0] if crashes else Normal()
        if late is not None:
            raise late

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain and stop. If a worker has crashed, say so, unless something else is raised."""
        self.stop()
        for worker in self._workers.values():
            worker.__exit__(kind, error, traceback)


_EXAMPLE = 'Pool(Worker("resize", job), 4)'
_MOST = 10_000


class Pool:
    """Several workers with the same job, each with a state of its own, behind one front.

    Unlike `concurrency=n`, which is for jobs without state, each worker is a whole one: it keeps a
    connection, a model or a total between its batches. Thread-safe.

    `route` says which worker gets a message:

    - `"shared"`: messages accumulate in front of all workers, in the behaviour of the
      specification, and a worker that is free gets the next batch. None is idle while messages
      wait. The behaviour must hand over lists.
    - `"least"`: each worker has a behaviour of its own, and a message goes to the one that has the
      fewest messages at that moment.
    - `"key"`: messages with the same `key` go to the same worker, so they keep their order and may
      share its state.

    Args:
        worker: the specification of each worker; its id is the first part of their ids.
        n: how many there are.
        route: see above.
        key: a function of the message or the index of an element, for `route="key"`.
        supervisor: as for `Server`; by default each worker that crashes is restarted.
        clock: where time comes from; tests give a virtual one.

    Raises:
        BadOption: something cannot work; the message shows the right call.
        StartFailed: one of them did not start; those before it have been stopped again.

    >>> def square(batch, _):
    ...     return Answers(None, [number * number for number in batch])
    >>> with Pool(Worker("square", square), 3) as pool:
    ...     [pool.ask(number) for number in range(4)]
    [0, 1, 4, 9]
    """

    def __init__(
        self,
        worker: Worker,
        n: int,
        *,
        route: str = "shared",
        key: Any = None,
        supervisor: Restart | SupervisorRef | None = None,
        clock: Clock | None = None,
    ) -> None:
        specification: Any = worker
        if not isinstance(specification, Worker):
            msg = f"Pool({brief(worker)}, ...) takes the specification of a worker: {_EXAMPLE}"
            raise BadOption(msg)
        number = count(n, "n", _EXAMPLE, most=_MOST, error=BadOption)
        self._route = choice(route, "route", ("shared", "least", "key"), error=BadOption)
        options: Any = dict(worker.options)
        if options.get("name") is not None:
            msg = f"name={options['name']!r} would be the name of {number} workers; leave it out"
            raise BadOption(msg)
        if (key is None) is (route == "key"):
            msg = 'key= goes with route="key": Pool(worker, 4, route="key", key=0)'
            raise BadOption(msg)
        self._key = None if key is None else key_function(key, _EXAMPLE, error=BadOption)
        shared = {}
        if route == "shared":
            if options.get("concurrency", 1) != 1:
                msg = 'concurrency= is for route="least" and "key"; give n the number of batches'
                raise BadOption(msg)
            shared = {name: options.pop(name) for name in _SHARED if name in options}
        given = Restart() if supervisor is None else supervisor
        members = [Worker((worker.id, at), worker.job, **options) for at in range(number)]
        self.id = worker.id
        self._server = Server(members, supervisor=given, clock=clock)
        self._ids = list(self._server)
        self._turn = 0
        self._free = list(reversed(self._ids))
        self._front: WorkerRef | None = None
        if route == "shared":
            if clock is not None:
                shared["clock"] = clock
            elif "clock" in options:
                shared["clock"] = options["clock"]
            try:
                self._front = spawn(self._forward, concurrency=number, **shared)
            except BaseException:
                self._server.stop(now=True)
                raise

    def _forward(self, batch: Any, _state: None) -> Deferred:
        """Pass a batch to a free worker; `concurrency` ensures that there is one."""
        if type(batch) is not list:
            msg = f'a pool with route="shared" needs lists as batches, not {brief(batch)}'
            raise BadBehaviour(msg)
        member = self._free.pop()
        forwarded = _Forwarded(len(batch), self._free, member)
        pairs = [(message, _Place(forwarded, at)) for at, message in enumerate(batch)]
        refused: list[tuple[Any, Exception]]
        try:
            refused = self._server.worker(member).actor.offers.offer_many(pairs)
        except Exception as error:  # noqa: BLE001 - the worker has ended: the callers get it
            refused = [(place, error) for _, place in pairs]
        for place, why in refused:
            place.resolve(why)
        return forwarded.deferred

    def _worker_for(self, message: Any) -> WorkerRef:
        """Return the ref that gets a message."""
        if self._front is not None:
            return self._front
        if self._key is not None:
            return self._server.worker(self._ids[hash(self._key(message)) % len(self._ids)])
        turn = self._turn = (self._turn + 1) % len(self._ids)  # so that equals take turns
        workers = [self._server.worker(each) for each in self._ids[turn:] + self._ids[:turn]]
        return min(workers, key=_load)

    @property
    def workers(self) -> tuple[WorkerRef, ...]:
        """The refs of the workers."""
        return tuple(self._server.worker(each) for each in self._ids)

    def push(self, message: Any) -> None:
        """Send a message and go on; see `WorkerRef.push`."""
        self._worker_for(message).push(message)

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages; see `WorkerRef.push_many`."""
        if self._front is not None:
            self._front.push_many(messages)
            return
        for message in messages:
            self.push(message)

    def push_ack(self, message: Any, timeout: float | None = 5.0) -> None:
        """Send a message and return once it is accumulated; see `WorkerRef.push_ack`."""
        self._worker_for(message).push_ack(message, timeout)

    def push_block(self, message: Any, timeout: float | None = 5.0) -> None:
        """Send a message and return once it was processed; see `WorkerRef.push_block`."""
        self._worker_for(message).push_block(message, timeout)

    def ask(self, message: Any, *, timeout: float | None = None) -> Any:
        """Send a message and return the job's answer to it; see `WorkerRef.ask`."""
        return self._worker_for(message).ask(message, timeout=timeout)

    async def apush(self, message: Any, timeout: float | None = None) -> None:
        """Like `push`, but wait for room without blocking the loop; see `WorkerRef.apush`."""
        await self._worker_for(message).apush(message, timeout)

    async def apush_block(self, message: Any, timeout: float | None = 5.0) -> None:
        """Like `push_block`, from a task of any event loop."""
        await self._worker_for(message).apush_block(message, timeout)

    async def aask(self, message: Any, *, timeout: float | None = None) -> Any:
        """Like `ask`, from a task of any event loop."""
        return await self._worker_for(message).aask(message, timeout=timeout)

    def __len__(self) -> int:
        """Return how many workers there are."""
        return len(self._ids)

    def statistics(self) -> dict[Hashable, WorkerStatistics]:
        """Return the statistics of each worker; those of the shared front under the pool's id."""
        statistics = self._server.statistics()
        if self._front is not None:
            statistics[self.id] = self._front.statistics()
        return statistics

    def stop(
        self, *, drain: bool | None = None, now: bool = False, timeout: float | None = None
    ) -> None:
        """Stop the front and the workers; see `WorkerRef.stop`.

        Raises:
            StopTimeout: one did not end in time and was cut off; all others have been stopped.

        """
        try:
            if self._front is not None:
                self._front.stop(drain=drain, now=now, timeout=timeout)
        finally:
            self._server.stop(drain=drain, now=now, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain and stop."""
        self.stop()


_SHARED = ("behaviour", "throttle")
"""Options that belong to the front of a shared pool."""


def _load(worker: WorkerRef) -> int:
    """Return how many messages a worker has now, without its lock."""
    core = worker.actor.core
    return len(core) + core.in_flight


class _Forwarded:
    """A batch that a worker of a pool processes: the answers to its messages."""

    __slots__ = ("_answers", "_free", "_left", "_lock", "_member", "deferred")

    def __init__(self, size: int, free: list[Any], member: Any) -> None:
        self._answers: list[Any] = [None] * size
        self._left = size
        self._lock = allocate_lock()
        self._free = free
        self._member = member
        self.deferred = Deferred()

    def resolved(self, at: int, outcome: Any) -> None:
        """Note an answer or an error; after the last one, the worker is free again."""
        with self._lock:
            self._answers[at] = outcome
            self._left -= 1
            if self._left:
                return
        self._free.append(self._member)
        self.deferred.resolve(None, Answers(None, self._answers))


class _Place:
    """The ticket of one message of a batch that was forwarded."""

    __slots__ = ("_at", "_forwarded")

    def __init__(self, forwarded: _Forwarded, at: int) -> None:
        self._forwarded = forwarded
        self._at = at

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Note the outcome. Called once."""
        self._forwarded.resolved(self._at, answer if error is None else error)


def _terminate(supervisor: SupervisorRef, worker: WorkerRef, timeout: float | None) -> None:
    """Make the supervisor stop a worker; it is cut off after `timeout` seconds.

    Raises:
        StopTimeout: it was.

    """
    accumulator = worker.actor
    late: list[bool] = []
    timer = None
    if timeout is not None:
        clock = accumulator.settings.clock
        timer = clock.call_at(
            clock.now() + timeout,
            lambda: late.append(request_stop(accumulator, StopMode.NOW)),
        )
    try:
        with contextlib.suppress(WorkerStopped):  # it has ended, and its workers with it
            supervisor.terminate_child(worker)
    finally:
        if timer is not None:
            timer.cancel()
    if any(late):
        msg = f"{accumulator!r} did not stop within {timeout} s, and was cut off"
        raise StopTimeout(msg)


def _checked(workers: Iterable[Any], clock: Clock | None) -> list[Worker]:
    if isinstance(workers, Worker | str | bytes) or not isinstance(workers, Iterable):
        msg = f"Server({brief(workers)}) takes a list of workers; write Server([Worker(...)])"
        raise BadOption(msg)
    specs = []
    seen: set[Hashable] = set()
    for spec in workers:
        if not isinstance(spec, Worker):
            msg = f"a server takes Worker(id, job, ...), not {spec!r}"
            raise BadOption(msg)
        if spec.id in seen:
            msg = f"two workers have the id {spec.id!r}; give each its own"
            raise BadOption(msg)
        seen.add(spec.id)
        specs.append(spec if clock is None else spec.with_options(clock=clock))
    return specs
