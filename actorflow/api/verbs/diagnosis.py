"""The verbs that help to find a cause: equal errors counted together, and the code that runs."""

from __future__ import annotations

import inspect
import re
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from actorflow.api.verbs.parameters import ExecutionId  # noqa: TC001 - read at run time
from actorflow.api.verbs.table import Access, verb
from actorflow.engine.handle import Execution
from actorflow.engine.kind import Status

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine

__all__: list[str] = []

Most = Annotated[
    int, Meta(ge=1, le=10_000, description="Stuck executions and dead letters to read, at most.")
]

_READ = 1_000
_IDS = 100  # that are named of one cause
_WIDEST = 200
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_NODE = re.compile(r"0(?:_\d+)*")


def fingerprint(text: str) -> str:
    """Return an error text without its numbers, so that equal causes are counted together.

    >>> fingerprint("Timeout: order 17 after 3.5 s")
    'Timeout: order # after #.# s'
    """
    return _NUMBER.sub("#", text.partition("\n")[0])[:_WIDEST]


@verb(Access.READ)
def errors(engine: BareEngine, *, limit: Most = _READ) -> dict[str, Any]:
    """Count stuck executions and dead letters by cause, the most frequent first."""
    store = engine.parts.store
    stuck: dict[str, dict[str, Any]] = {}
    page = store.listing(status=Status.STUCK.value, limit=limit)
    for row in page.rows:
        failure = Execution(engine.parts, row).failure
        text = "unknown" if failure is None else f"{failure.type}: {failure.message}"
        _count(stuck, text, row.id, row.updated)
    dead: dict[str, dict[str, Any]] = {}
    letters = store.dead(limit=limit)
    for letter in letters.rows:
        _count(dead, letter.error, letter.id, letter.at)
    return {
        "stuck": _sorted(stuck),
        "dead": _sorted(dead),
        "more": page.after is not None or letters.after is not None,
    }


def _count(causes: dict[str, dict[str, Any]], text: str, id: Any, at: float) -> None:  # noqa: A002
    cause = causes.setdefault(
        fingerprint(text), {"count": 0, "first": at, "last": at, "example": text, "ids": []}
    )
    cause["count"] += 1
    cause["first"], cause["last"] = min(cause["first"], at), max(cause["last"], at)
    if len(cause["ids"]) < _IDS:
        cause["ids"].append(id)


def _sorted(causes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{"cause": cause, **each} for cause, each in causes.items()]
    return sorted(found, key=lambda each: -each["count"])


@verb(Access.READ)
def code(engine: BareEngine, id: ExecutionId) -> dict[str, Any]:  # noqa: A002
    """Show the code of an execution: of a workflow its class, of a flow its text.

    `lines` are the lines of the text that are active now. A workflow has its code only where its
    class is registered.
    """
    row = engine.parts.row(id)
    found = engine.parts.kinds.get(row.kind)
    cls = getattr(found, "cls", None)
    if inspect.isclass(cls):
        return {"execution": id, **_class_shown(cls)}
    nodes = getattr(Execution(engine.parts, row).view, "nodes", None) if row.state else None
    if row.kind == "flow" and nodes:
        return {"execution": id, **_flow_shown(nodes)}
    return {"execution": id, "language": "", "file": "", "first": 1, "text": "", "lines": []}


def _class_shown(cls: type[Any]) -> dict[str, Any]:
    try:
        lines, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls) or ""
    except (OSError, TypeError):  # it was typed into an interpreter, or its file has gone
        lines, first, file = [], 1, ""
    return {"language": "python", "file": file, "first": first, "text": "".join(lines), "lines": []}


def _flow_shown(nodes: dict[str, Any]) -> dict[str, Any]:
    from actorflow.flows.language.formatter import format_tree  # noqa: PLC0415 - slow to import
    from actorflow.flows.language.parser import parse  # noqa: PLC0415

    root = nodes.get("0")
    if root is None or root.tree is None:
        text, lines = "", set()
    else:
        text = format_tree(root.tree)
        tree = parse(text)
        leaves = [nid for nid, node in nodes.items() if not node.cnodes]
        lines = {line for nid in leaves if (line := _line_of(tree, nid)) is not None}
    return {"language": "flow", "file": "", "first": 1, "text": text, "lines": sorted(lines)}


def _line_of(tree: Any, nid: str) -> int | None:
    """Return the line of a node of the main tree; `None` for nodes of functions."""
    place = nid.partition("-")[0]
    if not _NODE.fullmatch(place) or "-" in nid:
        return None
    line = None
    for index in islice(map(int, place.split("_")), 1, None):
        line, children = tree[2], tree[1]
        if not isinstance(children, list) or index >= len(children):
            return int(line)
        tree = children[index]
    return int(tree[2]) if isinstance(tree, list) else line
