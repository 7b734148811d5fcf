"""The rules of spec/workers.md that concern behaviours, one by one."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from actorflow.behaviours import (
    BadBehaviour,
    Base,
    Behaviour,
    Bounded,
    Bucket,
    Chunk,
    Coalesce,
    Deadline,
    Debounce,
    Expire,
    Fair,
    Fate,
    Full,
    Item,
    Linger,
    Malformed,
    PerKey,
    Priority,
    Queue,
    Rate,
    Stack,
    TableUnique,
    Throttle,
    TooLarge,
    Unique,
    WouldBlock,
    adapt,
)


def filled(behaviour: Behaviour, *messages: Any) -> Behaviour:
    for message in messages:
        behaviour.add(message)
    return behaviour


class StackOneByOne(Base):
    def transform(self, messages: Any) -> Any:
        return messages[0]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


def test_w1_w7_o4_queue_is_as_received() -> None:
    assert filled(Queue(), 2, 3).take() == [2, 3]


def test_w4_bounded_rejects_what_is_over_and_accepts_after_a_take() -> None:
    bounded = filled(Bounded(Queue(), 1), 2)
    with pytest.raises(Full, match="full: 1 messages are waiting and the bound is 1"):
        bounded.add(3)
    assert bounded.take() == [2]
    bounded.add(4)
    assert bounded.take() == [4]
    assert bounded.tally().rejected == 1


def test_w5_o11_stack_is_newest_first() -> None:
    assert filled(Stack(), 2, 3).take() == [3, 2]


def test_w6_drop_oldest_on_a_stack() -> None:
    bounded = Bounded(Stack(), 5, when_full="drop_oldest")
    assert filled(bounded, *range(1, 11)).take() == [10, 9, 8, 7, 6]
    assert bounded.tally().dropped == 5


def test_w8_drop_oldest_on_a_queue() -> None:
    bounded = Bounded(Queue(), 5, when_full="drop_oldest")
    assert filled(bounded, *range(1, 11)).take() == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("kind", [Unique, TableUnique])
def test_w9_o12_o13_unique_keeps_the_newest_per_key(kind: type[Unique]) -> None:
    unique = filled(kind(), ("a", 2), ("b", 4), ("a", 3))
    assert unique.take() == [("a", 3), ("b", 4)]
    assert unique.tally().replaced == 1


def test_w10_o16_stack_one_by_one() -> None:
    driven = filled(adapt(StackOneByOne), 2, 3)
    assert [driven.take(), len(driven), driven.take(), len(driven)] == [3, 1, 2, 0]


def test_o15_base_is_a_stack() -> None:
    assert filled(adapt(Base), 1, 2, 3).take() == [3, 2, 1]


class Jumps:
    """A custom aggregate that grows by two at a time, past any odd bound."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held += [message, message]

    def take(self) -> Any:
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        return len(self.held)


def test_w17_an_aggregate_that_jumps_past_the_bound_is_limited() -> None:
    bounded = filled(Bounded(Jumps(), 3), 1, 2)
    assert len(bounded) == 4
    with pytest.raises(Full):
        bounded.add(3)
    [(refused, _)] = bounded.extend([4, 5])
    assert list(refused) == [4, 5]


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("kind", [Unique, TableUnique])
def test_w18_overwriting_when_full_is_fine(kind: type[Unique], when_full: str) -> None:
    bounded = filled(Bounded(kind(), 2, when_full=when_full), ("a", 1), ("b", 1))
    bounded.add(("a", 2))
    bounded.extend([("b", 2), ("b", 3), ("a", 3)])
    assert bounded.take() == [("a", 3), ("b", 3)]
    assert bounded.tally().dropped == bounded.tally().rejected == 0


@pytest.mark.parametrize("inner", ["reject", "drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("outer", ["reject", "drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (2, 2)])
def test_w18_a_bound_within_a_bound(outer: str, inner: str, sizes: tuple[int, int]) -> None:
    def build() -> Behaviour:
        return Bounded(Bounded(Queue(), sizes[0], when_full=inner), sizes[1], when_full=outer)

    together, stamped, singly = build(), build(), build()
    messages = list(range(6))
    refused = []
    for message in messages:
        try:
            singly.add(message)
        except Full:
            refused.append(message)
    assert [one for some, _ in together.extend(messages[:]) for one in some] == refused
    times = [float(message) for message in messages]
    assert [one for some, _ in stamped.extend_at(messages[:], times) for one in some] == refused
    assert together.tally() == stamped.tally() == singly.tally()
    assert together.take() == stamped.take() == singly.take()


