"""`batched`: a function of lists that is called item by item."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Linger, Queue, Unique
from actorflow.runtime.worker.batched import AsyncBatched, Batched
from actorflow.testing import ManualLane
from tests.runtime.worker.probe import PATIENCE, Caller, until, until_accumulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@af.batched()
def double(numbers: list[int]) -> list[int]:
    """Double numbers."""
    return [2 * number for number in numbers]


@af.batched()
async def text_of(numbers: list[int]) -> list[str]:
    await asyncio.sleep(0)
    return [str(number) for number in numbers]


class Scale:
    """An object with batched methods."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.batches: list[list[int]] = []

    @af.batched(Linger(Queue(), 0.0, size=8))
    def apply(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        return [self.factor * number for number in numbers]

    @af.batched()
    async def aapply(self, numbers: list[int]) -> list[float]:
        return [self.factor * number / 2 for number in numbers]


def test_the_types_are_those_of_one_item() -> None:
    """Checked by mypy; at run time `assert_type` does nothing."""
    assert_type(double, Batched[int, int])
    assert_type(text_of, AsyncBatched[int, str])
    call: Callable[[int], int] = double
    acall: Callable[[int], Awaitable[str]] = text_of
    scale = Scale(3)
    assert_type(scale.apply(1), int)
    method: Callable[[int], int] = scale.apply
    amethod: Callable[[int], Awaitable[float]] = scale.aapply
    assert (call(2), method(2)) == (4, 6)

    async def main() -> None:
        assert_type(await text_of(1), str)
        assert_type(await double.aio(1), int)
        assert await acall(5) == "5"
        assert await amethod(3) == 4.5
        if TYPE_CHECKING:
            double("no number")  # type: ignore[arg-type]
            await text_of.aio("no number")  # type: ignore[arg-type]

    asyncio.run(main())


def test_it_looks_like_the_function_that_it_was() -> None:
    assert double.__name__ == "double"
    assert double.__doc__ == "Double numbers."
    assert repr(double) == "<batched double>"
    assert "double" in repr(double.worker)


def test_items_from_threads_and_tasks_share_batches_and_get_their_own_results() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(double, range(200))) == [2 * n for n in range(200)]

    async def main() -> list[int]:
        return await asyncio.gather(*(double.aio(number) for number in range(200)))

    assert asyncio.run(main()) == [2 * number for number in range(200)]
    assert double.worker.statistics().processed >= 400


def test_items_that_come_while_it_runs_make_one_batch() -> None:
    begun, go = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    @af.batched()
    def slow(numbers: list[int]) -> list[int]:
        batches.append(numbers)
        begun.set()
        assert go.wait(PATIENCE)
        return numbers

    callers = [Caller(slow, 0)]
    assert begun.wait(PATIENCE)
    callers += [Caller(slow, number) for number in range(1, 6)]
    until_accumulated(slow.worker, 5)
    go.set()
    assert [caller.value() for caller in callers] == list(range(6))
    assert [len(batch) for batch in batches] == [1, 5]
    slow.worker.stop()


def test_a_coroutine_function_gives_an_awaitable() -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(text_of(number) for number in range(50)))

    assert asyncio.run(main()) == [str(number) for number in range(50)]


# Failures.


def test_what_the_function_raises_reaches_every_caller_of_the_batch_and_it_goes_on() -> None:
    lane = ManualLane()

    @af.batched(executor=lane)
    def strict(numbers: list[int]) -> list[int]:
        if 13 in numbers:
            raise ValueError("unlucky")
        return numbers

    worker = strict.worker
    worker.push(0)
    futures = [worker.ask(number, block=False) for number in (12, 13)]
    lane.run()
    for future in futures:
        with pytest.raises(ValueError, match="unlucky"):
            future.get(timeout=0)
    assert strict(14) == 14
    assert worker.is_alive()
    assert (worker.statistics().failed, worker.statistics().processed) == (2, 2)


def test_what_it_raises_can_be_isolated() -> None:
    lane = ManualLane()

    @af.batched(executor=lane, on_failure=af.Isolate())
    def strict(numbers: list[int]) -> list[int]:
        if 13 in numbers:
            raise ValueError("unlucky")
        return numbers

    futures = [strict.worker.ask(number, block=False) for number in (12, 13, 14)]
    lane.run()
    assert (futures[0].get(timeout=0), futures[2].get(timeout=0)) == (12, 14)
    with pytest.raises(ValueError, match="unlucky"):
        futures[1].get(timeout=0)


