"""Messages by the clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.kinds.cron import next_time
from actorflow.runtime.errors import BadOption
from tests.engine.kinds import PATIENCE, quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import Engine
    from actorflow.testing import VirtualClock


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 9 * * *", "UTC", "2026-01-01T00:00:00", "2026-01-01T09:30:00"),
        ("30 9 * * *", "UTC", "2026-01-01T09:30:00", "2026-01-02T09:30:00"),
        ("30 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00", "2026-07-01T07:30:00"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("*/20 * * * * *", "UTC", "2026-01-01T00:00:39", "2026-01-01T00:00:40"),
        ("*/20 * * * * *", "UTC", "2026-01-01T00:00:40", "2026-01-01T00:01:00"),
        ("5,10-11 30 9 * * *", "UTC", "2026-01-01T09:30:10", "2026-01-01T09:30:11"),
        ("5 30 9 * * *", "UTC", "2026-01-01T09:30:05", "2026-01-02T09:30:05"),
    ],
)
def test_the_next_time(cron: str, zone: str, after: str, expected: str) -> None:
    assert next_time(cron, at(after), zone) == at(expected)


@pytest.mark.parametrize("cron", ["", "nonsense", "61 * * * *", "x * * * * *", "70 * * * * *"])
def test_what_cannot_be_read_is_refused(cron: str) -> None:
    with pytest.raises(BadOption, match="write for example"):
        next_time(cron, 0.0)
    with pytest.raises(BadOption):
        next_time("* * * * *", 0.0, "Moon/Base")


def test_a_schedule_pushes_and_outlives_the_engine(
    reopen: Callable[..., Engine], clock: VirtualClock
) -> None:
    pushed = threading.Semaphore(0)

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        for _ in batch:
            pushed.release()
        return [*state, *((message, clock.now()) for message in batch)]

    engine = reopen()
    engine.every("minutely", "* * * * *", engine.worker("w", job, state=[]), "tick")
    while not list(engine.store.rows("timers")):
        quiet(engine)
    quiet(engine)
    clock.advance(20.0)  # 1,020 s is a full minute
    assert pushed.acquire(timeout=PATIENCE)
    while not list(engine.store.rows("timers")):
        quiet(engine)
    engine.close()
    clock.advance(600.0)
    engine = reopen()
    worker = engine.worker("w", job, state=[])
    clock.advance(0.0)
    assert pushed.acquire(timeout=PATIENCE)
    while worker.depth():
        quiet(engine)
    assert worker.state() == [["tick", 1_020.0], ["tick", 1_620.0]]
    assert engine.cancel("cron:minutely")
    with pytest.raises(BadOption):
        engine.every("bad", "sometimes", worker, "tick")
