"""Whether a function can be called as a plan says, before any worker tries it."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from actorflow.plans.errors import BadPlan

__all__ = ["CallChecker"]

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _Parameters(NamedTuple):
    """What a function takes."""

    signature: inspect.Signature | None
    """`None` if unknown: then every call is accepted."""
    least: int
    """Fewest arguments by place, when there are no others; -1 if that is never enough."""
    most: float


_UNKNOWN = _Parameters(None, 0, float("inf"))


class CallChecker:
    """Checks calls. The last function is remembered, because plans call few functions often."""

    def __init__(self) -> None:
        self._function: Any = None
        self._shape = _UNKNOWN

    def __reduce__(self) -> tuple[type[CallChecker], tuple[()]]:
        return CallChecker, ()  # a stored plan must not need the function to be read

    def check(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Check one call. O(1) with arguments by place only.

        Raises:
            BadPlan: an argument is missing, or there is one that the function does not take.

        """
        if function is not self._function:
            self._function, self._shape = function, _parameters_of(function)
        shape = self._shape
        if not kwargs and 0 <= shape.least <= len(args) <= shape.most:
            return
        if shape.signature is None:
            return
        try:
            shape.signature.bind(*args, **(kwargs or {}))
        except TypeError as error:
            name = getattr(function, "__name__", None) or repr(function)
            msg = f"{name}{shape.signature} cannot be called like that: {error}"
            raise BadPlan(msg) from None


def _parameters_of(function: Any) -> _Parameters:
    try:
        # What a decorator wraps may take other arguments than what it returns.
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):  # some builtins do not say
        return _UNKNOWN
    parameters = signature.parameters.values()
    by_place = [each for each in parameters if each.kind in _BY_PLACE]
    needed = [each for each in parameters if each.default is each.empty]
    least = sum(each.kind in _BY_PLACE for each in needed)
    if any(each.kind is each.KEYWORD_ONLY for each in needed):
        least = -1
    endless = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return _Parameters(signature, least, float("inf") if endless else len(by_place))
