"""`check_behaviour` accepts correct behaviours, and reports each mistake by its rule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from actorflow.behaviours import (
    AlreadyUsed,
    Base,
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Malformed,
    MessageOutcome,
    Priority,
    Queue,
    Reason,
    Stack,
    TableUnique,
    Throttle,
    Traits,
    Unique,
    unwrap,
)
from actorflow.testing.behaviours import check_behaviour

if TYPE_CHECKING:
    from collections.abc import Callable


def total(old: Any, new: Any) -> Any:
    return (old[0], old[1] + new[1])


GOOD: list[Callable[[], Any]] = [
    Queue,
    Stack,
    Unique,
    TableUnique,
    Priority,
    Fair,
    Base,
    lambda: Coalesce(0, total),
    lambda: Throttle(Queue(), 2.0),
    lambda: Bounded(Queue(), 3),
    lambda: Bounded(Unique(), 2, when_full="drop_oldest"),
    lambda: Bounded(Stack(), 2, when_full="drop_oldest"),
    lambda: Bounded(Priority(), 2, when_full="drop_newest"),
    lambda: Bounded(Queue(), 2, when_full="block"),
    lambda: Chunk(Fair(), 2),
    lambda: Chunk(Unique(), 4, weight=lambda message: message[0]),
    lambda: Linger(Queue(), 1.0, size=3),
    lambda: Linger(Bounded(Queue(), 2, when_full="drop_oldest"), 1.0),
    lambda: Debounce(Unique(), 1.0, at_most=2.0),
    lambda: Expire(Queue(), 2.0),
    lambda: Bounded(Expire(Unique(), 2.0), 2, when_full="drop_oldest"),
    lambda: Chunk(Throttle(Linger(Priority(), 1.0), 2.0), 2),
]


@pytest.mark.parametrize("factory", GOOD, ids=lambda factory: repr(factory()))
def test_w27_all_built_ins_conform(factory: Callable[[], Any]) -> None:
    check_behaviour(factory, max_examples=40)


class Plain:
    """The minimum: three methods."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> Any:
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        return len(self.held)


class StackOneByOne(Base):
    """The custom behaviour of the seed."""

    def transform(self, messages: Any) -> Any:
        return messages[0]

    def clear(self, messages: Any) -> Any:
        return messages[1:]


class Newest(Base):
    """A dict of the newest message per key: replaces without counting."""

    def init(self) -> Any:
        return {}

    def add(self, messages: Any, message: Any) -> Any:
        return messages | {message[0]: message}

    def clear(self, messages: Any) -> Any:
        return {}


def test_w10_o15_o16_behaviours_of_ones_own_conform() -> None:
    check_behaviour(Plain, max_examples=40)
    check_behaviour(StackOneByOne, max_examples=40)
    check_behaviour(Newest, unpack=dict.values, displaces=True, max_examples=40)
    with pytest.raises(AssertionError, match="'length'"):
        check_behaviour(Newest, unpack=dict.values)


class Refusing(Plain):
    """W25: add may refuse."""

    def add(self, message: Any) -> None:
        if message[0] == 1:
            raise Malformed(message, "no ones")
        super().add(message)


def test_w25_a_behaviour_may_refuse() -> None:
    check_behaviour(Refusing, max_examples=40)


# --- planted bugs --------------------------------------------------------------------------------


class LosesOne(Plain):
    def add(self, message: Any) -> None:
        if len(self.held) != 2:
            super().add(message)


class RepeatsOne(Plain):
    def take(self) -> Any:
        batch = super().take()
        self.held = batch[2:3]
        return batch


class CountsWrong(Plain):
    def __len__(self) -> int:
        return min(len(self.held), 2)


class SaysEmpty(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, message: Any) -> None:
        super().add(message)
        self.count += 1

    def take(self) -> Any:
        self.count = 0
        return self.held.pop()

    def __len__(self) -> int:
        return self.count


class KeepsTheList(Plain):
    def take(self) -> Any:
        batch = self.held[:]
        self.held.clear()
        self.shared = getattr(self, "shared", [])
        self.shared[:] = batch
        return self.shared


class DropsNewest(Plain):
    def drop_oldest(self) -> Any:
        return self.held.pop()


class DropsNothing(Plain):
    def drop_oldest(self) -> Any:
        return self.held[0]


class HalfRefuses(Plain):
    def add(self, message: Any) -> None:
        super().add(message)
        if message[0] == 2:
            raise Malformed(message, "too late")


class NeverReady(Plain):
    def ready_at(self, now: float) -> float:
        return float("inf")


class AlwaysLater(Plain):
    def ready_at(self, now: float) -> float:
        return now + 1.0


