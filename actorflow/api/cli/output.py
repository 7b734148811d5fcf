"""How commands print: tables and sections for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "counted",
    "lines_of",
    "moment",
    "note",
    "pages",
    "say",
    "say_json",
    "shortened",
    "table",
]

_MOST = 1_000  # rows that are asked for at once
_WIDEST = 160  # characters of a body that is shown to people


def say(text: str = "", *, flush: bool = False) -> None:
    """Print a line; nothing where the program was started without stdout."""
    print(text, flush=flush)  # noqa: T201 - that is what it is for


def note(text: str) -> None:
    """Print a line that is not part of the answer."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")


def say_json(value: Any) -> None:
    """Print data as JSON."""
    say(json.dumps(value, indent=2))


def counted(count: int, name: str) -> str:
    """Return a number with what it counts.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def moment(seconds: float) -> str:
    """Return a moment as people write it, in UTC.

    >>> moment(0.0)
    '1970-01-01 00:00:00'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their heads."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        say("  ".join(map(str.ljust, row, widths)).rstrip())


def lines_of(execution: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that show one execution to people."""
    for name in ("id", "kind", "status", "revision", "parent"):
        if execution[name] is not None:
            yield f"{name:<9}{execution[name]}"
    for name in ("created", "updated"):
        yield f"{name:<9}{moment(execution[name])} UTC"
    if execution["tags"]:
        tags = [f"{name}={value}" for name, value in sorted(execution["tags"].items())]
        yield f"tags     {', '.join(tags)}"
    error = execution["error"]
    if error is not None:
        yield f"error    {error['type']}: {error['message']}"
    if execution["result"] is not None:
        yield f"result   {json.dumps(execution['result'])}"
    yield "view"
    yield from (f"  {line}" for line in json.dumps(execution["view"], indent=2).splitlines())
    for part in ("messages", "timers", "tasks", "dead", "history"):
        rows = execution[part]
        if rows:
            yield f"{part} ({len(rows)}{'+' if part in execution['more'] else ''})"
            yield from (f"  {_line_of(row)}" for row in rows)


def _line_of(row: Mapping[str, Any]) -> str:
    parts = [str(row["id"])]
    if row.get("due"):
        parts.append(f"due {moment(row['due'])} UTC")
    if "at" in row:
        parts.append(f"{moment(row['at'])} UTC")
    parts += [str(row[name]) for name in ("type", "tasker", "error") if name in row]
    return "  ".join([*parts, shortened(json.dumps(row["body"]))])


def shortened(text: str) -> str:
    """Return a string that fits on a line or two."""
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def pages(
    read: Callable[..., dict[str, Any]], name: str, limit: int, **filters: Any
) -> tuple[list[dict[str, Any]], bool]:
    """Return at most `limit` rows, page by page, and whether there are more."""
    rows: list[dict[str, Any]] = []
    after = None
    while len(rows) < limit:
        page = read(**filters, after=after, limit=min(limit - len(rows), _MOST))
        rows += page[name]
        after = page["after"]
        if after is None:
            return rows, False
    return rows, True
