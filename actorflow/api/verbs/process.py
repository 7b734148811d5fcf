"""The verbs about the workers of the engine's process, which no store knows."""

from __future__ import annotations

from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from actorflow.api.plain import plain
from actorflow.api.verbs.batch_log import batch_log
from actorflow.api.verbs.parameters import LIMIT, Limit
from actorflow.api.verbs.table import Access, verb
from actorflow.runtime.errors import BadOption, UnknownWorker, kind_and_text
from actorflow.runtime.telemetry.observe import snapshot, worker_named
from actorflow.runtime.worker import depths

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine
    from actorflow.runtime.worker.job.dead_letters import DeadLetter, DeadLetters

__all__: list[str] = []

_FEW = 10  # batches, from which nothing can be concluded
_ARRIVALS = 20_000.0  # that a simulation takes, at most
_LONGEST = 60.0  # seconds that are simulated, at most

WorkerName = Annotated[str, Meta(description="The name of a worker, as `workers` shows it.")]
Policy = Annotated[
    str, Meta(max_length=500, description="A policy of the lab, such as linger(queue, 20ms).")
]
Numbers = Annotated[
    list[int], Meta(max_length=10_000, description="Only these dead letters, by their numbers.")
]


@verb(Access.READ)
def workers(_engine: BareEngine) -> dict[str, Any]:
    """Show the workers and the supervision trees of the engine's process."""
    found = snapshot()  # whose figures are plain, and may be of thousands of workers
    return {**found, "trees": plain(found["trees"])}


@verb(Access.READ)
def worker_letters(
    _engine: BareEngine, worker: WorkerName, *, limit: Limit = LIMIT
) -> dict[str, Any]:
    """List the dead letters of a worker, oldest first."""
    letters = worker_named(worker).dead_letters
    return {
        "worker": worker,
        "letters": [
            {
                "number": each.number,
                "at": each.at,
                "error": kind_and_text(each.error),
                "message": plain(each.message),
            }
            for each in islice(letters, limit)
        ],
        "count": len(letters),
        "forgotten": letters.forgotten,
    }


@verb(Access.READ)
def batches(_engine: BareEngine, worker: WorkerName, *, limit: Limit = LIMIT) -> dict[str, Any]:
    """Show the last batches of a worker. They are recorded as long as somebody asks."""
    now = monotonic()
    found = batch_log(worker_named(worker)).batches()[-limit:]
    return {
        "worker": worker,
        "batches": [
            {"ago": now - each.began, "took": each.took, "size": each.size} for each in found
        ],
    }


@verb(Access.READ)
def key_depths(_engine: BareEngine, worker: WorkerName, *, limit: Limit = LIMIT) -> dict[str, Any]:
    """List the keys of which a worker holds the most messages.

    `key_count` is null if its behaviour has no keys. Where counting them means to look at each
    message, it ends after 10,000.
    """
    found, problem = None, ""
    try:
        found = depths.key_depths(worker_named(worker).actor, limit)
    except UnknownWorker:
        raise
    except Exception as error:  # noqa: BLE001 - the behaviour may be custom
        problem = kind_and_text(error)
    return {
        "worker": worker,
        "key_count": None if found is None else found.keys,
        "counted": 0 if found is None else found.counted,
        "largest": [] if found is None else [
            {"key": key, "count": count} for key, count in found.largest
        ],
        "problem": problem,
    }  # fmt: skip


@verb(Access.READ)
def what_if(_engine: BareEngine, worker: WorkerName, *, policy: Policy) -> dict[str, Any]:
    """Simulate what a policy would do with the arrivals and the job of a worker.

    Arrivals are random, at the rate of the last seconds; how long a batch takes is fitted to the
    batches of these seconds. The first call begins to record them.
    """
    from actorflow.lab.models.notation import BadNotation  # noqa: PLC0415 - slow to import
    from actorflow.lab.models.policies import policy_of  # noqa: PLC0415
    from actorflow.lab.run.fit import fit_batches  # noqa: PLC0415
    from actorflow.lab.run.simulate import simulate  # noqa: PLC0415

    if ":" in policy:  # `package.module:Class` would import it, and a reader must not do that
        msg = f"{policy!r} names code of yours: simulate it in a program, with actorflow.lab"
        raise BadOption(msg)
    try:
        policy_of(policy)
    except BadNotation as error:
        raise BadOption(str(error)) from None
    ref = worker_named(worker)
    log = batch_log(ref)
    rate, seen = log.arrivals(), log.batches()
    if len(seen) < _FEW or not rate:
        msg = (
            f"since recording began, {worker!r} has processed {len(seen)} batches and accepted "
            f"{rate:.1f} messages/s: look again when it has processed {_FEW}"
        )
        raise BadOption(msg)
    fit = fit_batches([(each.size, each.took) for each in seen])
    seconds = min(_LONGEST, max(1.0, _ARRIVALS / rate))
    now = ref.statistics()
    live = {"p50": now.latency_p50, "p99": now.latency_p99, "busy": now.busy}
    live["batch"] = now.processed / max(1, now.batches)
    simulated = {}
    for each in dict.fromkeys(("queue", policy)):
        found = simulate(
            f"poisson({rate:.6g}, duration={seconds:.6g}s)",
            fit.model(),
            policy_of(each),
            concurrency=now.concurrency,
        )
        simulated[each] = {
            **{name: found.latency.get(name) for name in ("p50", "p99")},
            "busy": found.busy,
            "batch": found.batch_mean,
        }
    return {
        "worker": worker,
        "rate": rate,
        "service": fit.text,
        "live": plain(live),
        "simulated": plain(simulated),
    }


@verb(Access.WRITE, audited=True)
def pause_worker(_engine: BareEngine, worker: WorkerName) -> dict[str, Any]:
    """Let a worker accumulate, and take no more batches until it is resumed."""
    worker_named(worker).pause()
    return {"worker": worker}


@verb(Access.WRITE, audited=True)
def resume_worker(_engine: BareEngine, worker: WorkerName) -> dict[str, Any]:
    """Let a paused or parked worker go on."""
    worker_named(worker).resume()
    return {"worker": worker}


@verb(Access.WRITE, audited=True)
def retry_worker(
    _engine: BareEngine, worker: WorkerName, *, numbers: Numbers | None = None
) -> dict[str, Any]:
    """Push dead letters of a worker again: those named, or all."""
    letters = worker_named(worker).dead_letters
    return {"worker": worker, "retried": letters.retry(_chosen(letters, numbers))}


@verb(Access.WRITE, audited=True)
def purge_worker(
    _engine: BareEngine, worker: WorkerName, *, numbers: Numbers | None = None
) -> dict[str, Any]:
    """Delete dead letters of a worker: those named, or all."""
    letters = worker_named(worker).dead_letters
    return {"worker": worker, "purged": letters.purge(_chosen(letters, numbers))}


def _chosen(letters: DeadLetters, numbers: list[int] | None) -> list[DeadLetter] | None:
    return None if numbers is None else [each for each in letters if each.number in set(numbers)]
