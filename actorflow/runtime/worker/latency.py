"""The times of a worker, estimated fairly.

Where messages leave in the order of their arrival, the times of a batch follow from when batches
are taken, and no message is looked at (`Timing`, `Backlog`). Where a behaviour may let one overtake
another, a sample of the messages is timed (`LatencySampler`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, Self

from actorflow.behaviours import Bounded, Chunk, Debounce, Linger, Queue, Throttle, Unique
from actorflow.behaviours.behaviour import Behaviour, Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.behaviours.behaviour import Reason
    from actorflow.runtime.clock import Clock

__all__ = [
    "Backlog", "LatencySampler", "ObservedTiming", "Probe", "Timing", "may_reorder",
    "observe_batches", "without_probes",
]  # fmt: skip

_KEPT = 256  # batches whose times are kept
_WIDTH = 5  # entries for each of them: its size, and four moments
_LENGTH = _KEPT * _WIDTH
_GROUPS = 64  # messages of a backlog that arrived between two batches count as a group
_POINTS = 8  # places within a batch at which its messages are looked at
_SAMPLES = 1_024  # timed messages that are kept
_EACH = 16  # so many messages are timed before samples are drawn
_MEAN_GAP = 8  # messages from one sample to the next, on average
_SPARSEST = 7  # a mask: in the long run one batch of eight is kept


class Timing:
    """What a pair measures, batch by batch. Changed under the pair's lock."""

    __slots__ = ("_mask", "_oldest", "_samples", "_sizes", "busy", "reasons")

    def __init__(self) -> None:
        self.busy = 0.0
        self.reasons: dict[Reason, int] = {}
        """Batches by why they left, except the ones that left because the executor was idle."""
        self._sizes: dict[int, int] = {}
        # A ring in a flat list, five entries for each batch: an empty deque takes 600 bytes, and
        # a tuple for each batch would make the garbage collector walk all that was kept.
        self._samples: list[float] = []
        self._oldest = 0
        self._mask = 0  # batches whose number has a bit in common with it are left out

    def finished(
        self, number: int, size: int, span: tuple[float, float, float], end: float
    ) -> None:
        """Record a batch that was processed.

        At first each is kept. Whenever there are too many, every other one is dropped and half as
        many are kept from then on, so that all count the same. Once only every eighth is kept,
        the newest take the place of the oldest.
        """
        low, high, begun = span
        self.busy += end - begun
        sizes = self._sizes
        bits = (size - 1).bit_length() if size > 1 else 0
        sizes[bits] = sizes.get(bits, 0) + 1
        if not number & self._mask:
            samples = self._samples  # changed by one C call: `quantiles` takes no lock
            if len(samples) < _LENGTH:
                samples.extend((size, low, high, begun, end))
            elif self._mask < _SPARSEST:
                self._samples = _every_other(samples)
                self._mask = 2 * self._mask + 1
            else:
                at = self._oldest
                samples[at : at + _WIDTH] = (size, low, high, begun, end)
                self._oldest = (at + _WIDTH) % _LENGTH

    @classmethod
    def like(cls, other: Timing) -> Self:
        """Return a timing that goes on where another one is."""
        made = cls()
        made.busy, made.reasons = other.busy, other.reasons
        made._sizes, made._samples, made._oldest = other._sizes, other._samples, other._oldest
        made._mask = other._mask
        return made

    def count_reason(self, reason: Reason) -> None:
        """Record why a batch left."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def sizes(self) -> dict[int, int]:
        """Return how many batches had up to 1, 2, 4, ... messages."""
        return {1 << bits: count for bits, count in sorted(self._sizes.items())}

    def quantiles(self, sampler: LatencySampler | None = None) -> tuple[float | None, ...]:
        """Return p50 and p99 of latency, wait and service, by message."""
        waits: list[tuple[float, float]] = []
        latencies: list[tuple[float, float]] = []
        services: list[tuple[float, float]] = []
        flat = iter(self._samples[:])
        for size, low, high, begun, end in zip(flat, flat, flat, flat, flat, strict=True):
            points = _POINTS if high > low else 1  # a single one may have come at any moment
            weight = size / points
            services.append((end - begun, size))
            for point in range(points):
                arrived = high - (high - low) * (point + 0.5) / points
                waits.append((max(begun - arrived, 0.0), weight))
                latencies.append((end - arrived, weight))
        if sampler is not None:
            samples = sampler.samples.copy()
            waits = [(wait, weight) for wait, _, weight in samples]
            latencies = [(latency, weight) for _, latency, weight in samples]
        return (*_quantiles(latencies), *_quantiles(waits), *_quantiles(services))


def _every_other(samples: list[float]) -> list[float]:
    """Return the second of each two batches: those with an even number."""
    return [
        each for at in range(_WIDTH, len(samples), 2 * _WIDTH) for each in samples[at : at + _WIDTH]
    ]


class Backlog:
    """When the messages arrived that small batches have left behind, in the order of arrival."""

    __slots__ = ("_arrivals", "_held")

    def __init__(self) -> None:
        self._arrivals: list[tuple[int, float, float]] = []  # how many, between two moments
        self._held = 0

    def span(self, size: int, rest: int, low: float, high: float) -> tuple[float, float]:
        """Return between which moments the messages of a batch arrived. O(1) amortised.

        Args:
            size: how many they are.
            rest: how many are left.
            low: when the batch before was taken.
            high: the latest possible arrival of the messages that came since then.

        """
        fresh = size + rest - self._held
        self._held = rest
        if fresh > 0:
            self._arrivals.append((fresh, low, high))
        begin = end = None
        while self._arrivals and size > 0:
            count, low, high = self._arrivals.pop(0)
            begin = low if begin is None else begin
            end = low + (high - low) * min(size / count, 1.0)
            if count > size:
                self._arrivals.insert(0, (count - size, end, high))
            size -= count
        if len(self._arrivals) > _GROUPS:
            self._merge()
        return (low if begin is None else begin), (high if end is None else end)

    def _merge(self) -> None:
        """Make one group of each two."""
        groups = self._arrivals
        odd = groups[len(groups) & ~1 :]
        pairs = zip(groups[::2], groups[1::2], strict=False)
        self._arrivals = [(m + n, low, high) for (m, low, _), (n, _, high) in pairs] + odd


class _Sampled(Protocol):
    """What a sampler needs of its pair."""

    waiting_since: float


class Probe:
    """The ticket of a sampled message: nobody waits, but its times are noted."""

    __slots__ = ("_arrived", "_beside", "_sampler", "_weight", "begun")

    def __init__(
        self, sampler: LatencySampler, arrived: float, weight: int, beside: Any = None
    ) -> None:
        self._sampler = sampler
        self._arrived = arrived
        self._weight = weight
        self._beside = beside
        self.begun: float | None = None
        """When the batch with the message was taken."""

    @property
    def abandoned(self) -> bool:
        """Whether the caller that waits for the same message has given up."""
        return self._beside is not None and getattr(self._beside, "abandoned", False)

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Record the times of a message that was processed."""
        if error is None and self.begun is not None:
            self._sampler.note(self._arrived, self.begun, self._weight)