def one_way(inner: Any) -> Behaviour:
    return Bounded(inner, 5, when_full="drop_oldest")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: one_way(Priority()), ["Bounded", "Priority(key=0)", "drop_newest"]),
        (lambda: one_way(Throttle(Fair(), 1)), ["Bounded", "Throttle(Fair(key=0), 1)", "reject"]),
        (lambda: one_way(Base), ["Bounded", "Base()", "Queue"]),
        (lambda: Chunk(StackOneByOne, 5), ["Chunk", "StackOneByOne()", "as a whole"]),
        (lambda: Chunk(Bounded(Base, 9), 5), ["Chunk", "Bounded(Base(), 9", "take"]),
        (lambda: Expire(Base, 5), ["Expire", "Base()", "trackable"]),
        (lambda: Expire(Chunk(Expire(Queue, 1), 1), 5), ["Expire", "keep one Expire"]),
    ],
)
def test_w19_impossible_combinations_are_refused_when_built(build: Any, words: list[str]) -> None:
    with pytest.raises(BadBehaviour) as caught:
        build()
    assert all(word in str(caught.value) for word in words), caught.value


def test_w19_a_refused_combination_leaves_the_inner_behaviour_free() -> None:
    priority = Priority()
    with pytest.raises(BadBehaviour):
        Bounded(priority, 5, when_full="drop_oldest")
    with pytest.raises(BadBehaviour):
        Throttle(priority, -1)
    Bounded(priority, 5, when_full="drop_newest")
    base = Base()
    with pytest.raises(BadBehaviour):
        Chunk(base, 5)
    Bounded(base, 5)


def test_w21_dropped_messages_that_are_waited_for_are_reported() -> None:
    gone: list[tuple[Item, Fate]] = []
    for when_full, loser in ("drop_oldest", "first"), ("drop_newest", "second"):
        bounded = Bounded(Queue(), 1, when_full=when_full)
        bounded.track(gone)
        filled(bounded, Item("a", ("first",)), Item("b", ("second",)))
        [(item, fate)] = gone
        assert (item.tickets, fate) == ((loser,), Fate.DROPPED)
        gone.clear()


def test_w21_replaced_messages_that_are_waited_for_are_reported() -> None:
    for kind in Unique, TableUnique:
        gone: list[tuple[Item, Fate]] = []
        unique = kind()
        unique.extend([("a", 0), ("b", 0)])
        unique.track(gone)
        unique.add(Item(("a", 1), ("first",)))
        unique.extend([("b", 1), ("a", 2)])
        [(item, fate)] = gone
        assert (item.message, item.tickets, fate) == (("a", 1), ("first",), Fate.REPLACED)
        assert unique.take() == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("kind", [Unique, TableUnique, Priority, Fair])
@pytest.mark.parametrize("bad", [(), 5, ([1], "unhashable, no number")])
def test_w25_malformed_messages_are_refused_alone(kind: Any, bad: Any) -> None:
    good = [(1, "a"), (2, "b")]
    for tracked in False, True:
        behaviour = kind()
        if tracked:
            behaviour.track([])
        with pytest.raises(Malformed, match="malformed message") as caught:
            behaviour.add(bad)
        assert caught.value.message is bad
        [(refused, reason)] = behaviour.extend([good[0], bad, good[1]])
        assert list(refused) == [bad]
        assert isinstance(reason, Malformed)
        assert sorted(behaviour.take()) == good
        assert behaviour.tally().rejected == 2


@pytest.mark.parametrize("kind", [Unique, TableUnique, Fair, Bucket, lambda: PerKey(Queue())])
def test_w25_the_refusal_of_a_message_without_a_first_element_explains_the_key(kind: Any) -> None:
    with pytest.raises(Malformed, match=r"message 5: no key=0: .*key=0 means its first element: "):
        kind().add(5)
    with pytest.raises(Malformed, match="no key=len: ") as caught:
        Unique(key=len).add(5)
    assert "element" not in str(caught.value)


