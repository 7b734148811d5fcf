"""`Deadline`: the largest batch of which each message is processed in time."""

from __future__ import annotations

from bisect import bisect_left
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, seconds, shown
from actorflow.behaviours.behaviour import (
    Fate,
    Judge,
    MessageOutcome,
    Reason,
    Refusal,
    Tally,
    Verdict,
    lower,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import BadBehaviour, Malformed, brief
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.timing.arrival_times import all_marked, bare, bare_refusals, marked
from actorflow.behaviours.timing.calls import Calls
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Deadline(Queue(), within=0.05) or Deadline(Queue(), of=lambda request: request.due)"
_ROUNDING = 1e-9


class Deadline(Wrapper):
    """Hands over the largest batch of which each message is processed before it is due.

    A message is due `within` seconds of its arrival, or at the time that `of(message)` returns,
    on the clock of the driver (`time.monotonic` in a worker). How long the job takes is learnt
    from its calls: a fixed part and a part for each message. A batch of `k` messages leaves if at
    least `k` messages are due after it ends, and the largest such `k` wins. Messages that even a
    batch of one would miss are shed: they are counted as expired, and callers that wait for them
    get `Expired`. The others stay for a smaller batch.

    So the throughput is as high as the deadlines allow, without tuning. If all messages seem to
    miss, one is handed over from time to time, to learn whether the job has become faster.

    Sorting the held messages costs O(n log n) for each batch, and O(1) more for each message.

    >>> from actorflow.behaviours import MessageOutcome, Queue
    >>> deadline = Deadline(Queue(), within=1.0)
    >>> for size in 1, 3:  # it takes 0.25 s, and 0.25 s for each message
    ...     deadline.done(["x"] * size, 0.25 + 0.25 * size, [MessageOutcome.PROCESSED] * size)
    >>> _ = deadline.extend_at(list("abcde"), [10.0, 10.75, 10.75, 10.75, 10.75])
    >>> _ = deadline.ready_at(11.0)
    >>> deadline.take()
    ['b', 'c']
    >>> deadline.tally().expired
    1
    """

    __slots__ = (
        "_calls",
        "_expired",
        "_now",
        "_of",
        "_probing",
        "_reason",
        "_rejected",
        "_taken",
        "_within",
    )

    def __init__(
        self,
        inner: Any = Queue,
        within: float | None = None,
        *,
        of: Callable[[Any], float] | None = None,
    ) -> None:
        if (within is None) == (of is None):
            msg = f"Deadline needs either within= or of=, as in {_EXAMPLE}"
            raise BadBehaviour(msg)
        self._within = 0.0 if within is None else seconds(within, "within", _EXAMPLE, zero=False)
        self._of = None if of is None else function(of, "of", _EXAMPLE)
        super().__init__(
            inner, timed=True, stamped=True, expires=True, may_be_empty=True, observes=True,
            limits=True, **({} if of is None else {"accepts_all": False}),
        )  # fmt: skip
        self._stay_patient()
        given = self._inner.traits
        if not (given.divisible and given.chooses and given.trackable):
            self._refuse(
                f"Deadline must leave out messages that a smaller batch can serve, and "
                f"{self._inner!r} cannot skip a message; put Deadline around a Queue, Stack, "
                "Unique, Priority or Fair"
            )
        self._calls = Calls()
        self._now = 0.0
        self._taken = -inf
        self._probing = False
        self._expired = self._rejected = 0
        self._reason: Reason | None = None
        super().track([])

    def __repr__(self) -> str:
        due = f"within={self._within:g}" if self._of is None else f"of={shown(self._of)}"
        return f"Deadline({self._inner!r}, {due})"

    def add(self, message: Any) -> None:
        """Accumulate one message, marked with the time. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> deadline = Deadline(Queue(), within=1.0)
        >>> deadline.add("a")
        >>> deadline.take()
        ['a']
        """
        if self._of is not None:
            self._check_due(message)
        self._inner.add(marked(message, self._now))

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> Deadline(Queue(), within=1.0).extend(["a", "b"])
        ()
        """
        refused: list[Refusal] = []
        good = messages if self._of is None else self._usable(messages, refused)
        refused += bare_refusals(self._inner.extend(all_marked(good, repeat(self._now))))
        return refused or ()

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> Deadline(Queue(), within=1.0).extend_at(["a", "b"], [100.0, 103.0])
        ()
        """
        if times:
            self._now = times[-1]
        refused: list[Refusal] = []
        items = all_marked(messages, times)
        if self._of is not None:
            items = self._usable(items, refused)
            refused = list(bare_refusals(refused))
        refused += bare_refusals(super().extend_at(items, [item.born for item in items]))
        return refused or ()

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a deadline. O(1) more."""
        rejected = self._rejected
        try:
            if self._of is not None:
                self._check_due(message)
        except Malformed:
            self._rejected = rejected
            return False
        return super().accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the largest batch that is processed in time. O(n log n).

        >>> from actorflow.behaviours import Queue
        >>> deadline = Deadline(Queue(), within=1.0)
        >>> _ = deadline.ready_at(100.0)
        >>> deadline.add("a")
        >>> _ = deadline.ready_at(102.0)
        >>> deadline.take()
        []
        """
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the largest batch in time. O(n log n)."""
        first, last, most = self._window(lower(limit, self._inner.portion()))
        hopeless = self._now + self._takes(1) - _ROUNDING
        dead: list[Any] = []
        passed: set[int] = set()
        taken, stopped, tried = 0, False, False

        def in_time(item: Any) -> Verdict:
            nonlocal taken, stopped, tried
            due = self._due(item)
            if first - _ROUNDING <= due <= last and taken < most:
                verdict = judge(item)
                if verdict is Verdict.SKIP:
                    passed.add(id(item))
                stopped = stopped or verdict is Verdict.STOP
                taken += verdict is Verdict.TAKE
                tried = tried or (verdict is Verdict.TAKE and due < hopeless)
                return verdict
            if due < hopeless:
                dead.append(item)
                return Verdict.DISCARD
            return Verdict.SKIP

        batch = self._inner.choose(in_time, None)
        self._bury(dead)
        if most and not (batch or dead or stopped):
            batch = self._inner.choose(self._each_in_time(judge, passed), limit)
        if batch:
            self._taken = self._now
            self._probing = tried
        self._reason = Reason.DEADLINE if len(self._inner) or dead else None
        return list(map(bare, batch))

    def _each_in_time(self, judge: Judge, passed: set[int]) -> Judge:
        """Return a judge that adds messages as long as all of the batch are in time.

        For when the messages of the largest batch must stay: they are in a period that is not
        over, say, or `judge` has `passed` them over because their key is in flight.
        """
        earliest, taken = inf, 0

        def judge_each(item: Any) -> Verdict:
            nonlocal earliest, taken
            due = min(self._due(item), earliest)
            if due < self._now + self._takes(taken + 1) - _ROUNDING or id(item) in passed:
                return Verdict.SKIP
            verdict = judge(item)
            if verdict is Verdict.TAKE:
                earliest, taken = due, taken + 1
            return verdict

        return judge_each

    def portion(self) -> int | None:
        """Return how many messages the next batch will hold at most. O(n log n).

        >>> from actorflow.behaviours import Queue
        >>> deadline = Deadline(Queue(), within=1.0)
        >>> deadline.add("a")
        >>> deadline.portion()
        1
        """
        return self._window(self._inner.portion())[2]

    def reason(self) -> Reason:
        """Return DEADLINE if messages were left out, else the inner behaviour's reason."""
        return self._reason or self._inner.reason()

    def peek(self) -> Any:
        """Return the first message of the next batch. O(n log n).

        >>> from actorflow.behaviours import Queue
        >>> deadline = Deadline(Queue(), within=1.0)
        >>> deadline.add("a")
        >>> deadline.peek()
        'a'
        """
        found: list[Any] = []

        def look(item: Any) -> Verdict:
            found.append(item)
            return Verdict.STOP

        # With the limit of a batch of one, which is what `take(1)` hands over.
        self.choose(look, 1)
        if not found:
            msg = f"peek at {self!r}, in which nothing can be in time"
            raise IndexError(msg)
        return bare(found[0])

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour and return it."""
        return bare(self._inner.drop_oldest())

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour and return them."""
        return list(map(bare, self._inner.drop_many(count)))

    def drop_lowest(self) -> Any:
        """Forget the message that the inner behaviour would hand over last, and return it."""
        return bare(self._inner.drop_lowest())

    def purge(self) -> None:
        """Shed the messages that even a batch of one would miss. O(n).

        >>> from actorflow.behaviours import Queue
        >>> deadline = Deadline(Queue(), within=1.0)
        >>> deadline.add("a")
        >>> _ = deadline.ready_at(2.0)
        >>> deadline.purge()
        >>> len(deadline)
        0
        """
        hopeless = self._now - _ROUNDING
        if self._now < self._probe_after():
            hopeless += self._takes(1)
        dead: list[Any] = []

        def late(item: Any) -> Verdict:
            if self._due(item) < hopeless:
                dead.append(item)
                return Verdict.DISCARD
            return Verdict.SKIP

        self._inner.choose(late)
        self._bury(dead)

    def ready_at(self, now: float) -> float:
        """Set the time of the messages that are added next. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Deadline(Queue(), within=1.0).ready_at(100.0)
        100.0
        """
        self._now = now
        return self._inner.ready_at(now)

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Learn from a call that has processed something. O(batch)."""
        self._inner.done(batch, took, outcomes)
        if MessageOutcome.PROCESSED in outcomes:
            if self._probing:
                self._calls, self._probing = Calls(), False  # the old measurements are outdated
            self._calls.observe(len(outcomes), took)

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour, plus the messages shed here. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Deadline(Queue(), within=1.0).tally().expired
        0
        """
        own = Tally(expired=self._expired, rejected=self._rejected)
        return self._inner.tally() + own

    def _takes(self, size: int) -> float:
        """Return how long a call with so many messages takes."""
        return self._calls.fixed + self._calls.slope * size

    def _probe_after(self) -> float:
        """Return when a message may be tried although it seems to miss."""
        return self._taken + self._takes(1)

    def _due(self, item: Any) -> float:
        if self._of is None:
            return item.born + self._within  # type: ignore[no-any-return]
        try:
            due = float(self._of(unwrap(item)))
        except BaseException:  # noqa: BLE001 - a merged message may be of another shape
            return inf
        else:
            return due if due == due else inf  # noqa: PLR0124 - NaN is not itself

    def _window(self, limit: int | None) -> tuple[float, float, int]:
        """Return from when until when the messages of the next batch are due, and how many."""
        now = self._now
        dues = sorted(map(self._due, self._inner))  # type: ignore[call-overload]
        held = len(dues)
        low, high = 0, held if limit is None else min(held, limit)
        while low < high:  # the largest k such that k messages are due after a batch of k
            size = (low + high + 1) // 2
            if held - bisect_left(dues, now + self._takes(size) - _ROUNDING) >= size:
                low = size
            else:
                high = size - 1
        if low:
            first = now + self._takes(low) - _ROUNDING
            return first, dues[bisect_left(dues, first) + low - 1], low
        if dues and dues[-1] >= now and now >= self._probe_after():
            return dues[-1], dues[-1], 1
        return inf, -inf, 0

    def _usable(self, messages: list[Any], refused: list[Refusal]) -> list[Any]:
        good = []
        for message in messages:
            try:
                self._check_due(message)
            except Malformed as error:
                refused.append(((message,), error))
            else:
                good.append(message)
        return good

    def _check_due(self, message: Any) -> None:
        """Refuse a message that has no deadline."""
        try:
            due = self._of(unwrap(message))  # type: ignore[misc]
            usable = float(due) == float(due)  # NaN is not itself
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no deadline of={shown(self._of)}:", error) from error
        if not usable:
            self._rejected += 1
            raise unusable(message, f"the deadline must be a time in seconds, not {brief(due)}")

    def _bury(self, dead: Sequence[Any]) -> None:
        """Count shed messages, and report the ones that have waiting callers."""
        self._expired += len(dead)
        if self.gone is not None:
            self.gone += [(item, Fate.EXPIRED) for item in dead if item.tickets]


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE
