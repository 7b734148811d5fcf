"""Closed-loop traffic: clients that wait for an answer, think, and send the next message.

Unlike an arrival model they slow down when the worker does, and retry messages that are late or
refused, which can keep an overload alive after its cause has gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actorflow.lab.models.service import Cost, parse_service
from actorflow.lab.models.traffic import Draw, Fixed, Uniform
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.lab.models.traffic import Message

__all__ = ["ClientTraffic"]

_EXAMPLE = "clients(50, think=exp(100ms), timeout=1s, retries=2, backoff=100ms, duration=60s)"


@dataclass(frozen=True, slots=True)
class ClientTraffic:
    """`count` clients. Each sends a message, waits for the answer, thinks, and sends the next.

    A client that has waited for `timeout` seconds stops waiting; one that was refused, or has
    stopped waiting, tries again up to `retries` times, after `backoff` seconds that double each
    time. For simulation only: `measure` replays arrivals.
    """

    count: int
    think: Cost = field(default_factory=lambda: parse_service("exp(100ms)"))
    timeout: float | None = None
    retries: int = 0
    backoff: float = 0.1
    duration: float = 60.0
    keys: Draw = field(default_factory=lambda: Uniform(1_000))
    priorities: Draw = field(default_factory=lambda: Fixed(0))
    sizes: Draw = field(default_factory=Fixed)

    def __post_init__(self) -> None:
        """Validate the numbers and distributions."""
        for name, least in (("count", 1), ("retries", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                msg = f"{name}={value!r} must be a whole number, {least} or more, as in {_EXAMPLE}"
                raise BadOption(msg)
        for name in ("timeout", "backoff", "duration"):
            value = getattr(self, name)
            if value is not None and (type(value) not in (int, float) or not 0 < value < math.inf):
                msg = f"{name}={value!r} must be a positive number of seconds, as in {_EXAMPLE}"
                raise BadOption(msg)
        for name in ("keys", "priorities", "sizes"):
            if not isinstance(getattr(self, name), Draw):
                msg = f"{name}={getattr(self, name)!r} must be a distribution, as in {_EXAMPLE}"
                raise BadOption(msg)

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Refuse to be replayed: when clients send depends on the answers.

        Raises:
            BadOption: always.

        """
        msg = (
            "clients(...) depend on the answers, so they can be simulated, and not replayed; use "
            "an arrival model such as poisson(500) here"
        )
        raise BadOption(msg)
