"""What type checkers know of workers. Never run: `test_checkers` has mypy and pyright read it.

A line with `type: ignore` must be an error: both checkers report a comment that ignores nothing.
"""

from __future__ import annotations

from typing import Any, assert_type

import actorflow as af


def add(batch: list[int], state: int) -> int:
    return state + sum(batch)


def spell(batch: list[int], state: int) -> af.Answers[int, str]:
    return af.Answers(state + 1, [str(number) for number in batch])


def risky(batch: list[int], _state: object) -> af.Answers[None, float]:
    answers = [ZeroDivisionError() if number == 0 else 1 / number for number in batch]
    return af.Answers(None, answers)


async def spell_later(batch: list[int], state: int) -> af.Answers[int, str]:
    return af.Answers(state + 1, [str(number) for number in batch])


def tally(batch: dict[str, int], state: int) -> int:
    return state + sum(batch.values())


def untyped(batch: Any, state: Any) -> Any:
    return state + len(batch)


class Speller(af.Executor):
    def handle(self, batch: list[int]) -> af.Answers[None, str]:
        return af.Answers(None, [str(number) for number in batch])


class Printer(af.Executor):
    def handle(self, batch: list[str]) -> None:
        assert batch


def messages_have_the_type_that_the_job_declares() -> None:
    worker = af.spawn(add, state=0)
    assert_type(worker, "af.WorkerRef[int, Any]")
    worker.push(7)
    worker.push_many([1, 2])
    worker.push("text")  # type: ignore[arg-type]
    worker.push_many(["text"])  # type: ignore[list-item]
    worker.push_block("text")  # type: ignore[arg-type]
    worker.ask("text")  # type: ignore[call-overload]


async def messages_of_asyncio_too(worker: af.WorkerRef[int, str]) -> None:
    await worker.apush(7)
    assert_type(await worker.aask(7), str)
    await worker.apush("text")  # type: ignore[arg-type]
    await worker.aask("text")  # type: ignore[call-overload]


def the_state_has_the_type_that_the_job_declares() -> None:
    af.spawn(add, state="zero")  # type: ignore[arg-type]
    af.spawn(add)  # type: ignore[arg-type]
    af.Worker("adder", add, state="zero")  # type: ignore[arg-type]
    af.Worker("adder", add, state=0)
    af.Worker("adder", add)  # `Workers` has states of its own


def answers_have_the_type_that_the_job_declares() -> None:
    assert_type(af.spawn(spell, state=0).ask(7), str)
    assert_type(af.spawn(spell_later, state=0).ask(7), str)
    assert_type(af.spawn(risky).ask(7), float)
    assert_type(af.spawn(Speller).ask(7), str)
    assert_type(af.spawn(spell, state=0).ask(7, block=False).get(), str)


def answers_of_parts_are_joined() -> None:
    worker = af.spawn(spell, state=0)
    assert_type(worker.ask(af.Split([1, 2], repr)), str)
    assert_type(worker.ask(af.Split([1, 2], len)), int)
    worker.ask(af.Split(["a"], len))  # type: ignore[list-item]


def executors_declare_their_messages() -> None:
    printer = af.spawn(Printer)
    printer.push("text")
    printer.push(7)  # type: ignore[arg-type]


def a_batch_may_be_something_else_than_a_list() -> None:
    worker = af.spawn(tally, state=0)
    assert_type(worker, af.WorkerRef[Any, Any])
    worker.push(("a", 1))


def jobs_without_types_take_anything() -> None:
    worker = af.spawn(untyped, state=0)
    worker.push("text")
    af.spawn(lambda batch, state: state + len(batch), state=0).push("text")
    bare: af.WorkerRef = worker
    bare.push(7)


def a_worker_can_stand_for_one_of_narrower_messages(worker: af.WorkerRef[float, int]) -> None:
    narrower: af.WorkerRef[int, object] = worker
    narrower.push(7)
    wider: af.WorkerRef[object, int] = worker  # type: ignore[assignment]
    wider.push("text")


def options_are_checked() -> None:
    af.spawn(add, state=0, throtle=1.0)  # type: ignore[call-overload]
    af.spawn(add, state=0, concurrency="four")  # type: ignore[call-overload]


def batched_functions_have_the_types_of_their_items() -> None:
    @af.batched()
    def double(numbers: list[int]) -> list[float]:
        return [2.0 * number for number in numbers]

    assert_type(double(7), float)
    double("text")  # type: ignore[arg-type]
