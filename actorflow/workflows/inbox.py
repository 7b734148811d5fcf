"""Behaviours for inboxes of workflows: events that wait for their turn, events that interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from actorflow.behaviours.arguments import function
from actorflow.behaviours.behaviour import Item
from actorflow.behaviours.wrapper import Wrapper
from actorflow.runtime.errors import BadOption
from actorflow.workflows.wait import Event

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Interrupt", "SentEvent", "Turns"]


class SentEvent(Event, frozen=True):
    """An event on its way to an instance, as behaviours of inboxes see it."""

    at: float | None = None
    asked: str | None = None
    interrupts: bool = False
    undoes: bool = False
    asks: bool = False


class Interrupt(Wrapper):
    """Stops what the workflow is doing for each event that the inner behaviour hands over.

    Tasks and sub-workflows that a method waits for are cancelled, as if they had failed: the method
    sees `Interrupted`, which ends an `on_` method that does not catch it. Waits and dispatched
    steps go on. The event comes right after that. Each of several events stops the last one.

        engine.start(Agent(), inbox=Interrupt(Unique(key=lambda event: event.name)))

    Args:
        inner: how events accumulate while a decision is being taken.
        when: which events interrupt; all by default.
        undo: let `on_event` calls that are stopped leave no trace, as if their events had never
            come: properties are as before, and later steps of other methods are done again. The
            effects of tasks, published values and sent events remain. `handle` sees `Interrupted`.

    """

    __slots__ = ("_undo", "_when")

    def __init__(
        self, inner: Any, *, when: Callable[[Event], bool] | None = None, undo: bool = False
    ) -> None:
        if when is not None:
            function(when, "when", "Interrupt(Queue(), when=lambda event: event.name == 'stop')")
        if type(undo) is not bool:
            raise BadOption(f"undo={undo!r:.40}: give True or False, as in Interrupt(undo=True)")
        super().__init__(inner)
        self._when = when
        self._undo = undo

    def __repr__(self) -> str:
        return f"Interrupt({self._inner!r}{', undo=True' if self._undo else ''})"

    def take(self, limit: int | None = None, free: int = 1) -> Any:
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
        if isinstance(each, SentEvent):
            return replace(each, interrupts=True, undoes=self._undo)
        return SentEvent(each.name, each.data, interrupts=True, undoes=self._undo)


class Turns(Wrapper):
    """Holds events back while a method waits for a task or a sub-workflow: one turn at a time.

    They accumulate in the inner behaviour meanwhile, which may reject, replace or merge them; then
    it hands over one. Waits and dispatched steps are no reason to hold them back.

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

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over one event, or a batch that cannot be divided."""
        return super().take(1 if self.traits.divisible else limit)
