"""What an executor is told to do besides processing a batch, and how a worker stops."""

from __future__ import annotations

from enum import Enum

from actorflow.runtime.errors import BadOption

__all__ = ["Order", "StopMode", "WorkerStatus"]


class Order(Enum):
    """What `Accumulator.next_step` may say instead of giving a batch."""

    SERVE = "serve"
    """Somebody has asked the executor something."""
    IDLE = "idle"
    """The idle timeout has passed."""
    END = "end"
    """The worker is to end: run `on_stop`, and say when that is done."""


class StopMode(Enum):
    """How a worker stops. A later request can make an earlier one harder, never softer."""

    DRAIN = "drain"
    """Process what is accumulated, then end. New messages are refused."""
    FINISH = "finish"
    """Finish the current batch, discard what is accumulated."""
    NOW = "now"
    """End at once; a job that is running goes on in its thread, cut off from everything."""

    @classmethod
    def asked_for(cls, *, drain: bool | None, now: bool) -> StopMode:
        """Give the mode that the options of a `stop` ask for.

        Raises:
            BadOption: they contradict each other.

        """
        if now and drain:
            msg = "stop(drain=True, now=True) cannot both be: choose one"
            raise BadOption(msg)
        return cls.NOW if now else cls.FINISH if drain is False else cls.DRAIN

    def harder_than(self, other: StopMode | None) -> bool:
        """Tell whether this mode waits for less than the other."""
        order = list(StopMode)
        return other is None or order.index(self) > order.index(other)


class WorkerStatus(Enum):
    """What a worker is doing, as seen from outside."""

    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    """Messages are held until their time comes (throttle, linger, debounce)."""
    RESTARTING = "restarting"
    """The executor has ended; its supervisor is about to start another."""
    PARKED = "parked"
    """The executor crashed too often: messages accumulate until `resume()`."""
    STOPPING = "stopping"
    DEAD = "dead"
