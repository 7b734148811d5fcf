"""Questions: events whose sender waits for what `on_event` returns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionEnded, ExecutionFailed, WaitTimeout
from tests.engine.kinds import until
from tests.workflows.service.orders import PATIENCE, Order, wait_for_event

if TYPE_CHECKING:
    from actorflow.workflows.service.handle import WorkflowHandle

MANY = 40  # more than there are threads in the executor of an event loop


class Desk(af.Workflow[int]):
    """Answers with its number; some questions wait for an event first."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self) -> int:
        self.wait("close")
        return self.count

    def on_event(self, event: af.Event) -> int | None:
        if event.name == "ask":
            self.count += 1
            return self.count
        if event.name == "ask later":
            self.count += 1
            self.wait("go")
            return self.count
        return None


class Patient(af.Workflow[None]):
    """Needs some time when it is cancelled."""

    def __init__(self) -> None:
        self.recovered = False

    def handle(self) -> None:
        try:
            self.wait("end")
        finally:
            self.wait("recovered")
            self.recovered = True


@pytest.fixture
def desk(engine: af.Engine) -> WorkflowHandle[int]:
    made = engine.start(Desk())
    wait_for_event(made)
    return made


def waits(desk: WorkflowHandle[int]) -> int:
    return len(desk.query().state.waits)


