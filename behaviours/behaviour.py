"""The contract of a behaviour: what a driver calls, and the values that travel through it.

A *behaviour* decides how messages accumulate while an executor is busy, and what leaves as one
batch when it is free. It is a plain mutable data structure: no thread, no lock, no clock of its
own. Its driver (a worker, the embedded mode, the simulator) calls it from one thread at a time
and passes the time in.

A behaviour of your own needs only `add`, `take` and `__len__`. Everything else has a default,
and `Traits` declares which optional abilities it really has, so that a combination that cannot
work is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeAlias

from actorflow.behaviours.arguments import shown
from actorflow.behaviours.errors import BadBehaviour, Malformed, brief

__all__ = [
    "Behaviour",
    "Fate",
    "Item",
    "Judge",
    "MessageOutcome",
    "Reason",
    "Refusal",
    "Tally",
    "Traits",
    "Verdict",
    "lower",
    "same",
    "unwrap",
]

Refusal: TypeAlias = tuple[Sequence[Any], Exception]
"""Messages that were refused together, and why."""
Judge: TypeAlias = "Callable[[Any], Verdict]"
"""Decides about a message, which may be wrapped in an `Item`."""


class Fate(Enum):
    """How an accepted message left without being handed over."""

    REPLACED = "replaced"
    DROPPED = "dropped"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"
    """It was dropped, because the same message came before."""


class MessageOutcome(Enum):
    """What one call of the job has made of a message. See `Behaviour.done`."""

    PROCESSED = "processed"
    FAILED = "failed"
    """The job raised, and the message will not be handed to it again."""
    RETRIED = "retried"
    """The job raised, and the worker will call it with this message once more."""
    ABANDONED = "abandoned"
    """The executor crashed or was stopped before the job returned."""


class Verdict(Enum):
    """How a judge decides on a message that could leave next. See `Behaviour.choose`."""

    TAKE = "take"
    SKIP = "skip"
    """Leave it where it is, and continue with the next one."""
    DISCARD = "discard"
    """Forget it. The function that says so also counts and reports it."""
    STOP = "stop"
    """Leave it and all others where they are: the batch is complete."""


class Reason(StrEnum):
    """Why a batch left."""

    IDLE = "idle"
    """The executor was free, and nothing held the batch back."""
    SIZE = "size"
    """It had as many messages as it should or may have."""
    WEIGHT = "weight"
    """Its messages weighed as much as a batch may weigh."""
    TIME = "time"
    """It was held back for some time, and that time was over."""
    DEADLINE = "deadline"
    """Waiting any longer would have missed a limit."""
    FLUSH = "flush"
    """It would have waited for more, had the behaviour not been flushed."""
    DRAIN = "drain"
    """The worker was stopping. Set by drivers only."""
    RETRY = "retry"
    """It, or the batch it is a part of, had failed before. Set by drivers only."""


class Item:
    """A message together with the tickets of its waiting callers and its time of arrival.

    Only messages that need it are wrapped; see `Behaviour.track`.
    """

    __slots__ = ("born", "message", "tickets")

    def __init__(self, message: Any, tickets: tuple[Any, ...] = (), born: float = 0.0) -> None:
        self.message = message
        self.tickets = tickets
        self.born = born

    def __repr__(self) -> str:
        return f"Item({brief(self.message)}, {len(self.tickets)} waiting)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Item, (self.message, self.tickets, self.born))


def unwrap(item: Any) -> Any:
    """Return the message of an item, or a message that is not wrapped as it is."""
    return item.message if type(item) is Item else item


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a behaviour can do and needs. Wrappers derive theirs from what they wrap.

    The default of each trait is the one that is safe for a behaviour that knows nothing of it.
    """

    ordered: bool = False
    """`drop_oldest` works."""
    divisible: bool = False
    """`take(limit)` and `peek` work: a part may leave while the rest stays."""
    shrinks: bool = False
    """It may hold fewer messages than were added: fold early, and ask `grows`."""
    bounded: bool = False
    """It holds a limited number of messages: fold early."""
    accepts_all: bool = False
    """`add` never refuses a message."""
    timed: bool = False
    """`ready_at` matters: a batch may have to wait although messages are there."""
    stamped: bool = False
    """The time of *each* arrival matters. The driver adds messages with `extend_at`, or calls
    `ready_at` with the time of arrival before `add`."""
    first_stamped: bool = False
    """Only the arrival time of the first message of a batch matters. The driver calls `ready_at`
    with that time before `extend`; where `stamped` is also set, it uses `extend_at`."""
    patient: bool = False
    """No number of messages makes a batch leave earlier: `until_full` always returns `None`, and
    pushes need not look."""
    blocks: bool = False
    """It may ask the pusher to wait (`WouldBlock`)."""
    trackable: bool = False
    """It accepts messages wrapped in `Item` (see `Behaviour.track`)."""
    observes: bool = False
    """`done` matters: it learns from the calls of the job, or limits the batches in flight."""
    expires: bool = False
    """Messages may grow too old: `purge` matters, and `take` may return an empty list."""
    may_be_empty: bool = False
    """`take` may return an empty list, because none of the held messages may leave after all."""
    limits: bool = False
    """`take()` without a limit may leave messages behind."""
    ranked: bool = False
    """`drop_lowest` works."""
    chooses: bool = False
    """`choose` may skip messages."""
    spreads: bool = False
    """`take(free=)` matters."""
    saves: bool = False
    """`save` and `load` matter."""
    paces: bool = False
    """`retry_at` matters."""
    evicts: bool = False
    """Messages that came first may be dropped to make room: `evicted` counts them."""
    pads: bool = False
    """A batch may end with fillers instead of messages: `padding` matters."""
    preempts: bool = False
    """A message may end the running batch: `watch` and `put_back` matter, and the driver adds each
    message as it arrives."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts since the behaviour was made.

    At every moment, messages added - rejected = handed over + held + replaced + dropped + expired
    + merged.
    """

    replaced: int = 0
    dropped: int = 0
    rejected: int = 0
    expired: int = 0
    merged: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.replaced + other.replaced,
            self.dropped + other.dropped,
            self.rejected + other.rejected,
            self.expired + other.expired,
            self.merged + other.merged,
        )


