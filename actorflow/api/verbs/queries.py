"""The verbs that only look. Their results are data that JSON can show."""

from __future__ import annotations

import asyncio
import math
import os
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from actorflow.api.errors import ControlUnreachable
from actorflow.api.plain import decoded, plain, shown
from actorflow.api.verbs import audit
from actorflow.api.verbs.parameters import (
    LIMIT,
    ExecutionId,
    Kind,
    Limit,
    Parent,
    Seconds,
    StatusName,
    Tags,
    cursor,
    handle_of,
    refuse_unknown,
    row_shown,
    status_of,
    summary,
)
from actorflow.api.verbs.table import Access, verb
from actorflow.engine.errors import StateUnreadable, WaitTimeout
from actorflow.engine.handle import Execution
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.tags import tags_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.stores.protocol import ExecutionRow, Page

__all__: list[str] = []

Tasker = Annotated[str, Meta(description="Only tasks for this tasker.")]
Text = Annotated[str, Meta(description="Only executions whose id or error contains this text.")]
Place = Annotated[str, Meta(description="Where the last answer ended.")]
Number = Annotated[int, Meta(description="Where the last answer ended.")]
Since = Annotated[float, Meta(description="Only executions updated since, in seconds since 1970.")]
Until = Annotated[float, Meta(description="Only executions updated before, in seconds since 1970.")]
Offset = Annotated[int, Meta(ge=0, description="How many values to leave out.")]

_COUNTED = 100_000  # executions that are counted, at most
_PAGE = 1_000


@verb(Access.READ)
def health(engine: BareEngine) -> dict[str, Any]:
    """Show whether the engine runs, and which process it is in."""
    parts = engine.parts
    parts.state.require_open()
    store = str(getattr(parts.store, "path", type(parts.store).__name__))
    state = parts.state
    return {
        "status": "ok",
        "store": store,
        "process": os.getpid(),
        "resumed": state.resumed,
        "live": not state.passive,
    }


@verb(Access.READ)
def stats(engine: BareEngine) -> dict[str, Any]:
    """Show the figures of the engine."""
    found: dict[str, Any] = plain(engine.statistics())
    return found


def matching(
    engine: BareEngine,
    *,
    kind: str | None,
    status: str | None,
    parent: str | None,
    tag: list[str],
    text: str | None = None,
    since: float | None = None,
    until: float | None = None,
    after: Any = None,
) -> Iterator[ExecutionRow]:
    """Yield the executions that filters choose."""
    chosen, tags = status_of(status), tags_from(tag)
    wanted = None if text is None else text.casefold()
    first, last = -math.inf if since is None else since, math.inf if until is None else until
    while True:
        page = engine.parts.store.listing(
            kind=kind, status=chosen, parent=parent, tags=tags, after=after, limit=_PAGE
        )
        for row in page.rows:
            if first <= row.updated < last and (
                wanted is None or wanted in row.id.casefold() or wanted in _error_of(engine, row)
            ):
                yield row
        after = page.after
        if after is None:
            return


def _error_of(engine: BareEngine, row: ExecutionRow) -> str:
    failure = Execution(engine.parts, row).failure
    return "" if failure is None else f"{failure.type}: {failure.message}".casefold()