def test_an_exception_among_the_results_is_raised_to_its_caller_alone() -> None:
    @af.batched()
    def roots(numbers: list[float]) -> list[Any]:
        return [n**0.5 if n >= 0 else ValueError(f"{n} is negative") for n in numbers]

    @af.batched()
    async def aroots(numbers: list[float]) -> list[Any]:
        return [n**0.5 if n >= 0 else ValueError(f"{n} is negative") for n in numbers]

    assert roots(4) == 2
    with pytest.raises(ValueError, match="-4 is negative"):
        roots(-4)

    async def main() -> None:
        results: Any = await asyncio.gather(aroots(9), aroots(-9), return_exceptions=True)
        assert results[0] == 3
        assert isinstance(results[1], ValueError)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("results", "said"),
    [([], "0 results for 1 items"), ([1, 2], "2 results for 1 items"), (None, "None for 1 items"),
     ("x", "for 1 items"), (7, "7 for 1 items")],
)  # fmt: skip
def test_a_wrong_number_of_results_is_named(results: Any, said: str) -> None:
    @af.batched()
    def wrong(items: list[int]) -> Any:
        return results

    with pytest.raises(af.BadJob, match=said):
        wrong(1)
    assert wrong.worker.is_alive()


def test_results_may_be_any_iterable() -> None:
    @af.batched()
    def lazily(items: list[int]) -> Any:
        return (item + 1 for item in items)

    @af.batched()
    def by_keys(items: list[int]) -> Any:
        return dict.fromkeys(items).keys()

    assert (lazily(1), by_keys(1)) == (2, 1)


def test_what_the_behaviour_does_to_an_item_its_caller_hears() -> None:
    lane = ManualLane()

    @af.batched(Unique(key=lambda item: item % 10), executor=lane)
    def newest(numbers: list[int]) -> list[int]:
        return numbers

    worker = newest.worker
    worker.push(0)
    old, new = (worker.ask(number, block=False) for number in (1, 11))
    lane.run()
    with pytest.raises(af.Replaced):
        old.get(timeout=0)
    assert new.get(timeout=0) == 11

    @af.batched(Bounded(Queue(), 1), executor=lane)
    def bounded(numbers: list[int]) -> list[int]:
        return numbers

    bounded.worker.push(0)
    bounded.worker.push_ack(1)
    with pytest.raises(af.Full):
        bounded(2)
    lane.run()


# Options, the worker, and its life.


def test_concurrency_runs_several_batches_at_once() -> None:
    both = threading.Barrier(2)

    @af.batched(concurrency=2)
    def meet(numbers: list[int]) -> list[int]:
        both.wait(PATIENCE)
        return numbers

    callers = [Caller(meet, number) for number in (1, 2)]
    assert [caller.value() for caller in callers] == [1, 2]


def test_options_of_spawn_can_be_given_and_wrong_ones_are_refused() -> None:
    @af.batched(executor="thread", name="batched threads", idle_timeout=None)
    def thread_names(items: list[int]) -> list[str]:
        return [threading.current_thread().name for _ in items]

    assert thread_names(1) == thread_names(2)
    assert af.whereis("batched threads") is thread_names.worker
    thread_names.worker.stop()

    with pytest.raises(af.BadOption, match="did you mean 'executor'"):
        af.batched(executer="pool")


def test_it_goes_before_a_function() -> None:
    with pytest.raises(af.BadJob, match="goes before a function, not 5"):
        af.batched()(5)  # type: ignore[call-overload]


def test_without_parentheses_it_says_so_where_it_stands() -> None:
    with pytest.raises(af.BadBehaviour, match=r"write @af.batched\(\) before .*double"):

        @af.batched
        def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]


@pytest.mark.parametrize("behaviour", [Queue(), Queue, lambda: Linger(Queue(), 0.0)])
def test_a_worker_that_was_stopped_is_started_anew(behaviour: Any) -> None:
    @af.batched(behaviour)
    def same(items: list[int]) -> list[int]:
        return items

    first = same.worker
    assert same(1) == 1
    first.stop()
    assert same(2) == 2
    assert same.worker is not first
    assert same.worker is same.worker


def test_threads_that_call_it_first_at_the_same_moment_share_one_worker() -> None:
    for _ in range(30):
        together = threading.Barrier(4)

        @af.batched(Queue())
        def same(items: list[int]) -> list[int]:
            return items

        def first() -> Any:
            together.wait(PATIENCE)  # noqa: B023
            return same.worker

        callers = [Caller(first) for _ in range(4)]
        assert len({id(caller.value()) for caller in callers}) == 1
        same.worker.stop()


# Methods.


