"""A small kind of execution, to be simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.engine import bodies
from actorflow.engine.kind import Message, Options, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.engine.kind import Context, Envelope
    from actorflow.engine.stores.protocol import ExecutionRow


class Sum:
    """Adds up what it is sent."""

    name = "sum"

    def options(self, execution: str) -> Options:
        return Options()

    def decode(self, data: bytes | None) -> int:
        return 0 if data is None else bodies.decode(data)

    def encode(self, state: int) -> bytes:
        return bodies.encode(state)

    def run(self, context: Context, state: int, batch: Sequence[Envelope]) -> Outcome:
        bodies_ = [each.body for each in batch if isinstance(each, Message)]
        if "no number" in bodies_:
            raise ValueError("no number")
        return Outcome(state=state + sum(bodies_))


def total(rows: Mapping[str, ExecutionRow], name: str) -> int:
    return Sum().decode(rows[name].state)
