"""The pages about the process of the engine: its workers, one worker, its supervision trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.api.pages.content.bars import shares, stream
from actorflow.api.pages.content.page_request import whole
from actorflow.api.pages.content.samples import chart, rate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.api.pages.content.page_request import PageRequest
    from actorflow.api.pages.content.samples import WorkerSample

__all__ = ["tree", "what_if", "worker", "workers"]

_MOST = 200  # workers that one page shows
_KEYS = 10  # with the most messages
_BATCHES = 100  # that a stream shows
_LONGEST = 1_000  # milliseconds that a batch may wait, in a simulation
_LOST = ("rejected", "dropped", "expired", "abandoned")


def workers(request: PageRequest) -> dict[str, Any]:
    """Return the workers, those with the most messages first."""
    sample = request.samples.take(request.verbs)
    wanted = request.query.get("text", "").casefold()
    old = request.samples.before(sample)
    found = [_row(sample, old, name) for name in sample.workers if wanted in name.casefold()]
    found.sort(key=lambda each: (-each["held"], -each["rate"], each["name"]))
    return {
        "rows": found[:_MOST],
        "count": len(found),
        "text": request.query.get("text", ""),
        "alive": request.verbs.health()["live"],
    }


def _row(sample: WorkerSample, old: WorkerSample | None, name: str) -> dict[str, Any]:
    now = sample.workers[name]
    then = None if old is None else old.workers.get(name)
    span = 0.0 if old is None else sample.at - old.at
    speed = rate(now, then, "processed", span)
    batches = rate(now, then, "batches", span)
    reasons: dict[str, int] = now["reasons"]
    return {
        **now,
        "name": name,
        "rate": speed,
        "batch": speed / batches if batches else now["processed"] / max(1, now["batches"]),
        "reason": max(reasons, key=lambda each: reasons[each]) if reasons else "",
        "lost": sum(now[each] for each in _LOST),
        "drain": now["held"] / speed if speed else None,
    }


def worker(request: PageRequest) -> dict[str, Any]:
    """Return one worker: depth, batches, times, and its dead letters."""
    name = request.query.get("name", "")
    sample = request.samples.take(request.verbs)
    letters = request.verbs.worker_letters(name, limit=50)  # raises for an unknown one
    depths = request.verbs.key_depths(name, limit=_KEYS)
    row = _row(sample, request.samples.before(sample), name)
    times = {
        f"{part} {quantile}": row[f"{part}_{quantile}"] or 0.0
        for part in ("wait", "service", "latency")
        for quantile in ("p50", "p99")
    }
    sizes = {f"up to {size}": count for size, count in _sorted(row["batch_sizes"]).items()}
    samples = request.samples
    held = samples.series(lambda each: _of(each, name, "held"))
    rates = {
        "accepted": samples.rates(lambda each: _of(each, name, "accepted")),
        "processed": samples.rates(lambda each: _of(each, name, "processed")),
    }
    return {
        "worker": row,
        "letters": letters,
        "depths": depths,
        "keys": shares({each["key"]: each["count"] for each in depths["largest"]}),
        "stream": stream(request.verbs.batches(name, limit=_BATCHES)["batches"]),
        "reasons": shares(row["reasons"]),
        "sizes": shares(sizes),
        "times": shares(times),
        "charts": [
            chart("worker-depth", "Messages that wait", {"held": held}),
            chart("worker-rate", "Messages per second", rates),
        ],
    }


def what_if(request: PageRequest) -> dict[str, Any]:
    """Return what a policy would do with the messages of a worker, beside what the live one does.

    Nothing is simulated before somebody has chosen a policy.
    """
    name, wait = request.query.get("name", ""), whole(request.query.get("wait") or "20")
    if not 0 <= wait <= _LONGEST:
        msg = f"a batch waits 0 to {_LONGEST:,} ms, not {wait:,}"
        raise ValueError(msg)
    policy = request.query.get("policy") or f"linger(queue, {wait}ms)"
    request.verbs.batches(name, limit=1)  # recording begins, and goes on
    found, problem = None, ""
    if {"wait", "policy"} & set(request.query):
        try:
            found = request.verbs.what_if(name, policy=policy)
        except BadOption as error:  # too little is known yet, or the policy is mistyped
            problem = str(error)
    given = request.query.get("policy", "")
    return {"name": name, "wait": wait, "policy": given, "found": found, "problem": problem}


def _of(sample: WorkerSample, name: str, figure: str) -> float:
    return float(sample.workers.get(name, {}).get(figure, 0))


def _sorted(sizes: Mapping[Any, int]) -> dict[int, int]:
    return dict(sorted((int(size), count) for size, count in sizes.items()))


def tree(request: PageRequest) -> dict[str, Any]:
    """Return the supervision trees of the process."""
    sample = request.samples.take(request.verbs)
    return {"trees": sample.trees, "alive": request.verbs.health()["live"]}
