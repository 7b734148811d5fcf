"""What `executor="process"` means: the options of the processes of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.processes.launcher import Launcher

__all__ = ["Processes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """What `executor="process"` means, with other values than the usual ones.

    >>> Processes(renew_after=100, timeout=60.0).renew_after
    100
    """

    launcher: str | Launcher = "forkserver"
    """What starts processes: "forkserver", "spawn", or a `Launcher`."""
    setup: Callable[[], object] | None = None
    """A function that each process calls once, before its first batch."""
    renew_after: int | None = None
    """Batches after which a process is replaced by a fresh one."""
    renew_after_seconds: float | None = None
    """Seconds after which a process is replaced."""
    max_rss: int | None = None
    """Bytes of resident memory from which on a process is replaced."""
    idle_stop: float | None = None
    """Seconds without a batch after which a process ends; the next batch starts another."""
    launches_max: int = 5
    """Launches that may fail in a row before the batch fails."""
    timeout: float | None = None
    """Seconds for each batch; then its process is killed."""
    memory: int | None = None
    """Bytes that a process may allocate for one batch."""

    def __post_init__(self) -> None:
        from actorflow.runtime.processes.call import ProcessCall  # noqa: PLC0415 - loads processes
        from actorflow.runtime.processes.packed import Packed  # noqa: PLC0415
        from actorflow.runtime.processes.process_pool import launcher_of, limits_of  # noqa: PLC0415

        launcher_of(self.launcher)
        if self.setup is not None:
            function(self.setup, "setup", "Processes(setup=load_model)", error=BadOption)
        limits_of(
            1,
            renew_after=self.renew_after,
            renew_after_seconds=self.renew_after_seconds,
            max_rss=self.max_rss,
            idle_stop=self.idle_stop,
            launches_max=self.launches_max,
        )
        ProcessCall(0, Packed(b""), timeout=self.timeout, memory=self.memory).check()

    def pool_options(self) -> dict[str, Any]:
        """Return what applies to the processes, not to each call."""
        return {name: getattr(self, name) for name in _POOL_OPTIONS}


_POOL_OPTIONS = (
    "launcher",
    "setup",
    "renew_after",
    "renew_after_seconds",
    "max_rss",
    "idle_stop",
    "launches_max",
)
