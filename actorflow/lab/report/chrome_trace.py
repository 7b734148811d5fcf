"""Batches as a Chrome trace: JSON that ui.perfetto.dev and chrome://tracing open.

Each policy is a process, each executor one of its threads, each call of the job a slice. Another
thread shows how long the oldest message of each batch waited, and a counter the batch sizes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from actorflow.lab.run.result import Result
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["chrome_trace"]

_MICRO = 1_000_000
_WAITING = 10_000  # the thread of the waits


def chrome_trace(results: Result | Sequence[Result]) -> str:
    """Return a Chrome trace of the batches of one run or of several.

    Raises:
        BadOption: a result has no batches; `simulate(..., keep=True)` keeps them.

    >>> from actorflow.lab import simulate
    >>> found = simulate("constant(10, duration=1s)", "20ms", "queue", keep=True)
    >>> events = json.loads(chrome_trace(found))["traceEvents"]
    >>> [each["dur"] for each in events if each["ph"] == "X"][:2]
    [20000.0, 20000.0]

    """
    given = [results] if isinstance(results, Result) else list(results)
    events: list[dict[str, Any]] = []
    for process, result in enumerate(given, 1):
        if not result.batch_log:
            msg = (
                f"the result of {result.policy} has no batches: run it with "
                "simulate(..., keep=True), without precision"
            )
            raise BadOption(msg)
        events += _named(process, result)
        for batch in result.batch_log:
            began, took = batch.began * _MICRO, (batch.done - batch.began) * _MICRO
            events.append({
                "name": f"{batch.size} messages", "cat": batch.reason, "ph": "X", "pid": process,
                "tid": batch.executor, "ts": round(began, 3), "dur": round(took, 3),
                "args": {"size": batch.size, "reason": batch.reason},
            })  # fmt: skip
            oldest = batch.oldest * _MICRO
            if began > oldest:
                for phase, at in (("b", oldest), ("e", began)):
                    events.append({
                        "name": "waiting", "cat": "wait", "ph": phase, "pid": process,
                        "tid": _WAITING, "id": f"{process}-{batch.executor}-{batch.began}",
                        "ts": round(at, 3),
                    })  # fmt: skip
            events.append({
                "name": "batch size", "ph": "C", "pid": process, "ts": round(began, 3),
                "args": {"messages": batch.size},
            })  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _named(process: int, result: Result) -> list[dict[str, Any]]:
    """Return the names of the process and of its threads."""
    named = [("process_name", 0, result.policy), ("thread_name", _WAITING, "oldest message waits")]
    named += [("thread_name", at, f"executor {at}") for at in range(result.executors)]
    return [
        {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
        for kind, thread, name in named
    ]