def without_probes(message: Any) -> Any:
    """Return an item without the tickets of samples, and a message for which nobody waits bare."""
    if type(message) is not Item:
        return message
    tickets = tuple(ticket for ticket in message.tickets if type(ticket) is not Probe)
    if len(tickets) == len(message.tickets):
        return message
    return Item(message.message, tickets, message.born) if tickets else message.message


class ObservedTiming(Timing):
    """A timing that also reports each batch: its size, when it began and when it ended."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Callable[[int, float, float], None]] = []

    def finished(
        self, number: int, size: int, span: tuple[float, float, float], end: float
    ) -> None:
        """Record a batch, and report it. Under the pair's lock, so listeners must be quick."""
        super().finished(number, size, span, end)
        for listener in self.listeners:
            listener(size, span[2], end)


class _TimedPair(Protocol):
    lock: Any
    timing: Timing | None


def observe_batches(
    pair: _TimedPair, listener: Callable[[int, float, float], None]
) -> Callable[[], None]:
    """Report each batch of a pair that was processed; return how to stop that. Thread-safe.

    Pairs that are not observed pay nothing for it.
    """
    with pair.lock:
        if not isinstance(pair.timing, ObservedTiming):
            pair.timing = ObservedTiming.like(pair.timing or Timing())
        timing = pair.timing
        timing.listeners.append(listener)

    def stop() -> None:
        with pair.lock:
            if listener in timing.listeners:
                timing.listeners.remove(listener)
            if not timing.listeners and pair.timing is timing:
                pair.timing = Timing.like(timing)

    return stop


