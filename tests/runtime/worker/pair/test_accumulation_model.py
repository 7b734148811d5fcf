"""The accumulation against a naive model: every ticket is resolved exactly once, nothing is lost.

First the pure core, call by call, with the exact contents of each batch. Then whole workers of
random composition on a lane without threads and a clock that stands still.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import actorflow as af
from actorflow.behaviours import (
    Base,
    Bounded,
    Chunk,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Stack,
    Throttle,
    Unique,
)
from actorflow.behaviours.adapt import adapt, release
from actorflow.runtime.worker.pair.accumulation import Accumulation
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import FakeTicket

if TYPE_CHECKING:
    from actorflow.runtime.worker.job.batch import Batch


class OneByOne(Base):
    """Hands over one message at a time, newest first: a behaviour that takes no wrapped ones."""

    def transform(self, messages: Any) -> Any:
        return messages[0]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


class Message:
    """A message with a key, a number and an identity of its own."""

    def __init__(self, key: int, number: int) -> None:
        self.key = key
        self.number = number
        self.ticket: FakeTicket | None = None

    def __getitem__(self, index: int) -> int:
        return (self.key, self.number)[index]

    def __repr__(self) -> str:
        return f"{self.key}.{self.number}"


def make_model(kind: str) -> Any:
    makers: dict[str, Any] = {
        "queue": Queue,
        "stack": Stack,
        "unique": Unique,
        "priority": Priority,
        "chunk": lambda: Chunk(Queue(), 2),
        "reject": lambda: Bounded(Queue(), 3),
        "drop_oldest": lambda: Bounded(Queue(), 3, when_full="drop_oldest"),
        "drop_newest": lambda: Bounded(Queue(), 3, when_full="drop_newest"),
        "one by one": OneByOne,
        "throttle": lambda: Throttle(Queue(), 1.0),
    }
    return makers[kind]()


KINDS = (
    "queue", "stack", "unique", "priority", "chunk", "reject", "drop_oldest", "drop_newest",
    "one by one", "throttle",
)  # fmt: skip


class CoreMachine(RuleBasedStateMachine):
    """`Accumulation` against a list."""

    @initialize(kind=st.sampled_from(KINDS))
    def begin(self, kind: str) -> None:
        self.kind = kind
        self.refused: list[Any] = []
        self.core = Accumulation(adapt(make_model(kind)))
        self.now = 0.0
        self.last = -10.0
        self.raw: list[Message] = []
        self.held: list[Message] = []
        self.displaced: dict[Message, type[BaseException]] = {}
        self.processed: list[Message] = []
        self.model_refused: list[Message] = []
        self.out: list[tuple[Batch, list[Message]]] = []
        self.everyone: list[Message] = []

    # The model.

    def model_add(self, message: Message) -> bool:
        """Add a message as the behaviour should; return whether it was accepted."""
        if self.kind == "unique":
            for at, other in enumerate(self.held):
                if other.key == message.key:
                    self.held[at] = message
                    self.displaced[other] = af.Replaced
                    return True
        elif self.kind in {"reject", "drop_newest", "drop_oldest"} and len(self.held) == 3:
            if self.kind == "reject":
                self.model_refused.append(message)
                return False
            lost = message if self.kind == "drop_newest" else self.held.pop(0)
            self.displaced[lost] = af.Dropped
            if lost is message:
                return True
        self.held.append(message)
        return True

    def model_fold(self) -> None:
        for message in self.raw:
            self.model_add(message)
        self.raw = []

    def model_take(self) -> tuple[Any, list[Message]] | None:
        """Return the payload that must leave now, and its messages."""
        held = self.held
        if not held or (self.kind == "throttle" and self.now < self.last + 1.0):
            return None
        if self.kind == "one by one":
            message = held.pop()
            return message, [message]
        leaving = held[:2] if self.kind == "chunk" else list(held)
        self.held = held[len(leaving) :]
        if self.kind == "stack":
            leaving.reverse()
        elif self.kind == "priority":
            leaving.sort(key=lambda message: -message.key)
        self.last = self.now
        return leaving, leaving

    # Actions.

    def _message(self, key: int) -> Message:
        message = Message(key, len(self.everyone))
        self.everyone.append(message)
        return message

    @rule(keys=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def push(self, keys: list[int]) -> None:
        messages = [self._message(key) for key in keys]
        self.core.raw.extend(messages)
        self.raw += messages

    @rule()
    def fold(self) -> None:
        self.core.fold(self.now)
        for messages, _error in self.core.take_refusals():
            self.refused += messages
        self.model_fold()

    @rule(key=st.integers(0, 3), waits=st.booleans())
    def offer(self, key: int, *, waits: bool) -> None:
        self.fold()
        message = self._message(key)
        if waits:
            message.ticket = FakeTicket()
        accepted = self.model_add(message)
        try:
            self.core.offer(message, message.ticket, self.now)
        except af.Full:
            assert not accepted
            self.refused.append(message)
        else:
            assert accepted

    @rule()
    def take(self) -> None:
        self.fold()
        batch = self.core.take(self.now)
        expected = self.model_take()
        if expected is None:
            assert batch is None
            assert self.core.due == (self.last + 1.0 if self.held else None)
        else:
            assert batch is not None
            payload, messages = expected
            assert batch.payload == payload
            assert batch.size == len(messages)
            self.out.append((batch, messages))

    @precondition(lambda self: bool(getattr(self, "out", None)))
    @rule()
    def finish(self) -> None:
        batch, messages = self.out.pop(0)
        batch.resolve()
        batch.resolve()  # a second time does nothing
        self.processed += messages

    @rule(seconds=st.sampled_from((0.25, 0.5, 1.0, 5.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # Invariants.

    @invariant()
    def tickets_are_as_the_model_says(self) -> None:
        if not hasattr(self, "core"):
            return
        done = {id(message) for message in self.processed}
        for message in self.everyone:
            if message.ticket is None:
                continue
            answers = message.ticket.answers
            if message in self.displaced:
                assert [type(answer) for answer in answers] == [self.displaced[message]]
            else:
                assert answers == ([None] if id(message) in done else [])

    @invariant()
    def counts_are_as_the_model_says(self) -> None:
        if not hasattr(self, "core"):
            return
        assert len(self.core) == len(self.raw) + len(self.held)
        assert self.refused == self.model_refused
        assert self.core.rejected == len(self.model_refused)
        assert self.core.folded == len(self.everyone) - len(self.raw)
        self.core.behaviour.check()

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        error = af.WorkerStopped("the end")
        self.fold()
        assert self.core.abandon(error) == len(self.held)
        for message in self.held:
            if message.ticket is not None:
                assert message.ticket.answer is error
        for batch, _ in self.out:
            batch.resolve(error)
        for message in self.everyone:
            if message.ticket is not None and message not in self.model_refused:
                assert len(message.ticket.answers) == 1
        assert len(self.core) == 0


WRAPPERS: dict[str, Any] = {
    "reject": Bounded,
    "drop_newest": lambda inner, size: Bounded(inner, size, when_full="drop_newest"),
    "drop_oldest": lambda inner, size: Bounded(inner, size, when_full="drop_oldest"),
    "chunk": Chunk,
    "throttle": lambda inner, size: Throttle(inner, size / 2),
    "linger": lambda inner, size: Linger(inner, 1.0, size),
    "debounce": lambda inner, size: Debounce(inner, 0.5, size),
    "expire": lambda inner, size: Expire(inner, size / 2),
}


@st.composite
def compositions(draw: st.DrawFn) -> Any:
    """Draw a behaviour: a policy in a few of the available wrappers."""
    made: Any = draw(st.sampled_from((Queue, Stack, Unique, Priority, Fair, OneByOne)))()
    for wrapper in draw(st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3)):
        if isinstance(made, OneByOne):
            made = adapt(made)  # claimed once, even where a wrapper is refused
            release(made)
        with contextlib.suppress(af.BadBehaviour):
            made = WRAPPERS[wrapper](made, draw(st.integers(1, 4)))
    return made


class Broken(Exception):
    """What the job raises on demand."""


def check_law(counts: af.WorkerStatistics) -> None:
    """Check that every accepted message is somewhere."""
    somewhere = (
        counts.processed
        + counts.failed
        + counts.replaced
        + counts.merged
        + counts.dropped
        + counts.expired
        + counts.dead_lettered
        + counts.held
        + counts.in_flight
    )
    assert counts.accepted == somewhere, counts


class WorkerMachine(RuleBasedStateMachine):
    """A worker of random composition: whatever happens, each caller hears once, nothing is lost."""

    @initialize(behaviour=compositions(), idle=st.sampled_from((None, 3.0)))
    def begin(self, behaviour: Any, idle: float | None) -> None:
        self.lane = ManualLane()
        self.clock = VirtualClock()
        self.breaks_at: int | None = None
        self.handled: list[Message] = []
        self.worker = af.spawn(
            self.job, behaviour=behaviour, executor=self.lane, clock=self.clock, idle_timeout=idle
        )
        self.trackable = self.worker.actor.core.behaviour.traits.trackable
        self.pushed: list[Message] = []
        self.asked: list[Any] = []
        self.number = 0

    def job(self, batch: Any, state: Any) -> None:
        assert self.lane_depth == 1
        messages = batch if isinstance(batch, list) else [batch]
        assert messages
        for message in messages:
            assert isinstance(message, Message)
            assert message.ticket is None or message.ticket.answers == []
        if self.breaks_at is not None and len(self.handled) >= self.breaks_at:
            raise Broken
        self.handled += messages

    lane_depth = 0

    def _step(self) -> bool:
        self.lane_depth += 1
        try:
            return self.lane.step()
        finally:
            self.lane_depth -= 1

    def _message(self, key: int) -> Message:
        self.number += 1
        return Message(key, self.number)

    @rule(keys=st.lists(st.integers(0, 3), min_size=1, max_size=4), many=st.booleans())
    def push(self, keys: list[int], *, many: bool) -> None:
        messages = [self._message(key) for key in keys]
        try:
            if many:
                self.worker.push_many(messages)
                self.pushed += messages
            else:
                for message in messages:
                    self.worker.push(message)
                    self.pushed.append(message)
        except af.WorkerStopped:
            assert self._is_closed()

    @rule(key=st.integers(0, 3), waits=st.booleans())
    def offer(self, key: int, *, waits: bool) -> None:
        message = self._message(key)
        if waits:
            message.ticket = FakeTicket()
        try:
            self.worker.actor.offers.offer(message, message.ticket)
        except af.WorkerStopped:
            assert self._is_closed()
        except af.Full:
            assert message.ticket is None or message.ticket.answers == []
        else:
            self.pushed.append(message)

    @rule()
    def ask(self) -> None:
        self.asked.append(self.worker.executor.ask("out of band", block=False))

    @rule(count=st.integers(1, 5))
    def run(self, count: int) -> None:
        for _ in range(count):
            self._step()

    @rule(seconds=st.sampled_from((0.25, 0.5, 1.0, 4.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(options=st.sampled_from(({}, {"drain": False}, {"now": True})), chance=st.integers(0, 3))
    def stop(self, options: dict[str, bool], chance: int) -> None:
        if chance == 0:  # seldom, or little else would be seen
            self.worker.stop(**options, block=False)

    @rule(chance=st.integers(0, 5))
    def break_soon(self, chance: int) -> None:
        if chance == 0 and self.breaks_at is None:
            self.breaks_at = len(self.handled) + 2

    def _is_closed(self) -> bool:
        actor = self.worker.actor
        return actor.mode is not None or actor.exit_reason is not None

    @invariant()
    def the_counts_add_up(self) -> None:
        if hasattr(self, "worker"):
            check_law(self.worker.statistics())

    @invariant()
    def the_executor_is_in_its_lane_at_most_once(self) -> None:
        if hasattr(self, "worker"):
            assert len(self.lane) <= 1
            for message in self.pushed:
                if message.ticket is not None:
                    assert len(message.ticket.answers) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "worker"):
            return
        self.worker.stop(block=False)
        for _ in range(10_000):
            if not self._step():
                if self.worker.exit_reason is not None:
                    break
                self.clock.advance(1.0)
        assert self.worker.exit_reason is not None
        self._check_everyone_was_told_once()
        self._check_counts()

    def _check_everyone_was_told_once(self) -> None:
        handled = set(map(id, self.handled))
        for message in self.pushed:
            if message.ticket is None:
                continue
            answer = message.ticket.answer  # exactly one
            if not self.trackable:
                # The pair cannot see which messages a custom behaviour, or a bound on it, drops,
                # nor always which ones have left: its callers are answered late.
                assert answer is None or isinstance(answer, (af.WorkerStopped, Broken))
            elif id(message) in handled:
                # Cut off with `now`, the job ran to its end, but its callers were answered before.
                assert answer is None or isinstance(answer, af.WorkerStopped)
            else:
                assert isinstance(answer, (af.WorkerStopped, af.Displaced, Broken))
        for future in self.asked:
            try:
                future.get(timeout=0)
            except af.WorkerStopped:
                continue

    def _check_counts(self) -> None:
        assert len(set(map(id, self.handled))) == len(self.handled)  # nothing twice
        assert set(map(id, self.handled)) <= set(map(id, self.pushed))
        statistics = self.worker.statistics()
        check_law(statistics)
        assert statistics.accepted + statistics.rejected >= len(self.pushed)
        if isinstance(self.worker.exit_reason, af.Crash):
            assert statistics.failed >= 1
        elif self.worker.actor.mode is not None and statistics.failed:
            # The batch that was with the job when it was cut off.
            assert self.worker.actor.mode.value == "now"
        assert statistics.held == statistics.in_flight == 0


TestCore = CoreMachine.TestCase
TestCore.settings = settings(stateful_step_count=40)
TestWorker = WorkerMachine.TestCase
TestWorker.settings = settings(stateful_step_count=40)
