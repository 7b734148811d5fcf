"""Traps: they watch the messages of an execution and release a message for each match.

A trap is a JSON object: nid, bnid (the node it is bound to), range, points, tags, heaps, heats,
names, count, pl and the message to release. Without traps, matching costs nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.node import ROOT
from actorflow.flows.values.regexes import Regex, to_regex
from actorflow.flows.values.values import is_regex

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import FlowRun


_ELSEWHERE = frozenset(("domain", "subdomain"))
_WIDE = _ELSEWHERE | {"execution"}
_COMMA = re.compile(r"\s*,\s*")
_CRITERIA = ("points", "tags", "names", "heaps", "heats")
_REGEX = re.compile(r"/.*/[imxouesn]*", re.DOTALL)


def set_trap(run: FlowRun, message: Message) -> list[Message]:
    """Set a trap. Raises FlowError when a criterion of it is not a regular expression."""
    for key in _CRITERIA:
        for wanted in message["trap"].get(key) or ():
            _as_regex(wanted)
    run.traps.append({**message["trap"], "id": f"{message['nid']}#{message['m']}"})
    return []


def _is_below(run: FlowRun, nid: str, top: str) -> bool:
    """Return whether the live node ``nid`` is ``top`` or below it; ``top`` may be gone."""
    node = run.nodes.get(nid)
    while node is not None:
        if top in (node.nid, node.parent):
            return True
        node = None if node.parent is None else run.nodes.get(node.parent)
    return False


def _as_regex(wanted: Any) -> Regex | None:
    """Return the criterion as a regular expression, if it is one or is written like one."""
    if is_regex(wanted):
        return to_regex(wanted)
    if type(wanted) is str and _REGEX.fullmatch(wanted):
        return to_regex(["_rxs", wanted, 0])
    return None


def _fits_one(wanted: Any, value: str | None) -> bool:
    """Return whether a word matches: the word itself, a list with commas, or an expression."""
    if wanted == value or value is None:
        return bool(wanted == value)
    if regex := _as_regex(wanted):
        return bool(regex.search(value))
    return type(wanted) is str and value in _COMMA.split(wanted)


def _fits(wanted: list[Any] | None, values: list[str | None]) -> bool:
    """Return whether one of ``values`` matches one of ``wanted``; None matches everything."""
    return wanted is None or any(_fits_one(one, value) for value in values for one in wanted)


def _fits_message(trap: dict[str, Any], message: Message) -> bool:
    """Return whether a message has the point, the tags and the name that a trap wants."""
    point = message["point"]
    tags = trap.get("tags")
    return (
        _fits(trap.get("points"), [point])
        and (
            tags is None
            or (point in ("entered", "left") and _fits(tags, message.get("tags") or []))
        )
        and _fits(trap.get("names"), [message.get("name")])
    )


def _fits_node(run: FlowRun, trap: dict[str, Any], nid: str | None) -> bool:
    """Return whether the node of a message has the heap and heat that a trap wants."""
    if trap.get("heaps") is None and trap.get("heats") is None:
        return True
    node = run.nodes.get(nid or "")
    if node is None:
        return False
    return _fits(trap.get("heaps"), [node.heap]) and _fits(trap.get("heats"), [node.heat0])


def _is_in_range(run: FlowRun, trap: dict[str, Any], nid: str | None) -> bool:
    """Return whether a message for ``nid`` is in the range of a trap.

    A message for a removed node, or for none, is only in range of the root.
    """
    if trap.get("range") in _WIDE:
        return True
    if nid is None or nid not in run.nodes:
        return bool(trap["bnid"] == ROOT)
    return _is_below(run, nid, trap["bnid"])


def _matches(run: FlowRun, trap: dict[str, Any], message: Message) -> bool:
    nid = message.get("nid")
    sender = message.get("from") or nid
    return (
        _fits_message(trap, message)
        and not (sender is not None and _is_below(run, sender, trap["nid"]))
        and _is_in_range(run, trap, nid)
        and _fits_node(run, trap, nid)
    )


def matching(run: FlowRun, message: Message) -> list[Message]:
    """Return a trigger for each trap that matches; a trap is removed after its count."""
    if message["point"] == "trigger":
        return []
    out = []
    for trap in run.traps[:]:
        if _matches(run, trap, message):
            _spend(run, trap)
            out.append({**_trigger(run.exid, trap, message), "sm": message["m"]})
    return out


def drop_ended(run: FlowRun) -> None:
    """Drop the traps of nodes that have ended and are kept, because functions close over them."""
    nodes = run.nodes
    run.traps = [
        trap for trap in run.traps if trap["nid"] in nodes and nodes[trap["nid"]].state != "ended"
    ]


def _spend(run: FlowRun, trap: dict[str, Any]) -> None:
    """Count one match of a trap; the last one removes it."""
    left = trap.get("left", trap.get("count"))
    if left is not None:
        place = next(place for place, one in enumerate(run.traps) if one is trap)
        run.traps[place : place + 1] = [{**trap, "left": left - 1}] if left > 1 else []


def trigger_from_elsewhere(
    exid: str, owner: str, trap: dict[str, Any], message: Message, domain: str
) -> Message | None:
    """Return the trigger for a trap of ``exid`` that matches a message of another execution.

    ``owner`` is the domain of ``exid``, ``domain`` that of the message. Call it only for a trap
    that `looks_elsewhere`. Whether the trap still exists is checked when the trigger is processed.
    """
    near = domain == owner or not owner
    below = trap.get("range") == "subdomain" and domain.startswith(f"{owner}.")
    if not (near or below) or not _fits_message(trap, message):
        return None
    return {**_trigger(exid, trap, message), "trap_id": trap["id"]}


def looks_elsewhere(trap: dict[str, Any]) -> bool:
    """Return whether a trap also watches the messages of other executions."""
    return trap.get("range") in _ELSEWHERE


def take_from_elsewhere(run: FlowRun, message: Message) -> bool:
    """Count a match from another execution; return whether the trap still exists."""
    wanted = message["trap_id"]
    trap = next((one for one in run.traps if one["id"] == wanted), None)
    if trap is not None:
        _spend(run, trap)
    return trap is not None


def _trigger(exid: str, trap: dict[str, Any], message: Message) -> Message:
    released: Message = dict(trap["message"])
    arguments: list[list[Any]] = [["msg", message]]
    if message["point"] == "signal" and message.get("name") is not None:
        arguments.append(["sig", message["name"]])
    payload = trap.get("pl")
    if payload == "event":
        arguments.append(["payload", released.get("payload")])
        released["payload"] = message.get("payload") or {}
    elif type(payload) is dict:
        released["payload"] = payload
    released["arguments"] = arguments
    digest = {"nid": trap["nid"], "bnid": trap["bnid"], "trange": trap.get("range", "subnid")}
    for key in ("points", "tags", "heaps", "heats"):
        if trap.get(key):
            digest[f"t{key}"] = ",".join(
                one if type(one) is str else str(one[1]) for one in trap[key]
            )
    return {
        "point": "trigger",
        "exid": exid,
        "nid": trap["nid"],
        "type": "trap",
        "trap": digest,
        "message": released,
    }
