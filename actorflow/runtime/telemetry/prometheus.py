"""Statistics for Prometheus: workers, servers, supervisors and the pool. Needs the extra `web`.

Nothing is counted for Prometheus: each scrape takes the statistics that exist anyway. One metric
family stands for one field of a statistics dataclass, so a new field appears by itself:

| field | family |
|---|---|
| a number that only grows | a counter, `..._total` |
| any other number | a gauge |
| `dict[int, int]`, counts by upper bound | a histogram |
| `dict[str, int]`, counts by kind | a counter; `reasons` has the label `reason` |
| a dataclass | the families of its fields |
| an enum | a gauge that is 1; `phase` has the label `phase` |
| `None` | nothing: there is no value yet |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime import registry
from actorflow.runtime.errors import WorkerStopped, install_hint
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

__all__ = ["Collector", "Families", "require_prometheus"]

_WORKER = {
    "accepted": "Messages accepted",
    "rejected": "Messages rejected: bound reached, or malformed",
    "processed": "Messages processed",
    "failed": "Messages whose batch failed",
    "replaced": "Messages replaced by a newer one with the same key",
    "merged": "Messages merged into another one",
    "dropped": "Messages dropped to make room",
    "expired": "Messages that waited longer than their time to live",
    "abandoned": "Messages whose callers had given up before they were processed",
    "dead_lettered": "Messages put into the dead letter box",
    "discarded": "Messages accumulated when the worker stopped",
    "batches": "Batches handed to the job",
    "batch_sizes": "Batches by their number of messages",
    "reasons": "Batches by the reason for which they left",
    "restarts": "Restarts of the executor",
    "held": "Messages accumulated now",
    "depth": "Messages accumulated now",
    "in_flight": "Messages in the job now",
    "concurrency": "Batches that may be in flight now",
    "dead_letters": "Messages in the dead letter box now",
    "busy": "Share of the time that is spent inside the job",
    "oldest_age": "How long the oldest accumulated message has waited",
    "latency_p50": "Median time from push to the end of the batch",
    "latency_p99": "99th percentile of the time from push to the end of the batch",
    "wait_p50": "Median time from push to the start of the batch",
    "wait_p99": "99th percentile of the time from push to the start of the batch",
    "service_p50": "Median time inside the job",
    "service_p99": "99th percentile of the time inside the job",
}
_SUPERVISOR = {
    "phase": "Phase of the supervisor's life",
    "children_specs": "Specified children",
    "children_active": "Children alive",
    "children_supervisors": "Children that are supervisors",
    "children_workers": "Children that are workers",
    "restarts": "Attempts to restart a child",
    "waiting": "Requests and exits that wait for the supervisor",
}
_POOL = {
    "threads": "Threads of the pool",
    "idle": "Threads that wait for work",
    "waiting": "Actors that wait for a thread",
    "runs": "Runs of actors",
    "grown": "Threads started",
}
_COUNTERS = frozenset(
    {
        "accepted", "rejected", "processed", "failed", "replaced", "merged", "dropped", "expired",
        "abandoned", "dead_lettered", "discarded", "batches", "restarts", "runs", "grown",
    }
)  # fmt: skip
_UNITS = {
    "busy": "ratio",
    "oldest_age": "seconds",
    **dict.fromkeys(
        (f"{what}_{share}" for what in ("latency", "wait", "service") for share in ("p50", "p99")),
        "seconds",
    ),
}


def require_prometheus() -> Any:
    """Return `prometheus_client.core`.

    Raises:
        ImportError: it is not installed.

    """
    try:
        from prometheus_client import core  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = f"metrics for Prometheus need prometheus-client: {install_hint('web')}"
        raise ImportError(msg, name="prometheus_client") from error
    return core


class Families:
    """The metric families of several statistics objects of one kind.

    Args:
        prefix: how each family's name begins: `actorflow_worker`.
        labels: the names of the labels that tell the objects apart.
        help: texts by the name of a field; a field without one is its own text.
        counters: fields that only grow.
        units: suffixes of names, by field.

    """

    def __init__(
        self,
        prefix: str,
        labels: Iterable[str],
        *,
        help: Mapping[str, str],  # noqa: A002 - Prometheus' word for it
        counters: Iterable[str],
        units: Mapping[str, str],
    ) -> None:
        self._core = require_prometheus()
        self._prefix = prefix
        self._labels = list(labels)
        self._help = help
        self._counters = frozenset(counters)
        self._units = units
        self._made: dict[str, Any] = {}

    def add(self, values: Iterable[str], statistics: Any, *, prefix: str = "") -> None:
        """Add the fields of a statistics object, which the label values stand for."""
        values = list(values)
        for field in fields(statistics):
            self._add(values, f"{prefix}{field.name}", getattr(statistics, field.name, None))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._made.values())

    def _add(self, values: list[str], name: str, value: Any) -> None:
        core = self._core
        match value:
            case bool() | int() | float():
                kind = core.GaugeMetricFamily
                if name in self._counters:
                    kind = core.CounterMetricFamily
                self._family(name, kind).add_metric(values, value)
            case Enum():
                family = self._family(name, core.GaugeMetricFamily, name)
                family.add_metric([*values, value.name.lower()], 1)
            case dict() if _is_histogram(name, value):
                family = self._family(name, core.HistogramMetricFamily)
                family.add_metric(values, _buckets(value), sum_value=None)
            case dict():
                family = self._family(name, core.CounterMetricFamily, name.removesuffix("s"))
                for kind, count in value.items():
                    family.add_metric([*values, str(kind)], count)
            case _ if is_dataclass(value):
                self.add(values, value, prefix=f"{name}_")

    def _family(self, name: str, kind: Any, *labels: str) -> Any:
        family = self._made.get(name)
        if family is None:
            unit = f"_{self._units[name]}" if name in self._units else ""
            text = self._help.get(name, name.replace("_", " "))
            family = self._made[name] = kind(
                f"{self._prefix}_{name}{unit}", text, labels=[*self._labels, *labels]
            )
        return family


def _buckets(counts: dict[int, int]) -> list[tuple[str, float]]:
    """Make the cumulative buckets of a histogram of counts by upper bound."""
    # Powers of two without a count are shown too, so that workers have the same buckets.
    powers = {1 << at for at in range(max(counts, default=0).bit_length())}
    total, buckets = 0, []
    for bound in sorted(powers | counts.keys()):
        total += counts.get(bound, 0)
        buckets.append((str(float(bound)), float(total)))
    return [*buckets, ("+Inf", float(total))]


class Collector:
    """Register one: `prometheus_client.REGISTRY.register(Collector())`.

    It shows every worker and every supervisor that runs under a name (`af.spawn(job, name=...)`) as
    `actorflow_worker_*{worker="name"}` and `actorflow_supervisor_*{supervisor="name"}`, the pool
    that they share as `actorflow_pool_*`, and the workers of the servers that it is given with a
    second label, `server`.

    Args:
        servers: servers by the name to show for them.

    Raises:
        ImportError: prometheus-client is not installed.

    """

    def __init__(self, servers: Mapping[str, Any] | None = None) -> None:
        require_prometheus()
        self._servers = dict(servers or {})

    def describe(self) -> list[Any]:
        """Return nothing: which families there are depends on what runs."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics. Runs in the thread of the scrape; O(1) per worker."""
        workers = self._families(
            "worker", _WORKER, ["server", "worker"] if self._servers else ["worker"]
        )
        supervisors = self._families("supervisor", _SUPERVISOR, ["supervisor"])
        pool = self._families("pool", _POOL, ["pool"])
        named = dict(registry._names)  # noqa: SLF001 - one room
        for label, (name, ref) in zip(_labels(named), named.items(), strict=True):
            statistics = _statistics(name, ref)
            if hasattr(statistics, "accepted"):
                workers.add(["", label] if self._servers else [label], statistics)
            elif hasattr(statistics, "children"):
                supervisors.add([label], statistics)
        for shown, (server_name, server) in zip(
            _labels(self._servers), self._servers.items(), strict=True
        ):
            found = _statistics(server_name, server) or {}
            for label, statistics in zip(_labels(found), found.values(), strict=True):
                workers.add([shown, label], statistics)
        pool.add([POOL.name], POOL.statistics())
        yield from workers
        yield from supervisors
        yield from pool

    @staticmethod
    def _families(what: str, texts: Mapping[str, str], labels: list[str]) -> Families:
        return Families(f"actorflow_{what}", labels, help=texts, counters=_COUNTERS, units=_UNITS)


