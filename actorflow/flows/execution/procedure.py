"""The base class of procedures: how a node starts, receives, is cancelled and replies.

A Procedure object lives for one message: it gets the run, the node, the message and the tree, and
returns the messages to emit. ``payload`` is at first that of the message and is replaced, never
changed in place; the history shows the message with the last one.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

from actorflow.flows.errors import FlowError, UnknownProcedure
from actorflow.flows.execution.node import NID, child_id, child_nid, without_suffix
from actorflow.flows.language.checks import check_once
from actorflow.flows.values.text import brief
from actorflow.flows.values.values import Value, dup_function, is_reference

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.execution.run import FlowRun
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.limits import Limits

_KEEP_AS_ATT = frozenset(("flank", "off", "disabled"))
UNSET: Any = object()


class Procedure:
    """The default behaviour: attributes first, then the children in order, then a reply."""

    __slots__ = ("message", "node", "payload", "run", "tree")

    unatts: ClassVar[bool] = False
    """Reorder the children on entry: keyed attributes, values of unkeyed ones, then the rest."""
    collects: ClassVar[bool] = False
    """Keep the results of all children in ``node.rets``."""
    keeps_atts: ClassVar[bool] = False
    """Keep the attributes in ``node.atts`` as ``[key or None, value]``."""
    trails: ClassVar[bool] = True
    """Cancel the children that are still alive when the node is left."""

    def __init__(self, run: FlowRun, node: Node, message: Message, tree: Tree) -> None:
        """Prepare for one message; nothing is changed yet."""
        self.run = run
        self.node = node
        self.message = message
        self.payload: Payload = message.get("payload") or {}
        self.tree = tree

    # -- entry --------------------------------------------------------------------------------

    def execute(self) -> list[Message]:
        """Enter the node: prepare it, add it to its parent, and start."""
        node = self.node
        if self.unatts:
            self._unatt()
        if self.collects:
            node.rets = []
        if self.keeps_atts:
            node.atts = []
        self.pre_execute()
        if node.parent is not None:
            parent = self.run.find(node.parent)
            if parent is not None and node.nid not in parent.cnodes:
                parent.cnodes.append(node.nid)
        return self.start()

    def pre_execute(self) -> None:
        """Set up the node's fields or rewrite its tree; called once, on entry."""

    def start(self) -> list[Message]:
        """Run the first child; a procedure without children may reply instead."""
        return self.execute_child(0)

    def rewrite(self, tree: Tree) -> None:
        """Replace the tree of the node; the ids of children follow the new order."""
        self.tree = tree
        self.node.tree = tree
        self.run.trees[self.node.nid] = tree

    def _unatt(self) -> None:
        """Put keyed attributes first, then unkeyed ones unwrapped, then the rest."""
        tree = self.tree
        children = tree[1]
        if type(children) is not list or not any(child[0] == "_att" for child in children):
            return
        keyed, values, rest = [], [], []
        for child in children:
            if child[0] != "_att":
                rest.append(child)
            elif len(child[1]) > 1 or (child[1][0][0] in _KEEP_AS_ATT and child[1][0][1] == []):
                keyed.append(child)
            else:
                values.append(child[1][0])
        self.rewrite([tree[0], keyed + values + rest, *tree[2:]])

    # -- hearing from children ----------------------------------------------------------------

    def receive(self) -> list[Message]:
        """Continue after a child; ``from`` in the message is its nid."""
        came_from = self.message.get("from")
        if came_from is None:
            return self.receive_outside()
        index = child_id(came_from)
        children = self.tree[1]
        if index < len(children) and children[index][0] == "_att":
            return self.receive_att(index)
        return self.receive_non_att(index)

    def receive_outside(self) -> list[Message]:
        """Continue after a message that is not from a child, such as a tasker's answer."""
        return self.execute_child(0)

    def receive_att(self, index: int) -> list[Message]:
        """Continue after an attribute."""
        children = self.tree[1]
        if index + 1 < len(children) and children[index + 1][0] == "_att":
            return self.execute_child(index + 1)
        return self.receive_last_att(index)

    def receive_last_att(self, index: int) -> list[Message]:
        """Continue after the last attribute."""
        if index + 1 < len(self.tree[1]):
            return self.execute_child(index + 1)
        return self.receive_last()

    def receive_non_att(self, index: int) -> list[Message]:
        """Continue after a child that is not an attribute."""
        self._keep_ret()
        if index + 1 < len(self.tree[1]):
            return self.execute_child(index + 1)
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Continue after the last child."""
        return self.reply()

    def receive_when_closed(self) -> list[Message]:
        """Take an answer as a closed node; after the last one, emit waiting messages or reply."""
        node = self.node
        if self.run.has_live_children(self.node):
            return []
        if node.on_receive_last:
            return emit_waiting(self)
        return self.reply()

    # -- cancelling ---------------------------------------------------------------------------

    def cancel_message(self) -> list[Message]:
        """Take a ``cancel`` message of any flavour except kill."""
        node, message = self.node, self.message
        if message.get("payload") is None:
            self.payload = node.payload
        status = node.status[-1] if node.status else None
        if status is not None:
            if status["status"] == "ended":
                return []
            if self._leads_here(status):
                return reply_cancelled(self)
            return self.cancel_when_closed(status)
        waiting = messages_after_children(self)
        self.run.close(node, message, handled=bool(waiting) and "on_receive_last" not in message)
        return self.cancel(waiting)

    def _leads_here(self, status: dict[str, Any]) -> bool:
        """Return whether the message that closed this node is a cause of the current one."""
        closed_by = status.get("m")
        return any(cause["m"] == closed_by for cause in (self.message.get("cause") or [])[1:])

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Take a cancel for a node that is already closed; its messages wait as well."""
        waiting = messages_after_children(self)
        if waiting:
            self.node.on_receive_last = waiting
        return []

    def cancel(self, waiting: list[Message] | None) -> list[Message]:
        """Cancel this node, which has just been closed.

        ``waiting`` is to be emitted after the last child has answered.
        """
        return self.clear(waiting)

    def clear(self, waiting: list[Message] | None) -> list[Message]:
        """Cancel the children; if none of them will answer, emit ``waiting``, or reply."""
        node = self.node
        node.on_receive_last = waiting or None
        cancels = cancels_of_children(self)
        if cancels and self.run.has_live_children(node):
            return cancels
        if node.on_receive_last:
            return cancels + emit_waiting(self)
        return cancels + reply_cancelled(self)

    def add_message(self) -> list[Message]:
        """Take an ``add`` message: insert trees, to be run when it is their turn.

        Refused if that has passed. Raises FlowError for elements, which only iterators take.
        """
        if self.message.get("elements") is not None:
            raise FlowError("procedure does not accept add-iteration")
        children = list(self.tree[1])
        at = child_id(self.message["tnid"])
        place = without_suffix(self.node.nid)
        for nid, node in self.run.nodes.items():
            if (
                node.parent == self.node.nid
                and at <= child_id(nid)
                and without_suffix(nid).rpartition("_")[0] == place
            ):
                self.run.refuse(self.message, f"node {nid} has begun, too late for a child at {at}")
                return []
        children[at:at] = self.message.get("trees") or []
        self.rewrite([self.tree[0], children, *self.tree[2:]])
        return []

    # -- emitting -----------------------------------------------------------------------------

    def wrap(self, point: str, nid: str | None, **fields: Any) -> Message:
        """Return a message from this node, with the current payload and causes."""
        message, node = self.message, self.node
        emitted: Message = {
            "point": point,
            "exid": message["exid"],
            "nid": nid,
            "from": node.nid,
            "sm": message["m"],
            "payload": self.payload,
        }
        if message.get("cause"):
            emitted["cause"] = message["cause"]
        if node.vars and "idx" in node.vars:
            emitted["rvars"] = {"idx": node.vars["idx"]}
        if node.aret is not None:
            emitted["payload"] = {**self.payload, "ret": node.aret[0]}
        if node.own and "child" in node.own:
            for kind, handlers in node.own["child"].items():
                emitted[f"on_{kind}_handler"] = handlers
        if fields:
            emitted.update(fields)
        return emitted

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Run child ``index``, or reply if it does not exist."""
        children = self.tree[1]
        if type(children) is not list or index >= len(children):
            return self.reply()
        node = self.node
        if node.aret is not None:
            self.set_ret(node.aret[0])
        emitted = self.wrap("execute", child_nid(node.nid, index, sub))
        emitted["tree"] = children[index]
        if fields:
            emitted.update(fields)
        return [emitted]

    def reply(self, ret: Value = UNSET, **fields: Any) -> list[Message]:
        """Answer the parent (nobody, if this node is detached), with ``ret`` if given."""
        node = self.node
        emitted = self.wrap("receive", None if node.detached else node.parent)
        if node.aret is not None:
            ret = node.aret[0]
        if ret is not UNSET:
            payload = self.payload.copy()
            payload["ret"] = ret
            emitted["payload"] = payload
        if fields:
            emitted.update(fields)
        return [emitted]

    def apply(
        self,
        function: Value,
        arguments: list[list[Any]],
        *,
        payload: Payload | None = None,
        sub: int | None = None,
        line: int | None = None,
        **fields: Any,
    ) -> Message:
        """Return the message that executes the body of a function for this node."""
        data = check_function(function, self.run.sizes.limits)
        tree = data["tree"]
        if tree[0] == "define" and tree[1][0][0] == "_att":
            tree = [tree[0], [["_name", *tree[1][0][1:]], *tree[1][1:]], *tree[2:]]
            if id(function) in self.run.fresh_functions:
                data["tree"] = tree
        number = self.run.next_sub() if sub is None else sub
        emitted = self.wrap("execute", f"{without_suffix(data['nid'])}-{number}")
        emitted["tree"] = ["_apply", tree[1], self.tree[2] if line is None else line]
        emitted["cnid"] = data["cnid"]
        emitted["arguments"] = arguments
        self.run.applied[emitted["nid"]] = function
        if payload is not None:
            emitted["payload"] = payload
        emitted.update(fields)
        return emitted

    def _keep_ret(self) -> None:
        """Keep the result of a child, if this node collects results."""
        if self.node.rets is not None:
            ret = dup_function(self.payload.get("ret"))
            if is_reference(ret):
                self.run.fresh_functions[id(ret)] = ret
            self.node.rets.append(ret)

    # -- small things -------------------------------------------------------------------------

    def set_ret(self, value: Value) -> None:
        """Make ``value`` the ret of the current message."""
        payload = self.payload.copy()
        payload["ret"] = value
        self.payload = payload

    @property
    def ret0(self) -> Value:
        """The ret the node had on entry."""
        return dup_function(self.node.payload.get("ret"))

    def att(self, *keys: str) -> Value:
        """Return the value of the first attribute with one of ``keys``, or None."""
        for key, value in self.node.atts or ():
            if key in keys:
                return value
        return None


def check_function(function: Value, limits: Limits) -> dict[str, Any]:
    """Return the data of a function. Raises FlowError for any other value.

    O(1), but for the first time that the tree of the function is seen.
    """
    data = function[1] if is_reference(function) and function[0] == "_func" else {}
    nid, cnid = data.get("nid"), data.get("cnid")
    if type(nid) is not str or not NID.fullmatch(nid) or type(cnid) not in (str, NoneType):
        raise FlowError(f"cannot apply {brief(function)}: it is not a function")
    check_once(data.get("tree") or [], limits)
    return data


def procedure_for(run: FlowRun, node: Node, message: Message) -> Procedure:
    """Return the procedure of a node. Raises UnknownProcedure if it does not exist."""
    cls = run.procedures.get(node.heap or "")
    if cls is None:
        raise UnknownProcedure(f'no procedure "{node.heap or node.heat0}" for node {node.nid}')
    procedure: Procedure = cls(run, node, message, run.tree_of(node))
    return procedure


def attribute_count(tree: Tree) -> int:
    """Return how many children of a tree are attributes."""
    return sum(1 for child in tree[1] if child[0] == "_att")


# -- cancelling ------------------------------------------------------------------------------


def emit_waiting(procedure: Procedure) -> list[Message]:
    """Return the messages that waited for the last child, with the payload of that child.

    The node is reopened, unless a handler runs.
    """
    node = procedure.node
    waiting = [
        one if one.get("virtual") else {**one, "payload": procedure.payload}
        for one in node.on_receive_last or ()
    ]
    node.on_receive_last = None
    if node.status and node.status[-1].get("handled") is None:
        procedure.run.reopen(node)
    return waiting


def messages_after_children(procedure: Procedure) -> list[Message]:
    """Return the messages to emit after all children of a cancelled node have answered."""
    node, message = procedure.node, procedure.message
    if message.get("on_receive_last"):
        return messages_of_re_apply(procedure.run, node, message)
    known = node.handlers or {}
    handlers = known.get("timeout") if message.get("flavour") == "timeout" else None
    handlers = handlers or known.get("cancel")
    if not handlers:
        return []
    shown = {**message, "payload": procedure.payload}
    arguments: list[list[Any]] = [["msg", shown], ["err", None]]
    return [procedure.apply(handler[1], arguments, line=handler[1][2]) for handler in handlers]


def reply_cancelled(procedure: Procedure) -> list[Message]:
    """Answer the parent on behalf of a node that was cancelled."""
    replies = procedure.reply()
    replies[0].pop("from_on_error", None)
    return replies


def cancels_of_children(procedure: Procedure) -> list[Message]:
    """Return a cancel for each live child that is not being cancelled."""
    nodes = procedure.run.nodes
    return [
        procedure.wrap("cancel", nid)
        for nid in procedure.node.cnodes
        if (child := nodes.get(nid)) is not None and not child.is_cancelled
    ]


def messages_of_re_apply(run: FlowRun, node: Node, message: Message) -> list[Message]:
    """Return the messages that a re-apply wants emitted after the children have answered."""
    waiting = []
    for one in message.get("on_receive_last") or ():
        copy = dict(one)
        copy["exid"] = run.exid
        if copy.get("from") == "parent":
            copy["from"] = node.parent
        if copy.get("payload") is None:
            copy["payload"] = message.get("payload") or node.payload
        if node.detached:
            copy["detached"] = True  # its parent has continued without it
        waiting.append(copy)
    return waiting
