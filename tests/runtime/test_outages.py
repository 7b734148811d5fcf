"""An outage of a store is logged at its start, once a minute and at its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from actorflow.engine.errors import StoreRefused
from actorflow.runtime.telemetry.outages import Outage, outage_of

if TYPE_CHECKING:
    from collections.abc import Callable

Log = list[logging.LogRecord]


class Time:
    now = 1_000.0


@pytest.fixture
def outage() -> Outage:
    Time.now = 1_000.0
    return Outage(lambda: Time.now)


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_an_outage_has_a_line_at_the_start_one_a_minute_and_one_at_the_end(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    down = StoreRefused("it is down")
    for _ in range(8_000):  # 1,000 s
        outage.failed(down, "reading failed")
        Time.now += 0.125
    lines = texts(caplog)
    assert len(lines) == 17
    assert "for_s=0" in lines[0]
    assert "it is down" in lines[0]
    assert "for_s=960" in lines[16]
    outage.ended()
    outage.ended()
    assert ["after_s=1000.0" in line for line in texts(caplog)] == [True]


def test_a_store_that_fails_and_answers_in_turn_is_logged_once_a_minute(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1_000):  # 250 s
        outage.failed(OSError("no route"), "reading failed")
        Time.now += 0.125
        outage.ended()
        Time.now += 0.125
    assert len(texts(caplog)) == 10, "five times a start and an end"


def test_expected_errors_have_no_traceback_and_defects_do(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed(StoreRefused("down"), "reading failed")
    assert caplog.records[0].exc_info is None
    caplog.clear()
    outage.failed(KeyError("a defect"), "reading failed")
    (record,) = caplog.records
    assert "reading failed" in record.getMessage()
    assert record.exc_info is not None or "KeyError" in caplog.text


def test_all_parts_of_an_engine_share_the_outage_of_its_store() -> None:
    class Store:
        pass

    make: Callable[[], Store] = Store
    one, other = make(), make()
    assert outage_of(one) is outage_of(one)
    assert outage_of(one) is not outage_of(other)
