"""An inbox whose events wait until the workflow has finished its current turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from behaviours.arguments import function
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.wait import Event

__all__ = ["Turns"]


class Turns(Wrapper):
    """Holds events back while a method waits for a task or a sub-workflow: one turn at a time.

    They accumulate in the inner behaviour meanwhile, which may reject, replace or merge them; then
    it hands over one. Waits and dispatched works are no reason to hold them back.

        engine.start(Agent(), inbox=Turns(Bounded(Queue(), 1, when_full="reject")))

    Args:
        inner: how events accumulate. One that cannot be divided hands over all that it has.
        when: which events wait for their turn; all by default. The others are handled at once.

    """

    __slots__ = ("_when",)

    def __init__(self, inner: Any, *, when: Callable[[Event], bool] | None = None) -> None:
        if when is not None:
            function(when, "when", "Turns(Queue(), when=lambda event: event.name == 'message')")
        super().__init__(inner)
        self._when = when

    def __repr__(self) -> str:
        return f"Turns({self._inner!r})"

    def waits(self, event: Event) -> bool:
        """Return whether an event waits for its turn."""
        return self._when is None or self._when(event)

    def take(self, limit: int | None = None) -> Any:
        """Hand over one event, or a batch that cannot be divided."""
        return super().take(1 if self.traits.divisible else limit)
