"""``failed``: marks the node, and looks for an on_error handler in it and above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import ERROR_NAMES, NotFound, error_dict
from actorflow.flows.execution.procedure import procedure_for
from actorflow.flows.values.regexes import to_regex
from actorflow.flows.values.values import dup_function

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import FlowRun


_FAMILY = frozenset(("FlowError", "FlorError", "Flor::FlorError"))
"""Names that match any error of the flow itself; the last two for flows written for flor."""


def matches(criteria: list[Any], error: dict[str, Any]) -> bool:
    """Return whether all criteria match: ``*``, a class, a text or class, or an expression."""
    kla, msg = str(error.get("kla", "")), str(error.get("msg", ""))
    names = {kla, kla.rpartition("::")[2]}
    if kla in ERROR_NAMES:
        names |= _FAMILY
    if kla == NotFound.__name__:
        names.add("KeyError")
    return all(one == "*" or _fits(one, names, msg) for one in criteria)


def _fits(criterion: list[Any], names: set[str], text: str) -> bool:
    kind, wanted = criterion[0], criterion[1]
    if kind == "regex":
        pattern = to_regex(wanted)
        return any(pattern.search(one) for one in (text, *names))
    return wanted in [*names, text] if kind == "string" else wanted in [*names]


def find_handler(run: FlowRun, node: Node, error: dict[str, Any]) -> tuple[Node, Any] | None:
    """Return the nearest node, from the failed one upwards, with a handler, and that handler.

    A failure inside a handler is not for that handler, so the first match is skipped then.
    """
    found: Node | None = node
    inside = False
    while found is not None:
        inside = inside or bool(found.own.get("on_error") or found.own.get("handles"))
        handlers = (found.handlers or {}).get("error") if found.state != "ended" else None
        for criteria, handler in handlers or ():
            if matches(criteria, error):
                if not inside:
                    return found, handler
                inside = False
                break
        found = None if found.parent is None else run.nodes.get(found.parent)
    return None


def _handle(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """Close the node with the handler, cancel its children, then apply the handler.

    Without a handler nothing is emitted; the branch waits for a repair (cancel, kill, re-apply).
    """
    error = message["error"]
    found = find_handler(run, node, error)
    if found is None:
        return []
    message["on_error"] = True
    catcher = run.touch(found[0].nid)
    if catcher.heap is None:
        catcher.heap = "_err"
        run.orphans.remove(catcher.nid)
        if (parent := run.parent_of(catcher)) is not None:
            parent.cnodes.append(catcher.nid)
    handler = found[1]
    procedure = procedure_for(run, catcher, message)
    if type(handler) is dict:
        waiting = [{**handler, "exid": run.exid}]
    else:
        payload = message.get("payload") or {}
        shown = {**message, "payload": {**payload, "ret": dup_function(payload.get("ret"))}}
        arguments = [["msg", shown], ["err", error]]
        mark: dict[str, Any] = {"on_error" if handler[1].get("on_error") else "handles": True}
        waiting = [procedure.apply(handler, arguments, line=handler[2], **mark)]
    run.close(catcher, message, flavour="on-error", handled=True)
    return procedure.clear(waiting)


def failed(run: FlowRun, message: Message) -> list[Message]:
    """Mark the node as failed, and look for a handler."""
    node = run.find(message.get("nid") or "")
    if node is None:
        return []
    node.failure = {k: v for k, v in message.items() if k != "payload"}
    return _handle(run, node, message)


def failed_message(run: FlowRun, message: Message, error: BaseException) -> Message:
    """Return the failed message that replaces whatever ``message`` would have emitted."""
    emitted: Message = {"exid": run.exid}
    for key in ("from", "nid", "sm", "payload", "tree", "tasker"):
        if message.get(key) is not None:
            emitted[key] = message[key]
    node = run.nodes.get(message.get("nid") or "")
    line = None
    if node is not None:
        tree = run.trees.get(node.nid) or node.tree
        line = tree[2] if tree is not None else None
    described = error_dict(error, procedure=None if node is None else node.heat0, line=line)
    emitted.update(point="failed", fpoint=message["point"], fm=message["m"], error=described)
    return emitted
