"""Applying a function to each element of a collection, one at a time or all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.node import sub_of
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.concurrences import merge_payloads
from actorflow.flows.procedures.functions import proc_to_function
from actorflow.flows.procedures.macros import Macro, make_def
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import Value, is_function, is_reference, kind_name, to_json, truthy

if TYPE_CHECKING:
    from typing import ClassVar

    from actorflow.flows.node import Message, Tree


class Iterator(Procedure):
    """A function and a collection, in any order; then one application per element."""

    __slots__ = ()
    unatts = True
    params: ClassVar[tuple[str, ...]] = ("x",)
    """Names for the arguments when a bare procedure stands for the function."""

    def pre_execute(self) -> None:
        """Own variables, for the function to close over."""
        self.node.vars = self.node.vars or {}
        self.node.own["args"] = []

    def start(self) -> list[Message]:
        """Evaluate the arguments; without any, take ret."""
        return super().start()

    def receive(self) -> list[Message]:
        """Take an argument, or the result of an application."""
        if "col" in self.node.own:
            return self.receive_result()
        return super().receive()

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect the arguments."""
        self.node.own["args"].append(self.payload.get("ret"))
        if index + 1 < len(self.tree[1]):
            return self.execute_child(index + 1)
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Sort the arguments out and begin."""
        own = self.node.own
        args = own.pop("args")
        function = next((arg for arg in args if is_function(arg)), None)
        if function is None:
            raise FlowError(f"{self.node.heap} needs a function")
        others = [arg for arg in args if arg is not function]
        collection = next((arg for arg in others if self.is_collection(arg)), None)
        if collection is None and not others:
            collection = self.ret0
        if collection is None or not self.is_collection(collection):
            given = others[0] if others else collection
            raise FlowError(f"{self.node.heap} needs an array or an object, not {kind_name(given)}")
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
        return self.begin()

    @staticmethod
    def is_collection(value: Value) -> bool:
        """Tell whether ``value`` can be iterated over."""
        return type(value) is dict or (type(value) is list and not is_reference(value))

    def prepare(self, others: list[Value]) -> None:
        """Set up what the results are kept in."""
        self.node.own["res"] = []

    def begin(self) -> list[Message]:
        """Start with the first element."""
        return self.advance()

    def arguments(self, index: int) -> list[list[Any]]:
        """Return the arguments for the element at ``index``."""
        own = self.node.own
        element = own["col"][index]
        pairs = [["key", element[0]], ["val", element[1]]] if own["object"] else [["elt", element]]
        return [*pairs, ["idx", index], ["len", len(own["col"])]]

    def advance(self) -> list[Message]:
        """Apply the function to the next element, or end."""
        own = self.node.own
        own["idx"] += 1
        if own["idx"] >= len(own["col"]):
            return self.finish()
        emitted = self.run.apply(self, own["fun"], self.arguments(own["idx"]))
        own["applied"] = emitted["nid"]
        return [emitted]

    def receive_result(self) -> list[Message]:
        """Take the result of one application."""
        result = self.result(self.payload.get("ret"))
        return self.advance() if result is None else result

    def result(self, ret: Value) -> list[Message] | None:
        """Keep a result; return messages to end early."""
        self.node.own["res"].append(ret)
        return None

    def finish(self) -> list[Message]:
        """Reply with what came of it."""
        return self.reply(ret=self.node.own["res"])

    def element(self) -> Value:
        """Return the element that is being treated, as the caller sees it."""
        own = self.node.own
        return own["col"][own["idx"]]

    def add_message(self) -> list[Message]:
        """Take more elements."""
        own = self.node.own
        if "col" in own:
            more = self.message.get("elements") or []
            if own["object"]:
                more = [
                    pair
                    for one in more
                    for pair in ([list(p) for p in one.items()] if type(one) is dict else [one])
                ]
            own["col"] = own["col"] + more
            return self.added()
        return []

    def added(self) -> list[Message]:
        """Start what can be started at once."""
        return []


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
    """Ret is the array of results."""

    __slots__ = ()


@procedure("filter", "filter-out")
class Filter(Iterator):
    """Ret is the collection of those for which the function says true (or does not)."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """Keep the element or not."""
        if truthy(ret) == (self.node.heap == "filter"):
            self.node.own["res"].append(self.element())
        return None

    def finish(self) -> list[Message]:
        """Reply with an array, or an object for an object."""
        kept = self.node.own["res"]
        return self.reply(ret=dict(kept) if self.node.own["object"] else kept)


@procedure("find")
class Find(Iterator):
    """Ret is the first element for which the function says true."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """End at the first hit."""
        return self.reply(ret=self.element()) if truthy(ret) else None

    def finish(self) -> list[Message]:
        """Reply with null."""
        return self.reply(ret=None)


@procedure("any?")
class AnyOf(Iterator):
    """Tell whether the function says true for some element."""

    __slots__ = ()

    def result(self, ret: Value) -> list[Message] | None:
        """End at the first hit."""
        return self.reply(ret=True) if truthy(ret) else None

    def finish(self) -> list[Message]:
        """Reply with false."""
        return self.reply(ret=False)


@procedure("all?")
class AllOf(Iterator):
    """Tell whether the function says true for all elements."""

    __slots__ = ()

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
        """Start with what is given, or the first element."""
        own = self.node.own
        if others:
            own["res"] = others[0]
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


def sort_key(values: list[Value]) -> Any:
    """Return a key function for values of one kind; mixed ones are compared by their JSON text."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return lambda value: value
    if all(isinstance(value, str) for value in values):
        return lambda value: value
    return to_json