class NoLongerReady(Plain):
    """Ready at once, and not ready a moment later although nothing has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.since: float | None = None

    def ready_at(self, now: float) -> float:
        if not self.held:
            return float("inf")
        if self.since is None:
            self.since = now
        return now if now == self.since else now + 1000.0

    def take(self) -> Any:
        self.since = None
        return super().take()


class FailsInDone(Plain):
    def done(self, batch: Any, took: float, outcomes: Any) -> None:
        raise RuntimeError("done")


class FailsOnFailure(Plain):
    def done(self, batch: Any, took: float, outcomes: Any) -> None:
        if MessageOutcome.FAILED in outcomes:
            raise RuntimeError("done")


class FailsOnRetries(Plain):
    def done(self, batch: Any, took: float, outcomes: Any) -> None:
        if MessageOutcome.RETRIED in outcomes:
            raise RuntimeError("done")


class SaysItWithdrew(Plain):
    def withdraw(self, message: Any) -> bool:
        return True


class SavesAnObject(Plain):
    def save(self) -> Any:
        return self

    def load(self, state: Any) -> None:
        pass


class ForgetsItsState(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def take(self) -> list[Any]:
        self.batches += 1
        batch: list[Any] = super().take()
        return batch

    def save(self) -> Any:
        return {"batches": self.batches}

    def load(self, state: Any) -> None:
        pass


class CannotSpread(Plain):
    def take(self, free: int = 1) -> list[Any]:
        held, self.held = self.held, []
        return held * free


class LosesInFlush(Plain):
    def flush(self) -> None:
        self.held.clear()


class ListsNothing(Plain):
    def __iter__(self) -> Any:
        return iter(())


class Invents(Plain):
    def take(self) -> Any:
        return [(9, 9)] * len(super().take())


class Stuck(Plain):
    def take(self) -> Any:
        return [] if len(self.held) > 2 else super().take()


class Raises(Plain):
    def take(self) -> Any:
        batch = super().take()
        return batch[:1] if batch[0][0] == 0 else [batch[3], *batch]


class WrongGrows(Plain):
    def grows(self, message: Any) -> bool:
        return bool(message[0] != 3)


class OwnTraits(Behaviour):
    """A behaviour with more abilities, correct as it stands."""

    traits = Traits(divisible=True, ordered=True, trackable=True)

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        limit = len(self.held) if limit is None else limit
        batch, self.held = self.held[:limit], self.held[limit:]
        return batch

    def __len__(self) -> int:
        return len(self.held)

    def peek(self) -> Any:
        return self.held[0]

    def drop_oldest(self) -> Any:
        return self.held.pop(0)


class WrongAccepts(OwnTraits):
    def accepts(self, message: Any) -> bool:
        return bool(unwrap(message)[0] != 3)


class IgnoresLimit(OwnTraits):
    def take(self, limit: int | None = None, free: int = 1) -> Any:
        return super().take()


class PeeksLast(OwnTraits):
    def peek(self) -> Any:
        return self.held[-1]


class ForgetsTickets(OwnTraits):
    def take(self, limit: int | None = None, free: int = 1) -> Any:
        return [getattr(item, "message", item) for item in super().take(limit)]


class ExtendsBackwards(OwnTraits):
    def extend(self, messages: list[Any]) -> Any:
        self.held += messages[::-1]
        return ()


class ChecksItself(OwnTraits):
    def check(self) -> None:
        assert len(self.held) < 3, "three are too many"


class Quiet(OwnTraits):
    """Waits for a second without arrivals; at once if it holds five. Correct as it stands."""

    traits = Traits(divisible=True, ordered=True, trackable=True, timed=True, stamped=True)

    def __init__(self) -> None:
        super().__init__()
        self.now = self.due = float("-inf")
        self.flushed = False

    def add(self, message: Any) -> None:
        super().add(message)
        self.due = self.now + 1.0

    def ready_at(self, now: float) -> float:
        self.now = now
        return now if self.flushed or len(self.held) >= 5 else max(now, self.due)

    def until_full(self) -> int | None:
        return 5 - len(self.held)

    def reason(self) -> Reason:
        return Reason.SIZE if len(self.held) >= 5 else Reason.TIME

    def flush(self) -> None:
        self.flushed = True


class IgnoresTimes(Quiet):
    def extend_at(self, messages: list[Any], times: list[float]) -> Any:
        return self.extend(messages)


class NotOnlyTheFirst(Quiet):
    traits = Traits(timed=True, first_stamped=True)


class NotStamped(Quiet):
    traits = Traits(timed=True)


class SleepsTooLong(Quiet):
    def until_full(self) -> int | None:
        return None


class NeverFull(Quiet):
    def until_full(self) -> int | None:
        return 0


class WaitsWithoutSayingSo(Quiet):
    traits = Traits(divisible=True, ordered=True, trackable=True)


class NotPatient(Quiet):
    traits = Traits(timed=True, stamped=True, patient=True)


class WithoutReason(OwnTraits):
    def reason(self) -> Any:
        return "idle"


class Picky(OwnTraits):
    traits = Traits(divisible=True, accepts_all=True)

    def add(self, message: Any) -> None:
        if message[0] == 3:
            raise Malformed(message, "no threes")
        super().add(message)


BAD = {
    IgnoresTimes: "extend_at",
    NotOnlyTheFirst: "first_stamped",
    NotStamped: "stamped",
    SleepsTooLong: "until_full",
    NeverFull: "until_full",
    NotPatient: "patient",
    WaitsWithoutSayingSo: "timed",
    NoLongerReady: "due|ready",
    FailsInDone: "errors",
    FailsOnFailure: "errors",
    FailsOnRetries: "errors",
    SaysItWithdrew: "withdraw",
    SavesAnObject: "save",
    ForgetsItsState: "save",
    CannotSpread: "once",
    WithoutReason: "reason",
    Picky: "accepts_all",
    LosesOne: "length",
    RepeatsOne: "length",
    CountsWrong: "length",
    SaysEmpty: "length",
    KeepsTheList: "hands off",
    DropsNewest: "oldest",
    DropsNothing: "oldest",
    HalfRefuses: "refusal",
    NeverReady: "progress",
    AlwaysLater: "due",
    LosesInFlush: "length",
    ListsNothing: "iter",
    Invents: "once",
    Stuck: "progress",
    Raises: "errors|length|once",
    WrongGrows: "grows",
    WrongAccepts: "accepts",
    IgnoresLimit: "limit",
    PeeksLast: "peek",
    ForgetsTickets: "tickets",
    ExtendsBackwards: "extend",
    ChecksItself: "check",
}


def test_the_base_of_the_planted_bugs_conforms() -> None:
    check_behaviour(OwnTraits, max_examples=40)
    check_behaviour(Quiet)


@pytest.mark.parametrize(
    ("planted", "rule"), BAD.items(), ids=lambda one: getattr(one, "__name__", one)
)
def test_planted_bugs_are_found(planted: type, rule: str) -> None:
    with pytest.raises(AssertionError, match=f"breaks the rule '({rule})'"):
        check_behaviour(planted, max_examples=1_000)  # the first 100 do not find each of them


class RepeatsInstead(Plain):
    """Loses one and repeats another, so that the count is right."""

    def take(self) -> Any:
        batch = super().take()
        return [batch[0], *batch[:-1]] if len(batch) > 2 else batch


def test_a_repeated_message_is_found_although_the_count_is_right() -> None:
    with pytest.raises(AssertionError, match="was handed over before"):
        check_behaviour(RepeatsInstead)


def test_the_report_is_the_shortest_steps_as_code() -> None:
    with pytest.raises(AssertionError) as caught:
        check_behaviour(DropsNewest)
    report = str(caught.value)
    code = report[report.index("from actorflow.behaviours") :]
    assert code.count("behaviour.") == 3  # two messages come, one is dropped
    namespace = {"DropsNewest": DropsNewest}
    exec(code, namespace)  # noqa: S102 - the test is that it runs
    assert len(namespace["behaviour"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "factory",
    [lambda: DropsNewest(), lambda: Throttle(DropsNewest(), 0.0)],  # noqa: PLW0108
)
def test_the_report_of_a_lambda_is_code_too(factory: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        check_behaviour(factory, max_examples=500)
    report = str(caught.value)
    assert "factory" not in report
    assert "DropsNewest()" in report
    code = report[report.index("from actorflow.behaviours") :]
    exec(code, {"DropsNewest": DropsNewest, "Throttle": Throttle})  # noqa: S102 - the test is that it runs


def test_messages_may_come_from_a_strategy() -> None:
    check_behaviour(lambda: Unique(key=str.lower), messages=st.text(), max_examples=40)
    seen = []

    class Looks(Plain):
        def add(self, message: Any) -> None:
            seen.append(message)
            super().add(message)

    check_behaviour(Looks, messages=st.sampled_from([[], [1]]), max_examples=20)
    assert all(message in ([], [1]) for message in seen)


class RefusesAll(Plain):
    def add(self, message: Any) -> None:
        raise Malformed(message, "never")


@pytest.mark.parametrize(
    "factory", [RefusesAll, lambda: Unique(key=lambda row: row.id), lambda: Unique(key=str.lower)]
)
def test_a_behaviour_that_refuses_all_messages_was_not_checked(factory: Any) -> None:
    with pytest.raises(AssertionError, match=r"refused all \d+ messages drawn.*messages=st"):
        check_behaviour(factory, max_examples=20)


def test_w27_a_full_behaviour_that_refuses_the_rest_was_checked() -> None:
    check_behaviour(lambda: Bounded(Queue(), 1), max_examples=20)


def test_a_factory_that_returns_one_instance_twice_is_refused() -> None:
    queue = Queue()
    with pytest.raises(AlreadyUsed):
        check_behaviour(lambda: queue)


def test_without_hypothesis_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match="pip install hypothesis"):
        check_behaviour(Queue)