def test_a_question_is_answered_once_it_is_committed(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    assert order.ask("other", timeout=PATIENCE) == 0
    assert order.ask("paid", amount=2, id="q", timeout=PATIENCE) == 2
    assert order.result(PATIENCE) == "o-1 shipped for 2"
    assert order.query().properties["paid"] == 2


def test_any_number_of_tasks_can_wait_for_answers(
    engine: af.Engine, desk: WorkflowHandle[int]
) -> None:
    async def ask() -> list[Any]:
        asked = [asyncio.create_task(desk.aask("ask later", timeout=PATIENCE)) for _ in range(MANY)]
        await asyncio.to_thread(until, engine, lambda: waits(desk) == MANY + 1)
        await desk.asend("go")
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == [MANY] * MANY


def test_a_task_that_is_cancelled_leaves_nothing_behind(
    engine: af.Engine, desk: WorkflowHandle[int]
) -> None:
    waiters, watchers = desk._kind.waiters, engine.parts.waiters

    async def ask() -> None:
        asked = asyncio.create_task(desk.aask("ask later"))
        await asyncio.to_thread(until, engine, lambda: waits(desk) == 2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(ask())
    until(engine, lambda: not len(waiters) and not len(watchers))


def test_the_same_question_has_the_same_answer_for_a_task(desk: WorkflowHandle[int]) -> None:
    async def ask() -> list[int]:
        return [await desk.aask("ask", id="q", timeout=PATIENCE) for _ in range(3)]

    assert asyncio.run(ask()) == [1, 1, 1]
    assert desk.ask("ask", id="q", timeout=PATIENCE) == 1


def test_what_was_sent_with_an_id_can_be_asked_for_its_answer(desk: WorkflowHandle[int]) -> None:
    desk.send("ask", id="a")
    assert desk.ask("ask", id="a", timeout=PATIENCE) == 1
    asyncio.run(desk.asend("ask", id="b"))
    assert asyncio.run(desk.aask("ask", id="b", timeout=PATIENCE)) == 2
    assert desk.ask("ask", id="a", timeout=PATIENCE) == 1


def test_a_question_that_was_answered_before_the_end_still_is(desk: WorkflowHandle[int]) -> None:
    assert desk.ask("ask", id="q", timeout=PATIENCE) == 1
    desk.send("close")
    assert desk.result(PATIENCE) == 1
    assert desk.ask("ask", id="q", timeout=PATIENCE) == 1
    assert asyncio.run(desk.aask("ask", id="q", timeout=PATIENCE)) == 1
    for id_ in ("another", None):
        with pytest.raises(ExecutionEnded):
            desk.ask("ask", id=id_, timeout=PATIENCE)
        with pytest.raises(ExecutionEnded):
            asyncio.run(desk.aask("ask", id=id_, timeout=PATIENCE))


def test_an_event_that_was_counted_before_the_end_may_be_repeated(
    desk: WorkflowHandle[int],
) -> None:
    desk.send("ask", id="a")
    desk.send("close", id="end")
    assert desk.result(PATIENCE) == 1
    desk.send("ask", id="a")
    asyncio.run(desk.asend("close", id="end"))
    assert not desk.query().kept[2:]  # nothing was added
    for id_ in ("another", None):
        with pytest.raises(ExecutionEnded):
            desk.send("ask", id=id_)
        with pytest.raises(ExecutionEnded):
            asyncio.run(desk.asend("ask", id=id_))


def test_a_cancel_that_is_repeated_with_its_id_counts_once(engine: af.Engine) -> None:
    patient = engine.start(Patient())
    until(engine, lambda: patient.query().state.waits)
    assert patient.cancel(id="c")
    assert patient.cancel(id="c")
    until(engine, lambda: patient.query().state.waits)
    patient.send("recovered")
    with pytest.raises(af.Cancelled):
        patient.result(PATIENCE)
    assert patient.query().properties == {"recovered": True}
    assert patient.cancel(id="c")
    assert not patient.cancel(id="another")


def test_a_question_that_is_not_answered_says_why(desk: WorkflowHandle[int]) -> None:
    with pytest.raises(WaitTimeout, match="has not answered 'ask later' within"):
        asyncio.run(desk.aask("ask later", timeout=0.01))
    desk.cancel()
    with pytest.raises(ExecutionEnded):
        asyncio.run(desk.aask("ask", timeout=PATIENCE))


BOOKS: dict[str, str] = {}


@af.task
def look_up() -> str:
    if not BOOKS:
        raise ValueError("no such book")
    return BOOKS["found"]


class Library(af.Workflow[str]):
    def handle(self) -> str:
        return self.execute(look_up())

    def on_event(self, event: af.Event) -> str | None:
        return self.execute(look_up()) if event.name == "look up" else event.name


@pytest.mark.parametrize("way", ["thread", "asyncio"])
def test_a_question_whose_task_fails_for_good_says_so(
    engine: af.Engine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = engine.start(Library())

    def ask(name: str, **options: Any) -> Any:
        if way == "asyncio":
            return asyncio.run(library.aask(name, timeout=PATIENCE, **options))
        return library.ask(name, timeout=PATIENCE, **options)

    until(engine, lambda: library.status == "stuck")
    assert ask("hello") == "hello", "the failure of handle is no concern of it"
    with pytest.raises(ExecutionFailed, match=r"cannot answer 'look up'.*no such book") as raised:
        ask("look up", id="q-1")
    assert raised.value.failure.type == "ValueError"
    monkeypatch.setitem(BOOKS, "found", "found")
    library.retry(next(each.step for each in library.query().failed if each.branch_key))
    assert ask("look up", id="q-1") == "found"


def test_the_status_of_an_instance_in_memory_is_not_read_from_the_store(
    engine: af.Engine, desk: WorkflowHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    until(engine, lambda: desk.ask("ask", timeout=PATIENCE) > 0)
    monkeypatch.setattr(engine.parts.store, "executions", None)  # it would take time to call it
    monkeypatch.setattr(engine.parts.store, "execution", None)
    assert desk.status == "active"


def test_a_long_history_is_not_read_for_each_question(
    engine: af.Engine, desk: WorkflowHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        desk.ask("ask", timeout=PATIENCE)
    store, rows = engine.parts.store, []
    history = store.history

    def watched(*arguments: Any, **options: Any) -> Any:
        page = history(*arguments, **options)
        rows.extend(page.rows)
        return page

    monkeypatch.setattr(store, "history", watched)
    assert desk.ask("ask", timeout=PATIENCE) == 31
    assert 0 < len(rows) < 10
