"""The states of a pair, pure: one event in, the new state and the steps to take out.

No lock, lane, clock, thread or logger. The accumulator (the shell) passes an event to the machine,
together with the facts that decide, and performs the steps in order. `TABLE` is all
there is: the state changes nowhere else, and an event that a state does not expect is either
listed as ignored or raises `Unexpected`. docs/pair.md prints the table.

>>> advance(PairState.IDLE, PairEvent.IDLE_LONG, Facts()).state
<PairState.RUNNING: 'running'>
>>> advance(PairState.IDLE, PairEvent.PUSHED, Facts(held=True, ready=True)).steps
(<PairAction.TOKEN_OUT: 'token out'>, <PairAction.TAKE: 'take'>)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from actorflow.runtime.errors import BadOption

__all__ = [
    "NOTHING_HELD",
    "READY",
    "TABLE",
    "Facts",
    "PairAction",
    "PairEvent",
    "PairState",
    "Row",
    "StopMode",
    "Transition",
    "Unexpected",
    "advance",
    "table_as_markdown",
]


class PairState(Enum):
    """What a pair is doing. `r` is the number of batches and hooks under way."""

    place: int
    """Its place among the states."""

    STARTING = "starting"
    """`on_start` has not returned yet; messages accumulate."""
    IDLE = "idle"
    """Nothing under way and nothing held: the next push starts a batch."""
    RUNNING = "running"
    """1 <= r <= concurrency: the job, a hook or an answer to mail is under way."""
    WAITING = "waiting"
    """Messages are held back until they are due; a timer is set."""
    SUSPENDING = "suspending"
    """The executor ends after what it is doing, to make way for another; the accumulator stays."""
    ALONE = "alone"
    """The executor has ended; messages accumulate until its supervisor starts another."""
    PARKED = "parked"
    """Like ALONE, but the breaker has tripped: nobody starts another before `resume()`."""
    STOPPING = "stopping"
    """No new messages; how much of the old ones is still processed depends on the mode."""
    DEAD = "dead"
    """All callers and watchers have been notified. Nothing changes any more."""


(
    STARTING,
    IDLE,
    RUNNING,
    WAITING,
    SUSPENDING,
    ALONE,
    PARKED,
    STOPPING,
    DEAD,
) = PairState
# The members themselves, here and below: looking one up in its enum takes longer than a transition.


class StopMode(Enum):
    """How a pair stops. A later request can replace a weaker mode by a stronger one only."""

    DRAIN = "drain"
    """Process the accumulated messages, then end."""
    FINISH = "finish"
    """Finish the current batches, drop the accumulated messages."""
    NOW = "now"
    """End at once; a job that is running goes on in its thread, cut off from everything."""

    @classmethod
    def asked_for(cls, *, drain: bool | None, now: bool) -> StopMode:
        """Return the mode that the options of a `stop` ask for.

        Raises:
            BadOption: the options contradict each other.

        """
        if now and drain:
            msg = "stop(drain=True, now=True) contradicts itself: choose one of the two"
            raise BadOption(msg)
        return cls.NOW if now else cls.FINISH if drain is False else cls.DRAIN

    def stronger_than(self, other: StopMode | None) -> bool:
        """Return whether this mode waits for less than the other."""
        return other is None or _STRENGTH[self] > _STRENGTH[other]


_STRENGTH = {StopMode.DRAIN: 0, StopMode.FINISH: 1, StopMode.NOW: 2}


class PairEvent(Enum):
    """What happens to a pair."""

    place: int
    """Its place among the events."""

    STARTED = "started"
    """`on_start` has returned, or does not exist."""
    START_FAILED = "start failed"
    PUSHED = "pushed"
    """A push took the token."""
    DUE = "due"
    """The timer fired, or messages arrived that may make the batch leave earlier."""
    MAIL = "mail"
    """Somebody told or asked the executor something."""
    IDLE_LONG = "idle for so long"
    DONE = "done"
    """A batch, a hook or an answer is finished (and `r` is one less)."""
    BROKEN = "behaviour broken"
    """The behaviour raised, where somebody else was at work than the executor."""
    CRASHED = "crashed"
    """The job, a hook or the behaviour raised, and no failure policy helped."""
    ENDED = "ended"
    """`on_stop` has returned."""
    REVIVED = "revived"
    """The supervisor starts another executor."""
    TRIPPED = "breaker tripped"
    RESUMED = "resumed"
    SUSPEND = "suspend asked"
    """The supervisor wants the executor to end and the accumulator to stay."""
    ABANDON = "abandon asked"
    """As SUSPEND, without waiting for the current batches."""
    STOP = "stop asked"


(
    STARTED,
    START_FAILED,
    PUSHED,
    DUE,
    MAIL,
    IDLE_LONG,
    DONE,
    BROKEN,
    CRASHED,
    ENDED,
    REVIVED,
    TRIPPED,
    RESUMED,
    SUSPEND,
    ABANDON,
    STOP,
) = PairEvent


class PairAction(Enum):
    """What the shell does, in this order, after the state has changed."""

    TOKEN_OUT = "token out"  # noqa: S105 - no password
    """Remove the token: pushes only append."""
    TOKEN_IN = "token in"  # noqa: S105 - no password
    """Put the token in place: the next push takes the slow path."""
    CANCEL_TIMER = "cancel timer"
    SET_TIMER = "set timer"
    TAKE = "take"
    """Take a batch and run it."""
    SERVE = "serve"
    """Answer mail."""
    CALL_ON_IDLE = "on_idle"
    CALL_ON_START = "on_start"
    CALL_ON_STOP = "on_stop"
    FAIL = "fail"
    """Let the executor crash with what the behaviour raised."""
    LOOK_AGAIN = "look again"
    """Look at the inbox once more, because a producer may not have seen the token."""
    CUT_OFF = "cut off"
    """Ignore the current batches: their callers are resolved now."""
    CLOSE = "close"
    """Fold earlier messages, and make the behaviour hold nothing back."""
    TELL_EXECUTOR = "tell of executor"
    """Call the exit callbacks of the executor."""
    TELL_ALL = "tell all"
    """Refuse the remaining messages, and call all exit callbacks."""


(
    TOKEN_OUT,
    TOKEN_IN,
    CANCEL_TIMER,
    SET_TIMER,
    TAKE,
    SERVE,
    CALL_ON_IDLE,
    CALL_ON_START,
    CALL_ON_STOP,
    FAIL,
    LOOK_AGAIN,
    CUT_OFF,
    CLOSE,
    TELL_EXECUTOR,
    TELL_ALL,
) = PairAction


class Facts(NamedTuple):
    """What the machine must know besides the event, all of it after the event."""

    running: int = 0
    """Batches and hooks under way (`r`)."""
    limit: int = 1
    """How many of them may be (`concurrency`)."""
    held: bool = False
    """Messages are accumulated."""
    ready: bool = False
    """Some of them may leave now."""
    mail: bool = False
    supervised: bool = False
    first: bool = True
    """START_FAILED: it was the first start."""
    hooked: bool = False
    """There is an `on_stop` to call."""
    mode: StopMode | None = None
    """STOP: the requested mode; in STOPPING: how it stops."""


READY = Facts(held=True, ready=True)
"""What the hot path says that has a batch at hand, without asking the table."""
NOTHING_HELD = Facts()
"""What it says that has none."""


class Unexpected(AssertionError):
    """An event came that the state does not expect: a mistake in the shell."""


class Transition(NamedTuple):
    """The new state and what the shell does then."""

    state: PairState
    steps: tuple[PairAction, ...] = ()


Guard: TypeAlias = Callable[[Facts], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """One transition of the table. Of the rows that fit, the first one counts."""

    event: PairEvent
    sources: tuple[PairState, ...]
    when: str
    guard: Guard
    target: PairState | None
    """`None`: the event is ignored and the state stays."""
    steps: tuple[PairAction, ...] = ()


_WITH_EXECUTOR = (
    STARTING,
    IDLE,
    RUNNING,
    WAITING,
    SUSPENDING,
)


def _always(_facts: Facts) -> bool:
    return True


def _has_room(facts: Facts) -> bool:
    return facts.running < facts.limit


def _go_on(event: PairEvent, sources: tuple[PairState, ...], *before: PairAction) -> Iterator[Row]:
    """Yield the rows of an event after which a live pair does what there is to do.

    Only a `TAKE` needs room, and only a stale PUSHED may find none: after every other event of
    these there is one more place than before.
    """
    running, out = RUNNING, TOKEN_OUT
    batches = event is not STARTED  # which is the first thing that an executor does
    yield Row(
        event, sources, "mail", lambda f: f.mail and f.running == 0, running,
        (*before, out, SERVE),
    )  # fmt: skip
    if batches:
        yield Row(event, sources, "mail, under way", lambda f: f.mail, running, (*before, out))
    yield Row(event, sources, "ready", lambda f: f.ready, running, (*before, out, TAKE))
    yield Row(
        event, sources, "held, not due", lambda f: f.held, WAITING,
        (*before, out, SET_TIMER),
    )  # fmt: skip
    again = (*before, TOKEN_IN, LOOK_AGAIN)
    if batches:
        yield Row(
            event, sources, "nothing held, under way", lambda f: f.running > 0, running, again
        )
    yield Row(event, sources, "nothing held", _always, IDLE, again)


def _go_on_stopping(event: PairEvent) -> Iterator[Row]:
    """Yield the rows of an event after which a stopping pair continues with its remaining work."""
    stopping = (STOPPING,)
    drains = StopMode.DRAIN
    yield Row(event, stopping, "mail", lambda f: f.mail and f.running == 0,
              STOPPING, (SERVE,))  # fmt: skip
    yield Row(event, stopping, "drain, ready, room",
              lambda f: f.mode is drains and f.ready and not f.mail and _has_room(f),
              STOPPING, (CANCEL_TIMER, TAKE))  # fmt: skip
    if event is not STARTED:
        yield Row(event, stopping, "under way", lambda f: f.running > 0, STOPPING)
    yield Row(event, stopping, "drain, held, not due",
              lambda f: f.mode is drains and f.held, STOPPING,
              (SET_TIMER,))  # fmt: skip
    yield Row(event, stopping, "nothing left", _always, STOPPING,
              (CANCEL_TIMER, CALL_ON_STOP))  # fmt: skip


def _stop_rows() -> Iterator[Row]:
    stop, dead, stopping = STOP, DEAD, STOPPING
    cut = (CANCEL_TIMER, TOKEN_IN, CLOSE, CUT_OFF, TELL_ALL)
    close = (CANCEL_TIMER, TOKEN_IN, CLOSE)
    living = tuple(state for state in PairState if state is not dead)
    yield Row(stop, living, "now", lambda f: f.mode is StopMode.NOW, dead, cut)
    yield Row(stop, (ALONE, PARKED), "", _always, dead, cut)
    resting = (CANCEL_TIMER,)
    yield Row(stop, (stopping,), "finish, held back, on_stop",
              lambda f: f.running == 0 and f.mode is StopMode.FINISH and f.hooked,
              stopping, (*resting, CALL_ON_STOP))  # fmt: skip
    yield Row(stop, (stopping,), "finish, held back",
              lambda f: f.running == 0 and f.mode is StopMode.FINISH,
              dead, (*resting, TELL_EXECUTOR, TELL_ALL))  # fmt: skip
    yield Row(stop, (stopping,), "", _always, stopping)
    yield Row(stop, (STARTING, RUNNING, SUSPENDING), "",
              _always, stopping, close)  # fmt: skip
    yield Row(stop, (WAITING,), "under way", lambda f: f.running > 0, stopping, close)
    quiet = (IDLE, WAITING)
    yield Row(stop, quiet, "mail", lambda f: f.mail, stopping, (*close, SERVE))
    yield Row(stop, quiet, "drain, ready", lambda f: f.mode is StopMode.DRAIN and f.ready,
              stopping, (*close, TAKE))  # fmt: skip
    yield Row(stop, quiet, "drain, held, not due",
              lambda f: f.mode is StopMode.DRAIN and f.held, stopping,
              (*close, SET_TIMER))  # fmt: skip
    yield Row(stop, quiet, "on_stop", lambda f: f.hooked, stopping, (*close, CALL_ON_STOP))
    yield Row(stop, quiet, "", _always, dead, (*close, TELL_EXECUTOR, TELL_ALL))


def _crash_rows() -> Iterator[Row]:
    gone = (CANCEL_TIMER, TOKEN_OUT, CUT_OFF, TELL_EXECUTOR)
    end = (CANCEL_TIMER, TOKEN_IN, CLOSE, CUT_OFF, TELL_EXECUTOR,
           TELL_ALL)  # fmt: skip
    yield Row(BROKEN, (STARTING, IDLE, RUNNING, WAITING), "", _always, RUNNING,
              (CANCEL_TIMER, TOKEN_OUT, FAIL))  # fmt: skip
    yield Row(BROKEN, (SUSPENDING,), "", _always, SUSPENDING, (FAIL,))
    yield Row(BROKEN, (STOPPING,), "", _always, STOPPING, (CANCEL_TIMER, FAIL))
    yield Row(BROKEN, (ALONE, PARKED, DEAD), "no executor", _always, None)
    crashed = CRASHED
    started = _WITH_EXECUTOR[1:]
    yield Row(crashed, started, "supervised", lambda f: f.supervised, ALONE, gone)
    yield Row(crashed, started, "not supervised", _always, DEAD, end)
    yield Row(crashed, (STOPPING,), "", _always, DEAD, end)
    abandon = ABANDON
    yield Row(abandon, (ALONE, DEAD), "", _always, None)
    yield Row(abandon, (PARKED,), "", _always, ALONE, (TELL_EXECUTOR,))
    yield Row(abandon, _WITH_EXECUTOR, "", _always, ALONE, gone)
    yield Row(abandon, (STOPPING,), "", _always, DEAD, end)


def _suspend_rows() -> Iterator[Row]:
    suspend, leaving = SUSPEND, SUSPENDING
    yield Row(suspend, (ALONE, STOPPING, DEAD, leaving), "",
              _always, None)  # fmt: skip
    yield Row(suspend, (PARKED,), "", _always, ALONE, (TELL_EXECUTOR,))
    yield Row(suspend, (STARTING,), "", _always, leaving)
    out = (CANCEL_TIMER, TOKEN_OUT)
    working = (IDLE, RUNNING, WAITING)
    yield Row(suspend, working, "under way", lambda f: f.running > 0, leaving, out)
    yield Row(suspend, working, "", _always, leaving, (*out, CALL_ON_STOP))
    yield Row(DONE, (leaving,), "under way", lambda f: f.running > 0, leaving)
    for event in (STARTED, DONE):
        yield Row(event, (leaving,), "", _always, leaving, (CALL_ON_STOP,))
    yield Row(ENDED, (leaving,), "", _always, ALONE, (TELL_EXECUTOR,))


def _table() -> Iterator[Row]:
    starting, idle, running = STARTING, IDLE, RUNNING
    waiting, alone, dead = WAITING, ALONE, DEAD
    tell_all = (TELL_EXECUTOR, TELL_ALL)
    cancel = CANCEL_TIMER
    resting = (SUSPENDING, ALONE, PARKED)

    yield from _go_on(STARTED, (starting,))
    yield from _go_on_stopping(STARTED)
    failed = START_FAILED
    yield Row(failed, (starting,), "first start, or not supervised",
              lambda f: f.first or not f.supervised, dead,
              (TOKEN_IN, CLOSE, *tell_all))  # fmt: skip
    yield Row(failed, (starting, SUSPENDING), "", _always, alone, (TELL_EXECUTOR,))
    yield Row(failed, (STOPPING,), "", _always, dead, tell_all)

    yield Row(PUSHED, (running,), "no room", lambda f: not _has_room(f), None)
    yield from _go_on(PUSHED, (idle, running))
    yield Row(PUSHED, (starting, waiting, *resting, STOPPING, dead), "spurious",
              _always, None)  # fmt: skip
    yield from _go_on(DUE, (waiting,), cancel)
    yield from _go_on_stopping(DUE)
    yield Row(DUE, (starting, idle, running, *resting, dead), "too late", _always, None)
    yield from _go_on(MAIL, (waiting,), cancel)
    yield Row(MAIL, (starting, idle, running, SUSPENDING, STOPPING),
              "served between two batches", _always, None)  # fmt: skip
    yield Row(MAIL, (alone, PARKED, dead), "refused", _always, None)
    yield Row(IDLE_LONG, (idle,), "", _always, running, (TOKEN_OUT, CALL_ON_IDLE))

    yield from _go_on(DONE, (running, waiting), cancel)
    yield from _go_on_stopping(DONE)
    yield Row(ENDED, (STOPPING,), "", _always, dead, tell_all)

    yield from _crash_rows()
    yield from _suspend_rows()
    yield Row(REVIVED, (alone,), "", _always, starting, (CALL_ON_START,))
    yield Row(REVIVED, (dead,), "stopped meanwhile", _always, None)
    yield Row(TRIPPED, (alone,), "", _always, PARKED)
    yield Row(TRIPPED, (dead,), "", _always, None)
    yield Row(RESUMED, (PARKED,), "", _always, alone, (TELL_EXECUTOR,))
    yield from _stop_rows()


TABLE: tuple[Row, ...] = tuple(_table())
"""All transitions. The first row that fits counts."""


def _index(rows: Iterable[Row]) -> list[list[list[tuple[Guard, Transition]]]]:
    """Sort the rows by state and event, in a list of lists: enums are hashed slowly."""
    found: list[list[list[tuple[Guard, Transition]]]] = [[[] for _ in PairEvent] for _ in PairState]
    for row in rows:
        for state in row.sources:
            transition = Transition(row.target or state, row.steps)
            found[state.place][row.event.place].append((row.guard, transition))
    return found


for _at, _state in enumerate(PairState):
    _state.place = _at
for _at, _event in enumerate(PairEvent):
    _event.place = _at

_ROWS = _index(TABLE)


def advance(state: PairState, event: PairEvent, facts: Facts) -> Transition:
    """Return the transition for an event. O(rows of that state and event).

    Raises:
        Unexpected: no row fits.

    """
    for guard, transition in _ROWS[state.place][event.place]:
        if guard(facts):
            return transition
    msg = f"{event.name} came in state {state.name} with {facts}"
    raise Unexpected(msg)


def table_as_markdown() -> str:
    """Return the table as it is printed in docs/pair.md."""
    lines = ["| event | from | when | to | steps |", "|---|---|---|---|---|"]
    for row in TABLE:
        sources = ", ".join(state.name for state in row.sources)
        target = "ignored" if row.target is None else row.target.name
        steps = ", ".join(step.value for step in row.steps)
        lines.append(f"| {row.event.value} | {sources} | {row.when} | {target} | {steps} |")
    return "\n".join(lines)
