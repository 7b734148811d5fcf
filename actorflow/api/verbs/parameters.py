"""Types of parameters that verbs share, and how rows and executions are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from actorflow.api.plain import decoded, plain
from actorflow.engine.ids import check_id
from actorflow.engine.kind import Status
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine
    from actorflow.engine.stores.protocol import ExecutionRow, StoreCounts
    from actorflow.workflows.service.handle import WorkflowHandle

__all__ = [
    "LIMIT",
    "MOST",
    "Days",
    "ExecutionId",
    "Kind",
    "Limit",
    "Parent",
    "Plain",
    "Seconds",
    "StatusName",
    "StepName",
    "Tags",
    "cursor",
    "handle_of",
    "refuse_unknown",
    "row_shown",
    "status_of",
    "summary",
]

LIMIT = 100
"""Rows of one answer, unless told otherwise."""
MOST = 10_000
"""Rows of one answer, at most."""
_LONGEST = 3_600.0  # seconds that one call may wait
_LARGEST = 2**63 - 1

ExecutionId = Annotated[str, Meta(description="The id of an execution.")]
Kind = Annotated[str, Meta(description="Only executions of this kind.")]
Parent = Annotated[str, Meta(description="Only children of this execution.")]
StatusName = Annotated[
    str, Meta(description=f"Only executions with this status: {', '.join(Status)}.")
]
StepName = Annotated[str, Meta(description="A step of a workflow, such as 0/2.0.")]
Limit = Annotated[int, Meta(ge=1, le=MOST, description="Rows at most.")]
Seconds = Annotated[float, Meta(ge=0, le=_LONGEST, description="Seconds to wait.")]
Days = Annotated[float, Meta(ge=0, le=1_000_000, description="Keep what ended in so many days.")]
Tags = Annotated[
    list[str], Meta(description="Only executions with this tag, NAME=VALUE; several: all of them.")
]
Plain = Annotated[Any, Meta(description="Plain data.")]


def status_of(text: str | None) -> str | None:
    """Return a status that there is.

    Raises:
        BadOption: nothing has this name.

    """
    if text is None:
        return None
    try:
        return str(Status(text))
    except ValueError:
        msg = f"status {text!r} is unknown: choose one of {', '.join(Status)}"
        raise BadOption(msg) from None


def cursor(value: Any, name: str = "after") -> Any:
    """Return a cursor or an id that was given out before; refuse what no store can compare."""
    is_number = type(value) is int and -_LARGEST <= value <= _LARGEST
    if value is None or type(value) is str or is_number:
        return value
    msg = f"{name}={value!r:.80}: pass back what an earlier answer said"
    raise BadOption(msg)


def refuse_unknown(engine: BareEngine, execution: str | None, *, found: Any) -> None:
    """Refuse a mistyped id, which looks like an execution that has nothing of that."""
    if execution is not None and not found:
        engine.parts.row(check_id(execution, "an execution"))


def handle_of(engine: BareEngine, execution: str) -> WorkflowHandle[Any] | None:
    """Return the handle of a workflow whose code this engine has; `None` for anything else."""
    from actorflow.workflows.service.handle import WorkflowHandle  # noqa: PLC0415 - slow to import
    from actorflow.workflows.service.kind import WorkflowKind  # noqa: PLC0415

    kind = engine.parts.kinds.get(engine.parts.row(execution).kind)
    if not isinstance(kind, WorkflowKind) or engine.parts.state.passive:
        return None
    return WorkflowHandle(engine, kind, execution)


def summary(row: ExecutionRow, counts: StoreCounts) -> dict[str, Any]:
    """Return an execution as lists show it."""
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


def row_shown(row: Any) -> dict[str, Any]:
    """Return a row of a store with its body readable."""
    fields = {name: plain(value) for name, value in row._asdict().items() if name != "body"}
    return {**fields, "body": decoded(row.body)}
