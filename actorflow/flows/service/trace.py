r"""The trace of an execution as text: a frame for each run, a line for each message.

    /--- run starts main-u0-20261021.0830.mechulorucho
    |   {counters:{},nodes:0,size:0}
   ucho 0 exe [sequence L1] [task,[[_att,[[_sqs,alice,2]],2]],2] m1s_ f.ret null
   ucho 0_0 exe [task L2] [_att,[[_sqs,alice,2]],2] m2s1r1>1 from 0 f.ret null
    |   run ends main-u0-20261021.0830.mechulorucho
    |   {started:"2026-10-21T08:30:48.174253Z",took:0.019922}
    |   {consumed:12,traps:0}
    |   {counters:{runs:1,msgs:12,omsgs:0},nodes:2,size:465}
    \--- .

``m5s4r1>2``: message 5 was emitted by message 4 in run 1 and processed in run 2; ``s_`` and no run
mean that it came from outside.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from actorflow.flows.values.text import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actorflow.flows.execution.node import Message

__all__ = ["trace_lines"]

_TAIL = 4  # characters of the id on each line


def trace_lines(exid: str, runs: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a trace, from the records of the runs."""
    known: dict[str, tuple[str, int, str | None]] = {}
    for entry in runs:
        yield from _run_lines(exid, entry, known)


def _run_lines(
    exid: str, entry: dict[str, Any], known: dict[str, tuple[str, int, str | None]]
) -> Iterator[str]:
    """Yield the lines of one run; ``known`` has the nodes executed so far."""
    counters, nodes = entry["before"]
    size = entry.get("size_before", 0)
    yield f"    /--- run starts {exid}"
    yield f"    |   {brief({'counters': counters, 'nodes': nodes, 'size': size}, None)}"
    for message in entry["messages"]:
        tree = message.get("tree")
        if message["point"] == "execute" and tree is not None:
            known[message["nid"]] = (tree[0], tree[1], message.get("heap"))
        yield f"   {_message_line(exid, message, known.get(message.get('nid') or ''))}"
    for refused in entry.get("refused", ()):
        yield f"    |   ! {refused}"
    started = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="microseconds")
    times = {"started": started.replace("+00:00", "Z"), "took": round(entry["took"], 6)}
    counts = {"consumed": len(entry["messages"]), "traps": entry["traps"]}
    after = {key: entry[key] for key in ("counters", "nodes", "size")}
    yield f"    |   run ends {exid}"
    for part in (times, counts, after):
        yield f"    |   {brief(part, None)}"
    yield "    \\--- ."


def _message_line(exid: str, message: Message, node: tuple[str, int, str | None] | None) -> str:
    """Return one message as a line."""
    parts = [exid[-_TAIL:]]
    if message.get("nid") is not None:
        parts.append(message["nid"])
    parts.append(message["point"][:3])
    parts += _what(message, node)
    parts.append(_numbers(message))
    if message.get("from") is not None:
        parts.append(f"from {message['from']}")
    if "flavour" in message:
        parts.append(f"flavour:{message['flavour']}")
    if "error" in message:
        parts.append(f"err:{message['error'].get('kla')} {brief(message['error'].get('msg'))}")
    if message.get("payload") is not None:
        parts.append(f"f.ret {brief(message['payload'].get('ret'))}")
    if message.get("seen"):
        parts.append(f"vars:{','.join(message['seen'])}")
    return " ".join(parts)


def _what(message: Message, node: tuple[str, int, str | None] | None) -> Iterator[str]:
    """Yield the head and the line of the node, and the tree it executes or its procedure."""
    if node is None:
        return
    head, line, heap = node
    yield f"[{head} L{line}]"
    if message["point"] == "execute":
        yield from filter(None, (message["tree"][2],))
    elif heap is not None:
        yield f"hp:{heap}"


def _numbers(message: Message) -> str:
    sm = message.get("sm")
    text = f"m{message['m']}s{'_' if sm is None else sm}"
    return text if message.get("er") is None else f"{text}r{message['er']}>{message['pr']}"
