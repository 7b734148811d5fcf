"""The statistics of an engine for Prometheus. Needs the extra `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.prometheus import Families, require_prometheus

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

    Nothing is counted for it: each scrape takes the engine's statistics, which is O(1).

    Args:
        engine: the engine to show.
        name: its value of the label `engine`.

    Raises:
        ImportError: prometheus-client is not installed.

    """

    def __init__(self, engine: Engine, name: str = "default") -> None:
        require_prometheus()
        self._engine = engine
        self._name = name

    def collect(self) -> Iterator[Any]:
        """Yield what there is to scrape. Runs in the thread of the scrape."""
        families = Families(
            "actorflow_engine", ["engine"], help={**_GAUGES, **_COUNTERS}, counters=_COUNTERS,
            units={},
        )  # fmt: skip
        families.add([self._name], self._engine.statistics())
        yield from families