class Behaviour:
    """Base class of the built-in behaviours, with a default for every optional method.

    A subclass implements `add`, `take` and `__len__`, and sets `traits`.
    """

    __slots__ = ("_claimed", "gone")

    traits: Traits = Traits()

    _claimed: bool
    gone: list[tuple[Item, Fate]] | None

    def __init__(self) -> None:
        self._claimed = False
        self.gone = None

    def add(self, message: Any) -> None:
        """Accumulate one message.

        Raises:
            Rejected: the message is refused; the behaviour is as it was before.

        """
        msg = f"{type(self).__name__} must define add(self, message)"
        raise BadBehaviour(msg)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages, as `add` would one after the other. May keep the list.

        Returns:
            the messages that were refused, with the reason; usually nothing.

        """
        refused: list[Refusal] = []
        add = self.add
        for message in messages:
            try:
                add(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
            except BaseException as error:  # noqa: BLE001 - raised by the user's code, not by ours
                refused.append(((message,), unusable(message, "add raised", error)))
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Like `extend`, for messages that arrived at these times. Used if `traits.stamped`.

        `times` has one entry per message and never decreases; both lists may be kept. By default
        `ready_at` is called with each time before its messages are added.
        """
        refused: list[Refusal] = []
        start, end = 0, len(messages)
        while start < end:
            now = times[start]
            stop = start + 1
            while stop < end and times[stop] == now:
                stop += 1
            self.ready_at(now)
            refused += self.extend(messages[start:stop])
            start = stop
        return refused

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the next batch and forget it. Called only when `len(self) > 0`.

        `limit` is passed only if `traits.divisible`: hand over at most that many messages. `free`
        is the number of executors that are free, this one included; it is passed only if
        `traits.spreads`. The batch may be an empty list only if `traits.expires` or
        `traits.may_be_empty`. The driver then does not call the job.
        """
        msg = f"{type(self).__name__} must define take(self)"
        raise BadBehaviour(msg)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, at most `limit`. Needs `traits.divisible`.

        `judge` is called once for each message, in the order in which they would leave, until
        it says `STOP` or the batch is complete. It says `SKIP` only if `traits.chooses`. A wrapper
        that limits a batch passes on a judge that also enforces its own limit, so that every
        limit holds in every nesting. By default messages are looked at and taken one by one.
        """
        batch: list[Any] = []
        limit = lower(limit, self.portion())
        while len(self) and (limit is None or len(batch) < limit):
            try:
                message = self.peek()
            except IndexError:  # nothing that may leave is left
                break
            verdict = judge(message)
            if verdict is Verdict.TAKE:
                batch += self.take(1)
            elif verdict is Verdict.DISCARD:
                self.take(1)
            elif verdict is Verdict.STOP:
                break
            else:
                msg = f"{self!r} cannot skip a message: a judge may say SKIP if traits.chooses"
                raise BadBehaviour(msg)
        return batch

    def portion(self) -> int | None:
        """Return the most messages that the next batch may hold; `None` if there is no limit.

        It may change with time, with `done`, and with the held messages. O(1).
        """
        return None

    def padding(self) -> int:
        """Return how many items at the end of the last batch are not messages. Needs `pads`."""
        return 0

    def reason(self) -> Reason:
        """Return why the batch that `take` has just handed over left.

        Called at most once per batch, right after `take`, and never on behaviours that leave
        this default as it is.
        """
        return Reason.IDLE

    def __len__(self) -> int:
        """Return how many messages are held. O(1)."""
        msg = f"{type(self).__name__} must define __len__(self)"
        raise BadBehaviour(msg)

    def drop_oldest(self) -> Any:
        """Forget the message that has waited longest, and return it. Needs `traits.ordered`."""
        msg = f"{self!r} keeps no order of arrival, so it has no oldest message to drop"
        raise BadBehaviour(msg)

    def drop_lowest(self) -> Any:
        """Forget the message that would leave last, and return it. Needs `traits.ranked`."""
        msg = f"{self!r} has no priorities, so it has no lowest message to drop"
        raise BadBehaviour(msg)

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` messages that have waited longest, and return them, oldest first."""
        return [self.drop_oldest() for _ in range(count)]

    def peek(self) -> Any:
        """Return the first message of the next batch without taking it. Needs `divisible`.

        Raises:
            IndexError: nothing is held, or (where `traits.expires`) nothing that is alive.

        """
        msg = f"{self!r} hands its messages over as a whole, so it cannot be taken in parts"
        raise BadBehaviour(msg)

    def grows(self, message: Any) -> bool:
        """Return whether adding `message` would make the behaviour longer. Needs `shrinks`.

        A message that `add` would refuse does not make it longer.
        """
        return True

    def evicted(self) -> int:
        """Return how many messages `add` has dropped to make room, oldest first. Needs `evicts`."""
        return 0

    def accepts(self, message: Any) -> bool:
        """Return whether `message` can be used; if not, `add` refuses it, full or not.

        So a full behaviour can tell `Malformed` from `Full`. Changes nothing and counts nothing.
        """
        return True

    def ready_at(self, now: float) -> float:
        """Set the time, and return from when on a batch may leave.

        A value `<= now` means at once, `inf` not before something else happens. The driver of a
        timed behaviour calls this with the current time before it takes a batch, and with times
        of arrival, which may lie a little back, before it adds messages (see `Traits`). Time
        comes in here and through `extend_at` only.
        """
        return now

    def until_full(self) -> int | None:
        """Return after how many more messages a batch that has to wait could leave earlier.

        Asked after `ready_at` has returned a later time; the driver calls `ready_at` again at
        that time, or after that many messages. `None` means that no number of messages helps, and
        1, the default, that each arrival must be looked at.
        """
        return 1

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item` from now on.

        Such a message is treated by its `.message`; whenever one with tickets leaves other than
        by `take` or by a refusal, `(item, fate)` is appended to `gone`. What `drop_oldest`
        returns is for its caller to report. Needs `traits.trackable`. Called at any time, by one
        driver; a wrapper may have called it before.
        """
        self.gone = gone

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the messages for which `dead` is true, and return them. Used by `Expire`.

        `dead` is true of a message only if it is true of all that arrived before it, so a search
        from the oldest on may stop at the first that is alive. By default nothing is forgotten
        here: messages that are too old are found when they are taken.
        """
        return ()

    def purge(self) -> None:
        """Drop expired messages, because room is needed. Called only if `traits.expires`."""

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Learn that a call of the job with these messages ended after `took` seconds.

        Called once for each call of the job, if `traits.observes`. `outcomes` has one entry for
        each message. A message that is retried appears again when that call has ended. If this
        raises, the worker logs the error and goes on.
        """

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Return when these messages, on which the job has failed, may be handed to it again.

        Called once for each retry, before it, if `traits.paces`. It counts as a handover.
        """
        return now

    def withdraw(self, message: Any) -> bool:
        """Forget one message, because its caller has gone. Return whether it was still held.

        `message` is the very object that was added: the `Item` if it was wrapped. The caller
        counts it; `tally` does not change. A message that has been merged with others cannot be
        withdrawn. By default nothing can.
        """
        return False

    def steers(self) -> bool:
        """Return whether what `take` would hand over now may join a batch that is running.

        Asked only if something may leave, after `ready_at`.
        """
        return True

    def watch(self, preempt: Callable[[], object]) -> None:
        """Call `preempt()` when a message arrives that ends the running batches.

        Needs `traits.preempts`. The driver then ends them and calls `put_back` with each.
        """

    def put_back(self, messages: Sequence[Any]) -> None:
        """Take back the messages of a batch that was ended. Needs `traits.preempts`.

        They are held again, or counted as dropped by `tally`.
        """
        msg = f"{self!r} cannot take messages back: traits.preempts is not set"
        raise BadBehaviour(msg)

    def save(self) -> Any:
        """Return a small state that outlives the process, as JSON can hold it, or `None`.

        Durable workers store it in the commit of the batch. Needs `traits.saves`.
        """
        return None

    def load(self, state: Any) -> None:
        """Restore what `save` has returned, before any message is added. Needs `traits.saves`."""

    def flush(self) -> None:
        """Stop waiting for more: the driver is draining, so all held messages should leave.

        Policies that hold messages back in the hope of more (linger, debounce) no longer do; a
        policy that limits how often the job is called (throttle) still does.
        """

    def tally(self) -> Tally:
        """Return the counts of messages that were replaced, dropped, rejected, ... O(1)."""
        return Tally()

    def depths(self) -> Mapping[Any, int] | None:
        """Return how many messages are held of each key; `None` if they have no keys. O(keys).

        Called only while somebody looks at the worker. Changes nothing.
        """
        return None

    def check(self) -> None:
        """Verify the invariants; tests call it after every step."""


