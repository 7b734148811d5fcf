"""Logging: quiet by default, through the program's own configuration, never in the way."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import structlog

import actorflow as af
from actorflow.runtime.log import EventLog, log
from tests.runtime.worker.probe import ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


def test_structlog_is_never_loaded_by_us() -> None:
    script = (
        "import sys, actorflow as af\n"
        "from actorflow.runtime.log import log\n"
        "with af.spawn(lambda batch, state: None) as worker:\n"
        "    worker.push_block(1)\n"
        "assert 'asyncio' not in sys.modules\n"
        "log.error('something', number=1)\n"
        "assert 'structlog' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stderr == "event='something' number=1\n"


# Without a configuration of structlog.


class Hostile:
    """An object whose repr and str raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


class HostileError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_a_traceback_stands_on_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    try:
        breaks([], None)
    except ValueError:
        log.error("it broke", worker="mailer", exc_info=True)
    (record,) = caplog.records
    assert record.getMessage() == "event='it broke' worker='mailer'"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    text = caplog.text
    assert "\nTraceback (most recent call last):\n" in text
    assert text.endswith("\nValueError: broken\n")
    assert record.funcName == "test_a_traceback_stands_on_its_own_lines"


def test_an_error_may_be_given_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    log.error("it broke", exc_info=KeyError("k"))
    log.error("nothing is being handled", exc_info=True)
    first, second = caplog.records
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], KeyError)
    assert not second.exc_info


