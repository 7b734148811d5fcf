"""Durations, dates and cron lines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actorflow.flows.errors import FlowError
from actorflow.flows.values.times import (
    duration,
    next_cron,
    next_time,
    point_in_time,
    words_to_cron,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("2 days", 172800.0),
        ("5 minutes and 10 seconds", 310.0),
        ("1.5", 1.5),
        ("1w", 604800.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1 parsec", "1h later"])
def test_bad_durations_say_what_to_write(text: str) -> None:
    with pytest.raises(FlowError, match="write it like"):
        duration(text)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("line", "now", "expected"),
    [
        ("0 0 1 1 *", "2024-03-05 10:00:00", "2025-01-01 00:00:00"),
        ("0 0 1 jan *", "2024-03-05 10:00:00", "2025-01-01 00:00:00"),
        ("*/15 * * * *", "2024-03-05 10:07:30", "2024-03-05 10:15:00"),
        ("30 16 * * mon-fri", "2024-03-08 17:00:00", "2024-03-11 16:30:00"),
        ("0 12 13 * 5", "2024-09-10 00:00:00", "2024-09-13 12:00:00"),
        ("0 0 29 2 *", "2024-03-01 00:00:00", "2028-02-29 00:00:00"),
        ("* * * * * *", "2024-03-05 10:07:30", "2024-03-05 10:07:31"),
        ("0 0 * * 7", "2024-03-05 10:00:00", "2024-03-10 00:00:00"),
        ("0 0 */2 * 1", "2024-03-09 10:00:00", "2024-03-11 00:00:00"),
        ("0 0 */2 * 1", "2024-03-17 10:00:00", "2024-03-18 00:00:00"),
    ],
)
def test_cron_lines(line: str, now: str, expected: str) -> None:
    assert next_cron(line, at(now)) == at(expected)


@pytest.mark.parametrize(
    "line", ["", "* * *", "61 * * * *", "* * * * abc", "*/0 * * * *", "5-1 * * * *"]
)
def test_bad_cron_lines_are_refused(line: str) -> None:
    with pytest.raises(FlowError, match="cannot read cron"):
        next_cron(line, 0.0)


def test_a_cron_line_that_never_comes_is_refused() -> None:
    with pytest.raises(FlowError, match="never comes due"):
        next_cron("0 0 31 2 *", 0.0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("day at five", "0 5 * * *"),
        ("weekday at five", "0 5 * * 1,2,3,4,5"),
        ("day at 5 pm", "0 17 * * *"),
        ("tuesday at 5 pm", "0 17 * * 2"),
        ("day at 16:30", "30 16 * * *"),
        ("day at noon", "0 12 * * *"),
        ("tuesday and monday at 5pm", "0 17 * * 1,2"),
        ("wed or Monday at 5pm and 11", "0 11,17 * * 1,3"),
        ("hour", "0 * * * *"),
    ],
)
def test_words(words: str, line: str) -> None:
    assert words_to_cron(words) == line
    assert next_time("every", words, 0.0) == next_cron(line, 0.0)


def test_words_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="fortnight"):
        words_to_cron("fortnight at noon")
    with pytest.raises(FlowError, match="cannot read cron"):
        next_time(None, "blue moon", 0.0)


def test_kinds() -> None:
    assert next_time("in", "1s", 10.0) == 11.0
    assert next_time("at", "1970-01-01 00:01:00", 0.0) == 60.0
    assert next_time("cron", "* * * * *", 0.0) == 60.0
    assert next_time("every", "1 hour", 0.0) == 3600.0
    assert point_in_time("1970-01-01T00:00:10+00:00") == 10.0
    with pytest.raises(FlowError, match="cannot read time"):
        point_in_time("tomorrow")