@pytest.mark.parametrize("when_full", ["reject", "drop_newest", "block"])
@pytest.mark.parametrize(
    "inner",
    [
        Fair,
        Priority,
        Unique,
        Bucket,
        lambda: PerKey(Queue()),
        lambda: Chunk(Fair(), 2),
        lambda: Chunk(Queue(), 9, weight=lambda each: each[0]),
        lambda: Rate(Queue(), 1, key=0),
        lambda: Deadline(Queue(), of=lambda each: each[0]),
        lambda: Expire(Bucket(0, Priority), 9.0),
    ],
    ids=lambda factory: repr(factory()),
)
def test_w25_a_malformed_message_to_a_full_behaviour_is_malformed(
    inner: Any, when_full: str
) -> None:
    bounded = filled(Bounded(inner, 2, when_full=when_full), (1, 1), (2, 2))
    with pytest.raises(Malformed):
        bounded.add(5)
    assert (len(bounded), bounded.tally().rejected, bounded.tally().dropped) == (2, 1, 0)
    refusals = bounded.extend([(3, 3), 6])
    [bad] = [error for some, error in refusals if list(some) == [6]]
    assert isinstance(bad, Malformed)
    others = {type(error) for some, error in refusals if (3, 3) in some}
    assert others == {"reject": {Full}, "block": {WouldBlock}, "drop_newest": set()}[when_full]
    assert len(bounded) == 2
    bounded.check()


def test_a_message_that_is_too_large_for_a_full_behaviour_is_too_large() -> None:
    chunk = Chunk(Queue(), 3, weight=len, oversize="reject")
    bounded = filled(Bounded(chunk, 1), "abc")
    with pytest.raises(TooLarge):
        bounded.add("abcd")
    with pytest.raises(Full):
        bounded.add("a")


@pytest.mark.parametrize("rank", [nan, "1", None, 1j, object()])
def test_w25_a_priority_is_a_real_number(rank: Any) -> None:
    priority = Priority()
    with pytest.raises(Malformed, match="real number"):
        priority.add((rank, "x"))
    [(refused, _)] = priority.extend([(1, "a"), (rank, "x"), (inf, "b"), (-inf, "c")])
    assert [message[1] for message in refused] == ["x"]
    assert [message[1] for message in priority.take()] == ["b", "a", "c"]


def test_w25_a_merge_that_fails_refuses_the_newer_message_alone() -> None:
    coalesce = filled(Coalesce(0, lambda old, new: (old[0], old[1] + new[1])), ("a", 1))
    with pytest.raises(Malformed, match="merge=<lambda> raised TypeError"):
        coalesce.add(("a", None))
    assert coalesce.take() == [("a", 1)]
    coalesce = filled(Coalesce(0, lambda old, new: None), ("a", 1))
    with pytest.raises(Malformed, match="returned None"):
        coalesce.add(("a", 2))


def test_o10_throttle_counts_from_the_start_of_the_call() -> None:
    throttle = Throttle(Queue(), 10.0)
    assert throttle.ready_at(1000.0) == 1000.0  # the first call: at once
    assert filled(throttle, "a").take() == ["a"]
    throttle.add("b")
    assert throttle.ready_at(1003.0) == 1010.0  # a job of 3 s: the rest of the span
    assert throttle.ready_at(1012.0) <= 1012.0  # a job of 12 s: the next batch at once
    assert throttle.take() == ["b"]
    throttle.add("c")
    assert throttle.ready_at(1012.0) == 1022.0
    assert throttle.ready_at(5000.0) <= 5000.0  # after a long pause: at once


def test_o14_priority_is_higher_first_and_fifo_among_equals() -> None:
    priority = filled(Priority(), (1, "b"), (2, "c"), (1, "d"), (3, "e"))
    assert priority.take() == [(3, "e"), (2, "c"), (1, "b"), (1, "d")]


