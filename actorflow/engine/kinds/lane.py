"""Lanes: executions that begin one after the other, or not too many at a time.

A lane is an execution too: `lane:KEY`. Executions started in it are its children, so the engine
reports each of their ends to it, also after a kill. A waiting child exists already: it takes
messages, and begins with the message `{"do": "begin"}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count, number
from actorflow.engine.ids import MAX_LENGTH, check_id
from actorflow.engine.kind import (
    ENDED,
    ChildEnded,
    Message,
    Options,
    Outcome,
    Outgoing,
    SetTimer,
    TimerFired,
)
from actorflow.engine.kinds.lane_queue import LaneLimits, LaneQueue, LaneState
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.kind import Context, Envelope
    from actorflow.engine.stores.protocol import ExecutionRow, Store

__all__ = ["BEGIN", "LANE", "Lane", "LaneKind", "LaneView"]

LANE = "lane"
"""The kind of execution that a lane is."""
BEGIN = {"do": "begin"}
"""The message by which a lane lets an execution begin."""

_LONGEST = MAX_LENGTH - 5  # characters of a key, behind "lane:"
_MOST = 100_000  # starts that a rate may count
_PRIORITY = 1_000_000
_RATE = "Lane('c-7', rate=(5, 30))"
_TICK = "rate"


class Lane:
    """A place in which executions begin in order, within limits that all engines share.

    Args:
        key: names the lane: everything with the same key shares its limits.
        concurrency: how many may run at the same time: have begun, and not ended.
        rate: how many may begin within how many seconds: `rate=(5, 30)`.
        priority: urgent executions begin before others.

    The limits given last hold. Without any, the lane keeps its limits.

    Raises:
        BadOption: an argument is wrong.

    """

    __slots__ = ("concurrency", "key", "priority", "rate")

    def __init__(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        priority: int = 0,
    ) -> None:
        self.key = check_id(key, "a lane", _LONGEST)
        self.concurrency = concurrency
        if concurrency is not None:
            count(concurrency, "concurrency", "Lane('c-7', concurrency=1)", error=BadOption)
        self.rate = None if rate is None else _rate(rate)
        self.priority = count(
            priority, "priority", "Lane('c-7', priority=5)", least=-_PRIORITY, most=_PRIORITY,
            error=BadOption,
        )  # fmt: skip

    def __repr__(self) -> str:
        given = {
            "concurrency": self.concurrency,
            "rate": self.rate,
            "priority": self.priority or None,
        }
        options = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"Lane({', '.join([repr(self.key), *options])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lane) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def execution(self) -> str:
        """The id of the execution that the lane is."""
        return f"{LANE}:{self.key}"

    def entry(self, execution: str) -> dict[str, Any]:
        """Return the message by which an execution enters the lane."""
        body: dict[str, Any] = {"enter": execution}
        if self.priority:
            body["priority"] = self.priority
        if self.concurrency is not None or self.rate is not None:
            body["limits"] = [self.concurrency, self.rate]
        return body


def _rate(given: Any) -> tuple[int, float]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:  # noqa: PLR2004 - as is said
        msg = f"rate={given!r:.80}: give how many may begin, and within how many seconds: {_RATE}"
        raise BadOption(msg)
    most = count(given[0], "rate[0]", _RATE, most=_MOST, error=BadOption)
    return most, float(number(given[1], "rate[1]", _RATE, above=0, error=BadOption))


class LaneView:
    """A lane at one moment, as it is stored."""

    __slots__ = ("concurrency", "paused", "rate", "running", "waiting")

    def __init__(self, queue: LaneQueue) -> None:
        self.concurrency = queue.limits.concurrency
        self.rate = queue.limits.rate
        self.paused = queue.paused
        self.running = queue.running
        """The ids of executions that have begun and not ended."""
        self.waiting = queue.waiting
        """The ids of waiting executions, in the order in which they begin."""

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class LaneKind:
    """The kind of execution that a lane is.

    Its messages: `{"enter": id}`, with a `priority` and `limits` if they were given, `{"leave":
    id}`, and `{"do": "pause"}` or `{"do": "resume"}`. A child that ends leaves.
    """

    name = LANE

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults: a lane is an ordinary worker."""
        return Options()

    def decode(self, data: bytes | None) -> LaneState:
        """Return a lane; its bytes are decoded when they are needed."""
        return LaneState(data)

    def encode(self, state: LaneState) -> Any:
        """Return the bytes of a lane, or what a run has added. O(what changed), amortized."""
        return state.encoded()

    def view(self, row: ExecutionRow, _store: Store) -> LaneView:
        """Return the lane, for people and programs that look."""
        return LaneView(LaneState(row.state).take())

    def control(self, verb: str) -> dict[str, Any]:
        """Return the message by which a lane is paused or resumed."""
        return {"do": verb}

    def cancel(self, _target: Any) -> None:
        """Refuse: executions in the lane would wait forever.

        Raises:
            BadOption: always.

        """
        msg = "a lane cannot be cancelled: pause it, or cancel the executions in it"
        raise BadOption(msg)

    def run(self, context: Context, state: LaneState, batch: Sequence[Envelope]) -> Outcome:
        """Handle messages, then let executions begin."""
        queue = state.take()
        before = queue.due()
        for envelope in batch:
            if type(envelope) is Message:
                _message(queue, envelope.body)
            elif type(envelope) is ChildEnded and envelope.status in ENDED:
                queue.leave(envelope.child)
        begun = queue.begin(context.now)
        outcome = Outcome(state=None, messages=[Outgoing(each, BEGIN) for each in begun])
        due = queue.due()
        fired = any(type(envelope) is TimerFired for envelope in batch)
        if due is not None and (due != before or fired):
            outcome.timers = [SetTimer(_TICK, due)]
        elif due is None and before is not None:
            outcome.cancelled_timers = [_TICK]
        outcome.state = state.after(queue)
        return outcome


def _message(queue: LaneQueue, body: Any) -> None:
    if "enter" in body:
        limits = body.get("limits")
        if limits is not None:
            rate = limits[1]
            queue.limits = LaneLimits(limits[0], None if rate is None else (rate[0], rate[1]))
        queue.enter(body["enter"], body.get("priority", 0))
    elif "leave" in body:
        queue.leave(body["leave"])
    elif body.get("do") == "pause":
        queue.paused = True
    elif body.get("do") == "resume":
        queue.paused = False
    else:
        msg = f"{body!r:.80} refused: a lane takes the verbs pause and resume"
        raise BadOption(msg)
