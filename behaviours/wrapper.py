"""What all wrappers share: they claim a behaviour, derive its traits and pass calls on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.behaviours.adapt import adapt_inner, release
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Judge,
    MessageOutcome,
    Reason,
    Refusal,
    Tally,
    Traits,
)
from actorflow.behaviours.errors import BadBehaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Wrapper(Behaviour):
    """A behaviour around another one, passed as an instance, a class or a factory."""

    __slots__ = ("_inner", "traits")

    def __init__(self, inner: Any, **changed: bool) -> None:
        super().__init__()
        self._inner: Behaviour = adapt_inner(inner)
        self.traits: Traits = replace(self._inner.traits, **changed)

    @property
    def inner(self) -> Behaviour:
        """The behaviour that it is around."""
        return self._inner

    def _stay_patient(self) -> None:
        """Set the trait `patient`, unless a number of messages matters to the inner behaviour."""
        inner = self._inner.traits
        self.traits = replace(self.traits, patient=inner.patient or not inner.timed)

    def _refuse(self, why: str) -> NoReturn:
        """Refuse the combination; the inner behaviour is free again."""
        release(self._inner)
        raise BadBehaviour(why)

    def add(self, message: Any) -> None:
        """Pass one message on. Costs what the inner behaviour costs."""
        self._inner.add(message)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Pass many messages on. Costs what the inner behaviour costs."""
        return self._inner.extend(messages)

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Pass many messages on with their times. Costs what the inner behaviour costs."""
        inner = self._inner
        if inner.traits.timed:
            return inner.extend_at(messages, times)
        return inner.extend(messages)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch of the inner behaviour. Costs what the inner behaviour costs."""
        if free != 1 and self._inner.traits.spreads:
            return self._inner.take(limit, free)
        return self._inner.take() if limit is None else self._inner.take(limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the inner behaviour."""
        return self._inner.choose(judge, limit)

    def portion(self) -> int | None:
        """Return the limit of the inner behaviour."""
        return self._inner.portion()

    def padding(self) -> int:
        """Return what the inner behaviour has padded the last batch with."""
        return self._inner.padding()

    def reason(self) -> Reason:
        """Return why the batch left the inner behaviour."""
        return self._inner.reason()

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, if the inner behaviour lists them."""
        return iter(getattr(self._inner, "__iter__", tuple)())

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour and return it."""
        return self._inner.drop_oldest()

    def drop_lowest(self) -> Any:
        """Forget the message that the inner behaviour would hand over last, and return it."""
        return self._inner.drop_lowest()

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour and return them."""
        return self._inner.drop_many(count)

    def peek(self) -> Any:
        """Return the message that the inner behaviour would hand over first."""
        return self._inner.peek()

    def grows(self, message: Any) -> bool:
        """Return whether `message` makes the inner behaviour longer."""
        return self._inner.grows(message)

    def evicted(self) -> int:
        """Return what the inner behaviour has dropped to make room."""
        return self._inner.evicted()

    def accepts(self, message: Any) -> bool:
        """Return whether the inner behaviour can use `message`."""
        return self._inner.accepts(message)

    def ready_at(self, now: float) -> float:
        """Pass the time on, and return the answer of the inner behaviour."""
        return self._inner.ready_at(now)

    def until_full(self) -> int | None:
        """Return the answer of the inner behaviour, if it may hold messages back at all."""
        return self._inner.until_full() if self._inner.traits.timed else None

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item`, here and inside."""
        self.gone = gone
        self._inner.track(gone)

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages of the inner behaviour and return them."""
        return self._inner.forget(dead)

    def purge(self) -> None:
        """Make the inner behaviour drop its expired messages."""
        self._inner.purge()

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Pass on what happened to a batch."""
        self._inner.done(batch, took, outcomes)

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Return when the inner behaviour allows a retry."""
        return self._inner.retry_at(batch, now)

    def steers(self) -> bool:
        """Return the answer of the inner behaviour."""
        return self._inner.steers()

    def withdraw(self, message: Any) -> bool:
        """Let the inner behaviour forget a message."""
        return self._inner.withdraw(message)

    def save(self) -> Any:
        """Return the state of this behaviour and that of the inner one, if there is any."""
        own, inner = self._save(), self._inner.save()
        return None if own is None and inner is None else [own, inner]

    def load(self, state: Any) -> None:
        """Restore the state of this behaviour and of the inner one."""
        if state is not None:
            own, inner = state
            if own is not None:
                self._load(own)
            self._inner.load(inner)

    def _save(self) -> Any:
        """Return the state of this wrapper alone."""
        return None

    def _load(self, state: Any) -> None:
        """Restore what `_save` has returned."""

    def flush(self) -> None:
        """Make the inner behaviour stop waiting for more."""
        self._inner.flush()

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour."""
        return self._inner.tally()

    def depths(self) -> Mapping[Any, int] | None:
        """Return how many messages of each key the inner behaviour holds."""
        return self._inner.depths()

    def check(self) -> None:
        """Verify the invariants of the inner behaviour."""
        self._inner.check()