@verb(Access.READ)
def executions(
    engine: BareEngine,
    *,
    kind: Kind | None = None,
    status: StatusName | None = None,
    parent: Parent | None = None,
    tag: Tags = [],  # noqa: B006 - never changed
    text: Text | None = None,
    since: Since | None = None,
    until: Until | None = None,
    after: Place | None = None,
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List executions in the order of their ids, with the messages and tasks open for each."""
    store = engine.parts.store
    if (text, since, until) == (None, None, None):
        page = store.listing(
            kind=kind,
            status=status_of(status),
            parent=parent,
            tags=tags_from(tag),
            after=cursor(after),
            limit=limit,
        )
        rows, place = list(page.rows), page.after
    else:
        found = matching(
            engine,
            kind=kind,
            status=status,
            parent=parent,
            tag=tag,
            text=text,
            since=since,
            until=until,
            after=cursor(after),
        )
        rows = list(islice(found, limit))
        place = rows[-1].id if len(rows) == limit else None
    counts = store.counts([row.id for row in rows])
    return {"executions": [summary(row, counts[row.id]) for row in rows], "after": place}


@verb(Access.READ)
def count(
    engine: BareEngine,
    *,
    kind: Kind | None = None,
    status: StatusName | None = None,
    parent: Parent | None = None,
    tag: Tags = [],  # noqa: B006 - never changed
    text: Text | None = None,
    since: Since | None = None,
    until: Until | None = None,
) -> dict[str, Any]:
    """Count executions; at most 100,000 of them."""
    found = matching(
        engine,
        kind=kind,
        status=status,
        parent=parent,
        tag=tag,
        text=text,
        since=since,
        until=until,
    )
    number = sum(1 for _ in islice(found, _COUNTED + 1))
    return {"count": min(number, _COUNTED), "more": number > _COUNTED}


@verb(Access.READ)
def execution(engine: BareEngine, id: ExecutionId, *, limit: Limit = LIMIT) -> dict[str, Any]:  # noqa: A002
    """Show all that is stored of one execution, and what its kind makes of it."""
    parts = engine.parts
    store = parts.store
    row = parts.row(id)
    found = Execution(parts, row)
    failure = found.failure
    pages: dict[str, Page[Any]] = {
        "messages": store.pending(execution=row.id, limit=limit),
        "tasks": store.open(execution=row.id, limit=limit),
        "dead": store.dead(execution=row.id, limit=limit),
        "history": store.history(row.id, limit=limit),
    }
    return {
        **summary(row, store.counts([row.id])[row.id]),
        "result": decoded(row.result),
        "error": None if failure is None else plain(failure),
        "tags": store.tags(row.id),
        "view": _view(engine, row, found),
        "timers": [row_shown(each) for each in store.due(limit, execution=row.id)],
        **{name: [row_shown(each) for each in page.rows] for name, page in pages.items()},
        "more": [name for name, page in pages.items() if page.after is not None],
    }


def _view(engine: BareEngine, row: ExecutionRow, found: Execution) -> Any:
    """Return what its kind shows of an execution; of a workflow also without its class."""
    if row.state is None or row.kind in engine.parts.kinds or not row.kind.startswith("workflow:"):
        return shown(found, row.state)
    from actorflow.workflows.service.stored import read_row  # noqa: PLC0415 - slow to import
    from actorflow.workflows.service.view import WorkflowView  # noqa: PLC0415

    try:
        return plain(WorkflowView(read_row(row), killed=row.status == Status.CANCELLED))
    except StateUnreadable:
        return shown(found, row.state)


@verb(Access.READ)
def trace(engine: BareEngine, id: ExecutionId) -> dict[str, Any]:  # noqa: A002
    """Show the history of an execution, oldest first."""
    found = engine.execution(id)
    entries: list[Any] = []
    for record in found.history():
        entries += (
            record["entries"] if isinstance(record, dict) and "entries" in record else [record]
        )
    lines = _lines(found) if found.kind == "flow" else []
    return {"execution": id, "kind": found.kind, "entries": plain(entries), "lines": lines}


def _lines(found: Execution) -> list[str]:
    """Return the messages of a flow as text."""
    from actorflow.flows.service.trace import trace_lines  # noqa: PLC0415 - slow to import

    return list(trace_lines(found.id, found.view.runs()))


@verb(Access.READ, waits="timeout")
async def wait(engine: BareEngine, id: ExecutionId, *, timeout: Seconds = 30.0) -> dict[str, Any]:  # noqa: A002
    """Wait until an execution has ended or is stuck, and show it."""
    parts = engine.parts
    if parts.state.passive and not parts.store.traits.shared:
        if parts.row(id).status == Status.ACTIVE:
            msg = (
                f"no engine runs with a control socket, so nobody can say when {id!r} ends: open "
                "it with control=True, or with actorflow serve"
            )
            raise ControlUnreachable(msg)
    else:
        await asyncio.to_thread(engine.resume)  # which may take its time, the first time
        await engine.await_(id, timeout)
    return await asyncio.to_thread(execution, engine, id)


@verb(Access.READ, waits="timeout")
async def follow(
    engine: BareEngine,
    id: ExecutionId,  # noqa: A002
    *,
    offset: Offset = 0,
    timeout: Seconds = 30.0,
) -> dict[str, Any]:
    """Return the values that a workflow has published; wait for the next if there are none yet.

    Call it again with `offset` increased by the number of values, until `ended`.
    """
    found = await asyncio.to_thread(engine.execution, id)
    values = await asyncio.to_thread(_published, found, offset)
    handle = None if values or found.status in ENDED else handle_of(engine, id)
    if handle is not None:
        try:
            async for value in handle.afollow(offset, timeout):
                values.append(plain(value))
                break
        except WaitTimeout:
            pass
        found = await asyncio.to_thread(found.refresh)
    ended = found.status in ENDED and len(values) == len(_published(found, offset))
    return {"execution": id, "values": values, "ended": ended}


def _published(found: Execution, offset: int) -> list[Any]:
    values = [
        plain(entry["value"])
        for record in found.history()
        if isinstance(record, dict)
        for entry in record.get("entries", ())
        if entry.get("type") == "published"
    ]
    return values[offset:]


@verb(Access.READ)
def tasks(
    engine: BareEngine,
    execution: ExecutionId | None = None,
    *,
    tasker: Tasker | None = None,
    after: Number | None = None,
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List the tasks that have not ended, oldest first."""
    page = engine.parts.store.open(
        execution=execution, tasker=tasker, after=cursor(after), limit=limit
    )
    refuse_unknown(engine, execution, found=page.rows)
    expects = engine.parts.tasks.description
    rows = [{**row_shown(each), "expects": expects(each.tasker)} for each in page.rows]
    return {"tasks": rows, "after": page.after}


@verb(Access.READ)
def dead(
    engine: BareEngine,
    execution: ExecutionId | None = None,
    *,
    after: Number | None = None,
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List dead letters, oldest first: messages that could not be processed."""
    page = engine.parts.store.dead(execution=execution, after=cursor(after), limit=limit)
    refuse_unknown(engine, execution, found=page.rows)
    return {"dead": [row_shown(each) for each in page.rows], "after": page.after}


@verb(Access.READ)
def timers(engine: BareEngine, *, limit: Limit = LIMIT) -> dict[str, Any]:
    """List the timers that are due first."""
    found = [row_shown(each) for each in engine.parts.store.due(limit)]
    return {"timers": found, "now": engine.parts.clock.now()}


@verb(Access.READ)
def schedules(engine: BareEngine) -> dict[str, Any]:
    """List the schedules: what happens by the clock."""
    return {
        "schedules": [
            {
                "name": each.name,
                "cron": each.cron,
                "zone": each.zone,
                "kind": each.kind,
                "paused": each.paused,
                "next": each.next,
            }
            for each in engine.schedules
        ]
    }


@verb(Access.READ)
def cluster(engine: BareEngine) -> dict[str, Any]:
    """Show the engines that share the store: members, partitions, leases, lag."""
    store: Any = engine.parts.store
    if not store.traits.shared:
        return {"shared": False, "members": [], "unowned": [], "tasks": [], "kinds": {}}
    found = store.status()
    return {
        "shared": True,
        **plain(found._asdict()),
        "members": [plain(each._asdict()) for each in found.members],
        "tasks": [plain(each._asdict()) for each in found.tasks],
    }


@verb(Access.READ)
def audit_log(engine: BareEngine, *, limit: Limit = LIMIT) -> dict[str, Any]:
    """List what operators have done, newest first."""
    return {"entries": audit.entries(engine, limit)}
