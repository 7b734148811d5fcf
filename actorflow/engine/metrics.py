"""The statistics of an engine for Prometheus. It needs the extra `web`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.engine import Engine

__all__ = ["EngineCollector"]

_GAUGES = {
    "live": "Executions in memory",
    "waiting": "Entries that wait for the next commit",
    "tasks": "Tasks that wait for their result",
}
_COUNTERS = {
    "commits": "Commits",
    "changes": "Changes in these commits",
    "messages": "Messages from outside that were stored",
    "refused": "Commits that the store refused",
    "lost": "Messages of a plain push that were lost with them",
    "timers_fired": "Timers that have fired",
    "tasks_done": "Tasks with a result",
    "tasks_failed": "Tasks that failed for good",
    "tasks_retried": "Attempts of tasks that failed",
}


class EngineCollector:
    """Register one: `prometheus_client.REGISTRY.register(EngineCollector(engine))`.

    Nothing is counted for it: each scrape takes a picture of the engine, at O(1).
    """

    def __init__(self, engine: Engine, name: str = "default") -> None:
        self._engine = engine
        self._name = name

    def collect(self) -> Iterator[Any]:
        """Give what there is to scrape. In the thread of the scrape."""
        from prometheus_client.core import (  # noqa: PLC0415 - an extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        found = asdict(self._engine.statistics())
        for made, names in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text in names.items():
                family = made(f"actorflow_engine_{name}", text, labels=["engine"])
                family.add_metric([self._name], found[name])
                yield family
