"""The pages about reports of the lab: HTML and JSON files in one folder."""

from __future__ import annotations

import json
import math
import os
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actorflow.api.pages.content.page_request import PageRequest

__all__ = ["UnknownReport", "read_report", "report", "reports"]

_KINDS = {".html": "HTML", ".json": "JSON"}
_MOST = 200  # reports that the list shows, and rows of a table
_COLUMNS = 24
_LONGEST = 32 << 20  # bytes of a report
_WIDEST = 300  # characters of a cell


class UnknownReport(ActorflowError):
    """The folder has no such report."""


def reports(request: PageRequest) -> dict[str, Any]:
    """Return the reports of the folder, the newest first."""
    rows = sorted(_found(request.reports).values(), key=lambda each: (-each["at"], each["name"]))
    return {"rows": rows[:_MOST], "count": len(rows), "given": request.reports is not None}


def report(request: PageRequest) -> dict[str, Any]:
    """Return one report: its tables if it is JSON; an HTML file is shown in a frame."""
    name = request.query.get("name", "")
    row = _row(request.reports, name)
    facts: dict[str, str] = {}
    tables: list[dict[str, Any]] = []
    problem = ""
    if row["kind"] == "JSON":
        try:
            facts, tables = _parts(json.loads(read_report(request.reports, name)))
        except (ValueError, RecursionError) as error:
            problem = f"it is not a report: {error}"
    return {"report": row, "facts": facts, "tables": tables, "problem": problem}


def read_report(folder: Path | None, name: str) -> bytes:
    """Return the content of a report.

    Raises:
        UnknownReport: the folder has no such report, or it is too large.

    """
    row = _row(folder, name)
    if row["size"] > _LONGEST:
        msg = f"{name!r:.80} has {row['size']:,} bytes; at most {_LONGEST:,} are shown"
        raise UnknownReport(msg)
    assert folder is not None  # noqa: S101 - it has the report
    try:
        # A link that has replaced the file in the meantime is not followed.
        with open(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123 - needs flags
            return file.read(_LONGEST)
    except OSError as error:
        msg = f"{name!r:.80} cannot be read: {error.strerror or error}"
        raise UnknownReport(msg) from error


def _row(folder: Path | None, name: str) -> dict[str, Any]:
    """Return the entry of the list with this name, so that no other file can be named."""
    found = _found(folder).get(name)
    if found is None:
        msg = f"there is no report {name!r:.80}: choose one from the list"
        raise UnknownReport(msg)
    return found


def _found(folder: Path | None) -> dict[str, dict[str, Any]]:
    """Return the files of the folder that may be reports; links and hidden files are left out."""
    if folder is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    try:
        with os.scandir(folder) as entries:
            for each in entries:
                kind = _KINDS.get(os.path.splitext(each.name)[1])  # noqa: PTH122 - a name, not a path
                if kind is None or each.name.startswith("."):
                    continue
                seen = each.stat(follow_symlinks=False)
                if S_ISREG(seen.st_mode):
                    found[each.name] = {
                        "name": each.name, "kind": kind, "size": seen.st_size, "at": seen.st_mtime
                    }  # fmt: skip
    except OSError as error:
        msg = f"the folder of the reports cannot be read: {error.strerror or error}"
        raise UnknownReport(msg) from error
    return found


def _parts(content: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the single values of a report, and a table for each of its lists.

    >>> facts, [table] = _parts({"complete": True, "results": [{"policy": "queue", "p99": 0.25}]})
    >>> facts, table["title"], table["columns"], table["rows"]
    ({'complete': 'yes'}, 'results', ['policy', 'p99'], [['queue', '0.25']])
    """
    if not isinstance(content, dict):
        content = {"results": content}
    facts: dict[str, str] = {}
    tables = []
    for name, value in content.items():
        if isinstance(value, list) and any(isinstance(each, dict) for each in value):
            tables.append(_table(name, [each for each in value if isinstance(each, dict)]))
        elif isinstance(value, dict) and any(isinstance(each, dict) for each in value.values()):
            rows = [{"": key} | each for key, each in value.items() if isinstance(each, dict)]
            tables.append(_table(name, rows))
        else:
            facts |= _flat({name: value})
    return facts, tables


def _table(title: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    flat = [_flat(each) for each in found[:_MOST]]
    columns = list(dict.fromkeys(name for row in flat for name in row))[:_COLUMNS]
    rows = [[row.get(name, "") for name in columns] for row in flat]
    return {"title": title, "columns": columns, "rows": rows, "count": len(found)}


def _flat(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the single values of an object and of the objects in it; curves are left out."""
    found: dict[str, str] = {}
    for name, part in value.items():
        if isinstance(part, dict):
            found |= {f"{name} {key}": _cell(each) for key, each in part.items() if _single(each)}
        elif _single(part):
            found[name] = _cell(part)
        elif isinstance(part, list) and part and all(isinstance(each, str) for each in part):
            found[name] = _shortened(", ".join(part))
    return found


def _single(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _cell(value: Any) -> str:
    """Return a single value as text.

    >>> [_cell(each) for each in (None, True, 12345, 0.123456789, float("nan"))]
    ['', 'yes', '12,345', '0.1235', '']
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else _shortened(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."
