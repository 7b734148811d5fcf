"""The page of one execution: the parts of every kind, and those of workflows, flows and plans."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.api.pages.content.bars import Bar, laid_out
from actorflow.engine.kind import ENDED, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.api.pages.content.page_request import PageRequest

__all__ = ["execution"]

_ROWS = 50
_MESSAGES = 200
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_TERMINAL = {"onSuccess": "successful", "onFailure": "failed", "onCancel": "cancelled"}


def execution(request: PageRequest) -> dict[str, Any]:
    """Return the page of one execution."""
    id = request.query.get("id", "")  # noqa: A001
    found = request.verbs.execution(id, limit=_ROWS)
    view = found["view"] if isinstance(found["view"], dict) else {}
    kind = found["kind"].partition(":")[0]
    page = {
        "execution": found,
        "kind": kind,
        "ended": Status(found["status"]) in ENDED,
        "children": request.verbs.executions(parent=id, limit=_ROWS)["executions"],
        "view": view,
    }
    if kind == "workflow" and "branches" in view:
        return {**page, **_workflow(request, found, view)}
    if kind == "flow" and "nodes" in view:
        return {**page, **_flow(request, found, view)}
    if kind == "plan" and "jobs" in view:
        return {**page, **_plan(view)}
    return {**page, "kind": "other"}


# Workflows.


def _workflow(
    request: PageRequest, found: Mapping[str, Any], view: Mapping[str, Any]
) -> dict[str, Any]:
    entries = request.verbs.trace(found["id"])["entries"]
    code = request.verbs.code(found["id"])
    return {
        "bars": laid_out(_steps(entries, view, found["updated"])),
        "steps": [
            {**each, "step": f"{each['branch_key']}/{each['position']}"}
            for each in view["statuses"]
        ],
        "entries": entries[-_MESSAGES:],
        "properties": view["properties"],
        "kept": view.get("kept", []),
        "waits": view["waits"],
        "mode": view["decision_mode"],
        "source": _source(code, _failed_line(found, code)),
    }


def _steps(
    entries: Sequence[Mapping[str, Any]], view: Mapping[str, Any], updated: float
) -> list[Bar]:
    """Return when each step began and ended; unfinished steps end now."""
    began: dict[str, Mapping[str, Any]] = {}
    spans = []
    for entry in entries:
        step, at = entry.get("step", ""), entry.get("at", 0.0)
        if entry["type"] == "scheduled":
            began[step] = entry
        elif entry["type"] in _TERMINAL and step in began:
            first = began.pop(step)
            name = f"{first['name']} ({step})"
            spans.append(Bar(name, _TERMINAL[entry["type"]], first["at"], at))
    waits = {each["step"]: each for each in view["waits"]}
    for step, entry in began.items():
        end = max(updated, waits.get(step, {}).get("timestamp") or updated)
        name = f"{entry['name']} ({step})"
        spans.append(Bar(name, "scheduled", entry["at"], max(end, entry["at"])))
    return sorted(spans, key=lambda each: each.begin)


def _failed_line(found: Mapping[str, Any], code: Mapping[str, Any]) -> list[int]:
    """Return the line of the class in which its code has failed, if it is in the traceback."""
    trace = (found["error"] or {}).get("traceback") or ""
    return [int(line) for file, line in _LINE.findall(trace) if file == code["file"]]


def _source(code: Mapping[str, Any], marked: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"number": number, "text": text, "active": number in marked}
        for number, text in enumerate(code["text"].splitlines(), code["first"])
    ]


# Flows.


def _flow(
    request: PageRequest, found: Mapping[str, Any], view: Mapping[str, Any]
) -> dict[str, Any]:
    code = request.verbs.code(found["id"])
    lines = request.verbs.trace(found["id"])["lines"]
    depth = {"0": 0}
    nodes = []
    for nid, node in sorted(view["nodes"].items(), key=lambda each: _order(each[0])):
        depth[nid] = depth.get(node["parent"] or "", -1) + 1
        nodes.append({**node, "nid": nid, "depth": min(depth[nid], 12)})
    return {
        "source": _source(code, code["lines"]),
        "nodes": nodes,
        "lines": lines[-_MESSAGES:],
    }


def _order(nid: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", nid)]


# Plans.


def _plan(view: Mapping[str, Any]) -> dict[str, Any]:
    jobs = view["jobs"]
    last = max((each["ended"] or each["started"] or 0.0 for each in jobs), default=0.0)
    spans = [
        Bar(each["name"], each["status"], each["started"], each["ended"] or last)
        for each in jobs
        if each["started"] is not None
    ]
    graph = {
        "nodes": [{"id": each["name"], "status": each["status"]} for each in jobs],
        "edges": [[before, each["name"]] for each in jobs for before in each["upstream"]],
    }
    return {"bars": laid_out(spans), "graph": graph, "jobs": jobs, "hidden": view["more"]}