def test_o14_fifo_among_equals_holds_across_partial_takes() -> None:
    priority = Chunk(Priority(), 2)
    filled(priority, (1, "a"), (1, "b"), (1, "c"), (2, "d"))
    assert priority.take() == [(2, "d"), (1, "a")]
    filled(priority, (1, "e"), (2, "f"))
    assert [priority.take(), priority.take()] == [[(2, "f"), (1, "b")], [(1, "c"), (1, "e")]]


def test_an_updated_key_keeps_its_place_so_that_no_key_starves() -> None:
    chunk = Chunk(Unique(), 1)
    filled(chunk, ("a", 1), ("b", 1), ("a", 2))
    assert chunk.take() == [("a", 2)]
    chunk.add(("a", 3))
    assert chunk.take() == [("b", 1)]


def test_block_takes_what_fits_and_asks_for_patience_with_the_rest() -> None:
    bounded = Bounded(Queue(), 2, when_full="block")
    [(refused, reason)] = bounded.extend([1, 2, 3, 4])
    assert list(refused) == [3, 4]
    assert isinstance(reason, WouldBlock)
    assert bounded.tally().rejected == 0  # they may come again
    with pytest.raises(WouldBlock):
        bounded.add(5)
    assert bounded.traits.blocks


def test_bounded_is_not_full_of_expired_messages() -> None:
    bounded = Bounded(Expire(Throttle(Unique(), 1), 5.0), 2)
    bounded.ready_at(0.0)
    bounded.extend([("a", 1), ("b", 1)])
    bounded.ready_at(6.0)
    bounded.add(("c", 1))
    assert bounded.take() == [("c", 1)]
    assert (bounded.tally().expired, bounded.tally().rejected) == (2, 0)


@pytest.mark.parametrize(
    "arrive",
    [
        lambda bounded: bounded.add("new"),
        lambda bounded: bounded.extend(["new"]),
        lambda bounded: bounded.extend_at(["new"], [3.0]),
    ],
)
def test_a_wait_begins_again_when_all_that_was_held_has_expired(arrive: Any) -> None:
    bounded = Bounded(Linger(Expire(Queue(), 1.0), 5.0), 1, when_full="drop_oldest")
    bounded.ready_at(0.0)
    bounded.add("old")
    bounded.ready_at(3.0)
    arrive(bounded)
    assert bounded.ready_at(3.0) == 8.0


def test_expire_may_return_an_empty_batch_and_throttle_does_not_count_it() -> None:
    throttle = Throttle(Expire(Queue(), 5.0), 100.0)
    assert throttle.traits.expires
    throttle.ready_at(0.0)
    throttle.add("old")
    throttle.ready_at(6.0)
    assert throttle.take() == []
    throttle.add("new")
    assert throttle.ready_at(6.0) <= 6.0


def test_what_is_exactly_as_old_as_allowed_is_handed_over() -> None:
    expire = Expire(Queue(), 5.0)
    expire.ready_at(1.0)
    expire.add("a")
    expire.ready_at(6.0)
    assert expire.take() == ["a"]


def test_linger_leaves_by_time_by_size_and_when_flushed() -> None:
    linger = Chunk(Linger(Queue(), 5.0, size=3), 1)
    assert linger.ready_at(0.0) == inf
    linger.add("a")
    linger.ready_at(1.0)
    linger.add("b")
    assert linger.ready_at(1.0) == 5.0
    linger.add("c")
    assert linger.ready_at(1.0) <= 1.0
    assert linger.take() == ["a"]
    assert linger.ready_at(1.0) <= 1.0  # the rest is due at once
    assert [linger.take(), linger.take()] == [["b"], ["c"]]
    linger.add("d")
    assert linger.ready_at(2.0) == 6.0  # the message came at 1.0
    linger.flush()
    assert linger.ready_at(2.0) <= 2.0


