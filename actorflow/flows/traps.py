"""Traps: what watches the messages of an execution, and reacts to those that match.

A trap is a JSON object: nid, bnid (the node it is bound to), range, points, tags, heaps, heats,
names, count, pl and the message to release. Matching costs nothing when there is no trap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.node import ROOT, without_suffix
from actorflow.flows.values import is_regex, to_regex

if TYPE_CHECKING:
    from actorflow.flows.execution import Execution
    from actorflow.flows.executor import Run
    from actorflow.flows.node import Message


def _is_below(run: Run, nid: str, top: str) -> bool:
    """Tell whether ``nid`` is ``top`` or hangs below it.

    For a node that is gone its id has to tell.
    """
    node = run.nodes.get(nid)
    if node is None:
        bare, bare_top = without_suffix(nid), without_suffix(top)
        return bare == bare_top or bare.startswith(f"{bare_top}_")
    while node is not None:
        if node.nid == top:
            return True
        node = None if node.parent is None else run.nodes.get(node.parent)
    return False


def _fits(wanted: list[Any] | None, values: list[str | None]) -> bool:
    """Tell whether one of ``values`` is among the ``wanted`` words and expressions.

    No wish fits all.
    """
    if not wanted:
        return True
    for value in values:
        for one in wanted:
            if is_regex(one):
                if value is not None and to_regex(one).search(value):
                    return True
            elif one == value:
                return True
    return False


def _fits_message(trap: dict[str, Any], message: Message) -> bool:
    """Tell whether a message has the point, the tags and the name a trap wants."""
    return (
        _fits(trap.get("points"), [message["point"]])
        and _fits(trap.get("tags"), list(message.get("tags") or ()))
        and _fits(trap.get("names"), [message.get("name")])
    )


def _fits_node(run: Run, trap: dict[str, Any], nid: str | None) -> bool:
    """Tell whether the node a message is for is of the kind a trap wants."""
    if not (trap.get("heaps") or trap.get("heats")):
        return True
    node = run.nodes.get(nid or "")
    if node is None:
        return False
    return _fits(trap.get("heaps"), [node.heap]) and _fits(trap.get("heats"), [node.heat0])


def _matches(run: Run, trap: dict[str, Any], message: Message) -> bool:
    nid = message.get("nid")
    if not (_fits_message(trap, message) and _fits_node(run, trap, nid)):
        return False
    own = trap["nid"]
    if any(one is not None and _is_below(run, one, own) for one in (nid, message.get("from"))):
        return False
    if trap.get("range", "subnid") == "subnid":
        return _is_below(run, nid or ROOT, trap["bnid"])
    return True


def shown(message: Message) -> Message:
    """Return a message as it is given to a function: without what only the machinery needs."""
    return {
        key: value
        for key, value in message.items()
        if not (value is None and key in ("nid", "from", "sm"))
    }


def matching(run: Run, message: Message) -> list[Message]:
    """Return a trigger for each trap that ``message`` springs; a trap goes after its count."""
    if message["point"] == "trigger":
        return []
    out = []
    for trap in run.traps[:]:
        if trap["nid"] not in run.nodes or not _matches(run, trap, message):
            continue
        _spend(run, trap)
        out.append({**_trigger(run.exid, trap, message), "sm": message["m"]})
    return out


def _spend(run: Run, trap: dict[str, Any]) -> None:
    """Count one springing of a trap; the last one removes it."""
    left = trap.get("left", trap.get("count"))
    if left is not None:
        run.traps.remove(trap)
        if left > 1:
            run.traps.append({**trap, "left": left - 1})


def triggers_from_elsewhere(owner: Execution, message: Message, domain: str) -> list[Message]:
    """Return the triggers for traps of ``owner`` that a message of another execution springs.

    Only traps with ``range: 'domain'`` or ``'subdomain'`` look that far. The engine puts the
    triggers into the owner's inbox; whether a trap is still there is seen when they are processed.
    """
    out = []
    for trap in owner.traps:
        wide = trap.get("range")
        near = domain == owner.domain or not owner.domain
        below = wide == "subdomain" and domain.startswith(f"{owner.domain}.")
        if wide not in ("domain", "subdomain") or not (near or below):
            continue
        if _fits_message(trap, message):
            out.append({**_trigger(owner.exid, trap, message), "trap_id": trap["id"]})
    return out


def take_from_elsewhere(run: Run, message: Message) -> bool:
    """Count a springing from elsewhere; tell whether the trap was still there."""
    wanted = message["trap_id"]
    trap = next((one for one in run.traps if one["id"] == wanted), None)
    if trap is not None:
        _spend(run, trap)
    return trap is not None


def _trigger(exid: str, trap: dict[str, Any], message: Message) -> Message:
    released: Message = dict(trap["message"])
    event = shown(message)
    arguments: list[list[Any]] = [["msg", event]]
    if message["point"] == "signal":
        arguments.append(["sig", message.get("name")])
    if trap.get("pl") == "event":
        arguments.append(["payload", released.get("payload")])
        released["payload"] = message.get("payload") or {}
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


def add_arguments(released: Message, trigger: Message) -> None:
    """Give the function of a schedule the message that set it off."""
    released["arguments"] = [
        ["msg", {k: v for k, v in trigger.items() if k not in ("message", "timer")}]
    ]
