"""The behaviours once more, as obvious as they can be: lists, loops, nothing fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from behaviours import Fate, Full, Malformed, Rejected, Tally, WouldBlock


@dataclass
class Entry:
    """A message in a model."""

    message: Any
    tickets: tuple[Any, ...] = ()
    born: float = 0.0


@dataclass
class World:
    """What all models of one composition share."""

    now: float = 0.0
    gone: list[tuple[tuple[Any, ...], Fate]] = field(default_factory=list)

    def lost(self, entry: Entry, fate: Fate) -> None:
        if entry.tickets:
            self.gone.append((entry.tickets, fate))


class Model:
    """A leaf: `held` is the messages in line; the first of `leaving()` leaves first."""

    ordered = True
    divisible = True
    expires = False
    stamped = False
    timed = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: list[Entry] = []
        self.counts: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def tally(self) -> Tally:
        return Tally(**self.counts)

    def size(self) -> int:
        return len(self.held)

    def usable(self, message: Any) -> bool:
        return True

    def add(self, entry: Entry) -> None:
        if not self.usable(entry.message):
            self.count("rejected")
            raise Malformed(entry.message, "model")
        self.put(entry)

    def put(self, entry: Entry) -> None:
        self.held.append(entry)

    def grows(self, message: Any) -> bool:
        return True

    def leaving(self) -> list[Entry]:
        return list(self.held)

    def take(self, limit: int | None = None) -> list[Entry]:
        batch = self.leaving()[: self.size() if limit is None else limit]
        for entry in batch:
            self.remove(entry)
        return batch

    def remove(self, entry: Entry) -> None:
        self.held = [other for other in self.held if other is not entry]

    def peek(self) -> Entry:
        return self.leaving()[0]

    def drop_oldest(self) -> Entry:
        return self.held.pop(0)

    def forget_older(self, horizon: float) -> list[Entry]:
        dead = [entry for entry in self.held if entry.born < horizon]
        for entry in dead:
            self.remove(entry)
        return dead

    def ready_at(self) -> float:
        return self.world.now

    def flush(self) -> None:
        pass

    def purge(self) -> None:
        pass


class QueueModel(Model):
    pass


class StackModel(Model):
    def leaving(self) -> list[Entry]:
        return self.held[::-1]


class KeyedModel(Model):
    def usable(self, message: Any) -> bool:
        return len(message) > 0 and not isinstance(message[0], list)

    def place(self, message: Any) -> int | None:
        for at, entry in enumerate(self.held):
            if entry.message[0] == message[0]:
                return at
        return None

    def grows(self, message: Any) -> bool:
        return self.usable(message) and self.place(message) is None


class UniqueModel(KeyedModel):
    def put(self, entry: Entry) -> None:
        at = self.place(entry.message)
        if at is None:
            self.held.append(entry)
        else:
            self.world.lost(self.held[at], Fate.REPLACED)
            self.count("replaced")
            self.held[at] = entry


class CoalesceModel(KeyedModel):
    def put(self, entry: Entry) -> None:
        at = self.place(entry.message)
        if at is None:
            self.held.append(entry)
            return
        old = self.held[at]
        try:
            merged = merge(old.message, entry.message)
        except Exception as error:
            self.count("rejected")
            raise Malformed(entry.message, "model") from error
        self.held[at] = Entry(merged, old.tickets + entry.tickets, entry.born)
        self.count("merged")


class PriorityModel(Model):
    ordered = False

    def usable(self, message: Any) -> bool:
        return len(message) > 0 and isinstance(message[0], (int, float))

    def leaving(self) -> list[Entry]:
        return sorted(self.held, key=lambda entry: -entry.message[0])


class FairModel(Model):
    ordered = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.turns: list[Any] = []

    def usable(self, message: Any) -> bool:
        return len(message) > 0 and not isinstance(message[0], list)

    def put(self, entry: Entry) -> None:
        super().put(entry)
        if entry.message[0] not in self.turns:
            self.turns.append(entry.message[0])

    def take(self, limit: int | None = None) -> list[Entry]:
        batch: list[Entry] = []
        while self.held and (limit is None or len(batch) < limit):
            key = self.turns.pop(0)
            mine = [entry for entry in self.held if entry.message[0] == key]
            batch.append(mine[0])
            self.remove(mine[0])
            if len(mine) > 1:
                self.turns.append(key)
        return batch

    def forget_older(self, horizon: float) -> list[Entry]:
        dead = super().forget_older(horizon)
        alive = [entry.message[0] for entry in self.held]
        self.turns = [key for key in self.turns if key in alive]
        return dead

    def peek(self) -> Entry:
        key = self.turns[0]
        return next(entry for entry in self.held if entry.message[0] == key)


def merge(old: Any, new: Any) -> Any:
    """Add the second elements; a message that cannot be added is refused."""
    return (old[0], old[1] + new[1], *old[2:], *new[2:])


def weight(message: Any) -> float:
    """Weigh a message by its second element."""
    return message[1]  # type: ignore[no-any-return]


class Around(Model):
    """A wrapper: asks the inner model."""

    def __init__(self, world: World, inner: Model) -> None:
        super().__init__(world)
        self.inner = inner
        self.ordered = inner.ordered
        self.divisible = inner.divisible
        self.expires = inner.expires
        self.timed = inner.timed
        self.stamped = inner.stamped

    def tally(self) -> Tally:
        return self.inner.tally() + Tally(**self.counts)

    def size(self) -> int:
        return self.inner.size()

    def add(self, entry: Entry) -> None:
        self.inner.add(entry)

    def grows(self, message: Any) -> bool:
        return self.inner.grows(message)

    def take(self, limit: int | None = None) -> list[Entry]:
        return self.inner.take(limit)

    def peek(self) -> Entry:
        return self.inner.peek()

    def drop_oldest(self) -> Entry:
        return self.inner.drop_oldest()

    def forget_older(self, horizon: float) -> list[Entry]:
        return self.inner.forget_older(horizon)

    def ready_at(self) -> float:
        return self.inner.ready_at()

    def flush(self) -> None:
        self.inner.flush()

    def purge(self) -> None:
        self.inner.purge()


class ThrottleModel(Around):
    def __init__(self, world: World, inner: Model, every: float) -> None:
        super().__init__(world, inner)
        self.timed = True
        self.every = every
        self.started = -inf

    def take(self, limit: int | None = None) -> list[Entry]:
        batch = self.inner.take(limit)
        if batch or not self.expires:
            self.started = self.world.now
        return batch

    def ready_at(self) -> float:
        return max(self.inner.ready_at(), self.started + self.every)


class BoundedModel(Around):
    def __init__(self, world: World, inner: Model, size: int, when_full: str) -> None:
        super().__init__(world, inner)
        self.bound = size
        self.when_full = when_full

    def full(self) -> bool:
        if self.inner.size() >= self.bound:
            self.inner.purge()
        return self.inner.size() >= self.bound

    def add(self, entry: Entry) -> None:
        if not self.full() or not self.inner.grows(entry.message):
            self.inner.add(entry)
        elif self.when_full == "reject":
            self.count("rejected")
            raise Full(self.bound)
        elif self.when_full == "block":
            raise WouldBlock(self.bound)
        elif self.when_full == "drop_newest":
            self.dropped(entry)
        else:
            self.inner.add(entry)
            while self.inner.size() > self.bound:
                self.dropped(self.inner.drop_oldest())

    def dropped(self, entry: Entry) -> None:
        self.world.lost(entry, Fate.DROPPED)
        self.count("dropped")


class ChunkModel(Around):
    def __init__(self, world: World, inner: Model, size: int, *, weighed: bool) -> None:
        super().__init__(world, inner)
        self.limit = size
        self.weighed = weighed

    def add(self, entry: Entry) -> None:
        if self.weighed and len(entry.message) < 2:
            self.count("rejected")
            raise Malformed(entry.message, "model")
        self.inner.add(entry)

    def take(self, limit: int | None = None) -> list[Entry]:
        if not self.weighed:
            return self.inner.take(self.limit if limit is None else min(limit, self.limit))
        batch: list[Entry] = []
        while self.inner.size() and (limit is None or len(batch) < limit):
            try:
                first = self.inner.peek()
            except IndexError:
                break
            if batch and sum(weight(e.message) for e in [*batch, first]) > self.limit:
                break
            batch += self.inner.take(1)
        return batch


class Waiting(Around):
    """Linger and Debounce: remember when messages arrived since the last take."""

    def __init__(self, world: World, inner: Model) -> None:
        super().__init__(world, inner)
        self.timed = self.stamped = True
        self.arrivals: list[float] = []
        self.left = False
        self.flushed = False

    def add(self, entry: Entry) -> None:
        empty = self.inner.size() == 0
        self.inner.add(entry)
        if empty:
            self.arrivals = []
            self.left = False
        self.arrivals.append(self.world.now)

    def take(self, limit: int | None = None) -> list[Entry]:
        batch = self.inner.take(limit)
        self.left = True
        return batch

    def due(self) -> float:
        raise NotImplementedError

    def ready_at(self) -> float:
        inner = self.inner.ready_at()
        if self.inner.size() == 0:
            return inf
        return inner if self.left or self.flushed else max(inner, self.due())

    def flush(self) -> None:
        self.flushed = True
        self.inner.flush()


class LingerModel(Waiting):
    def __init__(self, world: World, inner: Model, wait: float, size: int | None) -> None:
        super().__init__(world, inner)
        self.wait = wait
        self.enough = size

    def due(self) -> float:
        if self.enough is not None and self.inner.size() >= self.enough:
            return -inf
        return self.arrivals[0] + self.wait


class DebounceModel(Waiting):
    def __init__(self, world: World, inner: Model, quiet: float, at_most: float | None) -> None:
        super().__init__(world, inner)
        self.quiet = quiet
        self.at_most = inf if at_most is None else at_most

    def due(self) -> float:
        return min(self.arrivals[-1] + self.quiet, self.arrivals[0] + self.at_most)


class ExpireModel(Around):
    def __init__(self, world: World, inner: Model, ttl: float) -> None:
        super().__init__(world, inner)
        self.expires = self.timed = self.stamped = True
        self.ttl = ttl

    def add(self, entry: Entry) -> None:
        entry.born = self.world.now
        self.inner.add(entry)

    def dead(self, entry: Entry) -> bool:
        return entry.born < self.world.now - self.ttl

    def bury(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.count("expired")
            self.world.lost(entry, Fate.EXPIRED)

    def take(self, limit: int | None = None) -> list[Entry]:
        batch: list[Entry] = []
        while True:
            some = self.inner.take(None if limit is None else limit - len(batch))
            self.bury([entry for entry in some if self.dead(entry)])
            batch += [entry for entry in some if not self.dead(entry)]
            if not self.inner.size() or len(batch) >= (1 if limit is None else limit):
                return batch

    def peek(self) -> Entry:
        while True:
            entry = self.inner.peek()
            if not self.dead(entry):
                return entry
            self.bury(self.inner.take(1))

    def purge(self) -> None:
        self.bury(self.inner.forget_older(self.world.now - self.ttl))


__all__ = ["Entry", "Model", "Rejected", "World", "merge", "weight"]