@pytest.mark.parametrize(
    "inner",
    [
        lambda: Bounded(Queue(), 2, when_full="drop_oldest"),
        lambda: Bounded(Stack(), 2, when_full="drop_oldest"),
        lambda: Chunk(Bounded(Unique(key=lambda each: each), 2, when_full="drop_oldest"), 9),
        lambda: Bounded(Bounded(Queue(), 2, when_full="drop_oldest"), 3),
    ],
    ids=lambda factory: repr(factory()),
)
@pytest.mark.parametrize("arrive", ["together", "singly"])
def test_linger_waits_from_the_oldest_that_has_not_been_dropped(inner: Any, arrive: str) -> None:
    linger = Linger(inner(), 5.0)
    if arrive == "together":
        linger.extend_at(list("abcd"), [1.0, 2.0, 3.0, 4.0])
    else:
        for message, now in zip("abcd", [1.0, 2.0, 3.0, 4.0], strict=True):
            linger.ready_at(now)
            linger.add(message)
    assert linger.ready_at(4.0) == 8.0  # "c" came at 3.0
    linger.ready_at(8.0)
    assert sorted(linger.take()) == ["c", "d"]
    linger.ready_at(9.0)
    linger.extend(list("efg"))
    assert linger.ready_at(9.0) == 14.0


def test_linger_has_waited_long_enough_until_all_leftovers_are_dropped() -> None:
    inner = Bounded(Chunk(Queue(), 1), 2, when_full="drop_oldest")
    linger = filled(Linger(inner, 5.0), "a", "b")
    linger.ready_at(5.0)
    assert linger.take() == ["a"]
    linger.extend_at(["c"], [6.0])
    assert linger.ready_at(6.0) == 6.0  # for "b"
    linger.extend_at(["d"], [7.0])
    assert linger.ready_at(7.0) == 11.0  # for "c"


def test_debounce_leaves_when_quiet_and_at_most_later() -> None:
    debounce = Debounce(Queue(), 2.0, at_most=5.0)
    for now, ready in (0.0, 2.0), (1.5, 3.5), (3.0, 5.0), (4.5, 5.0):
        debounce.ready_at(now)
        debounce.add(now)
        assert debounce.ready_at(now) == ready
    assert debounce.take() == [0.0, 1.5, 3.0, 4.5]
    debounce.add("next")
    assert debounce.ready_at(4.5) == 6.5


def test_debounce_counts_the_last_arrival_although_the_line_keeps_the_list() -> None:
    line = Throttle(Queue(), 0.0)
    debounce = Debounce(Bounded(line, 1, when_full="drop_oldest"), 1.0)
    assert not debounce.extend_at(["dropped", "kept"], [0.0, 0.5])
    assert debounce.ready_at(0.5) == 1.5
    assert debounce.take() == ["kept"]


def test_linger_waits_from_the_first_that_is_there() -> None:
    linger = Linger(Bounded(Expire(Unique(key=0), 1.0), 1), 1.0)
    malformed, kept = (), ("k", 2)
    [(refused, _)] = linger.extend_at([("k", 1), malformed, kept], [0.0, 3.0, 3.0])
    assert list(refused) == [malformed]
    assert linger.ready_at(3.0) == 4.0


def test_merging_keeps_the_tickets_of_both() -> None:
    gone: list[tuple[Item, Fate]] = []
    coalesce = Coalesce(0, lambda old, new: (old[0], old[1] + new[1]))
    coalesce.add(("a", 1))
    coalesce.track(gone)
    coalesce.extend([Item(("a", 2), ("x",)), Item(("a", 3), ("y",)), ("a", 4)])
    [item] = coalesce.take()
    assert (item.message, item.tickets, gone) == (("a", 10), ("x", "y"), [])


def test_fair_serves_every_key_before_any_twice() -> None:
    chunk = Chunk(Fair(), 3)
    chunk.extend([("a", n) for n in range(5)] + [("b", 0), ("c", 0)])
    assert chunk.take() == [("a", 0), ("b", 0), ("c", 0)]
    chunk.add(("d", 0))
    assert chunk.take() == [("a", 1), ("d", 0), ("a", 2)]


def test_a_heavy_message_travels_alone() -> None:
    chunk = Chunk(Queue(), 10, weight=len)
    chunk.extend(["x" * 4, "x" * 4, "x" * 20, "x", "x" * 9, "x"])
    assert [list(map(len, chunk.take())) for _ in range(4)] == [[4, 4], [20], [1, 9], [1]]


def test_w27_len_counts_what_is_held() -> None:
    for kind in Queue, Stack, Unique, TableUnique, Priority, Fair:
        behaviour = kind()
        assert len(behaviour) == 0
        behaviour.extend([(1, "a"), (2, "b")])
        assert len(behaviour) == 2
