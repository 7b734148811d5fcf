"""How user code asks for the end of its own actor or worker."""

from __future__ import annotations

from actorflow.runtime.exits import ExitReason, Normal, Shutdown

__all__ = ["Stop"]


class Stop(Exception):
    """Return or raise this from a hook or a job to end the actor.

    >>> Stop().reason, Stop("enough").reason
    (Normal(), Shutdown(detail='enough'))
    """

    reason: ExitReason = Normal()  # also for a subclass whose `__init__` does not call this one's

    def __init__(self, reason: object = None) -> None:
        super().__init__(reason)
        if isinstance(reason, ExitReason):
            self.reason = reason
        elif reason is not None:
            self.reason = Shutdown(reason)
