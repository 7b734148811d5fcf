"""The behaviours once more, as obvious as they can be: lists, loops, nothing fast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from actorflow.behaviours import (
    Behaviour,
    Fate,
    Full,
    Malformed,
    MessageOutcome,
    Rejected,
    Tally,
    Verdict,
    WouldBlock,
)


@dataclass
class Entry:
    """A message in a model."""

    message: Any
    tickets: tuple[Any, ...] = ()
    born: float = 0.0


Judge = Callable[[Entry], Verdict]


@dataclass
class World:
    """What all models of one composition share."""

    now: float = 0.0
    evicted: int = 0
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
    evicts = False

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

    def accepts(self, message: Any) -> bool:
        return self.usable(message)

    def grows(self, message: Any) -> bool:
        return True

    def leaving(self) -> list[Entry]:
        return list(self.held)

    def take(self, limit: int | None = None) -> list[Entry]:
        batch = self.leaving()[: self.size() if limit is None else limit]
        for entry in batch:
            self.remove(entry)
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        batch: list[Entry] = []
        for entry in self.leaving():
            if limit is not None and len(batch) >= limit:
                break
            verdict = judge(entry)
            if verdict is Verdict.STOP:
                break
            if verdict is not Verdict.SKIP:
                self.remove(entry)
            if verdict is Verdict.TAKE:
                batch.append(entry)
        return batch

    def withdraw(self, entry: Entry) -> bool:
        if not any(other is entry for other in self.held):
            return False
        self.remove(entry)
        return True

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
        return self.choose(take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        batch: list[Entry] = []
        aside: list[Any] = []
        stopped = False
        while self.turns and not stopped and (limit is None or len(batch) < limit):
            key = self.turns.pop(0)
            taken = False
            for entry in [entry for entry in self.held if entry.message[0] == key]:
                verdict = judge(entry)
                stopped = verdict is Verdict.STOP
                taken = verdict is Verdict.TAKE
                if verdict is Verdict.TAKE or verdict is Verdict.DISCARD:
                    self.remove(entry)
                if taken:
                    batch.append(entry)
                if taken or stopped:
                    break
            if taken:
                self.turns.append(key)
            else:
                aside.append(key)
            self.tidy()
        self.turns = aside + self.turns
        self.tidy()
        return batch

    def withdraw(self, entry: Entry) -> bool:
        found = super().withdraw(entry)
        self.tidy()
        return found

    def tidy(self) -> None:
        """Forget the turns of keys without messages."""
        held = [entry.message[0] for entry in self.held]
        self.turns = [key for key in self.turns if key in held]

    def forget_older(self, horizon: float) -> list[Entry]:
        dead = super().forget_older(horizon)
        self.tidy()
        return dead

    def peek(self) -> Entry:
        key = self.turns[0]
        return next(entry for entry in self.held if entry.message[0] == key)


def take_all(_: Entry) -> Verdict:
    return Verdict.TAKE


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
        self.evicts = inner.evicts

    def tally(self) -> Tally:
        return self.inner.tally() + Tally(**self.counts)

    def size(self) -> int:
        return self.inner.size()

    def add(self, entry: Entry) -> None:
        self.inner.add(entry)

    def accepts(self, message: Any) -> bool:
        return self.inner.accepts(message)

    def grows(self, message: Any) -> bool:
        return self.inner.grows(message)

    def take(self, limit: int | None = None) -> list[Entry]:
        return self.inner.take(limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        return self.inner.choose(judge, limit)

    def withdraw(self, entry: Entry) -> bool:
        return self.inner.withdraw(entry)

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

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        batch = self.inner.choose(judge, limit)
        if batch:
            self.started = self.world.now
        return batch

    def ready_at(self) -> float:
        return max(self.inner.ready_at(), self.started + self.every)


class BoundedModel(Around):
    def __init__(self, world: World, inner: Model, size: int, when_full: str) -> None:
        super().__init__(world, inner)
        self.bound = size
        self.when_full = when_full
        self.evicts = self.evicts or when_full == "drop_oldest"

    def full(self) -> bool:
        if self.inner.size() >= self.bound:
            self.inner.purge()
        return self.inner.size() >= self.bound

    def add(self, entry: Entry) -> None:
        needs_room = self.inner.accepts(entry.message) and self.inner.grows(entry.message)
        if not self.full() or not needs_room:
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
                self.world.evicted += 1

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

    def accepts(self, message: Any) -> bool:
        return not (self.weighed and len(message) < 2) and self.inner.accepts(message)

    def take(self, limit: int | None = None) -> list[Entry]:
        return self.choose(take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        if not self.weighed:
            return self.inner.choose(judge, self.limit if limit is None else min(limit, self.limit))
        batch: list[Entry] = []

        def fits(entry: Entry) -> Verdict:
            verdict = judge(entry)
            if verdict is not Verdict.TAKE:
                return verdict
            if batch and sum(weight(each.message) for each in [*batch, entry]) > self.limit:
                return Verdict.STOP
            batch.append(entry)
            return Verdict.TAKE

        return self.inner.choose(fits, limit)


class Waiting(Around):
    """Linger and Debounce: remember when messages arrived since the last take."""

    def __init__(self, world: World, inner: Model) -> None:
        super().__init__(world, inner)
        self.timed = self.stamped = True
        self.arrivals: list[float] = []
        self.starts: list[float] = []
        self.left = False
        self.flushed = False

    def add(self, entry: Entry) -> None:
        held, evicted = self.inner.size(), self.world.evicted
        self.inner.add(entry)
        if held == 0:
            self.arrivals = []
            self.left = False
        self.arrivals.append(self.world.now)
        dropped = self.world.evicted - evicted
        if self.inner.size() - held + dropped > 0:
            self.starts.append(self.world.now)
        del self.starts[: max(dropped, len(self.starts) - self.inner.size())]

    def leave(self) -> None:
        self.left = True
        self.starts = [-inf] * self.inner.size()

    def take(self, limit: int | None = None) -> list[Entry]:
        batch = self.inner.take(limit)
        self.leave()
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        batch = self.inner.choose(judge, limit)
        if batch:
            self.leave()
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

    def most(self, limit: int | None) -> int | None:
        if self.enough is None or not self.divisible:
            return limit
        return self.enough if limit is None else min(limit, self.enough)

    def take(self, limit: int | None = None) -> list[Entry]:
        return super().take(self.most(limit))

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        return super().choose(judge, self.most(limit))

    def due(self) -> float:
        if self.enough is not None and self.inner.size() >= self.enough:
            return -inf
        return self.starts[0] + self.wait if self.evicts else self.arrivals[0] + self.wait

    def leave(self) -> None:
        super().leave()
        self.left = not self.evicts


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
        return self.choose(take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Entry]:
        def alive(entry: Entry) -> Verdict:
            if self.dead(entry):
                self.bury([entry])
                return Verdict.DISCARD
            return judge(entry)

        return self.inner.choose(alive, limit)

    def peek(self) -> Entry:
        self.choose(lambda _: Verdict.STOP)
        return self.inner.peek()

    def purge(self) -> None:
        self.bury(self.inner.forget_older(self.world.now - self.ttl))


def learn(behaviour: Behaviour, size: int, took: float) -> None:
    """Tell a behaviour that a call with so many messages was successful."""
    behaviour.done(range(size), took, [MessageOutcome.PROCESSED] * size)


__all__ = ["Entry", "Model", "Rejected", "World", "learn", "merge", "weight"]
