"""A lane without threads: actors run when the test says so, in its own thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.lanes.uninterruptible import hand_over

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable, Waiter

__all__ = ["ManualLane"]


class ManualLane:
    """Holds submitted work until `run` or `step` is called.

    >>> import actorflow as af
    >>> lane = ManualLane()
    >>> worker = af.spawn(lambda batch, state: print(batch), executor=lane)
    >>> for message in (1, 2, 3):
    ...     worker.push(message)
    >>> lane.run()
    [1]
    [2, 3]
    >>> worker.stop()
    True
    """

    can_help = False

    def __init__(self) -> None:
        self._ready: deque[Runnable] = deque()

    def submit(self, runnable: Runnable, /) -> None:
        """Hold the runnable for the next `run`. Thread-safe."""
        self._ready.append(runnable)

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to this lane; return whether there was one. Thread-safe."""
        return hand_over(idle, self._ready.append)

    def release(self) -> None:
        """Do nothing: the lane may serve other actors too."""

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Run submitted work until the ticket is resolved; return whether it was.

        Raises:
            WouldDeadlock: nothing is left to run and there is no timeout, so it never would be.

        """
        while not ticket.resolved and self.step():
            pass
        if not ticket.resolved and timeout is None:
            msg = "nothing is left to run, so this would wait forever"
            raise WouldDeadlock(msg)
        return ticket.resolved

    def step(self) -> bool:
        """Run the work that was submitted first; return whether there was any."""
        if not self._ready:
            return False
        self._ready.popleft().run()
        return True

    def run(self) -> None:
        """Run everything that was submitted, and everything that this submits."""
        while self.step():
            pass

    def __len__(self) -> int:
        return len(self._ready)
