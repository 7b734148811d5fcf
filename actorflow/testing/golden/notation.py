"""The neutral description of workflows in golden histories, and its interpreter.

Methods are lists of operations; `interpret` is a generator that yields each `NotationCall` and is
sent its outputs. So the same text runs on a bare session and in the methods of a real `Workflow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.workflows.instance.decision import StepCall
from actorflow.workflows.instance.state import StepType

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

Json = Any

_TURNS = 100_000
"""How often a loop may go round in one execution of a branch."""
METHODS = ("handle", "onEvent", "onStart", "onSuccess", "onFailure", "onTimeout")


class Properties(Protocol):
    """Where `prop` and `set` read and write."""

    def get(self, name: str) -> Json:
        """Return one; null if it is not set."""

    def __setitem__(self, name: str, value: Json) -> None: ...


@dataclass(frozen=True)
class NotationCall:
    """An `execute` or a `dispatch`."""

    steps: list[Json]
    sync: bool


class _Returned(Exception):
    def __init__(self, value: Json) -> None:
        self.value = value


class NotationRaised(Exception):
    """The operation `raise`."""


_OPERATORS: dict[str, Callable[..., Json]] = {
    "add": lambda one, *others: reduce(add, others, one),
    "append": lambda items, item: [*items, item],
    "and": lambda *all_of: all(all_of),
    "eq": lambda one, other: one == other,
    "get": lambda of, key: None if of is None else of.get(key) if type(of) is dict else of[key],
    "gt": lambda one, other: one > other,
    "isnull": lambda one: one is None,
    "not": lambda one: not one,
    "or": lambda *any_of: any(any_of),
}


class Scope:
    """What the names of one execution of a branch mean. One that is not set is null."""

    def __init__(self, properties: Properties, arguments: Mapping[str, Json]) -> None:
        self.properties = properties
        self.variables: dict[str, Json] = {}
        self._names: dict[str, Callable[[str], Json]] = {
            "prop": properties.get,
            "var": self.variables.get,
            "arg": arguments.get,
        }

    def value(self, expression: Json) -> Json:
        """Return the value of an expression."""
        if type(expression) is list:
            return [self.value(part) for part in expression]
        if type(expression) is not dict:
            return expression
        if len(expression) == 1:
            ((name, of),) = expression.items()
            if name in self._names:
                return self._names[name](of)
            if name in _OPERATORS:
                return _OPERATORS[name](*self.value(of))
        return {name: self.value(part) for name, part in expression.items()}


def interpret(
    operations: Sequence[Json], scope: Scope
) -> Generator[NotationCall, list[Json] | None, Json]:
    """Run a method: yield its calls, return its value."""
    try:
        yield from _block(operations, scope)
    except _Returned as returned:
        return returned.value
    return None


def _block(
    operations: Sequence[Json], scope: Scope
) -> Generator[NotationCall, list[Json] | None, None]:
    for operation in operations:
        match operation["op"]:
            case "execute" | "dispatch" as name:
                yield from _call(operation, scope, sync=name == "execute")
            case "set":
                scope.properties[operation["prop"]] = scope.value(operation["value"])
            case "let":
                scope.variables[operation["var"]] = scope.value(operation["value"])
            case "if":
                chosen = "then" if scope.value(operation["cond"]) else "else"
                yield from _block(operation.get(chosen) or [], scope)
            case "while":
                yield from _while(operation, scope)
            case "return":
                raise _Returned(scope.value(operation.get("value")))
            case "raise":
                raise NotationRaised(scope.value(operation.get("message")))
            case other:
                raise ValueError(f"unknown operation {other!r}")


def _while(operation: Json, scope: Scope) -> Generator[NotationCall, list[Json] | None, None]:
    for _ in range(_TURNS):
        if not scope.value(operation["cond"]):
            return
        yield from _block(operation["do"], scope)
    raise ValueError(f"a `while` does not end within {_TURNS} turns")


def _call(
    operation: Json, scope: Scope, *, sync: bool
) -> Generator[NotationCall, list[Json] | None, None]:
    steps = [_evaluated(step, scope) for step in operation["works"]]
    outputs = yield NotationCall(steps, sync)
    if "as" in operation and outputs is not None:
        alone = len(steps) == 1 and not operation.get("list")
        scope.variables[operation["as"]] = outputs[0] if alone else outputs


def _evaluated(step: Json, scope: Scope) -> Json:
    if "wait" in step:
        return {"wait": {name: scope.value(value) for name, value in step["wait"].items()}}
    return {**step, "input": scope.value(step.get("input"))}


def step_call(step: Json, position: str, *, sync: bool) -> StepCall:
    """Return a step of the notation as a session wants it."""
    if "wait" in step:
        wait = step["wait"]
        return StepCall(
            position=position,
            type=StepType.WAIT,
            name="Wait",
            input=wait,
            sync=sync,
            event=wait.get("event"),
            duration=wait.get("duration"),
            timestamp=wait.get("timestamp"),
        )
    type_ = StepType.TASK if "task" in step else StepType.FLOW
    return StepCall(
        position=position,
        type=type_,
        name=step[type_],
        input=step["input"],
        sync=sync,
        timeout=step.get("timeout"),
    )
