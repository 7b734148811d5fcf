"""What the engines of these tests do: a desk that holds its tasks, a clerk that does them."""

from __future__ import annotations

from typing import Any

import actorflow as af
from tests.api.ledger import Ledger

NOT_CALLABLE = 7


def setup(engine: af.Engine) -> None:
    engine.register(Ledger())
    engine.tasker("desk", lambda _: af.HOLD)
    engine.tasker("clerk", lambda task: {**task.payload, "clerk": "was here"})
    engine.worker("counter", _count, state=0)


def _count(batch: list[Any], state: int) -> int:
    return state + len(batch)


def slow(engine: af.Engine) -> None:
    import threading  # noqa: PLC0415

    engine.tasker("desk", lambda _: threading.Event().wait())


def broken(_engine: af.Engine) -> None:
    msg = "no database"
    raise RuntimeError(msg)
