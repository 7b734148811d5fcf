"""``map`` and its kin: apply a function to each element of a collection, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.control.functions import proc_to_function
from actorflow.flows.procedures.data.sort import sort_key
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, make_def
from actorflow.flows.values.values import Value, is_function, is_reference, truthy, type_name

if TYPE_CHECKING:
    from typing import ClassVar

    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_PAIR = 2


def _is_collection(value: Value) -> bool:
    """Return whether ``value`` can be iterated over."""
    return type(value) is dict or (type(value) is list and not is_reference(value))


class Iterator(Procedure):
    """Take a function and a collection, in any order; apply the function to each element."""

    __slots__ = ()
    unatts = True
    params: ClassVar[tuple[str, ...]] = ("x",)
    """Names of the arguments if a procedure takes the place of the function."""
    needs_function: ClassVar[bool] = True

    def pre_execute(self) -> None:
        """Create the variables that the function closes over."""
        self.node.vars = self.node.vars or {}
        self.node.own["args"] = []

    def receive(self) -> list[Message]:
        """Take an argument, or the result of an application."""
        if "col" in self.node.own:
            return self._receive_result()
        return super().receive()

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect the arguments."""
        self.node.own["args"].append(self.payload.get("ret"))
        if index + 1 < len(self.tree[1]):
            return self.execute_child(index + 1)
        return self._iterate()

    def _iterate(self) -> list[Message]:
        """Find function and collection among the arguments, and begin.

        Raises FlowError if one is missing.
        """
        own = self.node.own
        args = own.pop("args")
        function = next((arg for arg in args if is_function(arg)), None)
        others = [arg for arg in args if arg is not function]
        collection = next((arg for arg in others if _is_collection(arg)), self.ret0)
        if function is None and self.needs_function:
            raise FlowError(f'function not given to "{self.node.heap}"')
        if not _is_collection(collection):
            raise FlowError(f'collection not given to "{self.node.heap}"')
        if function is None:
            return self.reply(ret=self.without_function(collection))
        if function[0] == "_proc":
            function = proc_to_function(self, function, *self.params)
        own["fun"] = function
        own["ocol"] = collection
        own["col"] = (
            [list(pair) for pair in collection.items()]
            if type(collection) is dict
            else list(collection)
        )
        own["object"] = type(collection) is dict
        own["idx"] = -1
        self.prepare([arg for arg in others if arg is not collection])
        return self._advance()

    def without_function(self, collection: Value) -> Value:
        """Return the result for a collection without a function."""
        return collection

    def prepare(self, others: list[Value]) -> None:
        """Prepare for the results."""
        self.node.own["res"] = []

    def arguments(self, index: int) -> list[list[Any]]:
        """Return the arguments for the element at ``index``."""
        own = self.node.own
        element = own["col"][index]
        pairs = [["key", element[0]], ["val", element[1]]] if own["object"] else [["elt", element]]
        return [*pairs, ["idx", index], ["len", len(own["col"])]]

    def _advance(self) -> list[Message]:
        """Apply the function to the next element, or end."""
        own = self.node.own
        own["idx"] += 1
        if own["idx"] >= len(own["col"]):
            return self.finish()
        emitted = self.apply(own["fun"], self.arguments(own["idx"]))
        own["applied"] = emitted["nid"]
        return [emitted]

    def _receive_result(self) -> list[Message]:
        """Take the result of one application."""
        result = self.result(self.payload.get("ret"))
        return self._advance() if result is None else result

    def result(self, ret: Value) -> list[Message] | None:
        """Keep a result; return messages to end early."""
        self.node.own["res"].append(ret)
        return None

    def finish(self) -> list[Message]:
        """Reply with the result."""
        return self.reply(ret=self.node.own["res"])

    def _element(self) -> Value:
        """Return the current element."""
        own = self.node.own
        return own["col"][own["idx"]]

    def add_message(self) -> list[Message]:
        """Take more elements. Raises FlowError if they do not fit the collection."""
        own = self.node.own
        if "col" in own:
            more = self.message.get("elements") or []
            if own["object"]:
                more = [pair for one in more for pair in _pairs(one)]
            own["col"] = own["col"] + more
        return []


def _pairs(element: Value) -> list[list[Value]]:
    """Return the additions to an object, as pairs of key and value: an object, or one pair."""
    if type(element) is dict:
        return [list(pair) for pair in element.items()]
    if type(element) is list and len(element) == _PAIR and type(element[0]) is str:
        return [element]
    raise FlowError(f"cannot add {type_name(element)} to object")


