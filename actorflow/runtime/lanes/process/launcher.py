"""The protocol of launchers: what starts the processes of a crew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket

__all__ = ["Handle", "Launcher"]


class Handle(Protocol):
    """A process that was started."""

    pid: int | None
    """Its id; `None` while it is not known."""

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the process has ended."""

    def alive(self) -> bool:
        """Return whether the process has not ended yet. Never blocks."""

    def kill(self) -> None:
        """End the process at once. Thread-safe; does nothing when it has ended."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the process has ended; return its exit code, or `None` if it has not.

        A negative code is the number of the signal that ended it. Releases the file descriptor.
        """


class Launcher(Protocol):
    """Starts the processes of a crew. One launcher may serve several crews."""

    def start(self, worker_id: int, endpoint: socket.socket) -> Handle:
        """Start a process that calls `serve(endpoint)`, from `.child`. In the crew's thread.

        The endpoint stays open here: the crew closes it.

        Raises:
            OSError, RuntimeError: no process can be started; the crew tries again for a while.

        """

    def close(self) -> None:
        """End what the launcher holds for itself. Its processes have ended before."""
