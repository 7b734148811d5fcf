"""Attributes, which follow the head on a line, and their effect on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution import names
from actorflow.flows.execution.node import child_id
from actorflow.flows.execution.procedure import Procedure, check_function
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import Value, is_function, is_reference, to_json, to_text, truthy

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar

    from actorflow.flows.execution.node import Message, Node

_FLAGS = frozenset(("flank", "off", "disabled"))
_CONDITIONS = frozenset(("_if", "_unless"))
_KEEP_HANDLERS_AS_ATTS = frozenset(("concurrence", "cmap", "c-map", "c-for-each"))


def reference_name(value: Value) -> str:
    """Return the name of a function, procedure or tasker."""
    data = value[1]
    return str(data.get("ref") or data.get("proc") or data.get("tasker") or "")


def add_tags(procedure: Procedure, node: Node, value: Value) -> list[Message]:
    """Add tags to ``node``; return the ``entered`` message. Null is not a tag."""
    if is_reference(value):
        value = value[1].get("oref") or reference_name(value)
    wanted = value if type(value) is list else [] if value is None else [value]
    given = [to_text(one) for one in wanted]
    if not given:
        return []
    node.tags = list(dict.fromkeys([*(node.tags or ()), *given]))
    return [procedure.wrap("entered", node.nid, tags=given)]


def flag_function(procedure: Procedure, function: Value, flag: str) -> Value:
    """Record in a function what it handles; return the function to keep."""
    if type(function) is list and function and function[0] == "_func":
        if id(function) not in procedure.run.fresh_functions:
            function = [function[0], dict(function[1]), function[2]]
        function[1][flag] = True
    return function


def store_handler(procedure: Procedure, kind: str, criteria: list[Value], function: Value) -> None:
    """Add a handler to the parent; of several with the same criteria the last one comes first.

    The parent is the nearest node above that is not a postfix condition. Raises FlowError if it is
    not a function: later, when there is something to handle, it would be too late.
    """
    check_function(function, procedure.run.sizes.limits)
    parent = procedure.run.parent_of(procedure.node)
    while parent is not None and parent.heap in _CONDITIONS:
        parent = None if parent.parent is None else procedure.run.find(parent.parent)
    if parent is None:
        return
    handlers = parent.handlers = parent.handlers or {}
    known = handlers.setdefault(kind, [])
    same = (place for place, one in enumerate(known) if one[0] == criteria)
    known.insert(next(same, len(known)), [criteria, function])


@procedure("_att")
class Attribute(Procedure):
    """``value`` or ``key: value``."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Read a lone ``flank``, ``off`` or ``disabled`` as ``flank: true``..."""
        children = self.tree[1]
        if len(children) == 1 and children[0][0] in _FLAGS and children[0][1] == []:
            line = children[0][2]
            self.rewrite(["_att", [children[0], ["_boo", True, line]], *self.tree[2:]])

    def start(self) -> list[Message]:
        """Evaluate the key, if there is one, else the value; ``_`` means no value."""
        children = self.tree[1]
        if len(children) > 1:
            return self.execute_child(0, accept_symbol=True)
        if children[0][0] == "_" and children[0][1] == []:
            return self.reply()
        return self.execute_child(0, accept_symbol=False)

    def receive(self) -> list[Message]:
        """Take the key, then the value."""
        children = self.tree[1]
        ret = self.payload.get("ret")
        came_from = self.message.get("from")
        if len(children) == 1:
            self._keep(None, ret)
            return self.reply()
        if came_from is not None and child_id(came_from) == 0:
            return self._take_key(ret)
        key: str | None = self.node.own.get("key")
        if key is None:
            self._keep(None, ret)
            return self.reply()
        handler, parent = self._HANDLERS.get(key), self.run.parent_of(self.node)
        if handler is None or parent is None or self._is_plain(key, parent):
            self._keep(key, ret)
            self.set_ret(None)
            return self.reply()
        return handler(self, parent, key, ret)

    def _take_key(self, ret: Value) -> list[Message]:
        key = reference_name(ret) if is_reference(ret) else to_text(ret)
        if ret is not None:
            self.node.own["key"] = key
        value = self.tree[1][1]
        if key == "vars" and value[0] == "_obj":
            quote = ["_att", [["quote", [], -1], ["_sqs", "keys", -1]], -1]
            keyed = [value[0], [quote, *value[1]], *value[2:]]
            self.rewrite([self.tree[0], [self.tree[1][0], keyed], *self.tree[2:]])
        parent = self.run.parent_of(self.node)
        takes_words = key == "to" and parent is not None and parent.heap == "move"
        return self.execute_child(1, accept_symbol=takes_words)

    def _keep(self, key: str | None, value: Value) -> None:
        parent = self.run.parent_of(self.node)
        if parent is None:
            return
        if parent.atts is not None:
            parent.atts.append([key, value])
        elif parent.rets is not None and key is None:
            parent.rets.append(value)

    @staticmethod
    def _is_plain(key: str, parent: Node) -> bool:
        if key in ("tag", "tags"):
            return parent.heap == "trap"
        return key == "on_receive" and parent.heap in _KEEP_HANDLERS_AS_ATTS

    def _vars(self, parent: Node, key: str, value: Value) -> list[Message]:
        if type(value) is dict:
            parent.vars = {**(parent.vars or {}), **value}
        elif value in ("copy", "*"):
            parent.vars = {**names.visible_variables(self.run.nodes, parent), **(parent.vars or {})}
        elif type(value) is list:
            self._list_variables(parent, value)
        else:
            shown = "nil" if value is None else to_json(value)
            raise FlowError(f"vars: doesn't know how to deal with {shown}")
        return self.reply(ret=None)

    def _list_variables(self, parent: Node, listed: list[Value]) -> None:
        """Set the white or black list of variables of the parent."""
        sign = "+"
        if listed and listed[0] in ("+", "-", "^", "!"):
            sign, listed = "+" if listed[0] == "+" else "-", listed[1:]
            self.set_ret(listed)
        for name in listed:
            if type(name) is str and "." in name:
                raise FlowError(f'vars: is limited to 1st level, "{name}" doesn\'t comply')
        parent.own["vlist"] = [sign, listed]

    def _tag(self, parent: Node, key: str, value: Value) -> list[Message]:
        return add_tags(self, parent, value) + self.reply()

    def _ret(self, parent: Node, key: str, value: Value) -> list[Message]:
        parent.aret = [value]
        return self.reply()

    def _timeout(self, parent: Node, key: str, value: Value) -> list[Message]:
        cancel = self.wrap("cancel", parent.nid, flavour="timeout")
        schedule = self.wrap(
            "schedule", parent.nid, type="in", string=value, message=cancel, payload={}
        )
        return [schedule, *self.reply()]

    def _handler(self, parent: Node, key: str, value: Value) -> list[Message]:
        if not is_function(value) or value[0] != "_func":
            return self.reply()
        function = flag_function(self, value, key)
        if function is not value:
            self.set_ret(function)
        store_handler(self, key.removeprefix("on_"), ["*"], function)
        return self.reply()

    def _child_handler(self, parent: Node, key: str, value: Value) -> list[Message]:
        if is_function(value) and value[0] == "_func":
            check_function(value, self.run.sizes.limits)
            kind = key.rpartition("on_")[2]
            parent.own["child"] = {**(parent.own.get("child") or {}), kind: [["*"], value]}
        return self.reply()

    def _flank(self, parent: Node, key: str, value: Value) -> list[Message]:
        if not truthy(value) or parent.detached:
            return self.reply()
        flank = self.wrap("receive", parent.parent, flavour="flank")
        flank["from"] = parent.nid
        parent.detached = True
        return [flank, *self.reply()]

    def _disable(self, parent: Node, key: str, value: Value) -> list[Message]:
        return self.reply(disable=truthy(value))

    _HANDLERS: ClassVar[dict[str, Callable[[Any, Node, str, Value], list[Message]]]] = {
        "vars": _vars,
        "tag": _tag,
        "tags": _tag,
        "ret": _ret,
        "timeout": _timeout,
        "on_error": _handler,
        "on_cancel": _handler,
        "on_timeout": _handler,
        "on_receive": _handler,
        "child_on_error": _child_handler,
        "children_on_error": _child_handler,
        "child_on_cancel": _child_handler,
        "children_on_cancel": _child_handler,
        "child_on_timeout": _child_handler,
        "children_on_timeout": _child_handler,
        "flank": _flank,
        "disable": _disable,
        "disabled": _disable,
        "off": _disable,
    }