@procedure("for-each")
class ForEach(Iterator):
    """Apply; ret is the collection."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """Keep nothing."""
        return None

    def finish(self) -> list[Message]:
        """Reply with the collection as it was given."""
        return self.reply(ret=self.node.own["ocol"])


@procedure("map")
class Map(Iterator):
    """Ret is the array of results; without a function it is the collection."""

    __slots__ = ()
    needs_function = False


@procedure("filter", "filter-out")
class Filter(Iterator):
    """Ret is the collection of elements for which the function is true (or is not)."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """Keep the element or not."""
        if truthy(ret) == (self.node.heap == "filter"):
            self.node.own["res"].append(self._element())
        return None

    def finish(self) -> list[Message]:
        """Reply with an array, or an object for an object."""
        kept = self.node.own["res"]
        return self.reply(ret=dict(kept) if self.node.own["object"] else kept)


@procedure("find")
class Find(Iterator):
    """Ret is the first element for which the function is true."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """End at the first hit."""
        return self.reply(ret=self._element()) if truthy(ret) else None

    def finish(self) -> list[Message]:
        """Reply with null."""
        return self.reply(ret=None)


@procedure("any?")
class AnyOf(Iterator):
    """Ret is whether the function is true for some element that is not null.

    Without a function: whether some element is true, or whether an object has entries.
    """

    __slots__ = ()
    needs_function = False

    def without_function(self, collection: Value) -> Value:
        """Look at the elements themselves."""
        return bool(collection) if type(collection) is dict else any(map(truthy, collection))

    def result(self, ret: Value) -> list[Message] | None:
        """End at the first hit."""
        return self.reply(ret=self._element() is not None) if truthy(ret) else None

    def finish(self) -> list[Message]:
        """Reply with false."""
        return self.reply(ret=False)


@procedure("all?")
class AllOf(Iterator):
    """Ret is whether the function is true for all elements, or, without one, all elements are."""

    __slots__ = ()
    needs_function = False

    def without_function(self, collection: Value) -> Value:
        """Look at the elements, or values, themselves."""
        return all(map(truthy, collection.values() if type(collection) is dict else collection))

    def result(self, ret: Value) -> list[Message] | None:
        """End at the first miss."""
        return None if truthy(ret) else self.reply(ret=False)

    def finish(self) -> list[Message]:
        """Reply with true."""
        return self.reply(ret=True)


@procedure("reduce")
class Reduce(Iterator):
    """Fold the collection; ``res`` is the result so far."""

    __slots__ = ()
    params = ("r", "x")

    def prepare(self, others: list[Value]) -> None:
        """Start with the given value, or the first element."""
        own = self.node.own
        given = next(filter(truthy, others), None)
        if given is not None:
            own["res"] = given
        elif own["col"]:
            own["res"] = own["col"][0]
            own["col"] = own["col"][1:]
        else:
            own["res"] = None

    def arguments(self, index: int) -> list[list[Any]]:
        """Put the result so far in front."""
        return [["res", self.node.own["res"]], *super().arguments(index)]

    def result(self, ret: Value) -> list[Message] | None:
        """Keep the new result."""
        self.node.own["res"] = ret
        return None


@procedure("sort_by")
class SortBy(Iterator):
    """Ret is the collection, ordered by the results of the function."""

    __slots__ = ()

    def finish(self) -> list[Message]:
        """Order and reply."""
        own = self.node.own
        key = sort_key(own["res"])
        pairs = sorted(zip(own["res"], own["col"], strict=True), key=lambda pair: key(pair[0]))
        ordered = [element for _, element in pairs]
        return self.reply(ret=dict(ordered) if own["object"] else ordered)


_BLOCKS = {
    "each": "for-each",
    "collect": "map",
    "select": "filter",
    "reject": "filter-out",
    "inject": "reduce",
    "detect": "find",
}


@procedure(*_BLOCKS)
class Block(Macro):
    """The forms with a block instead of a function."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Wrap the block, if there is one, into a def."""
        atts, rest = self.split()
        tree = self.tree
        function = [make_def(rest, tree[2])] if rest else []
        return [_BLOCKS[self.node.heap or ""], atts + function, *tree[2:]]
