"""Functions: ``define``, ``def``, ``apply`` and ``return``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution import garbage_collection, names
from actorflow.flows.execution.node import ROOT, child_id
from actorflow.flows.execution.procedure import Procedure, attribute_count
from actorflow.flows.execution.rewrites import replace_around
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, make_def
from actorflow.flows.values.text import brief
from actorflow.flows.values.values import Value, is_function, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.language.tree import Tree

_NOT_BODY = frozenset(("_att", "_name"))
FIELD_WORDS = frozenset(("f", "fld", "field"))
VARIABLE_WORDS = frozenset(("v", "var", "variable"))


def proc_to_function(caller: Procedure, value: Value, *params: str) -> Value:
    """Return a function of ``params`` that applies a procedure to them."""
    line = caller.tree[2]
    name = value[1].get("proc")
    if type(name) is not str or name not in caller.run.procedures:
        raise FlowError(f"cannot apply {brief(value)}: there is no such procedure")
    body = [name, [[param, [], line] for param in params], line]
    nid = f"{caller.node.nid}_0_1"
    return ["_func", {"nid": nid, "tree": make_def([body], line, *params), "cnid": ROOT}, line]


@procedure("def", "fun", "define")
class Define(Procedure):
    """``define name params...`` or ``def params...``: ret is the function."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Make the function at once, unless its name is a string, which is evaluated first."""
        for index, child in enumerate(self.tree[1]):
            if child[0] == "_att" and child[1][0][0] in ("_sqs", "_dqs"):
                return self.execute_child(index)
        return self._make(None)

    def receive(self) -> list[Message]:
        """Take the name that was computed."""
        return self._make(to_text(self.payload.get("ret")))

    def _make(self, name: str | None) -> list[Message]:
        tree = self._flat_tree()
        if self.node.heap != "define":
            name = None
        elif name is None:
            first = tree[1][0]
            if first[0] != "_att":
                raise FlowError('define needs a name, as in "define sum a b"')
            name = first[1][0][0]
        run, node = self.run, self.node
        closure = run.touch(names.nearest_scope(run, node).nid)
        number = run.next_fun()
        closure.closures = closure.closures or []
        closure.closures.append(number)
        if len(closure.closures) > garbage_collection.KEPT_FUNCTIONS:
            run.many_functions = True
        data: dict[str, Any] = {
            "nid": node.nid,
            "tree": tree,
            "cnid": closure.nid,
            "fun": number,
        }
        function = ["_func", data, tree[2]]
        run.fresh_functions[id(function)] = function
        if name is not None:
            names.write(run, node, self.payload, [name], function)
        return self.reply(ret=function)

    def _flat_tree(self) -> Tree:
        """Return the tree without parentheses around its parameters.

        Raises FlowError for a parameter that is neither a word nor a field.
        """
        tree, first = self.tree, 1 if self.node.heap == "define" else 0
        children = tree[1]
        params = [child for child in children[first:] if child[0] == "_att"]
        if len(params) == 1 and _is_call(params[0][1][0]):
            word, inner, *place = params[0][1][0]
            params = [["_att", [[word, [], *place], *params[0][1][1:]], params[0][2]], *inner]
            tree = [tree[0], children[:first] + params + children[first + 1 :], *tree[2:]]
        for param in params:
            head, parts = param[1][0][:2]
            if head == "_ref" and len(parts) > 1 and parts[0][1] not in FIELD_WORDS:
                path = ".".join(to_text(part[1]) for part in parts)
                raise FlowError(f'cannot accept "{path}" as parameter')
        return tree


def _is_call(tree: Tree) -> bool:
    """Return whether a tree is a word with attributes only, as ``(a, b)`` reads."""
    return bool(tree[1]) and type(tree[1]) is list and all(one[0] == "_att" for one in tree[1])