@procedure("sort_by")
class SortBy(Iterator):
    """Ret is the collection, ordered by what the function gives."""

    __slots__ = ()

    def finish(self) -> list[Message]:
        """Order and reply."""
        own = self.node.own
        key = sort_key(own["res"])
        pairs = sorted(zip(own["res"], own["col"], strict=True), key=lambda pair: key(pair[0]))
        ordered = [element for _, element in pairs]
        return self.reply(ret=dict(ordered) if own["object"] else ordered)


@procedure("cmap", "c-map", "c-for-each")
class ConcurrentMap(Iterator):
    """All applications at once, results in order, fields merged as in a concurrence."""

    __slots__ = ()
    keeps_atts = True

    def prepare(self, others: list[Value]) -> None:
        """Keep each reply by the nid it comes from."""
        self.node.own["payloads"] = {}
        self.node.own["started"] = 0

    def begin(self) -> list[Message]:
        """Start all."""
        return self.added() or self.finish()

    def added(self) -> list[Message]:
        """Start those that are not started yet."""
        own = self.node.own
        fresh = range(own["started"], len(own["col"]))
        out = [self.run.apply(self, own["fun"], self.arguments(index)) for index in fresh]
        own["started"] = len(own["col"])
        return out

    def receive_result(self) -> list[Message]:
        """Keep a reply; end with the last."""
        own = self.node.own
        own["payloads"] = {**own["payloads"], self.message["from"]: self.payload}
        if len(own["payloads"]) < own["started"]:
            return []
        return self.finish()

    def finish(self) -> list[Message]:
        """Merge and reply."""
        own = self.node.own
        payloads = own["payloads"]
        if self.node.heap == "c-for-each":
            results = own["ocol"]
        else:
            results = [payloads[nid].get("ret") for nid in sorted(payloads, key=sub_of)]
        if payloads:
            rule = self.att("on_merge", "merger", "merge")
            self.payload, kept = merge_payloads(self.node, payloads, rule), self.payload
            out = self.reply(ret=results)
            self.payload = kept
            return out
        return self.reply(ret=results)


_BLOCKS = {
    "each": "for-each",
    "collect": "map",
    "select": "filter",
    "reject": "filter-out",
    "inject": "reduce",
    "detect": "find",
    "ccollect": "cmap",
    "c-collect": "cmap",
    "ceach": "c-for-each",
    "c-each": "c-for-each",
}


@procedure(*_BLOCKS)
class Block(Macro):
    """The same as the function forms, with a block in the place of the function."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Wrap the block into a def."""
        atts, rest = self.split()
        tree = self.tree
        return [_BLOCKS[tree[0]], [*atts, make_def(rest, tree[2])], *tree[2:]]
