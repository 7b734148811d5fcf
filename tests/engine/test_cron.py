"""Messages by the clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actorflow.engine.cron import moments, next_time
from actorflow.engine.kind import Context, TimerFired
from actorflow.engine.kinds.cron import CronKind
from actorflow.runtime.errors import BadOption
from tests.engine.kinds import PATIENCE, quiet, rows, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine
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
        ("5/20 * * * * *", "UTC", "2026-01-01T00:00:26", "2026-01-01T00:00:45"),
        # a day of the month and a day of the week: either will do, with steps too
        ("0 0 13 * 5", "UTC", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("0 0 */2 * 1", "UTC", "2026-01-01T00:00:00", "2026-01-03T00:00:00"),
        ("0 0 */2 * 1", "UTC", "2026-01-11T00:00:00", "2026-01-12T00:00:00"),
        ("0 0 13 * */2", "UTC", "2026-02-01T00:00:00", "2026-02-03T00:00:00"),
        ("0 0 */1 * 1", "UTC", "2026-01-01T00:00:00", "2026-01-05T00:00:00"),
        ("0 0 1 sept *", "UTC", "2026-01-01T00:00:00", "2026-09-01T00:00:00"),
        ("0 0 * * monday", "UTC", "2026-01-01T00:00:00", "2026-01-05T00:00:00"),
        # clocks go forward from 02:00 to 03:00, and back from 03:00 to 02:00
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00", "2026-03-29T01:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00", "2026-10-26T01:30:00"),
        ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00", "2026-10-26T01:30:00"),
    ],
)
def test_the_next_time(cron: str, zone: str, after: str, expected: str) -> None:
    assert next_time(cron, at(after), zone) == at(expected)


@pytest.mark.parametrize(
    "cron",
    ["", "nonsense", "61 * * * *", "x * * * * *", "70 * * * * *", "* * * * * * *", "* * * * mondo"],
)
def test_what_cannot_be_read_is_refused(cron: str) -> None:
    with pytest.raises(BadOption, match="write for example"):
        next_time(cron, 0.0)


def expanded(field: str, low: int, high: int) -> set[int]:
    span, _, step = field.partition("/")
    first, dash, last = (str(low), "-", str(high)) if span == "*" else span.partition("-")
    return set(range(int(first), int(last if dash else first) + 1, int(step or 1)))


def fits(fields: tuple[str, ...], moment: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    days = moment.day in expanded(day, 1, 31)
    weekdays = moment.isoweekday() % 7 in expanded(weekday, 0, 6)
    either = "*" not in (day, weekday)
    return (
        moment.minute in expanded(minute, 0, 59)
        and moment.hour in expanded(hour, 0, 23)
        and moment.month in expanded(month, 1, 12)
        and (days or weekdays if either else days and weekdays)
    )


FIELDS = st.tuples(
    st.just("0"),
    st.sampled_from(["*", "0", "5-7", "*/6"]),
    st.sampled_from(["*", "1", "13", "29", "*/2", "28-31", "*/7"]),
    st.sampled_from(["*", "2", "6-8", "*/3"]),
    st.sampled_from(["*", "0", "1", "1-5", "*/2", "6"]),
)


@given(FIELDS, st.integers(0, 2_000_000_000))
def test_it_is_the_first_hour_that_fits(fields: tuple[str, ...], after: int) -> None:
    found = datetime.fromtimestamp(next_time(" ".join(fields), after), UTC)
    assert fits(fields, found)
    hour = max(datetime.fromtimestamp(after - after % 3600 + 3600, UTC), found - timedelta(days=9))
    while hour < found:
        assert not fits(fields, hour)
        hour += timedelta(hours=1)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
LINES = [
    "* * * * *",
    "30 2 * * *",
    "*/20 30 2 * * *",
    "*/30 1-3 * * *",
    "0 */2 * * sun",
    "5 0 29 2 *",
]


@given(st.sampled_from(LINES), st.sampled_from(ZONES), st.integers(0, 2_000_000_000))
@example("30 2 * * *", "Europe/Berlin", 1_774_656_000)  # the night before clocks go forward
@example("*/30 1-3 * * *", "Europe/Berlin", 1_792_886_400)  # before they go back
@example("*/20 30 2 * * *", "America/New_York", 1_793_491_200)
def test_one_moment_after_the_other_is_what_asking_each_time_gives(
    line: str, zone: str, after: int
) -> None:
    one_by_one = [float(after)]
    for _ in range(12):
        one_by_one.append(next_time(line, one_by_one[-1], zone))
    assert list(islice(moments(line, after, zone), 12)) == one_by_one[1:]


def test_the_moments_end_with_the_calendar() -> None:
    assert len(list(moments("0 0 1 1 *", at("9990-06-01T00:00:00")))) == 9


def test_a_zone_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadOption, match="no time zone 'Moon/Base'"):
        next_time("* * * * *", 0.0, "Moon/Base")


def test_a_line_that_never_comes_due_is_refused() -> None:
    with pytest.raises(BadOption, match="'0 0 31 2 \\*' never comes due"):
        next_time("0 0 31 2 *", 0.0)


def test_an_occurrence_is_not_repeated_although_the_clock_is_set_back() -> None:
    """The timer has fired, and then the machine was started again with an earlier time."""
    kind = CronKind()
    plan = {"cron": "* * * * *", "zone": "UTC", "to": "w", "kind": "worker", "body": "tick"}
    state = {**plan, "paused": False, "next": 1_020.0}
    fired = TimerFired(1, 1_020.0, "tick", 1_020.0)
    outcome = kind.run(Context("cron:minutely", 1_019.5), state, [fired])
    assert [message.body for message in outcome.messages] == ["tick"]
    assert outcome.state["next"] == 1_080.0


def test_a_schedule_pushes_and_outlives_the_engine(
    reopen: Callable[..., BareEngine], clock: VirtualClock
) -> None:
    pushed = threading.Semaphore(0)

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        for _ in batch:
            pushed.release()
        return [*state, *((message, clock.now()) for message in batch)]

    engine = reopen()
    engine.every("minutely", "* * * * *", engine.worker("w", job, state=[]), "tick")
    until(engine, lambda: rows(engine, "timers"))
    quiet(engine)
    clock.advance(20.0)  # 1,020 s is a full minute
    assert pushed.acquire(timeout=PATIENCE)
    until(engine, lambda: rows(engine, "timers"))
    engine.close()
    clock.advance(600.0)
    engine = reopen()
    worker = engine.worker("w", job, state=[])
    engine.resume()
    clock.advance(0.0)
    assert pushed.acquire(timeout=PATIENCE)
    until(engine, lambda: not worker.depth())
    assert worker.state() == [["tick", 1_020.0], ["tick", 1_620.0]]
    assert engine.cancel("cron:minutely")
    with pytest.raises(BadOption):
        engine.every("bad", "sometimes", worker, "tick")
