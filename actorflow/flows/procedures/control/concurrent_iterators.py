"""``cmap`` and its kin: apply a function to all elements of a collection at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.node import sub_of, suffix_of
from actorflow.flows.procedures.control.branches import Branching
from actorflow.flows.procedures.data.literals import PathReader
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, make_def
from actorflow.flows.values.values import Value, type_name

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.language.tree import Tree

_PATHS = frozenset(("_ref", "_rep", "_reff"))
_KEYS = frozenset(("_sqs", "_num"))


def _is_path(tree: Tree) -> bool:
    """Return whether a tree is a path of plain keys."""
    return tree[0] in _PATHS and all(key[0] in _KEYS for key in tree[1])


@procedure("_reff")
class SoftReader(PathReader):
    """Read a path; if it leads nowhere, ret is null."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Look the path up."""
        try:
            return super().receive_last()
        except FlowError:
            self.set_ret(None)
            return self.reply()


class ConcurrentIterator(Branching):
    """Take a function and a collection, in any order; paths name the arguments of the function.

    All applications are started at once. Without a function, ret is the collection.
    """

    __slots__ = ()
    unatts = True
    keeps_atts = True

    def execute(self) -> list[Message]:
        """Read paths on the line that lead nowhere as null."""
        head, children, *place = self.tree
        softened = [
            ["_att", [["_reff", *child[1][0][1:]]], *child[2:]]
            if child[0] == "_att" and len(child[1]) == 1 and _is_path(child[1][0])
            else child
            for child in children
        ]
        if softened != children:
            self.rewrite([head, softened, *place])
        return super().execute()

    def receive(self) -> list[Message]:
        """Take an argument, or the answer of an application, of a receiver or a merger."""
        came_from = self.message.get("from")
        if came_from is None or suffix_of(came_from) == suffix_of(self.node.nid):
            return super().receive()
        if self.is_verdict():
            return self.receive_verdict()
        if self.node.own.get("merging"):
            out = self.receive_merged(self.payload)
            self.set_ret(self.merged_payload()["ret"])
            return out
        return self.receive_branch()

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect the arguments."""
        own = self.node.own
        own["args"] = [*own.get("args", ()), self.payload.get("ret")]
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Find function and collection among the arguments, and start all applications."""
        own = self.node.own
        function = collection = None
        names: list[str] = []
        for place, value in enumerate(own.pop("args", ())):
            if function is None and type(value) is list and value[:1] == ["_func"]:
                function = value
            elif collection is None and type(value) in (list, dict):
                collection = value
            elif _is_path(self.tree[1][place]):
                names.append(".".join(str(key[1]) for key in self.tree[1][place][1]))
        if collection is None:
            collection = self.ret0
        if type(collection) not in (list, dict):
            raise FlowError(f'collection not given to "{self.node.heap}"')
        if function is None:
            return self.reply(ret=collection)
        own.update(col=collection, fun=function, names=names)
        if not collection:
            own["payloads"] = {}
            return self.receive_merged(self.payload)
        return self._apply(range(len(collection)))

    def _apply(self, places: range) -> list[Message]:
        own = self.node.own
        self.run.check_room(len(places))
        keys = list(own["col"])
        return [self.apply(own["fun"], self._arguments(place, keys)) for place in places]

    def _arguments(self, place: int, keys: list[Any]) -> list[list[Any]]:
        """Return the arguments for the element at ``place``; an object has ``keys``."""
        collection, names = self.node.own["col"], self.node.own["names"]
        if type(collection) is dict:
            key = keys[place]
            pairs = [["key", key], ["val", collection[key]]]
        else:
            pairs = [["elt", collection[place]]]
        pairs += [["idx", place], ["len", len(collection)]]
        for pair, name in zip(pairs, names, strict=False):
            pair[0] = name
        return pairs

    def branch_count(self) -> int:
        """Return how many elements there are."""
        return len(self.node.own["col"])

    def add_message(self) -> list[Message]:
        """Take more elements and start their applications.

        Raises FlowError if they do not fit the collection.
        """
        own = self.node.own
        elements = self.message.get("elements")
        if elements is None:
            raise FlowError(f"cannot add branches to {self.node.heap}")
        if "col" not in own:
            return []
        first = len(own["col"])
        own["col"] = self._grown(own["col"], elements)
        if self.message.get("payload") is None:
            self.payload = self.node.payload
        return self._apply(range(first, first + len(elements)))

    @staticmethod
    def _grown(collection: Value, elements: list[Value]) -> Value:
        if type(collection) is list:
            return collection + elements
        grown = dict(collection)
        for element in elements:
            if type(element) is not dict:
                raise FlowError(f"cannot add {type_name(element)} to object")
            grown.update(element)
        return grown


@procedure("cmap", "c-map")
class ConcurrentMap(ConcurrentIterator):
    """Ret is the array of results, in the order of the elements."""

    __slots__ = ()

    def merged_payload(self) -> Payload:
        """Return the merged fields and the results."""
        payloads = self.node.own["payloads"]
        results = [payloads[nid].get("ret") for nid in sorted(payloads, key=sub_of)]
        return {**super().merged_payload(), "ret": results}


@procedure("c-for-each")
class ConcurrentForEach(ConcurrentIterator):
    """Ret is the collection."""

    __slots__ = ()

    def merged_payload(self) -> Payload:
        """Return the merged fields and the collection."""
        return {**super().merged_payload(), "ret": self.node.own["col"]}


_BLOCKS = {
    "ccollect": "cmap",
    "c-collect": "cmap",
    "ceach": "c-for-each",
    "c-each": "c-for-each",
}


@procedure(*_BLOCKS)
class ConcurrentBlock(Macro):
    """The forms with a block instead of a function."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Wrap the block, if there is one, into a def."""
        atts, rest = self.split()
        line = self.tree[2]
        function = [make_def(rest, line)] if rest else []
        return [_BLOCKS[self.node.heap or ""], atts + function, *self.tree[2:]]
