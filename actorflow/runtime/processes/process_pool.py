"""A pool: worker processes that come with demand, are renewed, and may crash."""

from __future__ import annotations

import atexit
import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from actorflow.behaviours.arguments import choice, count, seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, ProcessCancelled, WorkerStopped
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.thread_start import retry_later, start_thread
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.processes.call import CallOutcome, ProcessCall
from actorflow.runtime.processes.interpreter import check_main
from actorflow.runtime.processes.launcher import FORKSERVER, Spawn
from actorflow.runtime.processes.packed import pack, pack_value
from actorflow.runtime.processes.policy.entries import PoolCall, PoolLimits
from actorflow.runtime.processes.policy.pool_policy import PoolPolicy
from actorflow.runtime.processes.pool_loop import PoolLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.processes.call import CallEnded
    from actorflow.runtime.processes.launcher import Launcher

__all__ = ["ProcessPool", "ProcessPoolStatistics", "launcher_of", "limits_of"]

_PREFETCH = 64  # the most; a page has flags for 256 calls


@dataclass(frozen=True, slots=True)
class ProcessPoolStatistics:
    """What a pool has done so far, and what it is doing."""

    waiting: int
    running: int
    workers: int
    launches: int
    renewals: int
    crashes: int
    ended: int
    """Calls that have ended, in whichever way."""