@procedure("apply")
class Apply(Procedure):
    """``apply f arguments...``, or ``f arguments...`` for a function ``f``."""

    __slots__ = ()
    keeps_atts = True

    def start(self) -> list[Message]:
        """Begin with the arguments, or with the block if there are none."""
        return super().start() if attribute_count(self.tree) else self.receive_last_att(-1)

    def receive(self) -> list[Message]:
        """Collect the arguments; reply after the function has replied."""
        if self.message.get("from") == self.node.own.get("applied", ""):
            return self.reply()
        return super().receive()

    def receive_last_att(self, index: int) -> list[Message]:
        """Turn the block below the call into a function, or call."""
        block = self.tree[1][index + 1 :]
        if not block:
            return self._call()
        if len(block) > 1 or block[0][0] not in ("def", "fun"):
            known = self.tree
            head, children, *place = known
            self.rewrite([head, [*children[: index + 1], make_def(block, place[0])], *place])
            replace_around(self.run, self.node, known, self.tree)
        return self.execute_child(index + 1)

    def receive_last(self) -> list[Message]:
        """Take the block as an argument called ``yield``."""
        block: Value = self.payload.get("ret")
        if is_function(block) and block[0] == "_func":
            self.node.atts = [*(self.node.atts or ()), ["yield", block]]
        return self._call()

    def _call(self) -> list[Message]:
        arguments = [list(pair) for pair in self.node.atts or ()]
        heat = self.node.heat
        is_named = heat is not None and heat[0] != "_proc"
        function: Value = heat if is_named else self._take_function(arguments)
        if function[0] == "_proc":
            function = proc_to_function(self, function, *(f"a{i}" for i in range(len(arguments))))
        emitted = self.apply(function, arguments)
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


def _param_name(tree: Tree) -> str:
    """Return the name of a parameter; that of a field is its path."""
    if tree[0] == "_ref" and tree[1]:
        return ".".join(to_text(part[1]) for part in tree[1])
    return str(tree[0])


@procedure("_apply")
class FunctionBody(Procedure):
    """The body of a function, with its arguments as variables."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Map the arguments to the parameters."""
        node = self.node
        arguments = self.message.get("arguments") or []
        node.vars = {**(node.vars or {}), "arguments": arguments}
        for mark in ("on_error", "handles"):  # marks of the handler of an error
            if self.message.get(mark) is True:
                node.own[mark] = True
        if self.tree[1]:
            self._bind(list(arguments))

    def _bind(self, left: list[list[Any]]) -> None:
        """Bind arguments by name, then by position; other names are bound as well."""
        params = [(_param_name(one[1][0]), one[1]) for one in self.tree[1] if one[0] == "_att"]
        seen: set[str | None] = {None}
        for name, parts in params:
            pair = next((one for one in left if one[0] == name), None)
            if pair is not None and parts[0][0] != "_ref":
                left.remove(pair)
                seen.add(name)
                self._set(name, pair[1])
        seen.update(self._bind_by_position(params, left))
        for key, value in left:
            if key not in seen:
                self._set(key, value)

    def _bind_by_position(
        self, params: list[tuple[str, list[Tree]]], left: list[list[Any]]
    ) -> set[str | None]:
        """Bind the other parameters; return the names of the arguments and parameters used."""
        seen: set[str | None] = set()
        defaults = []
        for position, (name, parts) in enumerate(params):
            is_field = parts[0][0] == "_ref"
            if name in (self.node.vars or {}) and not is_field:
                continue
            seen.add(name)
            if position < len(left):
                seen.add(left[position][0])
                self._set(name, left[position][1])
            elif len(parts) > 1:
                defaults.append((position, name, parts[1]))
            elif not is_field:
                self._set(name, None)
        if defaults:
            self._insert_defaults(defaults)
        return seen

    def _set(self, name: str, value: Value) -> None:
        """Set a parameter: a variable of this node, or a field."""
        word, _, path = name.partition(".")
        if path and word in FIELD_WORDS:
            keys = ["f", *path.split(".")]
            self.payload = names.write(self.run, self.node, self.payload, keys, value)
        else:
            name = path if path and word in VARIABLE_WORDS else name
            self.node.vars = {**(self.node.vars or {}), name: value}

    def _insert_defaults(self, defaults: list[tuple[int, str, Tree]]) -> None:
        children, line = list(self.tree[1]), self.tree[2]
        for position, name, value in defaults:
            children[position] = ["set", [[name, [], line], value], line]
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
        """Reply; the answer of an error handler is marked as such."""
        if self.node.own.get("on_error"):
            fields["from_on_error"] = self.node.parent
        return super().reply(**fields) if ret is ... else super().reply(ret, **fields)


@procedure("return")
class ReturnProcedure(Procedure):
    """Leave the function at once, with a value."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Cancel the body of the function."""
        node: Node | None = self.node
        while node is not None and node.heap != "_apply":
            node = None if node.parent is None else self.run.nodes.get(node.parent)
        if node is None:
            raise FlowError('"return" outside of function')
        return [self.wrap("cancel", node.nid, flavour="return")]


@procedure("do-return")
class DoReturn(Macro):
    """``do-return x``: a function that returns x."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return a def around the first attribute, in a sequence.

        Raises FlowError if it is missing.
        """
        atts, line = self.split()[0], self.tree[2]
        if not atts:
            raise FlowError("do-return needs something to give")
        return ["sequence", [make_def(atts[0][1], line)], line]