def same(held: Any, message: Any) -> bool:
    """Return whether a held message, wrapped or not, is this very object."""
    return held is message or (type(held) is Item and held.message is message)


def lower(some: int | None, other: int | None) -> int | None:
    """Return the smaller of two limits, where `None` is no limit.

    >>> lower(3, None), lower(None, None), lower(3, 2)
    (3, None, 2)
    """
    if some is None or other is None:
        return other if some is None else some
    return min(some, other)


def has_key(key: Callable[[Any], Any], message: Any) -> bool:
    """Return whether a message has a usable key.

    >>> has_key(len, "abc"), has_key(len, 5)
    (True, False)
    """
    try:
        hash(key(unwrap(message)))
    except BaseException:  # noqa: BLE001 - the user's code
        return False
    return True


def keyless(message: Any, key: Any, error: BaseException) -> Malformed:
    """Return the refusal of a message without a usable key.

    >>> print(keyless(5, 0, TypeError("no element")))
    malformed message 5: no key=0: TypeError('no element'); key=0 means its first element: pass
    another, as in key=lambda message: message.id
    """
    refusal = unusable(message, f"no key={shown(key)}:", error)
    if isinstance(key, int):
        which = "first element" if key == 0 else f"element {key}"
        hint = f"key={key} means its {which}: pass another, as in key=lambda message: message.id"
        refusal.args = (f"{refusal}; {hint}",)
    return refusal


def unusable(message: Any, what: str, error: BaseException | None = None) -> Malformed:
    """Return the refusal of a message for which the user's code failed.

    >>> unusable(("a", 1), "no key=len:", TypeError("no len"))
    Malformed("malformed message ('a', 1): no key=len: TypeError('no len')")
    """
    plain = unwrap(message)
    refusal = Malformed(plain, what if error is None else f"{what} {brief(error)}")
    refusal.__cause__ = error
    return refusal