def test_events_with_percent_signs_and_without_facts(caplog: pytest.LogCaptureFixture) -> None:
    log.error("100 % of %s", share="50 %d")
    log.error("100 %")
    assert [record.getMessage() for record in caplog.records] == [
        "event='100 % of %s' share='50 %d'",
        "event='100 %'",
    ]
    assert caplog.records[0].msg == "event='100 %% of %%s' %s"  # one template for one event


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), RecursionError()])
def test_m22_what_cannot_be_shown_is_logged_all_the_same(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    log.error("odd", message=Hostile(error), count=1)
    assert f"message=<Hostile whose repr raised {type(error).__name__}> count=1" in caplog.text


def test_m22_an_error_that_cannot_be_shown_has_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> None:
        raise HostileError

    try:
        fails()
    except HostileError as error:
        log.error("odd", error=error, exc_info=True)
    assert "<HostileError whose repr raised ValueError>" in caplog.text
    assert "Traceback" in caplog.text


def test_a_filter_of_the_program_that_raises_disturbs_nobody() -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise ValueError("no")

    logger = logging.getLogger("actorflow.filtered")
    logger.addFilter(refuse)
    EventLog("actorflow.filtered").error("something")


@pytest.mark.parametrize("rude", [SystemExit, KeyboardInterrupt], ids=lambda kind: kind.__name__)
def test_a_handler_that_wants_to_exit_keeps_no_caller_waiting(rude: type[BaseException]) -> None:
    class Exits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise rude

    logger, handler = logging.getLogger("actorflow"), Exits()
    logger.addHandler(handler)
    try:
        worker = af.spawn(breaks)
        with pytest.raises(ValueError, match="broken"):
            worker.push_block("message")
        with pytest.raises(rude):  # in the main thread it is for the program
            log.error("something")
    finally:
        logger.removeHandler(handler)


def test_bound_context_variables_are_part_of_events(caplog: pytest.LogCaptureFixture) -> None:
    with structlog.contextvars.bound_contextvars(request="r-1"):
        log.error("something", count=2)
    assert "event='something' request='r-1' count=2" in caplog.text


# With a configuration of structlog.


@pytest.fixture
def configure() -> Iterator[Callable[..., None]]:
    """Return `structlog.configure`; the defaults are restored afterwards."""
    yield structlog.configure
    structlog.reset_defaults()


def test_the_processors_of_the_program_apply(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    entries = structlog.testing.LogCapture()
    configure(processors=[structlog.contextvars.merge_contextvars, entries])
    with structlog.contextvars.bound_contextvars(request="r-1"):
        log.info("something", worker="mailer", count=2)
    assert entries.entries == [
        {"event": "something", "worker": "mailer", "count": 2, "request": "r-1",
         "log_level": "info"}
    ]  # fmt: skip
    assert caplog.records == []


def test_json_where_the_program_writes_json(
    configure: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    try:
        breaks([], None)
    except ValueError:
        log.error("it broke", worker="mailer", exc_info=True)
    entry = json.loads(capsys.readouterr().out)
    assert entry["event"] == "it broke"
    assert entry["worker"] == "mailer"
    assert entry["level"] == "error"
    assert entry["exception"][0]["exc_type"] == "ValueError"


def test_a_console_shows_the_traceback_readably(
    configure: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(
        processors=[
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        ],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    worker = af.spawn(breaks, name="fragile")
    worker.push(1)
    ended(worker)
    text = capsys.readouterr().out
    assert "fragile" in text
    assert "\nTraceback (most recent call last):\n" in text
    assert "\nValueError: broken\n" in text


@pytest.mark.parametrize("kind", ["filtering", "standard"])
def test_levels_are_those_of_the_program(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    entries = structlog.testing.LogCapture()
    if kind == "filtering":
        configure(
            processors=[entries],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        )
    else:
        configure(
            processors=[structlog.stdlib.filter_by_level, entries],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
        logging.getLogger("actorflow.levels").setLevel(logging.WARNING)
    log = EventLog("actorflow.levels")
    assert not log.enabled(logging.INFO)
    assert log.enabled(logging.WARNING)
    for name in ("debug", "info", "warning", "error", "critical"):
        getattr(log, name)("something")
    levels = [entry["log_level"] for entry in entries.entries]
    assert levels == ["warning", "error", "critical"]


def test_a_level_of_the_standard_logger_counts_for_structlog_too(
    configure: Callable[..., None],
) -> None:
    entries = structlog.testing.LogCapture()
    configure(processors=[entries])
    logging.getLogger("actorflow.quiet").setLevel(logging.ERROR)
    quiet = EventLog("actorflow.quiet")
    quiet.warning("not this one")
    quiet.error("this one")
    assert [entry["event"] for entry in entries.entries] == ["this one"]


def test_a_generic_logger_of_structlog_is_asked_no_questions(
    configure: Callable[..., None],
) -> None:
    entries = structlog.testing.LogCapture()
    configure(processors=[entries], wrapper_class=structlog.BoundLogger)
    assert log.enabled(logging.DEBUG)
    log.warning("something")
    assert [entry["event"] for entry in entries.entries] == ["something"]


def test_m22_a_processor_that_fails_does_not_lose_the_event(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    configure(processors=[structlog.processors.JSONRenderer()])
    log.error("odd", message=Hostile(ValueError("no")))
    assert "event='odd' message=<Hostile whose repr raised ValueError>" in caplog.text
    assert "logging_failed=\"ValueError('no')\"" in caplog.text


def test_a_configuration_that_cannot_work_here_does_not_lose_events(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    def no_logger(*_: object) -> None:
        raise RuntimeError("no running event loop")

    configure(logger_factory=no_logger)
    log.error("something")
    assert "event='something' logging_failed=" in caplog.text


def test_an_error_with_text_that_cannot_be_encoded_reaches_a_log_file(tmp_path: Path) -> None:
    """A handler that writes UTF-8 would fail on a lone surrogate and lose the line."""

    def fails(batch: list[str], _: None) -> None:
        raise ValueError(batch[0])

    handler = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logger = logging.getLogger("actorflow")
    logger.addHandler(handler)
    try:
        with pytest.raises(af.WorkerCrashed), af.spawn(fails) as worker, suppress(ValueError):
            worker.push_block("\ud800")
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert "ValueError: \\ud800" in (tmp_path / "log").read_text(encoding="utf-8")
