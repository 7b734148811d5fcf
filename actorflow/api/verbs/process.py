"""The verbs about the workers of the engine's process, which no store knows."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from actorflow.api.plain import plain
from actorflow.api.verbs.parameters import LIMIT, Limit
from actorflow.api.verbs.table import Access, verb
from actorflow.runtime.errors import kind_and_text
from actorflow.runtime.observe import snapshot, worker_named

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine
    from actorflow.runtime.worker.job.dead_letters import DeadLetter, DeadLetters

__all__: list[str] = []

WorkerName = Annotated[str, Meta(description="The name of a worker, as `workers` shows it.")]
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
