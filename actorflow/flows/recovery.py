"""After a failure: the search for an on_error handler, from the failed node up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.values import is_regex, to_regex

if TYPE_CHECKING:
    from actorflow.flows.executor import Run
    from actorflow.flows.node import Message, Node


_FLOW_ERRORS = frozenset(["FlowError", *(cls.__name__ for cls in FlowError.__subclasses__())])
_FAMILY = frozenset(("FlowError", "FlorError", "Flor::FlorError"))
"""Names that stand for any error of the flow's own making.

The last two for flows written elsewhere.
"""


def matches(criteria: list[Any], error: dict[str, Any]) -> bool:
    """Tell whether all criteria fit: ``*``, a class, the exact text, or an expression."""
    kla, msg = str(error.get("kla", "")), str(error.get("msg", ""))
    names = {kla, msg}
    if kla in _FLOW_ERRORS:
        names |= _FAMILY
    for criterion in criteria:
        if criterion == "*" or (type(criterion) is str and criterion in names):
            continue
        if is_regex(criterion):
            pattern = to_regex(criterion)
            if pattern.search(msg) or pattern.search(kla):
                continue
        return False
    return True


def _is_busy(node: Node) -> bool:
    """Tell whether the node's own handler is what is running."""
    return node.state is not None and node.flavour == "on-error"


def find_handler(run: Run, node: Node, error: dict[str, Any]) -> tuple[Node, Any] | None:
    """Return the nearest node, from the failed one up, that can handle ``error``, and how."""
    found: Node | None = node
    while found is not None:
        handlers = (found.handlers or {}).get("error")
        if handlers and not _is_busy(found) and found.state != "ended":
            for criteria, handler in handlers:
                if matches(criteria, error):
                    return found, handler
        found = None if found.parent is None else run.nodes.get(found.parent)
    return None


def handle(run: Run, node: Node, message: Message) -> list[Message]:
    """Close the node that has the handler, cancel what runs below it, then apply the handler.

    Without a handler nothing is emitted: the branch waits for a repair (cancel, kill, re-apply).
    """
    error = message["error"]
    found = find_handler(run, node, error)
    if found is None:
        return []
    message["on_error"] = True
    catcher = run.touch(found[0].nid)
    handler = found[1]
    procedure = run.procedure_for(catcher, message)
    if type(handler) is dict:
        waiting = [{**handler, "exid": run.exid}]
    else:
        shown = dict(message)
        arguments = [["msg", shown], ["err", error]]
        waiting = [run.apply(procedure, handler, arguments, line=handler[2], on_error=True)]
    run.close(catcher, message, flavour="on-error", handled=True)
    return procedure.clear(waiting)
