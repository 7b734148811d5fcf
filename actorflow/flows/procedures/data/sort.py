"""``sort``: in natural order, or by a function that compares two elements."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.node import sub_of
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.data.comparisons import compare
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import Value, is_function, is_reference, kind_name, same, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.flows.execution.node import Message

_PAIR = 2


def order(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for the order of two numbers, strings, or arrays of them.

    Raises FlowError if they cannot be compared.

    >>> order(1, 2), order([1, "b"], [1, "a"]), order("a", "a")
    (-1, 1, 0)
    """
    if type(left) is list and type(right) is list:
        pairs = (order(one, other) for one, other in zip(left, right, strict=False))
        return next(filter(None, pairs), len(left) - len(right))
    if same(left, right):
        return 0
    return 1 if compare(">", left, right) else -1


def _text(value: Value) -> str:
    return value if type(value) is str else to_json(value)


def sort_key(values: list[Value]) -> Callable[[Value], Any]:
    """Return a key function: natural order for values of one type, else order by text.

    Integers and floats are different types.
    """
    kinds = {kind_name(value) for value in values}
    return _text if len(kinds) > 1 or kinds == {"Hash"} else cmp_to_key(order)


@procedure("sort")
class Sort(Procedure):
    """Order an array or the entries of an object.

    With a function it is a quicksort: the function returns true or a negative number if the first
    of two elements comes first. Results are memoised, unless ``memo: false``.
    """

    __slots__ = ()
    unatts = True
    keeps_atts = True

    def receive(self) -> list[Message]:
        """Take an argument, or the result of the function for two elements."""
        return self._take_verdict() if "ranges" in self.node.own else super().receive()

    def receive_non_att(self, index: int) -> list[Message]:
        """Keep the first function and the first collection."""
        ret = self.payload.get("ret")
        own = self.node.own
        if is_function(ret):
            own.setdefault("fun", ret)
        elif type(ret) is dict or (type(ret) is list and not is_reference(ret)):
            own.setdefault("col", ret)
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Sort, or begin to."""
        own = self.node.own
        given: Value = own.get("col", self.ret0)
        if type(given) not in (list, dict):
            raise FlowError(f"cannot sort {kind_name(given)}: an array or an object is needed")
        own["object"] = type(given) is dict
        items = [list(pair) for pair in given.items()] if own["object"] else list(given)
        if "fun" not in own or len(items) < _PAIR:
            return self._end(sorted(items, key=sort_key(items)))
        own["col"] = items
        own["ranges"] = {}
        own["memo"] = {} if self.att("memo", "cache") is not False else None
        return self._begin_range(0, len(items) - 1)

    def _end(self, items: list[Value]) -> list[Message]:
        return self.reply(ret=dict(items) if self.node.own["object"] else items)

    def _begin_range(self, low: int, high: int) -> list[Message]:
        """Partition a range of the array around its last element."""
        if low >= high:
            return []
        self.node.own["ranges"][f"{low}_{high}"] = {"i": low, "j": low}
        return self._ask(low, high)

    def _ask(self, low: int, high: int) -> list[Message]:
        """Compare the element at j with the last one, unless the result is known."""
        own = self.node.own
        part = own["ranges"][f"{low}_{high}"]
        one, other = own["col"][part["j"]], own["col"][high]
        memo, question = own["memo"], to_json([one, other])
        if memo is not None and question in memo:
            return self._go_on(low, high, comes_first=memo[question])
        emitted = self.apply(own["fun"], [["a", one], ["b", other]])
        part["sub"] = sub_of(emitted["nid"])
        part["questions"] = [question, to_json([other, one])]
        return [emitted]

    def _take_verdict(self) -> list[Message]:
        own = self.node.own
        own["ranges"] = {key: dict(part) for key, part in own["ranges"].items()}
        asked = sub_of(self.message["from"])
        key = next((key for key, part in own["ranges"].items() if part.get("sub") == asked), None)
        if key is None:
            return []
        ret = self.payload.get("ret")
        is_number = isinstance(ret, int | float) and type(ret) is not bool
        comes_first = ret is True or (is_number and order(ret, 0) < 0)
        if own["memo"] is not None:
            question, opposite = own["ranges"][key]["questions"]
            own["memo"] = {**own["memo"], question: comes_first, opposite: not comes_first}
        low, high = map(int, key.split("_"))
        out = self._go_on(low, high, comes_first=comes_first)
        return out if out or own["ranges"] else self._end(own["col"])

    def _go_on(self, low: int, high: int, *, comes_first: bool) -> list[Message]:
        """Swap if necessary; compare the next element, or partition the two halves."""
        own = self.node.own
        part, items = own["ranges"][f"{low}_{high}"], own["col"]
        if comes_first:
            items[part["i"]], items[part["j"]] = items[part["j"]], items[part["i"]]
            part["i"] += 1
        part["j"] += 1
        if part["j"] < high:
            return self._ask(low, high)
        middle = part["i"]
        items[middle], items[high] = items[high], items[middle]
        del own["ranges"][f"{low}_{high}"]
        return self._begin_range(low, middle - 1) + self._begin_range(middle + 1, high)
