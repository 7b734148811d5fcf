"""Logging: events with their facts, written the way the program writes its own.

A program that has called `structlog.configure` gets actorflow's events through its own processors.
Any other gets them through the standard logger `actorflow`, as `key=value ...` with the traceback
on its own lines. Warnings and errors appear as with any library; what happens batch by batch is
logged at debug level, and only for workers spawned with `verbose=True`.

structlog is never imported here, only found, which keeps `import actorflow` light.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from typing import Any

from actorflow.behaviours.errors import kind_of
from actorflow.runtime.errors import encodable, shortened, traceback_of

__all__ = ["EventLog", "log"]


_HUGE = 100_000  # characters of the text of an error, from which on its traceback is shortened


class EventLog:
    """Writes events with their facts: `log.warning("rejected", worker="a", error="...")`.

    Writing never raises: whatever goes wrong while an event is rendered, be it in the `repr` of a
    user's object or in a user's processor, is part of the event that is written instead.

    Args:
        name: of the standard logger, and of the logger that structlog is asked for.

    """

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)

    def enabled(self, level: int) -> bool:
        """Return whether an event of that level would be written. Never raises.

        A level that is set on the standard logger counts for structlog too.
        """
        structlog = _configured_structlog()
        if structlog is None:
            return self._standard.isEnabledFor(level)
        try:
            return level >= self._standard.level and _lets_pass(self._bound(structlog), level)
        except BaseException as error:  # writing the event will report the error
            if _is_for_us(error):
                raise
            return True

    def debug(self, event: str, **facts: Any) -> None:
        """Write what happens in the normal course of things."""
        self._write(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Write what an operator may want to know."""
        self._write(logging.INFO, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Write what needs attention."""
        self._write(logging.WARNING, event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Write an event of level ERROR."""
        self._write(logging.ERROR, event, facts)

    def critical(self, event: str, **facts: Any) -> None:
        """Write an event of level CRITICAL."""
        self._write(logging.CRITICAL, event, facts)

    def _write(self, level: int, event: str, facts: dict[str, Any]) -> None:
        if not self.enabled(level):
            return
        if facts.get("exc_info") is True:  # while it is still the exception being handled
            facts["exc_info"] = sys.exc_info()[1]
        if isinstance(facts.get("exc_info"), BaseException) and not _is_plain(facts["exc_info"]):
            facts["exception"] = traceback_of(facts.pop("exc_info")).rstrip()
        structlog = _configured_structlog()
        try:
            if structlog is None:
                self._write_standard(level, event, facts)
            else:
                name = logging.getLevelName(level).lower()
                getattr(self._bound(structlog), name)(event, **facts)
        except BaseException as error:  # logging must not disturb the caller
            if _is_for_us(error):
                raise
            self._write_failed(level, event, facts, error)

    def _bound(self, structlog: Any) -> Any:
        return structlog.get_logger(self._standard.name).bind()

    def _write_standard(self, level: int, event: str, facts: dict[str, Any]) -> None:
        facts = {**_context_variables(), **facts}
        error = facts.pop("exc_info", None)
        # The event is the template and the facts are its argument, because collectors of errors
        # group records by template. Four frames up is the caller of `warning` and the others.
        template = render({"event": event})
        text = facts.pop("exception", None)
        if text is not None:
            self._standard.log(
                level, "%s\n%s", render({"event": event, **facts}), text, stacklevel=4
            )
        elif facts:
            template = template.replace("%", "%%") + " %s"
            self._standard.log(level, template, render(facts), exc_info=error, stacklevel=4)
        else:
            self._standard.log(level, template, exc_info=error, stacklevel=4)

    def _write_failed(
        self, level: int, event: str, facts: dict[str, Any], failure: BaseException
    ) -> None:
        try:
            self._write_standard(level, event, {**facts, "logging_failed": safe_repr(failure)})
        except BaseException as error:  # a handler or a filter raises: give up
            if _is_for_us(error):
                raise


def _is_plain(error: BaseException) -> bool:
    """Return whether the traceback of an error can be written as it is.

    It cannot if the text of the error, or of one before it, has megabytes or cannot be encoded, or
    if an attribute that tracebacks need raises: the class is the user's.
    """
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        try:
            if not isinstance(one, BaseException) or id(one) in seen:
                continue
            seen.add(id(one))
            _ = one.__class__, type(one).__module__, type(one).__qualname__
            waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        except BaseException:  # noqa: BLE001 - as above
            return False
        with suppress(BaseException):
            text = str(one)
            if len(text) > _HUGE or encodable(text) != text:
                return False
    return True


def _is_for_us(error: BaseException) -> bool:
    """Return whether it is Ctrl-C, or the like, that has struck the main thread while it logs.

    In any other thread, which is one of ours, it is a handler or a processor that raises.
    """
    main = threading.current_thread() is threading.main_thread()
    return main and not isinstance(error, Exception)


def render(facts: dict[str, Any]) -> str:
    """Return facts as one line.

    >>> render({"event": "worker crashed", "worker": "mailer", "dropped": 3})
    "event='worker crashed' worker='mailer' dropped=3"
    """
    return " ".join(f"{key}={safe_repr(value)}" for key, value in facts.items())


def safe_repr(value: object) -> str:
    """Return `repr(value)`, or what kind of object it is if that raises."""
    try:
        return shortened(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a `__repr__` may raise anything
        return f"<{kind_of(value)} whose repr raised {kind_of(error)}>"


def _configured_structlog() -> Any:
    """Return structlog if the program has configured it, else `None`."""
    structlog: Any = sys.modules.get("structlog")
    try:
        return structlog if structlog is not None and structlog.is_configured() else None
    except AttributeError:  # it is just being imported
        return None


def _context_variables() -> dict[str, Any]:
    """Return what the program has bound with `structlog.contextvars`."""
    contextvars: Any = sys.modules.get("structlog.contextvars")
    return {} if contextvars is None else contextvars.get_contextvars()


def _lets_pass(bound: Any, level: int) -> bool:
    """Return whether a bound logger of structlog would write an event of that level.

    Methods are looked up on the class: some loggers of structlog make an event of any attribute.
    """
    if hasattr(type(bound), "is_enabled_for"):  # the filtering ones
        return bool(bound.is_enabled_for(level))
    if hasattr(type(bound), "isEnabledFor"):  # the standard library's
        return bool(bound.isEnabledFor(level))
    return True


log = EventLog("actorflow")
"""The log of the whole library."""
