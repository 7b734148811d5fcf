"""What can be done with an engine from outside: every answer is data that JSON can show.

The HTTP application offers these to others; the commands use them directly where no engine runs.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import TaskFailed
from actorflow.engine.handle import Execution
from actorflow.engine.identifiers import check_id
from actorflow.engine.kind import Status
from actorflow.engine.operations.dead_letters import Letter
from actorflow.engine.tags import tags_from
from actorflow.runtime.errors import BadOption
from actorflow.runtime.worker.tickets import ThreadTicket
from actorflow.web.plain import decoded, plain, shown
from actorflow.workflows.service.incoming import start_body
from actorflow.workflows.service.names import kind_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import Counts, ExecutionRow, Page

__all__ = ["LIMIT", "MOST", "Steering"]

LIMIT = 100
"""Rows of one answer, unless told otherwise."""
MOST = 10_000
"""Rows of one answer, at most."""

_LARGEST = 2**63 - 1


class Steering:
    """The verbs. Thread-safe; each answers when what it did is stored.

    Args:
        engine: a live one; or one that only stores (`engine.core.passive = True`), whose messages
            then wait for the next.

    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # Looking.

    def health(self) -> dict[str, Any]:
        """Return whether the engine runs, and which process it is in."""
        core = self.engine.core
        core.refuse_if_closed()
        store = str(getattr(core.store, "path", type(core.store).__name__))
        return {"status": "ok", "store": store, "process": os.getpid(), "resumed": core.resumed}

    def statistics(self) -> dict[str, Any]:
        """Return the figures of the engine."""
        found: dict[str, Any] = plain(self.engine.statistics())
        return found

    def executions(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tag: Sequence[str] = (),
        after: Any = None,
        limit: int = LIMIT,
    ) -> dict[str, Any]:
        """Return executions in the order of their ids, and where the next page begins.

        With `tag`, only those that have all of these: texts such as `customer=c-7`.
        """
        chosen = None if status is None else str(_status(status))
        store = self.engine.core.store
        page = store.listing(
            kind=kind,
            status=chosen,
            parent=parent,
            tags=tags_from(tag),
            after=_cursor(after),
            limit=_limit(limit),
        )
        counts = store.counts([row.id for row in page.rows])
        return {
            "executions": [_summary(row, counts[row.id]) for row in page.rows],
            "after": page.after,
        }

    def execution(self, execution: str, *, limit: int = LIMIT) -> dict[str, Any]:
        """Return all that is stored of an execution; `more` names the lists that go on."""
        core = self.engine.core
        store = core.store
        row = core.row(execution)
        found = Execution(core, row)
        failure = found.failure
        limit = _limit(limit)
        parts: dict[str, Page[Any]] = {
            "messages": store.pending(execution=row.id, limit=limit),
            "tasks": store.open(execution=row.id, limit=limit),
            "dead": store.dead(execution=row.id, limit=limit),
            "history": store.history(row.id, limit=limit),
        }
        return {
            **_summary(row, store.counts([row.id])[row.id]),
            "result": decoded(row.result),
            "error": None if failure is None else plain(failure),
            "tags": store.tags(row.id),
            "view": shown(found, row.state),
            "timers": [_row(each) for each in store.due(limit, execution=row.id)],
            **{name: [_row(each) for each in page.rows] for name, page in parts.items()},
            "more": [name for name, page in parts.items() if page.after is not None],
        }

    def tasks(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = LIMIT,
    ) -> dict[str, Any]:
        """Return the tasks that have not ended, in the order in which they were stored.

        Raises:
            UnknownExecution: there is no execution of that id.

        """
        page = self.engine.core.store.open(
            execution=execution, tasker=tasker, after=_cursor(after), limit=_limit(limit)
        )
        self._refuse_unknown(execution, found=page.rows)
        return {"tasks": [_row(each) for each in page.rows], "after": page.after}

    # Executions.

    def start(self, kind: str, body: Any = None, *, id: str | None = None) -> dict[str, Any]:  # noqa: A002
        """Start an execution of a kind; with an id, only the first call does so.

        Where the engine only stores, nobody knows its kinds: any name will do.
        """
        engine = self.engine
        if not engine.core.passive:
            return {"execution": engine.start(kind, body, id=id).id}
        if id is None:
            msg = f"no engine runs to make an id for a {kind!r}: name one (id=..., --id ...)"
            raise BadOption(msg)
        done = ThreadTicket()
        engine.core.create(check_id(id, "an execution"), check_id(kind, "a kind"), body, done)
        engine.core.wait_for(done, None, body)
        return {"execution": id}

    def start_workflow(
        self,
        workflow: str,
        properties: dict[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Start a workflow by its name, whatever language its code is in.

        With an id, only the first call does so.
        """
        name = check_id(workflow, "a workflow")
        given = f"{name}-{uuid.uuid4().hex}" if id is None else id
        return self.start(kind_name(name), start_body(properties or {}), id=given)

    def send(
        self, execution: str, body: Any = None, *, kind: str | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Send a message to an execution; with a key, only the first one counts."""
        self.engine.send(execution, body, kind=kind, key=key)
        return {"execution": execution}

    def cancel(self, execution: str, target: Any = None) -> dict[str, Any]:
        """Cancel an execution, or the part of it that `target` names."""
        return {"execution": execution, "cancelled": self.engine.cancel(execution, target)}

    async def wait(self, execution: str, timeout: float | None = None) -> dict[str, Any]:
        """Wait until an execution has ended, or failed; return it as `execution` does."""
        await asyncio.to_thread(self.engine.resume)  # which may take its time, the first time
        await self.engine.await_(execution, timeout)
        return await asyncio.to_thread(self.execution, execution)

    # Flows.

    def _flows(self) -> Any:
        flows = getattr(self.engine, "flows", None)
        if flows is None:
            msg = "this engine runs no flows: open it as actorflow.Engine"
            raise BadOption(msg)
        return flows

    def launch(
        self,
        flow: str,
        payload: dict[str, Any] | None = None,
        *,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Launch a flow; with an id, only the first call does so."""
        options = {} if domain is None else {"domain": domain}
        launch = self._flows().launch
        return {"execution": launch(flow, payload=payload, vars=vars, id=id, **options)}

    def signal(
        self, execution: str, name: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a signal to a flow."""
        self._flows().signal(execution, name, payload)
        return {"execution": execution}

    # Tasks.

    def return_task(self, task: str, value: Any = None) -> dict[str, Any]:
        """Return a task that a tasker holds, with its result; say whether it was still wanted."""
        return {"task": task, "wanted": self.engine.return_task(task, value)}

    def fail_task(self, task: str, error: str) -> dict[str, Any]:
        """Say that a task has failed; say whether it was still wanted."""
        return {"task": task, "wanted": self.engine.fail_task(task, TaskFailed(error))}

    # Dead letters, and forgetting.

    def dead_letters(
        self, *, execution: str | None = None, after: Any = None, limit: int = LIMIT
    ) -> dict[str, Any]:
        """Return dead letters, oldest first.

        Raises:
            UnknownExecution: there is no execution of that id, nor a letter of it.

        """
        page = self.engine.core.store.dead(
            execution=execution, after=_cursor(after), limit=_limit(limit)
        )
        self._refuse_unknown(execution, found=page.rows)
        return {"dead": [_row(each) for each in page.rows], "after": page.after}

    def retry(
        self, *, execution: str | None = None, letters: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Re-queue dead letters: those named, or all, of one execution or of all."""
        return {"retried": self._move(execution, letters, lambda box, some: box.retry(*some))}

    def bury(
        self, *, execution: str | None = None, letters: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Forget dead letters: those named, or all, of one execution or of all."""
        return {"purged": self._move(execution, letters, lambda box, some: box.purge(*some))}

    def _move(
        self,
        execution: str | None,
        letters: Sequence[Any] | None,
        move: Callable[[Any, list[Letter]], int],
    ) -> int:
        if execution is not None:
            check_id(execution, "an execution")
        box = self.engine.dead_letters(execution)
        if letters is None:
            count = move(box, [])
            self._refuse_unknown(execution, found=count)
            return count
        store = self.engine.core.store
        chosen = dict.fromkeys([_cursor(each) for each in letters])
        rows = [store.dead_letter(each) for each in chosen]
        some = [
            Letter(row.id, row.execution, None, row.error, row.at, row.type)
            for row in rows
            if row is not None and execution in (None, row.execution)
        ]
        return move(box, some) if some else 0

    def _refuse_unknown(self, execution: str | None, *, found: Any) -> None:
        """Refuse a mistyped id, which looks like an execution that has nothing of that."""
        if execution is not None and not found:
            self.engine.core.row(execution)

    def purge(self, *, days: float) -> dict[str, Any]:
        """Forget executions that ended longer ago, with their history."""
        if not 0 <= days < float("inf"):
            msg = f"days={days} is not a number of days: write 30"
            raise BadOption(msg)
        before = self.engine.core.clock.now() - days * 86_400
        return {"purged": self.engine.upkeep.purge(before=before)}


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        msg = f"status {text!r} is unknown: choose one of {', '.join(Status)}"
        raise BadOption(msg) from None


def _limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        msg = f"limit={limit} is out of bounds: choose 1 to {MOST:,}"
        raise BadOption(msg)
    return limit


def _cursor(value: Any) -> Any:
    """Return a cursor or an id that was given out before; refuse what no store can compare."""
    is_number = type(value) is int and -_LARGEST <= value <= _LARGEST
    if value is None or type(value) is str or is_number:
        return value
    msg = f"{value!r:.80} is not a place in a list: pass back what the last answer said"
    raise BadOption(msg)


def _summary(row: ExecutionRow, counts: Counts) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "status": row.status,
        "revision": plain(row.revision),
        "parent": row.parent,
        "created": row.created,
        "updated": row.updated,
        "counts": counts._asdict(),
    }


def _row(row: Any) -> dict[str, Any]:
    """Return a row of a store with its body readable."""
    fields = {name: plain(value) for name, value in row._asdict().items() if name != "body"}
    return {**fields, "body": decoded(row.body)}
