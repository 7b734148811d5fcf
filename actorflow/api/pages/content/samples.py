"""The figures of the last minutes, for rates and charts.

One sample a second is taken while somebody looks at a page with rates, and none otherwise.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Samples", "WorkerSample", "chart", "rate"]

_KEPT = 300
_ROWS = 100_000  # figures of workers that are kept, at most
_APART = 0.9  # seconds between two samples, at least
_WINDOW = 30.0  # seconds over which a rate is taken


_FIGURES = ("held", "accepted", "processed", "batches")
"""The figures of workers that are kept."""


class WorkerSample(NamedTuple):
    """The figures of one moment. Those that are kept have `_FIGURES` of each worker only."""

    at: float
    stats: dict[str, Any]
    workers: dict[str, dict[str, Any]]
    trees: list[dict[str, Any]]


class Samples:
    """The samples of one engine. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[WorkerSample] = deque(maxlen=_KEPT)

    def take(self, verbs: Any) -> WorkerSample:
        """Return the figures of now; keep them if the last ones are not from just now.

        A store without a live engine has no workers.
        """
        alive = verbs.health()["live"]
        process = verbs.workers() if alive else {"workers": {}, "trees": []}
        sample = WorkerSample(self._clock(), verbs.stats(), process["workers"], process["trees"])
        with self._lock:
            if not self._samples or abs(sample.at - self._samples[-1].at) >= _APART:
                self._samples.append(_kept(sample))
                while len(self._samples) * len(sample.workers) > _ROWS:
                    self._samples.popleft()
        return sample

    def before(self, sample: WorkerSample) -> WorkerSample | None:
        """Return the sample from which rates are taken; `None` if all are too recent."""
        older = self.window(sample)
        return older[0] if older else None

    def window(self, sample: WorkerSample) -> list[WorkerSample]:
        """Return the samples of the last seconds before one, the oldest first."""
        with self._lock:
            return [each for each in self._samples if _APART <= sample.at - each.at <= _WINDOW]

    def series(self, read: Callable[[WorkerSample], float]) -> dict[str, list[float]]:
        """Return the times of all samples, and what `read` returns for each."""
        with self._lock:
            found = list(self._samples)
        return {"at": [each.at for each in found], "values": [read(each) for each in found]}

    def rates(self, read: Callable[[WorkerSample], float]) -> dict[str, list[float]]:
        """Return how much a count has grown in each second between two samples."""
        found = self.series(read)
        at, values = found["at"], found["values"]
        return {
            "at": at[1:],
            "values": [
                max(0.0, (values[index] - values[index - 1]) / (at[index] - at[index - 1]))
                for index in range(1, len(at))
            ],
        }


def _kept(sample: WorkerSample) -> WorkerSample:
    workers = {
        name: {figure: row[figure] for figure in _FIGURES} for name, row in sample.workers.items()
    }
    return sample._replace(workers=workers, trees=[])


def rate(now: Mapping[str, Any], old: Mapping[str, Any] | None, name: str, span: float) -> float:
    """Return how much a figure has grown in a second.

    >>> rate({"done": 30}, {"done": 10}, "done", 10.0), rate({"done": 30}, None, "done", 0.0)
    (2.0, 0.0)
    """
    if old is None or span <= 0:
        return 0.0
    return max(0.0, float(now[name] - old.get(name, 0)) / span)


def chart(id: str, title: str, series: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:  # noqa: A002
    """Return a chart of what `series` and `rates` of `Samples` return, by label."""
    found = [{"label": label, **each} for label, each in series.items()]
    return {"id": id, "title": title, "series": found}
