"""The pages that list stored things: executions, tasks, dead letters, schedules, and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.api.pages.content.forms import fields
from actorflow.api.pages.content.text import seconds_of
from actorflow.engine.kind import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.api.pages.content.page_request import PageRequest

__all__ = [
    "ROWS",
    "audit",
    "bulk",
    "cluster",
    "dead",
    "executions",
    "filters_of",
    "schedules",
    "tasks",
    "where",
]

ROWS = 50
"""Rows of one page of a list."""
BULK = {
    "cancel": "Cancel",
    "kill": "Kill",
    "pause": "Pause",
    "resume": "Resume",
    "retry": "Retry the dead letters of",
    "delete": "Delete",
}
"""Actions on many executions at once."""

_FILTERS = ("status", "kind", "tag", "text", "since", "until")


def filters_of(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of a query, each as text."""
    return {name: query.get(name, "") for name in _FILTERS}


def where(filters: Mapping[str, str]) -> dict[str, Any]:
    """Return filters as parameters of verbs."""
    return {
        "status": filters["status"] or None,
        "kind": filters["kind"] or None,
        "tag": [filters["tag"]] if filters["tag"] else [],
        "text": filters["text"] or None,
        "since": seconds_of(filters["since"]),
        "until": seconds_of(filters["until"]),
    }


def executions(request: PageRequest) -> dict[str, Any]:
    """Return one page of the list of executions."""
    filters = filters_of(request.query)
    found = request.verbs.executions(
        **where(filters), after=request.query.get("after") or None, limit=ROWS
    )
    return {
        "rows": found["executions"],
        "after": found["after"],
        "filters": filters,
        "statuses": [each.value for each in Status],
        "bulk": BULK,
    }


def bulk(request: PageRequest) -> dict[str, Any]:
    """Return the question whether something should be done with many executions."""
    filters = filters_of(request.query)
    action = request.query.get("action", "")
    if action not in BULK:
        msg = f"action {action!r:.80} is unknown: choose one of {', '.join(BULK)}"
        raise ValueError(msg)
    count = request.verbs.count(**where(filters))
    given = {name: text for name, text in filters.items() if text}
    return {
        "action": action,
        "what": BULK[action],
        "filters": filters,
        "given": given,
        "left_out": "have not ended" if action == "delete" else "have ended",
        "fields": [("action", action), ("expected", count["count"]), *given.items()],
        "count": count["count"],
        "more": count["more"],
    }


def tasks(request: PageRequest) -> dict[str, Any]:
    """Return one page of the list of open tasks, each with its form."""
    found = request.verbs.tasks(after=request.place(), limit=ROWS)
    rows = []
    for row in found["tasks"]:
        expects = row["expects"] or {}
        rows.append(
            {**row, "help": expects.get("help", ""), "fields": fields(expects.get("schema"))}
        )
    return {"rows": rows, "after": found["after"]}


def dead(request: PageRequest) -> dict[str, Any]:
    """Return one page of the list of dead letters, and the causes of all of them."""
    found = request.verbs.dead(after=request.place(), limit=ROWS)
    causes = request.verbs.errors()["dead"] if request.place() is None else []
    return {"rows": found["dead"], "after": found["after"], "causes": causes}


def schedules(request: PageRequest) -> dict[str, Any]:
    """Return the schedules."""
    return {"rows": request.verbs.schedules()["schedules"]}


def cluster(request: PageRequest) -> dict[str, Any]:
    """Return the members of the cluster, the partitions without one, and versions that differ."""
    found = request.verbs.cluster()
    versions = sorted({each["version"] or "unknown" for each in found["members"]})
    codes: dict[str, set[str]] = {}
    for code in {code for member in found["members"] for code in member["codes"]}:
        name, _, version = code.partition("@")
        codes.setdefault(name, set()).add(version)
    different = {name: sorted(each) for name, each in sorted(codes.items()) if len(each) > 1}
    return {"cluster": found, "versions": versions, "codes": different}


def audit(request: PageRequest) -> dict[str, Any]:
    """Return what operators have done."""
    return {"rows": request.verbs.audit_log(limit=10 * ROWS)["entries"]}
