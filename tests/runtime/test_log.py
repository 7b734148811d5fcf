"""Logging: quiet by default, events with their facts on request, never in the way."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.runtime.log import EventLog
from tests.runtime.worker.probe import ended

if TYPE_CHECKING:
    import pytest

    from actorflow.testing import ManualLane


def breaks(batch: Any, state: Any) -> None:
    raise ValueError("broken")


def test_a_quiet_worker_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, logger="actorflow"),
        af.spawn(lambda batch, state: None) as worker,
    ):
        worker.push_block(1)
    assert caplog.records == []


def test_verbose_logs_each_batch_with_its_facts(
    caplog: pytest.LogCaptureFixture, lane: ManualLane
) -> None:
    with caplog.at_level(logging.DEBUG, logger="actorflow"):
        worker = af.spawn(lambda batch, state: None, executor=lane, verbose=True, name="chatty")
        for message in (1, 2, 3):
            worker.push(message)
        lane.run()
        worker.stop()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert all(text.startswith("event='batch'") and "chatty" in text for text in texts)
    assert "size=1" in texts[0]
    assert "size=2" in texts[1]
    assert "seconds=" in texts[0]


def test_verbose_costs_nothing_where_debug_is_off(
    caplog: pytest.LogCaptureFixture, lane: ManualLane
) -> None:
    with caplog.at_level(logging.INFO, logger="actorflow"):
        worker = af.spawn(lambda batch, state: None, executor=lane, verbose=True)
        worker.push(1)
        lane.run()
    assert caplog.records == []


def test_a_crash_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    worker = af.spawn(breaks, name="crashes")
    worker.push(1)
    ended(worker)
    (record,) = [r for r in caplog.records if "crashed" in r.getMessage()]
    assert record.name == "actorflow"
    assert record.levelno == logging.ERROR
    assert "crashes" in record.getMessage()
    assert "ValueError: broken" in caplog.text


def test_discarded_messages_are_logged(caplog: pytest.LogCaptureFixture, lane: ManualLane) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane)
    worker.push_many([1, 2, 3])
    worker.push_many([4, 5])
    worker.stop(drain=False, block=False)
    lane.run()
    assert "messages discarded" in caplog.text
    assert "count=2" in caplog.text


def test_each_level_is_written_only_where_it_is_enabled(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog("actorflow.test")
    names = ("debug", "info", "warning", "error", "critical")
    for at, level in enumerate(names):
        caplog.clear()
        with caplog.at_level(level.upper(), logger="actorflow.test"):
            for name in names:
                getattr(log, name)(f"a {name} event", fact=name)
        assert [record.levelname.lower() for record in caplog.records] == list(names[at:])
        assert all("fact=" in record.getMessage() for record in caplog.records)


def test_structlog_is_not_loaded_until_something_is_logged() -> None:
    script = (
        "import sys, actorflow as af\n"
        "with af.spawn(lambda batch, state: None) as worker:\n"
        "    worker.push_block(1)\n"
        "assert 'structlog' not in sys.modules\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