def _labels(names: Iterable[Hashable]) -> list[str]:
    """Return the text of each name; where two have the same, as 5 and "5", what tells them apart.

    Prometheus rejects the whole scrape if two samples have the same labels.
    """
    given = list(names)
    texts = [_text(name) for name in given]
    often = Counter(texts)
    found = [
        text if often[text] == 1 else f"{type(name).__name__} {text}"
        for name, text in zip(given, texts, strict=True)
    ]
    seen: Counter[str] = Counter()
    for at, text in enumerate(found):
        seen[text] += 1
        if seen[text] > 1:
            found[at] = f"{text} ({seen[text]})"
    return found


def _text(name: Hashable) -> str:
    try:
        return str(name)
    except Exception:  # noqa: BLE001 - user code; the others must be shown
        return brief(name)


def _statistics(name: Hashable, target: Any) -> Any:
    """Return the statistics of a target; `None` if it has ended meanwhile, or fails."""
    try:
        return target.statistics()
    except WorkerStopped:
        return None
    except Exception as error:  # noqa: BLE001 - user code; the others must be shown
        log.error("no statistics", name=name, error=brief(error), exc_info=error)
        return None


def _is_histogram(name: str, value: dict[Any, int]) -> bool:
    """Return whether these are counts by size; an empty one is recognised by its name."""
    return all(isinstance(key, int) for key in value) if value else name.endswith("sizes")
