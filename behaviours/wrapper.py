"""What all wrappers share: they claim a behaviour, derive its traits and pass calls on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from behaviours.base import adapt, release
from behaviours.contract import Behaviour, Fate, Item, Reason, Refusal, Tally, Traits
from behaviours.errors import BadBehaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Wrapper(Behaviour):
    """A behaviour around another one, passed as an instance, a class or a factory."""

    __slots__ = ("_inner", "traits")

    def __init__(self, inner: Any, **changed: bool) -> None:
        super().__init__()
        self._inner: Behaviour = adapt(inner)
        self.traits: Traits = replace(self._inner.traits, **changed)

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

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch of the inner behaviour. Costs what the inner behaviour costs."""
        return self._inner.take() if limit is None else self._inner.take(limit)

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

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour and return them."""
        return self._inner.drop_many(count)

    def peek(self) -> Any:
        """Return the message that the inner behaviour would hand over first."""
        return self._inner.peek()

    def grows(self, message: Any) -> bool:
        """Return whether `message` makes the inner behaviour longer."""
        return self._inner.grows(message)

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
        """Make the inner behaviour drop what has expired."""
        self._inner.purge()

    def observe(self, size: int, took: float) -> None:
        """Pass on how long the job took."""
        self._inner.observe(size, took)

    def flush(self) -> None:
        """Make the inner behaviour stop waiting for more."""
        self._inner.flush()

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour."""
        return self._inner.tally()

    def check(self) -> None:
        """Verify the invariants of the inner behaviour."""
        self._inner.check()
