"""Functions: making them, applying them, and leaving them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows import collecting, lookup
from actorflow.flows.failure import FlowError
from actorflow.flows.node import child_id
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.macros import Macro, make_def
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.sequences import Taggable
from actorflow.flows.values import Value, is_function, to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Node, Tree

_NOT_BODY = frozenset(("_att", "_name"))


def proc_to_function(caller: Procedure, value: Value, *params: str) -> Value:
    """Wrap a procedure into a function of ``params`` that applies it to them."""
    line = caller.tree[2]
    name = value[1]["proc"]
    body = [name, [[param, [], line] for param in params], line]
    parent = caller.run.nodes.get(caller.node.parent or "") or caller.node
    data = {
        "nid": f"{caller.node.nid}_0_1",
        "tree": make_def([body], line, *params),
        "cnid": lookup.nearest_scope(caller.run, parent).nid,
    }
    return ["_func", data, line]


@procedure("def", "fun", "define")
class Define(Procedure):
    """``define name params...`` or ``def params...``: ret is the function."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Make the function at once, unless its name has to be computed."""
        if self.node.heap != "define":
            return self._make(None)
        name = self.tree[1][0][1][0]
        if name[1] == []:
            return self._make(name[0])
        return self._make(name[1]) if name[0] == "_sqs" else self.execute_child(0)

    def receive(self) -> list[Message]:
        """Take the name that was computed."""
        return self._make(to_text(self.payload.get("ret")))

    def _make(self, name: str | None) -> list[Message]:
        run, node = self.run, self.node
        closure = run.touch(lookup.nearest_scope(run, node).nid)
        number = run.next_fun()
        closure.closures = closure.closures or []
        closure.closures.append(number)
        if len(closure.closures) > collecting.KEPT_FUNCTIONS:
            run.many_functions = True
        data: dict[str, Any] = {
            "nid": node.nid,
            "tree": self.tree,
            "cnid": closure.nid,
            "fun": number,
        }
        function = ["_func", data, self.tree[2]]
        run.fresh_functions[number] = function
        if name is not None:
            lookup.write(run, node, self.payload, [name], function)
        return self.reply(ret=function)


@procedure("apply")
class Apply(Procedure):
    """``apply f arguments...``, or ``f arguments...`` for a function ``f``."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Make a block that hangs below the call an argument, called ``yield``."""
        children = self.tree[1]
        body = [child for child in children if child[0] != "_att"]
        if body:
            line = self.tree[2]
            block = ["_att", [["yield", [], line], make_def(body, line)], line]
            self.rewrite(
                [self.tree[0], [child for child in children if child[0] == "_att"] + [block], line]
            )

    def receive(self) -> list[Message]:
        """Collect the arguments; reply when the function has."""
        if self.message.get("from") == self.node.own.get("applied", ""):
            return self.reply()
        return super().receive()

    def receive_last(self) -> list[Message]:
        """Apply the function."""
        arguments = [list(pair) for pair in self.node.atts or ()]
        function = self.node.heat
        if function is None or function[0] == "_proc":
            function = self._take_function(arguments)
        if function[0] == "_proc":
            function = proc_to_function(self, function, *(f"a{i}" for i in range(len(arguments))))
        emitted = self.run.apply(self, function, arguments)
        self.node.own["applied"] = emitted["nid"]
        return [emitted]

    def _take_function(self, arguments: list[list[Any]]) -> Value:
        for position, (key, value) in enumerate(arguments):
            if key is None:
                if not is_function(value):
                    raise FlowError(f"cannot apply {value!r}: it is not a function")
                del arguments[position]
                return value
        raise FlowError("apply needs a function")


@procedure("_apply")
class Body(Taggable):
    """The body of a function, with its arguments as variables."""

    __slots__ = ()
    keeps_atts = False

    def pre_execute(self) -> None:
        """Map the arguments to the parameters."""
        node = self.node
        arguments = self.message.get("arguments") or []
        node.vars = {**(node.vars or {}), "arguments": arguments}
        if self.message.get("on_error") is True:
            node.own["on_error"] = True
        if self.tree[1]:
            self._bind(node, arguments)

    def _bind(self, node: Node, arguments: list[list[Any]]) -> None:
        """Bind by name first, then by position; what is left over by name is bound, too."""
        variables = node.vars or {}
        params = [child[1] for child in self.tree[1] if child[0] == "_att"]
        left = list(arguments)
        unbound = []
        for position, param in enumerate(params):
            pair = next((one for one in left if one[0] == param[0][0]), None)
            if pair is None:
                unbound.append((position, param))
            else:
                variables[param[0][0]] = pair[1]
                left.remove(pair)
        defaults = []
        for position, param in unbound:
            if not left and len(param) > 1:
                defaults.append((position, param))
            variables[param[0][0]] = left.pop(0)[1] if left else None
        for key, value in left:
            if key is not None:
                variables.setdefault(key, value)
        variables.pop("_", None)
        node.vars = variables
        if defaults:
            self._insert_defaults(defaults)

    def _insert_defaults(self, defaults: list[tuple[int, list[Tree]]]) -> None:
        children, line = list(self.tree[1]), self.tree[2]
        for position, (name, value) in defaults:
            children[position] = [
                "set",
                [["_att", [[name[0], [], line]], line], ["_att", [value], line]],
                line,
            ]
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Run the first child that is not a parameter."""
        return self._from(0)

    def _from(self, index: int) -> list[Message]:
        children = self.tree[1]
        while index < len(children) and children[index][0] in _NOT_BODY:
            index += 1
        return self.execute_child(index)

    def receive(self) -> list[Message]:
        """Run the next child."""
        came_from = self.message.get("from")
        return self._from(0 if came_from is None else child_id(came_from) + 1)

    def reply(self, ret: Value = ..., **fields: Any) -> list[Message]:
        """Reply, telling a node that this was its error handler."""
        if self.node.own.get("on_error"):
            fields["from_on_error"] = self.node.parent
        return super().reply(**fields) if ret is ... else super().reply(ret, **fields)


@procedure("return")
class Return(Procedure):
    """Leave the function at once, with a value."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Cancel the body of the function."""
        node: Node | None = self.node
        while node is not None and node.heap != "_apply":
            node = None if node.parent is None else self.run.nodes.get(node.parent)
        if node is None:
            raise FlowError("return outside of a function")
        return [self.wrap("cancel", node.nid, flavour="return")]


@procedure("do-return")
class DoReturn(Macro):
    """``do-return x``: a function that gives x."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return a def around the attributes' values."""
        atts, rest = self.split()
        line = self.tree[2]
        values = [att[1][-1] for att in atts] + rest
        return make_def(values, line)