class ProcessPool:
    """Calls functions in worker processes. Thread-safe.

    Args:
        workers: how many processes at once: n, or (min, max) to start more with demand.
        launcher: what starts them: "forkserver", "spawn", or a `Launcher`.
        renew_after: calls after which a process is replaced by a fresh one.
        renew_after_seconds: seconds after which a process is replaced.
        max_rss: bytes of resident memory from which on a process is replaced.
        idle_stop: seconds without a call after which a process ends, down to min.
        setup: a function that each process calls once, before its first call.
        prefetch: how many calls a process holds at most beyond the one that it runs. It holds
            less while calls are long, and calls behind a slow one go to idle processes.
        launches_max: launches that may fail in a row before all waiting calls fail.
        name: for the names of processes and threads, and for logs.
        clock: where the time of timeouts and renewals comes from.

    """

    def __init__(
        self,
        workers: int | tuple[int, int] = 1,
        *,
        launcher: Launcher | str = "forkserver",
        renew_after: int | None = None,
        renew_after_seconds: float | None = None,
        max_rss: int | None = None,
        idle_stop: float | None = None,
        setup: Callable[[], object] | None = None,
        prefetch: int = 32,
        launches_max: int = 5,
        name: str = "pool",
        clock: Clock | None = None,
    ) -> None:
        limits = limits_of(
            workers,
            renew_after=renew_after,
            renew_after_seconds=renew_after_seconds,
            max_rss=max_rss,
            idle_stop=idle_stop,
            prefetch=prefetch,
            launches_max=launches_max,
        )
        check_main()
        self.name = name
        prepared = None if setup is None else pack(setup)
        self._loop = PoolLoop(
            PoolPolicy(limits),
            launcher_of(launcher),
            pack_value((prepared and prepared.data, max_rss is not None)),
            SYSTEM if clock is None else clock,
            name,
        )
        self._started = False
        self._closed = False
        self._starting = threading.Lock()
        _OPEN.add(self)
        after_fork(self._after_fork)

    def __repr__(self) -> str:
        policy = self._loop.policy
        size = f"{len(policy.members)} of {policy.limits.most} processes"
        return f"<ProcessPool {self.name!r}: {size}>"

    def submit(
        self, calls: ProcessCall | Iterable[ProcessCall], ended: Callable[[CallEnded], object]
    ) -> None:
        """Queue calls; `ended(Ended)` is called once for each, in the pool's thread.

        Never blocks. `ended` must be short; what it raises is logged.

        Raises:
            BadOption: a call has options that cannot work, or its id is in hand already.
            WorkerStopped: the pool is closed.

        """
        if self._closed or self._loop.finished.is_set():
            msg = f"{self!r} is closed"
            raise WorkerStopped(msg)
        given = (calls,) if isinstance(calls, ProcessCall) else tuple(calls)
        taken: list[PoolCall] = []
        known = self._loop.jobs
        try:
            for call in given:
                call.check()
                job = PoolCall(call, ended)
                if known.setdefault(call.id, job) is not job:
                    msg = f"a call with id={brief(call.id)} is in hand already; use another id"
                    raise BadOption(msg)  # noqa: TRY301 - those before it are withdrawn
                taken.append(job)
        except BaseException:
            for job in taken:
                del known[job.call.id]
            raise
        self._loop.put(taken)
        if not self._started:
            UNINTERRUPTIBLE.run(self._start)
        if self._loop.finished.is_set():  # it was closed meanwhile
            self._loop.sweep()

    def _start(self) -> None:
        with self._starting:
            if self._loop.finished.is_set():
                return
            if not self._started:
                self._started = start_thread(self._loop.run, name=f"actorflow-{self.name}")
            if not self._started:
                retry_later(self._start)

    def cancel(
        self,
        id: Hashable,  # noqa: A002 - the word of the contract
        error: BaseException | None = None,
        *,
        running: bool = True,
    ) -> None:
        """End a call as cancelled: kill its process if it runs. Does nothing when it has ended.

        It is reported through `ended`, with that error if one is given. With `running=False`, a
        call that runs is left to its end. Thread-safe.
        """
        if error is None:
            error = ProcessCancelled(f"call {brief(id)} was cancelled")
        self._loop.put(partial(self._cancel, id, error, running=running))

    def _cancel(self, id: Hashable, error: BaseException, *, running: bool) -> None:  # noqa: A002
        job = self._loop.jobs.get(id)
        if job is not None:
            self._loop.policy.cancel(job, CallOutcome.CANCELLED, error, running=running)

    def close(
        self, *, drain: bool = False, timeout: float | None = None, block: bool = True
    ) -> None:
        """End all processes and wait for them; calls that have not ended are cancelled.

        With `drain`, calls that were submitted end first, for at most `timeout` seconds. Without
        `block`, and when it is called by `ended`, it does not wait. Thread-safe, and harmless when
        it is closed.
        """
        self._closed = True
        _OPEN.discard(self)
        loop = self._loop
        if UNINTERRUPTIBLE.run(self._close_unused):
            return
        waits = block and threading.get_ident() != loop.ident
        if drain:
            loop.put(loop.policy.close)
            if not waits or loop.finished.wait(timeout):
                return
        loop.put(loop.policy.abandon)
        if waits:
            loop.finished.wait()

    def _close_unused(self) -> bool:
        """Close a pool whose thread was not started; return whether that was so."""
        with self._starting:
            if not self._started:
                self._loop.close()
            return not self._started

    def _after_fork(self) -> None:
        """Mark the pool as closed in a forked child: the processes belong to the parent."""
        self._closed = True
        self._started = False
        _OPEN.discard(self)
        self._loop.forget()

    def statistics(self) -> ProcessPoolStatistics:
        """Return what the pool has done so far, and what it is doing. Thread-safe."""
        policy = self._loop.policy
        return ProcessPoolStatistics(
            waiting=len(policy.waiting),
            running=policy.running,
            workers=len(policy.members),
            launches=policy.launches,
            renewals=policy.renewals,
            crashes=policy.crashes,
            ended=self._loop.ended,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the pool; close it at once after an error."""
        self.close(drain=kind is None)


def limits_of(
    workers: int | tuple[int, int],
    *,
    renew_after: int | None = None,
    renew_after_seconds: float | None = None,
    max_rss: int | None = None,
    idle_stop: float | None = None,
    prefetch: int = 32,
    launches_max: int = 5,
) -> PoolLimits:
    """Validate the options of a pool that its policy decides by.

    Raises:
        BadOption: one has a value that cannot work.

    """
    least, most = _bounds(workers)
    for option, value in (("renew_after", renew_after), ("max_rss", max_rss)):
        if value is not None:
            count(value, option, f"{option}=100", error=BadOption)
    for option, span in (("renew_after_seconds", renew_after_seconds), ("idle_stop", idle_stop)):
        if span is not None:
            seconds(span, option, f"{option}=60.0", zero=False, error=BadOption)
    return PoolLimits(
        least=least,
        most=most,
        prefetch=count(
            prefetch, "prefetch", "prefetch=2", least=0, most=_PREFETCH, error=BadOption
        ),
        renew_after=_or_never(renew_after),
        renew_after_seconds=_or_never(renew_after_seconds),
        max_rss=_or_never(max_rss),
        idle_stop=_or_never(idle_stop),
        launches_max=count(launches_max, "launches_max", "launches_max=5", error=BadOption),
    )


def _bounds(workers: Any) -> tuple[int, int]:
    """Return how many processes there are at least and at most."""
    example = "ProcessPool(4) or ProcessPool((1, 4))"
    if not isinstance(workers, tuple):
        return 0, count(workers, "workers", example, error=BadOption)
    if len(workers) != 2:  # noqa: PLR2004 - the least and the most
        msg = f"workers={workers!r} must be a number or (min, max), as in {example}"
        raise BadOption(msg)
    least = count(workers[0], "workers", example, least=0, error=BadOption)
    return least, count(workers[1], "workers", example, least=max(least, 1), error=BadOption)


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value


def launcher_of(given: Any) -> Launcher:
    """Return the launcher that the option `launcher` stands for."""
    if isinstance(given, str):
        choice(given, "launcher", ("forkserver", "spawn"), error=BadOption)
        return FORKSERVER if given == "forkserver" else Spawn()
    if not callable(getattr(given, "start", None)):
        msg = f"launcher={brief(given)} must be 'forkserver', 'spawn' or a Launcher"
        raise BadOption(msg)
    return given  # type: ignore[no-any-return]


_OPEN: WeakSet[ProcessPool] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all open pools when the interpreter ends."""
    for pool in list(_OPEN):
        pool.close()
