"""Branches side by side, and what becomes of their payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.node import child_id, child_nid
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.macros import make_def
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import Value, deep_merge, is_function, to_text, truthy

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Node, Payload, Tree

_CHILD_ATTS = frozenset(
    ("on_receive", "receiver", "on_merge", "merger", "merge", "child_on_error", "children_on_error")
)
_ORDERS = {
    "first": "first",
    "last": "last",
    "north": "north",
    "top": "north",
    "south": "south",
    "bottom": "south",
}
_WAYS = frozenset(("deep", "mix", "override", "ignore", "stack"))


def read_rule(rule: Value) -> tuple[str, str, str]:
    """Return order, way and stack key of a rule: ``last override``, ``stack:results``..."""
    order, way, key = "first", "deep", "ret"
    for word in to_text(rule).replace(",", " ").split() if rule is not None else ():
        head, _, tail = word.partition(":")
        if head in _ORDERS:
            order = _ORDERS[head]
        elif head in _WAYS:
            way = head
            key = tail or key
        else:
            raise FlowError(
                f'cannot merge by "{word}": say first, last, top or bottom,'
                " and deep, mix, override, ignore or stack"
            )
    return order, way, key


def ranked(payloads: dict[str, Payload], order: str) -> list[Payload]:
    """Return the payloads, the one that wins first."""
    if order == "first":
        return list(payloads.values())
    if order == "last":
        return list(payloads.values())[::-1]
    return [payloads[nid] for nid in sorted(payloads, reverse=order == "south")]


def merge_payloads(node: Node, payloads: dict[str, Payload], rule: Value) -> Payload:
    """Merge the replies of branches, kept by nid in the order they came."""
    order, way, key = read_rule(rule)
    ranking = ranked(payloads, order)
    if way == "ignore" or not ranking:
        return node.payload
    if way == "override":
        return ranking[0]
    if way == "stack":
        return {**node.payload, key: ranking}
    merged: Payload = {}
    for payload in reversed(ranking):
        merged = deep_merge(merged, payload) if way == "deep" else {**merged, **payload}
    return merged


@procedure("concurrence")
class Concurrence(Procedure):
    """All branches at once; replies when enough of them have, with their payloads merged."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Take ``on_receive``, ``on_merge``... lines as attributes."""
        children = self.tree[1]
        if any(child[0] in _CHILD_ATTS for child in children):
            atts: list[Tree] = []
            branches: list[Tree] = []
            for child in children:
                if child[0] in _CHILD_ATTS:
                    atts.append(self._as_att(child))
                else:
                    (atts if child[0] == "_att" else branches).append(child)
            self.rewrite([self.tree[0], atts + branches, *self.tree[2:]])

    @staticmethod
    def _as_att(tree: Tree) -> Tree:
        line = tree[2]
        given = [child[1][0] for child in tree[1] if child[0] == "_att" and len(child[1]) == 1]
        value = (
            given[0]
            if given
            else make_def([child for child in tree[1] if child[0] != "_att"], line)
        )
        return ["_att", [[tree[0], [], line], value], line]

    def start(self) -> list[Message]:
        """Begin with the attributes, or the branches."""
        return self.execute_child(0) if self.att_count() else self.branches()

    def receive_last_att(self, index: int) -> list[Message]:
        """Start the branches."""
        return self.branches()

    def branches(self) -> list[Message]:
        """Start all branches; without any, reply."""
        first = self.att_count()
        children = self.tree[1]
        count = len(children) - first
        self.node.own.update(count=count, payloads={}, queue=[])
        if count == 0:
            return self.reply()
        return [
            message
            for index in range(first, len(children))
            for message in self.execute_child(index)
        ]

    # -- replies ------------------------------------------------------------------------------

    def receive(self) -> list[Message]:
        """Take an attribute, a branch's reply, or the answer of a receiver or merger function."""
        own = self.node.own
        came_from = self.message.get("from")
        if came_from is not None and came_from == own.get("receiving"):
            return self._received(self.payload.get("ret"))
        if came_from is not None and came_from == own.get("merging"):
            return self._end(self.payload)
        if "count" not in own:
            return super().receive()
        if own.get("over"):
            return self._late()
        own["payloads"] = {**own["payloads"], came_from: self.payload}
        function = self.att("on_receive", "receiver")
        if is_function(function):
            own["queue"] = [*own["queue"], came_from]
            return self._ask() if "receiving" not in own else []
        expected = self.att("expect")
        wanted = own["count"] if expected is None else min(int(expected), own["count"])
        return self._over() if len(own["payloads"]) >= wanted else []

    def _ask(self) -> list[Message]:
        """Apply the receiver function to the next reply in line."""
        own = self.node.own
        nid, own["queue"] = own["queue"][0], own["queue"][1:]
        arguments = [
            ["reply", own["payloads"][nid]],
            ["from", nid],
            ["replies", own["payloads"]],
            ["branch_count", own["count"]],
            ["over", False],
        ]
        emitted = self.run.apply(self, self.att("on_receive", "receiver"), arguments)
        own["receiving"], own["received"] = emitted["nid"], nid
        return [emitted]

    def _received(self, ret: Value) -> list[Message]:
        own = self.node.own
        own.pop("receiving")
        nid = own.pop("received")
        done = truthy(ret)
        if type(ret) is dict and "done" in ret:
            done = truthy(ret["done"])
            if type(ret.get("payload")) is dict:
                own["payloads"] = {**own["payloads"], nid: ret["payload"]}
        if done:
            return self._over()
        if own["queue"]:
            return self._ask()
        return self._over() if len(own["payloads"]) >= own["count"] else []

    # -- the end ------------------------------------------------------------------------------

    def _remaining(self) -> str:
        return to_text(self.att("remaining", "rem")) or "cancel"

    def _over(self) -> list[Message]:
        own = self.node.own
        own["over"] = True
        rule = self.att("on_merge", "merger", "merge")
        if not is_function(rule):
            return self._end(merge_payloads(self.node, own["payloads"], rule))
        arguments = [
            ["rets", {nid: payload.get("ret") for nid, payload in own["payloads"].items()}],
            ["replies", own["payloads"]],
            ["branch_count", own["count"]],
        ]
        emitted = self.run.apply(self, rule, arguments)
        own["merging"] = emitted["nid"]
        return [emitted]

    def _end(self, merged: Payload) -> list[Message]:
        own = self.node.own
        own.pop("merging", None)
        remaining = self._remaining()
        if remaining == "wait" and self._live():
            own["merged"] = merged
            return []
        cancels = self.cancel_children() if remaining == "cancel" else []
        return cancels + self._reply_with(merged)

    def _live(self) -> bool:
        return any(nid in self.run.nodes for nid in self.node.cnodes)

    def _late(self) -> list[Message]:
        """Take a reply that came after the end: it only counts for ``rem: 'wait'``."""
        own = self.node.own
        if "merged" in own and not self._live():
            return self._reply_with(own["merged"])
        return []

    def _reply_with(self, payload: Payload) -> list[Message]:
        out = self.reply()
        aret = self.node.aret
        out[0]["payload"] = payload if aret is None else {**payload, "ret": aret[0]}
        return out

    # -- growing ------------------------------------------------------------------------------

    def add_message(self) -> list[Message]:
        """Take more branches: put their trees in place and start them."""
        own = self.node.own
        trees = self.message.get("trees") or []
        if "count" not in own or own.get("over"):
            return []
        children = list(self.tree[1])
        at = child_id(self.message["tnid"]) if self.message.get("tnid") else len(children)
        at = max(at, len(children))
        self.payload = self.node.payload
        children[at:at] = trees
        self.rewrite([self.tree[0], children, *self.tree[2:]])
        own["count"] += len(trees)
        out: list[Message] = []
        for index in range(at, at + len(trees)):
            out += self.execute_child(index)
        return out


__all__ = ["Any", "Concurrence", "child_nid", "merge_payloads"]