class LatencySampler:
    """Times every message of a pair at first, and then about one of eight.

    Changed under the pair's lock, apart from `samples`. The gaps between sampled messages are
    random, so that no rhythm of the arrivals can hide from them.
    """

    __slots__ = ("_clock", "_drawn", "_gap", "_looked_at", "_pair", "samples")

    def __init__(self, clock: Clock, pair: _Sampled) -> None:
        self._clock = clock
        self._pair = pair
        self._looked_at = clock.now()
        self._gap = 0
        self._drawn = 0
        self.samples: deque[tuple[float, float, int]] = deque(maxlen=_SAMPLES)
        """The wait and the latency of each sampled message, and how many it stands for."""

    def probe(self, messages: list[Any], times: list[float] | None) -> list[Item]:
        """Wrap some of the messages in items that carry a `Probe`; return these.

        Without `times`, messages are taken to have arrived evenly since the last look, or since
        the executor was woken.
        """
        now, count = self._clock.now(), len(messages)
        low = min(max(self._looked_at, self._pair.waiting_since), now)
        self._looked_at = now
        sampled = []
        at = self._gap
        while at < count:
            arrived = low + (now - low) * (at + 1) / count if times is None else times[at]
            message = messages[at]
            weight = 1 if self._drawn < _EACH else _MEAN_GAP
            if type(message) is Item:
                probe = Probe(
                    self, arrived, weight, message.tickets[0] if message.tickets else None
                )
                item = Item(message.message, (*message.tickets, probe), message.born)
            else:
                item = Item(message, (Probe(self, arrived, weight),))
            messages[at] = item
            sampled.append(item)
            at += 1 + self._draw()
        self._gap = at - count
        return sampled

    def _draw(self) -> int:
        """Return how many messages to skip, by a linear congruential generator."""
        self._drawn += 1
        if self._drawn < _EACH:
            return 0
        return (self._drawn * 1_103_515_245 + 12_345 >> 16) % (2 * _MEAN_GAP - 1)

    def note(self, arrived: float, begun: float, weight: int) -> None:
        """Record that a sampled message was processed. Thread-safe."""
        self.samples.append((max(begun - arrived, 0.0), self._clock.now() - arrived, weight))


_ORDERLY = {Bounded, Chunk, Debounce, Linger, Queue, Throttle, Unique}


def may_reorder(behaviour: Behaviour) -> bool:
    """Return whether messages that stay when a batch is taken may have come before those in it."""
    while type(behaviour) in _ORDERLY:
        if type(behaviour) in (Queue, Unique):
            return False
        behaviour = behaviour.inner  # type: ignore[attr-defined] # the others are wrappers
    return True


def _quantiles(weighted: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not weighted:
        return None, None
    weighted.sort()
    total = sum(weight for _, weight in weighted)
    return _at(weighted, 0.5 * total), _at(weighted, 0.99 * total)


def _at(weighted: Iterable[tuple[float, float]], rank: float) -> float:
    last = seen = 0.0
    for value, weight in weighted:
        last = value
        seen += weight
        if seen >= rank:
            break
    return last
