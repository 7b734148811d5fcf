"""The figures of an engine and of its store for Prometheus. Needs the extra `web`."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine.kind import Status
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.telemetry.prometheus import Families, require_prometheus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from actorflow.engine.stores.protocol import Page, Store

__all__ = ["PROBE", "EngineCollector", "StoreCollector"]

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
    "events_left": "Events that no wait had taken when their workflows ended",
}


class _Counted(Protocol):
    def statistics(self) -> Any:
        """Return a picture of the engine. O(1)."""


class EngineCollector:
    """Register one: `prometheus_client.REGISTRY.register(EngineCollector(engine))`.

    Nothing is counted for it: each scrape takes the engine's statistics, which is O(1).

    Args:
        engine: the engine to show.
        name: its value of the label `engine`.

    Raises:
        ImportError: prometheus-client is not installed.

    """

    def __init__(self, engine: _Counted, name: str = "default") -> None:
        require_prometheus()
        self._engine = engine
        self._name = name

    def collect(self) -> Iterator[Any]:
        """Yield the metrics. Runs in the thread of the scrape."""
        families = Families(
            "actorflow_engine", ["engine"], help={**_GAUGES, **_COUNTERS}, counters=_COUNTERS,
            units={},
        )  # fmt: skip
        families.add([self._name], self._engine.statistics())
        yield from families


_FRESH = 10.0  # seconds for which figures of the store are shown again
_PAGE = 1_000
_MOST = 10_000  # rows that are counted; an alert needs no more
PROBE = "actorflow.probe"
"""An execution that does not exist: looking it up shows whether the store answers."""


class StoreCollector:
    """Shows stuck executions, dead letters, and the members of a cluster with their lag.

    A scrape reads the store at most every 10 s. Stuck executions and dead letters are counted up
    to 10,000. If the store does not answer, `actorflow_store_up` is 0 and the rest is missing.

    Args:
        store: the store of an engine.

    Raises:
        ImportError: prometheus-client is not installed.

    """

    def __init__(self, store: Store) -> None:
        require_prometheus()
        self._store = store
        self._lock = threading.Lock()
        self._found: list[Any] = []
        self._until = 0.0

    def describe(self) -> list[Any]:
        """Return nothing: registering must not read the store."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics. Runs in the thread of the scrape."""
        with self._lock:
            if perf_counter() >= self._until:
                self._found = self._read()
                self._until = perf_counter() + _FRESH
            yield from self._found

    def _read(self) -> list[Any]:
        try:
            return [_gauge("up", "Whether the store answers", 1), *self._figures()]
        except (ActorflowError, OSError):
            # The engine logs the outage; here it is a figure.
            return [_gauge("up", "Whether the store answers", 0)]

    def _figures(self) -> Iterator[Any]:
        store = self._store
        begin = perf_counter()
        store.execution(PROBE)
        yield _gauge(
            "read_seconds", "How long the store took to find a row", perf_counter() - begin
        )
        stuck = _counted(lambda after: store.listing(status=Status.STUCK, after=after, limit=_PAGE))
        yield _gauge("stuck_executions", "Executions that wait for a fix", stuck)
        dead = _counted(lambda after: store.dead(after=after, limit=_PAGE))
        yield _gauge("dead_letters", "Messages that could not be processed", dead)
        status = getattr(store, "status", None)
        if status is not None:
            yield from _members(status())


def _members(found: Any) -> Iterator[Any]:
    yield _gauge("members", "Workers that are alive", len(found.members))
    yield _gauge("unowned_partitions", "Partitions without a worker", len(found.unowned))
    owned = {each.name: len(each.partitions) for each in found.members}
    yield _labelled("member_partitions", "Partitions of a worker", "member", owned)
    lags = {each.name: each.lag for each in found.members}
    text = "How long the oldest message has waited in the partitions of a worker"
    yield _labelled("member_lag_seconds", text, "member", lags)
    for name, text in (
        ("executions", "Active executions in the partitions of a worker"),
        ("messages", "Messages that wait in the partitions of a worker"),
    ):
        unit = "_seconds" if name == "lag" else ""
        values = {each.name: getattr(each, name) for each in found.members}
        sizes = {
            key: value if name != "partitions" else len(value) for key, value in values.items()
        }
        yield _labelled(f"member_{name}{unit}", text, "member", sizes)
    tasks = {each.tasker: each.open for each in found.tasks}
    yield _labelled("open_tasks", "Tasks that have not ended", "tasker", tasks)


def _gauge(name: str, text: str, value: float) -> Any:
    return require_prometheus().GaugeMetricFamily(f"actorflow_store_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Any:
    made = require_prometheus().GaugeMetricFamily(f"actorflow_store_{name}", text, labels=[label])
    for key, value in values.items():
        made.add_metric([key], value)
    return made


def _counted(read: Callable[[Any], Page[Any]]) -> int:
    """Return how many rows there are, at most `_MOST`."""
    count, after = 0, None
    while count < _MOST:
        page = read(after)
        count += len(page.rows)
        after = page.after
        if after is None:
            break
    return min(count, _MOST)
