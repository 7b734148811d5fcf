"""Durable workers that answer, families of them, and values of declared types."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import pydantic
import pytest

import actorflow as af
from actorflow.behaviours import Queue, Stack, Unique
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import NoAnswer
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.runtime.worker.job.answers import Answers
from tests.engine.kinds import PATIENCE, collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: Any, tmp_path: Path) -> Iterator[BareEngine]:
    """Yield an engine on a store of one process."""
    where = ":memory:" if request.param == "memory" else tmp_path / "store.db"
    with BareEngine(where, durability="off") as made:
        yield made


def deposit(batch: list[Any], balance: int) -> Answers:
    """Add up; answer each caller with the balance after its own message."""
    answers: list[Any] = []
    for amount in batch:
        if amount < 0:
            answers.append(ValueError(f"{amount} is negative"))
            continue
        balance += amount
        answers.append(balance)
    return Answers(balance, answers)


def test_each_caller_gets_its_own_answer(engine: BareEngine) -> None:
    account = engine.worker("account", deposit, state=0)
    assert account.ask(40) == 40
    assert account.ask(2) == 42
    assert account.state() == 42


def test_an_exception_among_the_answers_is_raised_to_its_caller_alone(engine: BareEngine) -> None:
    account = engine.worker("account", deposit, state=0)
    with pytest.raises(ValueError, match="-1 is negative"):
        account.ask(-1)
    assert account.ask(1) == 1
    assert not list(account.dead_letters)


def test_an_exception_for_a_message_without_a_caller_makes_a_dead_letter(
    engine: BareEngine,
) -> None:
    account = engine.worker("account", deposit, state=0)
    account.push(-1)
    assert account.ask(1) == 1
    (letter,) = account.dead_letters
    assert letter.message == -1
    assert "-1 is negative" in letter.error


def test_callers_of_one_batch_get_their_own_answers(engine: BareEngine) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait(batch: list[Any], state: int) -> Answers:
        entered.set()
        assert go.wait(PATIENCE)
        return Answers(state + 1, [f"{each} in {state}" for each in batch])

    worker = engine.worker("w", wait, state=0)
    worker.push("first")
    assert entered.wait(PATIENCE)

    async def ask() -> list[Any]:
        asked = [asyncio.ensure_future(worker.aask(each)) for each in "abc"]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asked)

    answers = asyncio.run(ask())
    assert [answer[0] for answer in answers] == list("abc")


def test_nothing_joins_a_batch_that_is_recorded(engine: BareEngine) -> None:
    refusals = []

    def job(batch: list[Any], state: int) -> Answers:
        try:
            af.current_inbox()
        except af.BadOption as error:
            refusals.append(str(error))
        return Answers(state, batch)

    assert engine.worker("w", job, state=0).ask("a") == "a"
    (refusal,) = refusals
    assert "a durable worker records its batch" in refusal


def test_messages_that_were_merged_share_an_answer(engine: BareEngine) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait(batch: list[Any], state: int) -> Answers:
        entered.set()
        assert go.wait(PATIENCE)
        return Answers(state, [each["n"] for each in batch])

    worker = engine.worker("w", wait, state=0, behaviour=Unique(key=lambda each: each["k"]))
    worker.push({"k": 0, "n": 0})
    assert entered.wait(PATIENCE)
    go.set()
    assert worker.ask({"k": 1, "n": 7}) == 7


def test_a_job_without_answers_is_named(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    with pytest.raises(NoAnswer, match="Answers"):
        worker.ask("a")
    assert worker.state() == ["a"]


def test_answers_that_do_not_fit_the_batch_fail_it(engine: BareEngine) -> None:
    worker = engine.worker("w", lambda _batch, state: Answers(state, []), state=0)
    with pytest.raises(BadJob, match="0 answers for a batch of 1"):
        worker.ask("a")


def test_an_answer_is_not_the_state(engine: BareEngine) -> None:
    def add(batch: list[Any], state: list[Any]) -> Answers:
        state = [*state, *batch]
        return Answers(state, [state] * len(batch))

    worker = engine.worker("w", add, state=[])
    worker.ask(1).append("mine")
    assert worker.ask(2) == [1, 2]


def test_jobs_that_are_coroutines_answer_as_well(engine: BareEngine) -> None:
    async def double(batch: list[Any], state: int) -> Answers:
        await asyncio.sleep(0)
        return Answers(state, [2 * each for each in batch])

    worker = engine.worker("w", double, state=0)
    assert worker.ask(21) == 42
    asyncio.run(worker.apush(1))


def test_a_repeated_key_has_no_second_answer(engine: BareEngine) -> None:
    account = engine.worker("account", deposit, state=0)
    assert account.ask(40, key="k") == 40
    with pytest.raises(NoAnswer):
        account.ask(40, key="k")
    assert account.state() == 40


def test_statistics_of_a_worker(engine: BareEngine) -> None:
    account = engine.worker("account", deposit, state=0)
    account.push(-1)
    account.ask(1)
    found = account.statistics()
    assert (found.name, found.stored, found.held, found.dead_letters) == ("account", 0, 0, 1)


@pytest.mark.parametrize("behaviour", [Queue(), Stack(), Unique(key=str), Queue])
def test_a_behaviour_is_given_as_to_spawn(engine: BareEngine, behaviour: Any) -> None:
    for name in "ab":
        worker = engine.worker(name, collect, state=[], behaviour=behaviour)
        worker.push_block(1)
        assert worker.state() == [1]


# Families.


def test_a_family_has_one_writer_and_one_state_for_each_key(engine: BareEngine) -> None:
    accounts = engine.workers("account/{id}", deposit, state=0)
    for number in range(20):
        assert accounts[str(number)].ask(number) == number
    assert accounts[7].ask(1) == 8
    assert accounts["7"].state() == 8
    assert accounts["never asked"].state() == 0
    assert engine.execution("account/7").kind == "worker"


def test_idle_keys_leave_memory_and_come_back(tmp_path: Path) -> None:
    with BareEngine(tmp_path / "s.db", durability="off", max_live=5) as engine:
        accounts = engine.workers("account/{id}", deposit, state=0)
        for turn in range(1, 4):
            for number in range(40):
                assert accounts[number].ask(1) == turn


def test_the_job_gets_the_key_if_it_has_a_parameter_for_it(engine: BareEngine) -> None:
    def who(batch: list[Any], state: int, *, key: str) -> Answers:
        return Answers(state, [key] * len(batch))

    users = engine.workers("user/{id}/inbox", who, state=0)
    assert users["ann"].ask("?") == "ann"


def test_a_family_goes_on_with_the_next_engine(reopen: Callable[..., BareEngine]) -> None:
    engine = reopen()
    engine.workers("account/{id}", deposit, state=0)["7"].ask(40)
    engine = reopen()
    engine.send("account/7", 1)
    accounts = engine.workers("account/{id}", deposit, state=0)
    assert accounts["7"].ask(1) == 42


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("account", "where the key goes"), ("{id}/{id}", "where the key goes"), (7, "where the key"),
     ("w{id}", "already"), ("account/{id}", "already"), ("account/x{id}", "already")],
)  # fmt: skip
def test_wrong_patterns_are_refused(engine: BareEngine, pattern: Any, text: str) -> None:
    engine.worker("w1", collect, state=[])
    engine.workers("account/{id}", deposit, state=0)
    with pytest.raises(BadOption, match=text):
        engine.workers(pattern, deposit, state=0)


def test_wrong_keys_are_refused(engine: BareEngine) -> None:
    accounts = engine.workers("account/{id}", deposit, state=0)
    for key in ("", None, 1.5, True):
        with pytest.raises(BadOption, match="the key"):
            accounts[key]  # type: ignore[index]
    with pytest.raises(BadOption, match="already"):
        engine.worker("account/7", deposit, state=0)


# Values of declared types.


class Currency(Enum):
    EURO = "EUR"
    FRANC = "CHF"


@dataclass
class Deposit:
    amount: Decimal
    currency: Currency
    at: datetime
    day: date
    id: UUID


class Balance(msgspec.Struct):
    total: Decimal = Decimal(0)
    seen: list[UUID] = []


class Model(pydantic.BaseModel):
    name: str
    born: date


DEPOSIT = Deposit(
    Decimal("40.10"),
    Currency.EURO,
    datetime(2026, 1, 2, 3, tzinfo=UTC),
    date(2026, 1, 2),
    UUID(int=7),
)


def book(batch: list[Deposit], balance: Balance) -> Answers:
    assert all(each == DEPOSIT for each in batch)
    total = balance.total + sum(each.amount for each in batch)
    return Answers(Balance(total, [*balance.seen, *(each.id for each in batch)]), batch)


def test_messages_and_states_have_the_types_that_the_job_declares(engine: BareEngine) -> None:
    worker = engine.worker("w", book, state=Balance())
    assert worker.ask(DEPOSIT) == DEPOSIT
    worker.push_block(DEPOSIT)
    assert worker.state() == Balance(Decimal("80.20"), [UUID(int=7)] * 2)


def age(batch: list[Model], state: list[Model]) -> Answers:
    return Answers([*state, *batch], [each.born.year for each in batch])


def test_models_of_pydantic_are_messages(engine: BareEngine) -> None:
    worker = engine.worker("w", age, state=[])
    ann = Model(name="ann", born=date(1990, 5, 6))
    assert worker.ask(ann) == 1990
    assert worker.state() == [ann]


def add(batch: list[npt.NDArray[np.float64]], state: np.ndarray) -> np.ndarray:
    return state + sum(batch)


def test_arrays_of_numpy_are_states(engine: BareEngine) -> None:
    worker = engine.worker("w", add, state=np.zeros((2, 2)))
    worker.push_block(np.ones((2, 2)))
    worker.push_block(np.eye(2))
    assert worker.state().tolist() == [[2.0, 1.0], [1.0, 2.0]]
