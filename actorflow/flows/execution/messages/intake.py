"""What a message that comes from outside has to be, before it is given to the execution.

Messages that a run emits are made by us and carry ``er``, the number of that run. All others come
through an engine's inbox: one that makes no sense is refused, and the rest of the batch goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.node import NID
from actorflow.flows.language.checks import check_once, check_tree
from actorflow.flows.values.text import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import FlowRun

    _Kinds: TypeAlias = tuple[frozenset[type[Any]], str]


def accepted(run: FlowRun, messages: Iterable[Message]) -> list[Message]:
    """Return copies of the messages; refuse other values, and messages with an unknown point."""
    taken: list[Message] = []
    for message in messages:
        if type(message) is not dict:
            run.refuse({"point": None, "given": message}, "it is not an object")
        elif (why := point_fault(message)) is not None:
            run.refuse(message, why)
        else:
            taken.append(message.copy())
    return taken


def point_fault(message: Message) -> str | None:
    """Return the fault of the point of a message from outside, or None."""
    point = message.get("point")
    if type(point) is not str or point not in _POINTS:
        return f"there is no point {brief(point)}"
    if point not in _CHECKS and "er" not in message:
        return "only the execution itself says that"
    return None


def fault_of(message: Any) -> str | None:
    """Return why something can be no message to any execution, or None."""
    if type(message) is not dict:
        return "it is not an object"
    return point_fault(message) or _bad_field(message)


def refuses(run: FlowRun, message: Message) -> bool:
    """Refuse a message from outside that cannot be processed now; return whether it was refused."""
    why = _fault(run, message)
    if why is None:
        return False
    run.refuse(message, why)
    return True


def _fault(run: FlowRun, message: Message) -> str | None:
    """Return why a message from outside cannot be processed now, or None."""
    if message.setdefault("exid", run.exid) != run.exid:
        return f"it is for execution {brief(message['exid'])}, and this is {run.exid}"
    try:
        return _bad_field(message) or _CHECKS[message["point"]](run, message)
    except FlowError as error:
        return str(error)


def _bad_field(message: Message) -> str | None:
    """Return which field of a message is of a wrong type, or None."""
    for field, value in message.items():
        if field in _FIELDS and type(value) not in _FIELDS[field][0]:
            return f"{field} is {brief(value)}, and has to be {_FIELDS[field][1]}"
    return None


_RELEASED = ("execute", "cancel", "receive")
_NONE = type(None)
_TEXT: _Kinds = (frozenset((str, _NONE)), "a string")
_OBJECT: _Kinds = (frozenset((dict, _NONE)), "an object")
_ARRAY: _Kinds = (frozenset((list, _NONE)), "an array")
_FIELDS: dict[str, _Kinds] = {
    "nid": _TEXT,
    "from": _TEXT,
    "flavour": _TEXT,
    "vars": _OBJECT,
    "cnid": _TEXT,
    "cause": _ARRAY,
    "on_receive_last": _ARRAY,
    "sm": (frozenset((int, _NONE)), "a number"),
}
"""What each field has to be where it is given at all."""


def _execute(run: FlowRun, message: Message) -> str | None:
    nid = message.get("nid")
    if nid is None or NID.fullmatch(nid) is None:
        return f"{brief(nid)} is not the id of a node"
    if nid in run.nodes:
        return f"node {nid} is there already"
    if (parent := message.get("from")) is not None and parent not in run.nodes:
        return f"there is no node {parent}"
    check_once(message.get("tree") or [], run.sizes.limits)
    return _payload(message)


def _payload(message: Message) -> str | None:
    payload = message.get("payload")
    if payload is not None and type(payload) is not dict:
        return f"a payload is a JSON object, not {type(payload).__name__}: {brief(payload)}"
    return None


def _at_node(run: FlowRun, message: Message) -> str | None:
    nid = message.get("nid")
    if nid is None:
        return "it names no node (nid)"
    return None if nid in run.nodes else f"there is no node {brief(nid)}"


def _cancel(run: FlowRun, message: Message) -> str | None:
    nid = message.get("nid")
    is_late = run.nodes and nid not in run.nodes and not message.get("on_receive_last")
    if is_late and type(nid) is str and NID.fullmatch(nid) is not None:
        return _payload(message)  # it has no effect, but the history shows it
    for waiting in message.get("on_receive_last") or ():
        if type(waiting) is not dict or waiting.get("point") != "execute":
            return f"{brief(waiting)} cannot be put in the place of a node"
        nid = waiting.get("nid")
        if type(nid) is not str or NID.fullmatch(nid) is None:
            return f"{brief(nid)} is not the id of a node"
        check_tree(waiting.get("tree") or [], limits=run.sizes.limits)
        if why := _payload(waiting):
            return why
    return _at_node(run, message) or _payload(message)


def _receive(_run: FlowRun, message: Message) -> str | None:
    if message.get("nid") is None and message.get("from") is None:
        return "it names neither the node that answers (from) nor the one it answers to (nid)"
    return _payload(message)


def _return(_run: FlowRun, message: Message) -> str | None:
    return None if message.get("nid") is not None else "it names no node (nid)"


def _failed(run: FlowRun, message: Message) -> str | None:
    if type(message.get("error")) is not dict:
        return f"its error is {brief(message.get('error'))}, and has to be an object"
    return _at_node(run, message) or _payload(message)


def _signal(_run: FlowRun, message: Message) -> str | None:
    if type(message.get("name")) is not str:
        return f"{brief(message.get('name'))} is not the name of a signal"
    return _payload(message)


def _trigger(run: FlowRun, message: Message) -> str | None:
    released = message.get("message")
    if message.get("nid") is None:
        return "it names no node (nid)"
    if type(released) is not dict or released.get("point") not in _RELEASED:
        return f"it releases {brief(released)}, and not a message that a timer or a trap holds back"
    if why := _bad_field(released) or _payload(released):
        return f"what it releases is wrong: {why}"
    if released.get("nid") is None and released["point"] != "receive":
        return "it releases a message that names no node (nid)"
    if released["point"] == "execute":
        check_once(released.get("tree") or [], run.sizes.limits)
    return None


def _add(run: FlowRun, message: Message) -> str | None:
    trees, elements = message.get("trees"), message.get("elements")
    if (trees is None) == (elements is None):
        return "it needs either trees or elements to add"
    if elements is not None and type(elements) is not list:
        return f"{brief(elements)} is not an array of elements"
    if trees is not None:
        tnid = message.get("tnid")
        if type(trees) is not list or type(tnid) is not str or NID.fullmatch(tnid) is None:
            return "it needs an array of trees, and the id (tnid) of the first of them"
        for tree in trees:
            check_tree(tree, limits=run.sizes.limits, above=tnid.count("_"))
    return _at_node(run, message) or _payload(message)


_CHECKS: dict[str, Callable[[FlowRun, Message], str | None]] = {
    "execute": _execute,
    "receive": _receive,
    "cancel": _cancel,
    "return": _return,
    "failed": _failed,
    "signal": _signal,
    "trigger": _trigger,
    "add": _add,
}
"""The points of messages that come from outside."""
_OWN = ("task", "detask", "schedule", "trap", "entered", "left", "terminated", "ceased")
_POINTS = frozenset((*_CHECKS, *_OWN))
