"""Logging: structlog events through the standard `actorflow` logger, quiet by default.

Warnings and errors come through as with any library. What happens batch by batch is logged at
debug level, and only for workers spawned with `verbose=True`. structlog is loaded when the first
event is written, which keeps `import actorflow` light.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

__all__ = ["log"]


class EventLog:
    """Writes events with their facts: `log.warning("rejected", worker="a", error="...")`."""

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)

    @cached_property
    def _structured(self) -> Any:
        import structlog  # noqa: PLC0415 - heavy, and most programs never log an event

        return structlog.wrap_logger(
            self._standard,
            processors=[
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
        )

    def enabled(self, level: int) -> bool:
        """Tell whether an event of that level would be written anywhere."""
        return self._standard.isEnabledFor(level)

    def debug(self, event: str, **facts: Any) -> None:
        """Write what happens in the normal course of things."""
        if self.enabled(logging.DEBUG):
            self._structured.debug(event, **facts)

    def info(self, event: str, **facts: Any) -> None:
        """Write what an operator may want to know."""
        if self.enabled(logging.INFO):
            self._structured.info(event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Write what somebody should look at."""
        if self.enabled(logging.WARNING):
            self._structured.warning(event, **facts)

    def error(self, event: str, **facts: Any) -> None:
        """Write what went wrong."""
        if self.enabled(logging.ERROR):
            self._structured.error(event, **facts)

    def critical(self, event: str, **facts: Any) -> None:
        """Write what must not happen."""
        if self.enabled(logging.CRITICAL):
            self._structured.critical(event, **facts)


log = EventLog("actorflow")
"""The log of the whole library."""