def test_each_object_has_a_worker_of_its_own() -> None:
    two, three = Scale(2), Scale(3)
    assert (two.apply(1), three.apply(1)) == (2, 3)
    assert two.apply.worker is two.apply.worker
    assert two.apply.worker is not three.apply.worker
    assert Scale.apply is Scale.__dict__["apply"]

    async def main() -> float:
        return await three.aapply(5)

    assert asyncio.run(main()) == 7.5
    for scale in (two, three):
        assert scale.batches == [[1]]


def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


def test_an_object_is_not_kept_alive_and_its_worker_ends_with_it() -> None:
    scale = Scale(2)
    assert scale.apply(4) == 8
    worker = scale.apply.worker
    gone = weakref.ref(scale)
    del scale
    gc.collect()
    assert gone() is None
    until(lambda: not worker.is_alive(), "the worker ends with its object")


@pytest.mark.parametrize("executor", ["pool", "process"])
def test_a_function_that_is_dropped_ends_its_worker(executor: str) -> None:
    double = af.batched(executor=executor)(doubled)
    assert double(2) == 4
    worker = double.worker
    assert worker.is_alive()
    del double
    gc.collect()
    until(lambda: not worker.is_alive(), "the worker ends with its function")


def test_a_function_lives_until_its_calls_have_returned() -> None:
    assert [af.batched()(doubled)(number) for number in range(20)] == [2 * n for n in range(20)]


def test_an_object_lives_until_its_calls_have_returned() -> None:
    assert [Scale(5).apply(number) for number in range(20)] == [5 * n for n in range(20)]

    async def main() -> list[float]:
        return await asyncio.gather(*(Scale(4).aapply(number) for number in range(20)))

    assert asyncio.run(main()) == [2.0 * number for number in range(20)]


def test_a_call_that_outlives_its_object_is_told() -> None:
    lane = ManualLane()

    class Brief:
        @af.batched(executor=lane)
        def apply(self, items: list[int]) -> list[int]:
            return items

    one = Brief()
    future = one.apply.worker.ask(1, block=False)
    del one
    gc.collect()
    lane.run()
    with pytest.raises((ReferenceError, af.WorkerStopped), match=r"gone|has ended"):
        future.get(timeout=PATIENCE)


def test_what_cannot_have_a_worker_of_its_own_is_told_why() -> None:
    class Slotted:
        __slots__ = ()

        @af.batched()
        def apply(self, items: list[int]) -> list[int]:
            return items

    with pytest.raises(af.BadJob, match="cannot be referred to weakly; add '__weakref__'"):
        Slotted().apply(1)


def test_objects_that_are_equal_have_a_worker_each() -> None:
    @dataclass(frozen=True)
    class Frozen:
        name: str
        factor: int = field(compare=False)

        @af.batched()
        def apply(self, items: list[int]) -> list[int]:
            return [self.factor * item for item in items]

    two, three = Frozen("same", 2), Frozen("same", 3)
    apply = three.apply
    assert two == three
    assert (two.apply(1), three.apply(1)) == (2, 3)
    del two
    gc.collect()
    assert apply(2) == 6


def test_an_object_need_not_be_hashable() -> None:
    @dataclass
    class Plain:
        factor: int

        @af.batched()
        def apply(self, items: list[int]) -> list[int]:
            return [self.factor * item for item in items]

    plain = Plain(2)
    worker = plain.apply.worker
    assert plain.apply(1) == 2
    plain.factor = 3
    assert plain.apply(1) == 3
    assert plain.apply.worker is worker


@pytest.mark.parametrize(
    "options",
    [
        {"behaviour": 5},
        {"behaviour": "queue"},
        {"concurrency": 0},
        {"concurrency": "4"},
        {"executor": "pooll"},
        {"executor": 5},
        {"throttle": "1"},
        {"help": "yes"},
        {"verbose": 1},
        {"on_failure": "retrry"},
        {"sise": 4},
    ],
    ids=str,
)
def test_options_are_validated_at_the_decorator(options: dict[str, Any]) -> None:
    with pytest.raises((af.BadOption, af.BadBehaviour)) as raised:
        af.batched(**options)
    ((name, value),) = options.items()
    assert name in str(raised.value) or repr(value) in str(raised.value)


def test_a_call_in_an_event_loop_is_told_what_to_await() -> None:
    @af.batched()
    def double(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    async def main() -> int:
        with pytest.raises(af.LoopBlocked, match=r"write `await double\.aio\(item\)`"):
            double(1)
        return await double.aio(2)

    assert asyncio.run(main()) == 4
