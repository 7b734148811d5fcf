"""A crew: worker processes that come with demand, are renewed, and may crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.process.call import Call, Ended
    from actorflow.runtime.lanes.process.launcher import Launcher

__all__ = ["Crew", "CrewStatistics"]


@dataclass(frozen=True, slots=True)
class CrewStatistics:
    """What a crew has done so far, and what it is doing."""

    waiting: int
    running: int
    workers: int
    launches: int
    renewals: int
    crashes: int
    ended: int
    """Calls that have ended, in whichever way."""


class Crew:
    """Calls functions in worker processes. Thread-safe.

    Args:
        workers: how many processes at once: n, or (min, max) to start more with demand.
        launcher: what starts them: "forkserver", "spawn", or a `Launcher`.
        renew_after: calls after which a process is replaced by a fresh one.
        renew_after_seconds: seconds after which a process is replaced.
        max_rss: bytes of resident memory from which on a process is replaced.
        idle_stop: seconds without a call after which a process ends, down to min.
        setup: a function that each process calls once, before its first call.
        prefetch: how many calls a process holds beyond the one that it runs.
        launches_max: launches that may fail in a row before all that waits fails.
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
        prefetch: int = 1,
        launches_max: int = 5,
        name: str = "crew",
        clock: Clock | None = None,
    ) -> None:
        raise NotImplementedError

    def submit(self, calls: Call | Iterable[Call], ended: Callable[[Ended], object]) -> None:
        """Queue calls; `ended(Ended)` is called once for each, in the crew's thread.

        Never blocks. `ended` must be short; what it raises is logged.

        Raises:
            BadOption: a call has options that cannot work, or its id is in hand already.
            WorkerStopped: the crew is closed.

        """
        raise NotImplementedError

    def cancel(self, id: Hashable, error: BaseException | None = None) -> None:  # noqa: A002
        """End a call as cancelled: kill its process if it runs. Does nothing when it has ended.

        It is reported through `ended`, with that error if one is given.
        """
        raise NotImplementedError

    def close(self, *, drain: bool = False, timeout: float | None = None) -> None:
        """End all processes and wait for them; calls that have not ended are cancelled.

        With `drain`, calls that were submitted end first, for at most `timeout` seconds.
        """
        raise NotImplementedError

    def statistics(self) -> CrewStatistics:
        """Return what the crew has done so far, and what it is doing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the crew; close it at once after an error."""
        self.close(drain=kind is None)
