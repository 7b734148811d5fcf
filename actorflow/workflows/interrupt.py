"""An inbox whose events interrupt what the workflow is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.wait import Event
from behaviours.arguments import function
from behaviours.base import Item
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Interrupt", "SentEvent"]


class SentEvent(Event, frozen=True):
    """An event on its way to an instance, as behaviours of inboxes see it."""

    at: float | None = None
    asked: str | None = None
    interrupts: bool = False


class Interrupt(Wrapper):
    """Stops what the workflow is doing for each event that the inner behaviour hands over.

    Tasks and sub-workflows that a method waits for are cancelled, as if they had failed: the method
    sees `Interrupted`, which ends an `on_` method that does not catch it. Waits and dispatched
    works go on. The event comes right after that.

        engine.start(Agent(), inbox=Interrupt(Unique(key=lambda event: event.name)))

    Args:
        inner: how events accumulate while a decision is being taken.
        when: which events interrupt; all by default.

    """

    __slots__ = ("_when",)

    def __init__(self, inner: Any, *, when: Callable[[Event], bool] | None = None) -> None:
        if when is not None:
            function(when, "when", "Interrupt(Queue(), when=lambda event: event.name == 'stop')")
        super().__init__(inner)
        self._when = when

    def __repr__(self) -> str:
        return f"Interrupt({self._inner!r})"

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch, whose events are marked. O(batch) more."""
        batch = super().take(limit)
        if type(batch) is not list:
            return self._marked(batch)
        return [self._marked(each) for each in batch]

    def _marked(self, each: Any) -> Any:
        if type(each) is Item:
            return Item(self._marked(each.message), each.tickets, each.born)
        if not isinstance(each, Event) or (self._when is not None and not self._when(each)):
            return each
        at, asked = getattr(each, "at", None), getattr(each, "asked", None)
        return SentEvent(each.name, each.data, at, asked, interrupts=True)
