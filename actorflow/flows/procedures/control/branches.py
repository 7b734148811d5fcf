"""The base of procedures with branches: collects replies, merges them, and replies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure, cancels_of_children
from actorflow.flows.values.values import Value, deep_merge, is_function, to_text, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.values.sizes import Sizes

_STACK = re.compile(r"stack(?::([-_a-zA-Z0-9]+))?")
_SHORT = 3
"""A rule of one shorter word consists of initials: ``lo`` is ``last override``."""
_ORDERS = (("f", "first"), ("l", "last"), ("tnh", "north"), ("bsa", "south"))
_WAYS = (("d", "deep"), ("mp", "mix"), ("o", "override"), ("i", "ignore"), ("k", "stack"))


def _initial(word: str) -> str:
    """Return the letter that abbreviates a word of a rule."""
    return "k" if _STACK.fullmatch(word) else "a" if word == "tail" else word[:1]


def read_rule(rule: Value) -> tuple[str, str, str]:
    """Return order, way and stack key of a rule.

    >>> read_rule("last override"), read_rule("np"), read_rule("stack:results")
    (('last', 'override', 'ret'), ('north', 'mix', 'ret'), ('first', 'stack', 'results'))

    Unknown words are ignored. Raises FlowError for an object that is not a rule.
    """
    if type(rule) is dict:
        return _read_object(rule)
    text = to_text(rule)
    words = [word for word in re.split(r"[-\s_]+", text) if word]
    if len(words) == 1 and len(words[0]) < _SHORT:
        words = list(words[0])
    letters = "".join(map(_initial, words))
    order = next((name for known, name in _ORDERS if set(known) & set(letters)), "first")
    way = next((name for known, name in _WAYS if set(known) & set(letters)), "deep")
    stack = re.search(rf"(?:\A|\s){_STACK.pattern}", text)
    return order, way, (stack and stack.group(1)) or "ret"


def _read_object(rule: dict[str, Any]) -> tuple[str, str, str]:
    order, way = rule.get("order", "first"), rule.get("merger", "deep")
    if order not in dict(_ORDERS).values() or way not in dict(_WAYS).values():
        raise FlowError(f"cannot merge by {rule!r}: order and merger have to be words of a rule")
    return order, way, "ret"


def ranked(payloads: dict[str, Payload], order: str) -> list[Payload]:
    """Return the payloads by precedence, the winner first."""
    if order == "first":
        return list(payloads.values())
    if order == "last":
        return list(payloads.values())[::-1]
    return [payloads[nid] for nid in sorted(payloads, reverse=order == "south")]


def merge_payloads(node: Node, payloads: dict[str, Payload], rule: Value, sizes: Sizes) -> Payload:
    """Merge the payloads of branches; ``payloads`` is by nid, in order of arrival."""
    order, way, key = read_rule(rule)
    ranking = ranked(payloads, order)
    if way == "ignore" or not ranking:
        return node.payload
    if way == "override":
        return ranking[0]
    if way == "stack":
        return {**node.payload, key: sizes.check_parts(ranking, ranking)}
    merged: Payload = {}
    for payload in reversed(ranking):
        merged = deep_merge(merged, payload) if way == "deep" else {**merged, **payload}
    return merged


def _is_verdict(value: Value) -> bool:
    """Return whether a function returned both a verdict and a payload."""
    return type(value) is dict and list(value) == ["done", "payload"]


class Branching(Procedure):
    """Collects the replies of branches, and replies when there are enough of them.

    ``own`` holds: ``payloads`` by the nid of the branch, ``queue`` of replies that wait for the
    receiver function, ``receiving`` (nid of its application, branch), ``over`` once there are
    enough replies, ``merging`` (nid of the application of the merger), ``merged``, and ``replied``.
    """

    __slots__ = ()

    def branch_count(self) -> int:
        """Return how many branches there are."""
        raise NotImplementedError

    def merged_payload(self) -> Payload:
        """Return the payload to reply with."""
        merged: Payload = self.node.own["merged"]
        return merged

    # -- replies ------------------------------------------------------------------------------

    def receive_branch(self) -> list[Message]:
        """Keep the reply of a branch and judge it."""
        own = self.node.own
        came_from = self.message["from"]
        own["payloads"] = {**own.get("payloads", {}), came_from: self.payload}
        expected = self.att("expect")
        if type(expected) is int and expected > 0:
            return self._judge(len(own["payloads"]) >= expected)
        if is_function(self.att("on_receive", "receiver")):
            own["queue"] = [*own.get("queue", ()), came_from]
            return self._ask()
        return self._judge(len(own["payloads"]) >= self.branch_count())

    def receive_verdict(self) -> list[Message]:
        """Take the answer of the receiver function."""
        return self._judge(self.payload.get("ret"))

    def is_verdict(self) -> bool:
        """Return whether the current message comes from the receiver function."""
        receiving = self.node.own.get("receiving")
        return receiving is not None and receiving[0] == self.message.get("from")

    def _ask(self) -> list[Message]:
        """Apply the receiver function to the next reply, one at a time."""
        own = self.node.own
        if "receiving" in own or not own.get("queue"):
            return []
        nid, *own["queue"] = own["queue"]
        arguments = [
            ["reply", own["payloads"][nid]],
            ["from", nid],
            ["replies", own["payloads"]],
            ["branch_count", own.get("count")],
            ["over", bool(own.get("over"))],
        ]
        emitted = self.apply(self.att("on_receive", "receiver"), arguments)
        own["receiving"] = [emitted["nid"], nid]
        return [emitted]

    def _judge(self, verdict: Value) -> list[Message]:
        """Take a verdict, which is true if there are enough replies."""
        own = self.node.own
        done = truthy(verdict)
        if _is_verdict(verdict):
            done = truthy(verdict["done"])
            own["payloads"] = {**own["payloads"], own["receiving"][1]: verdict["payload"]}
        own.pop("receiving", None)
        if own.get("over"):
            return self._conclude() + self._ask()
        if not done:
            return self._ask()
        own["over"] = True
        return self._merge() + self._ask()

    # -- the end ------------------------------------------------------------------------------

    def conclude_early(self) -> list[Message]:
        """End with the replies so far; there will be no others."""
        self.node.own["over"] = True
        return self._merge()

    def _merge(self) -> list[Message]:
        own = self.node.own
        rule = self.att("on_merge", "merger", "merge")
        if not is_function(rule):
            return self.receive_merged(self._merged(rule))
        arguments = [
            ["rets", {nid: payload.get("ret") for nid, payload in own["payloads"].items()}],
            ["replies", own["payloads"]],
            ["branch_count", own.get("count")],
        ]
        emitted = self.apply(rule, arguments)
        own["merging"] = emitted["nid"]
        return [emitted]

    def _merged(self, rule: Value) -> Payload:
        return merge_payloads(self.node, self.node.own["payloads"], rule, self.run.sizes)

    def receive_merged(self, payload: Payload) -> list[Message]:
        """Take the merged payload."""
        ret: Any = payload.get("ret")
        self.node.own.setdefault("merged", ret["payload"] if _is_verdict(ret) else payload)
        return self._conclude()

    def _conclude(self) -> list[Message]:
        """Cancel the other branches, and reply once; with ``rem: 'wait'`` after the last branch."""
        own = self.node.own
        if "merged" not in own:
            return []
        remaining = to_text(self.att("remaining", "rem")) or "cancel"
        cancels = [] if remaining in ("forget", "wait") else cancels_of_children(self)
        waits = remaining == "wait" and len(own["payloads"]) < self.branch_count()
        if waits or own.get("replied"):
            return cancels
        own["replied"] = True
        aret = self.node.aret
        payload = self.merged_payload()
        reply = self.reply()[0]
        reply["payload"] = payload if aret is None else {**payload, "ret": aret[0]}
        return [*cancels, reply]
