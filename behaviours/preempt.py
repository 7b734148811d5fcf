"""`Preempt`: some messages end the batch that is running."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import choice, function, shown
from actorflow.behaviours.behaviour import Fate, Item, Reason, Refusal, Tally, unusable, unwrap
from actorflow.behaviours.errors import BadBehaviour, Rejected
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_EXAMPLE = "Preempt(Queue(), when=is_urgent, victims='return')"
_VICTIMS = ("drop", "return", "merge")


class Preempt(Wrapper):
    """A message for which `when(message)` is true ends the batch that runs when it arrives.

    The worker cancels a coroutine and kills a job in a worker process. For a job in a thread
    `current_batch().cancelled` becomes true, and the job should return early. What the job returns
    after that is ignored. `victims` says what becomes of the messages of the ended batch:

    - `"drop"`: they are dropped;
    - `"return"`: the next batch is one of the inner behaviour, which has the new message. Then the
      ended batch runs again as it was, before all other batches;
    - `"merge"`: they stand, in order, before the messages of the next batch, in one batch.

    Messages that come back keep their callers. They are not given to the inner behaviour again, so
    its limits and times do not hold for them. `Preempt` must be the outermost behaviour.

    >>> from actorflow.behaviours import Queue
    >>> inbox = Preempt(Queue(), when=str.isupper, victims="return")
    >>> inbox.add("write a poem")
    >>> batch = inbox.take()
    >>> inbox.watch(lambda: print("end the batch"))
    >>> inbox.add("STOP")
    end the batch
    >>> inbox.put_back(batch)
    >>> inbox.take(), inbox.take()
    (['STOP'], ['write a poem'])
    """

    __slots__ = ("_dropped", "_ended", "_is_next", "_preempt", "_rejected", "_victims", "_when")

    def __init__(
        self, inner: Any = Queue, when: Callable[[Any], bool] | None = None, victims: str = "drop"
    ) -> None:
        self._when = function(when, "when", _EXAMPLE)
        self._victims = choice(victims, "victims", _VICTIMS)
        self._preempt: Callable[[], object] | None = None
        self._ended: deque[Sequence[Any]] = deque()
        """The ended batches that run again."""
        self._is_next = False
        """Whether the inner behaviour goes before them."""
        self._rejected = self._dropped = 0
        super().__init__(inner, accepts_all=False, limits=True, preempts=True)
        given = self._inner.traits
        if not (given.trackable and given.divisible):
            self._refuse(
                f"Preempt must know each message of a batch, and {self._inner!r} hands its "
                "messages over as a whole; put Preempt around a Queue, Stack, Unique, Priority, "
                "Fair or Lanes"
            )
        if given.blocks:
            self._refuse(
                f"Preempt must see a message when it arrives, and {self._inner!r} makes pushers "
                "wait; use when_full='reject', 'drop_oldest' or 'drop_newest'"
            )
        if given.observes and victims != "drop":
            self._refuse(
                f"victims={victims!r} runs messages again that {self._inner!r} believes to be "
                "done; use victims='drop', or an inner behaviour that does not watch the job"
            )
        self.traits = replace(
            self.traits, divisible=False, ordered=False, ranked=False, chooses=False
        )

    def __repr__(self) -> str:
        return f"Preempt({self._inner!r}, when={shown(self._when)}, victims={self._victims!r})"

    def watch(self, preempt: Callable[[], object]) -> None:
        """Call `preempt()` whenever a message has been accumulated that ends running batches.

        >>> from actorflow.behaviours import Queue
        >>> Preempt(Queue(), when=bool).watch(lambda: None)
        """
        self._preempt = preempt

    def add(self, message: Any) -> None:
        """Accumulate one message, and call `when` with it. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> inbox = Preempt(Queue(), when=bool)
        >>> inbox.add("a")
        >>> len(inbox)
        1
        """
        preempts = self._preempts(message)
        self._inner.add(message)
        if preempts and self._preempt is not None:
            self._preempt()

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> [(refused, reason)] = Preempt(Queue(), when=str.isupper).extend(["a", 5])
        >>> refused
        (5,)
        """
        refused: list[Refusal] = []
        for message in messages:
            try:
                self.add(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more.

        >>> from actorflow.behaviours import Expire, Queue
        >>> Preempt(Expire(Queue(), 5.0), when=bool).extend_at(["a", "b"], [1.0, 2.0])
        ()
        """
        refused: list[Refusal] = []
        for message, time in zip(messages, times, strict=True):
            if self._inner.traits.timed:
                self._inner.ready_at(time)
            refused += self.extend([message])
        return refused or ()

    def accepts(self, message: Any) -> bool:
        """Return whether `when` can judge the message. O(1) more."""
        rejected = self._rejected
        try:
            self._preempts(message)
        except Rejected:
            self._rejected = rejected
            return False
        return super().accepts(message)

    def put_back(self, messages: Sequence[Any]) -> None:
        """Take the messages of an ended batch, and do with them what `victims` says. O(k).

        >>> from actorflow.behaviours import Queue
        >>> inbox = Preempt(Queue(), when=bool, victims="merge")
        >>> inbox.add("a")
        >>> inbox.put_back(["b", "c"])
        >>> inbox.take()
        ['b', 'c', 'a']
        """
        if self._victims == "drop":
            self._dropped += len(messages)
            if self.gone is not None:
                self.gone += [(each, Fate.DROPPED) for each in messages if type(each) is Item]
        elif messages:
            self._ended.append(messages)
            self._is_next = True

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the next batch. O(1) more, with `"merge"` O(k).

        >>> from actorflow.behaviours import Queue
        >>> inbox = Preempt(Queue(), when=bool)
        >>> inbox.add("a")
        >>> inbox.take()
        ['a']
        """
        ended = self._ended
        if not ended:
            return super().take(None, free)
        if self._victims == "merge":
            batch = list(chain.from_iterable(ended))
            ended.clear()
            return batch + super().take(None, free) if len(self._inner) else batch
        if self._is_next and len(self._inner):
            self._is_next = False
            return super().take(None, free)
        self._is_next = False
        return list(ended.popleft())

    def choose(self, judge: Any, limit: int | None = None) -> list[Any]:
        """Refuse to be taken in parts: a batch that runs again is the same batch."""
        msg = f"{self!r} must be the outermost behaviour, so it cannot be taken in parts"
        raise BadBehaviour(msg)

    def portion(self) -> int | None:
        """Return the limit of the inner behaviour, `None` while a batch is to run again."""
        return None if self._ended else self._inner.portion()

    def reason(self) -> Reason:
        """Return why the last batch of the inner behaviour left."""
        return self._inner.reason()

    def ready_at(self, now: float) -> float:
        """Return when a batch may leave: one that runs again waits for the new message only."""
        ready = self._inner.ready_at(now)
        if not self._ended or (len(self._inner) and (self._is_next or self._victims == "merge")):
            return ready
        return now

    def steers(self) -> bool:
        """Return whether no ended batch runs again next: that stays a batch of its own."""
        return not self._ended and super().steers()

    def withdraw(self, message: Any) -> bool:
        """Forget a message, also one of a batch that runs again. O(k) for those."""
        for at, batch in enumerate(self._ended):
            left = [each for each in batch if each is not message]
            if len(left) < len(batch):
                self._ended[at] = left
                if not left:
                    del self._ended[at]
                return True
        return super().withdraw(message)

    def tally(self) -> Tally:
        """Return the dropped victims, the messages without a verdict, and the inner counts. O(1).

        >>> from actorflow.behaviours import Queue
        >>> inbox = Preempt(Queue(), when=bool)
        >>> inbox.put_back(["a", "b"])
        >>> inbox.tally().dropped
        2
        """
        return self._inner.tally() + Tally(dropped=self._dropped, rejected=self._rejected)

    def __len__(self) -> int:
        return len(self._inner) + sum(map(len, self._ended))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, first the ones that run again."""
        return chain(chain.from_iterable(self._ended), super().__iter__())

    def _preempts(self, message: Any) -> bool:
        """Return whether a message ends the running batch; refuse it if `when` raises."""
        try:
            return bool(self._when(unwrap(message)))
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, "no verdict of when:", error) from error
