"""`async def` workflows: positions and results are the same in every replay."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.workflows.decider import BlockedBranch, Decider
from actorflow.workflows.errors import NotInWorkflow, StepFailed
from actorflow.workflows.instance import messages as m
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@task
async def double(number: int) -> int:
    return 2 * number


@task
def add(one: int, other: int) -> int:
    return one + other


class Gathering(Workflow[list[int]]):
    def __init__(self, count: int) -> None:
        self.count = count

    async def handle(self) -> list[int]:
        doubled = await asyncio.gather(*(double(number) for number in range(self.count)))
        return [*doubled, await add(1, 2)]


class Legs(Workflow[list[int]]):
    """Several lines of steps at once; each goes on when its own step is complete."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.log: list[str] = []

    async def leg(self, number: int) -> int:
        one = await double(number)
        self.log.append(f"{number}a")
        two = await self.aexecute(add(one, 1))
        self.log.append(f"{number}b")
        return two

    async def handle(self) -> list[int]:
        return await asyncio.gather(*(self.leg(number) for number in range(self.count)))

    def on_event(self, event: Event) -> None:
        self.log.append(event.name)


class Groups(Workflow[list[int]]):
    async def handle(self) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.aexecute(double(number))) for number in range(3)]
        return [each.result() for each in tasks]


class Inner(Workflow[int]):
    async def handle(self) -> int:
        return await double(1)


class Bare(Workflow[list[int]]):
    """Gives steps and workflows to asyncio as they are."""

    async def handle(self) -> list[int]:
        steps: Any = [double(0), double(1)]  # asyncio declares that it takes coroutines only
        async with asyncio.TaskGroup() as group:
            one, two = [group.create_task(step) for step in steps]
        begun = [asyncio.ensure_future(double(number)) for number in (2, 3)]
        found = sorted([await each for each in asyncio.as_completed(begun)])
        return [one.result(), two.result(), *found, *await asyncio.gather(Inner(), double(5))]


class Waiting(Workflow[list[Any]]):
    """Takes finished tasks from a set, in which tasks have no order of their own."""

    async def handle(self) -> list[Any]:
        pending = {asyncio.ensure_future(self.aexecute(double(number))) for number in range(6)}
        found: list[Any] = []
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found += [await add(each.result(), 0) for each in done]
            found.append(len(pending))
            found += [await add(index, 1) for index, _ in enumerate(pending)]
        return found


def value(driver: Driver, step: str) -> int:
    status = driver.instance.status(step)
    assert status is not None
    if status.name == "Inner":
        return 8
    given = status.input
    return int(2 * given["number"] if status.name == "double" else given["one"] + given["other"])


def play(
    workflow: Workflow[Any], choices: list[int], restarts: set[int], *, batch: int = 1
) -> Driver:
    """Complete open steps as chosen; restart before some of the steps."""
    decider = Decider()
    driver = Driver(workflow, decider).settle()
    step = 0
    while driver.mode == "run":
        if step in restarts:
            driver.restart()
        ends: list[m.Received] = []
        for _ in range(min(batch, len(driver.open))):
            left = [step for step in driver.open if step not in [e.step for e in ends]]  # type: ignore[union-attr]
            chosen = left[choices[step % len(choices)] % len(left)] if choices else left[0]
            ends.append(m.Succeeded(driver.tick(), chosen, value(driver, chosen)))
            step += 1
        driver.receive(*ends)
        driver.settle()
    decider.close()
    return driver


def test_positions_are_given_in_the_order_of_creation() -> None:
    driver = play(Gathering(3), [], set())
    assert [step for step, _, _ in driver.steps] == ["0/0.0", "0/1.0", "0/2.0", "0/3.0"]
    assert driver.output == [0, 2, 4, 3]


SCHEDULES = st.lists(st.integers(0, 9), min_size=1, max_size=12)
RESTARTS = st.sets(st.integers(0, 12))


@given(choices=SCHEDULES, restarts=RESTARTS, batch=st.integers(1, 3))
def test_gather_comes_to_the_same_in_any_order_with_restarts_anywhere(
    choices: list[int], restarts: set[int], batch: int
) -> None:
    assert play(Gathering(4), choices, restarts, batch=batch).output == [0, 2, 4, 6, 3]


@given(choices=SCHEDULES, restarts=RESTARTS)
def test_concurrent_steps_are_the_same_with_and_without_restarts(
    choices: list[int], restarts: set[int]
) -> None:
    plain = play(Legs(3), choices, set())
    restarted = play(Legs(3), choices, restarts)
    everywhere = play(Legs(3), choices, set(range(20)))
    assert plain.output == [1, 3, 5]
    assert plain.steps == restarted.steps == everywhere.steps
    assert plain.properties == restarted.properties == everywhere.properties
    assert plain.state.executions == restarted.state.executions


@given(choices=SCHEDULES, restarts=RESTARTS)
def test_sets_of_tasks_have_the_same_order_in_every_replay(
    choices: list[int], restarts: set[int]
) -> None:
    plain = play(Waiting(), choices, set())
    restarted = play(Waiting(), choices, restarts)
    assert restarted.mode == "terminated"
    assert plain.steps == restarted.steps
    assert plain.output == restarted.output


@given(choices=SCHEDULES, restarts=RESTARTS)
def test_task_groups_step(choices: list[int], restarts: set[int]) -> None:
    assert play(Groups(), choices, restarts).output == [0, 2, 4]


@given(choices=SCHEDULES, restarts=RESTARTS)
def test_steps_and_workflows_may_be_given_to_asyncio_as_they_are(
    choices: list[int], restarts: set[int]
) -> None:
    assert play(Bare(), choices, restarts).output == [0, 2, 4, 6, 8, 10]


class Racing(Workflow[Any]):
    async def handle(self) -> Any:
        found = await self.afirst(double(1), Wait(seconds=60), cancel=True)
        return [found.index, found.value, await Wait("go", seconds=5)]


@pytest.mark.parametrize("forget", [False, True], ids=["live", "replayed"])
def test_first_is_a_timeout(decider: Decider, forget: bool) -> None:  # noqa: FBT001
    driver = Driver(Racing(), decider, forget=forget).settle()
    driver.now = 60
    driver.receive(m.Tick(60))
    driver.settle()
    assert m.CancelStep("0/0.0", "task") in driver.sent  # type: ignore[arg-type]
    driver.receive(m.Tick(driver.tick(10)))
    assert driver.settle().output == [1, None, None]


class Leaving(Workflow[int]):
    """Ends while one of its steps is still running."""

    async def handle(self) -> int:
        tasks = [asyncio.create_task(self.aexecute(double(number))) for number in (1, 2)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()


def test_steps_that_nobody_awaits_do_not_keep_the_instance(decider: Decider) -> None:
    driver = Driver(Leaving(), decider).settle()
    assert driver.succeed("0/1.0", 4).output == 4


class Cancelling(Workflow[str]):
    async def handle(self) -> str:
        waiting = asyncio.create_task(self.aexecute(double(1)))
        await asyncio.sleep(0)
        await double(2)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            return f"cancelled {await double(3)}"
        return "not cancelled"


@pytest.mark.parametrize("forget", [False, True], ids=["live", "replayed"])
def test_cancelling_a_task_cancels_its_step_once(decider: Decider, forget: bool) -> None:  # noqa: FBT001
    driver = Driver(Cancelling(), decider, forget=forget).settle()
    driver.succeed("0/1.0", 4)
    assert driver.succeed("0/2.0", 6).output == "cancelled 6"
    assert [each.step for each in driver.sent if isinstance(each, m.CancelStep)] == ["0/0.0"]


class Catching(Workflow[str]):
    async def handle(self) -> str:
        results = await asyncio.gather(
            self.aexecute(double(1), raises=True), double(2), return_exceptions=True
        )
        failed, fine = results
        assert isinstance(failed, StepFailed)
        return f"{failed.name} {fine}"


def test_failures_can_be_gathered(decider: Decider) -> None:
    driver = Driver(Catching(), decider).settle()
    assert driver.fail("0/0.0").succeed("0/1.0", 4).output == "double 4"


def test_an_error_that_nobody_awaits_is_logged(
    decider: Decider, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(Workflow[str]):
        async def handle(self) -> str:
            async def fail() -> None:
                raise ValueError("careless")

            asyncio.ensure_future(fail())  # noqa: RUF006 - careless
            await asyncio.sleep(0)
            return "ok"

    assert Driver(Careless(), decider).settle().output == "ok"
    gc.collect()
    assert "nobody awaited it" in caplog.text
    assert "careless" in caplog.text


class Handlers(Workflow[int]):
    def __init__(self) -> None:
        self.total = 0

    def handle(self) -> int:
        self.wait("end")
        return self.total

    async def on_event(self, event: Event) -> None:
        if event.name == "more":
            # Not `self.total += await ...`: that would read the total before the step.
            more = await double(event.data)
            self.total += more


def test_an_async_handler_of_a_sync_workflow(decider: Decider) -> None:
    driver = Driver(Handlers(), decider).settle()
    driver.event("more", 1).event("more", 2)
    first, second = driver.open
    driver.succeed(second, 4).succeed(first, 2)
    assert driver.event("end").output == 6


@pytest.mark.parametrize(
    "name",
    ["thread", "as_completed", "sync"],
    ids=lambda name: f"asyncio-{name}",
)
def test_what_is_not_recorded_is_refused(decider: Decider, name: str) -> None:
    class Wrong(Workflow[None]):
        async def handle(self) -> None:
            if name == "thread":
                await asyncio.to_thread(print)
            elif name == "as_completed":  # begins them in the order of a set
                for each in asyncio.as_completed([double(1), double(2)]):
                    await each
            else:
                self.execute(double(1))

    driver = Driver(Wrong(), decider).settle()
    assert driver.mode == "failed"
    assert driver.state.error["name"] == NotInWorkflow.__name__


def test_what_a_wait_of_asyncio_takes_is_said(decider: Decider) -> None:
    class Wrong(Workflow[None]):
        async def handle(self) -> None:
            steps: Any = [double(1), double(2)]
            await asyncio.wait(steps)

    driver = Driver(Wrong(), decider).settle()
    assert "asyncio.ensure_future(step) for step in steps" in driver.state.error["message"]


def test_the_errors_in_a_group_and_behind_an_error_are_shown(decider: Decider) -> None:
    class Fails(Workflow[None]):
        async def leg(self) -> None:
            raise ValueError("second") from KeyError("first")

        async def handle(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.leg())

    driver = Driver(Fails(), decider).settle()
    assert driver.state.error["message"].endswith("; ValueError: second")
    assert "of which ValueError: second\n" in driver.state.error["stacktrace"]
    assert "in leg" in driver.state.error["stacktrace"]

    class Chained(Fails):
        async def handle(self) -> None:
            await self.leg()

    driver = Driver(Chained(), decider).settle()
    assert driver.state.error["message"] == "second"
    assert "after KeyError: 'first'\n" in driver.state.error["stacktrace"]


@pytest.mark.parametrize("when", ["at once", "after a step", "in a replay"])
def test_a_method_that_awaits_what_no_step_ends_has_failed(decider: Decider, when: str) -> None:
    class Stuck(Workflow[None]):
        async def handle(self) -> None:
            if when != "at once":
                await double(1)
            await asyncio.Event().wait()

    driver = Driver(Stuck(), decider)
    driver.settle()
    if when == "in a replay":
        driver.restart()
    if when != "at once":
        driver.succeed("0/0.0", 2).settle()
    assert driver.mode == "failed"
    assert "awaits something that no step will end" in driver.state.error["message"]


def test_a_method_may_await_what_its_other_tasks_do(decider: Decider) -> None:
    class Fine(Workflow[int]):
        async def handle(self) -> int:
            done = asyncio.Event()

            async def step() -> int:
                result = await double(1)
                done.set()
                return result

            working = asyncio.create_task(step())
            await done.wait()
            return await working

    driver = Driver(Fine(), decider).settle()
    driver.succeed("0/0.0", 2).settle()
    assert driver.mode == "terminated"


def test_a_sync_method_cannot_await(decider: Decider) -> None:
    class Wrong(Workflow[None]):
        def handle(self) -> None:
            coroutine = self.aexecute(double(1))
            coroutine.send(None)

    driver = Driver(Wrong(), decider).settle()
    assert "use `self.execute(...)` here" in driver.state.error["message"]


def test_a_coroutine_that_is_given_up_runs_its_finally_blocks_once() -> None:
    seen: list[str] = []

    class Tidy(Workflow[str]):
        async def handle(self) -> str:
            try:
                await double(1)
            finally:
                seen.append("finally")
            return "ok"

    decider = Decider()
    driver = Driver(Tidy(), decider).settle()
    decider.forget("i-1")
    assert seen == ["finally"]
    assert driver.succeed("0/0.0", 2).output == "ok"
    assert seen == ["finally", "finally"]
    decider.close()


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """Collect garbage only when the test says so."""
    gc.disable()
    yield
    gc.enable()


class Untidy(Workflow[int]):
    """Has a task that nobody awaits, and that asks for a step when it ends."""

    async def handle(self) -> int:
        async def tidy() -> None:
            try:
                await double(1)
            finally:
                await double(13)

        asyncio.ensure_future(tidy())  # noqa: RUF006 - nobody awaits it
        return await double(2)


class Collecting(Workflow[int]):
    async def handle(self) -> int:
        gc.collect()
        return await double(5)


@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("ended", [False, True], ids=["given up", "ended"])
def test_tasks_that_are_left_ask_for_nothing_in_another_branch(
    decider: Decider,
    ended: bool,  # noqa: FBT001
) -> None:
    untidy = Driver(Untidy(), decider, id="untidy").settle()
    if ended:
        assert untidy.succeed("0/0.0", 4).output == 4
    else:
        decider.forget("untidy")
    other = Driver(Collecting(), decider, id="other").settle()
    assert [given["number"] for _, _, given in other.steps] == [5]
    assert [given["number"] for _, _, given in untidy.steps] == [2, 1]


@pytest.mark.usefixtures("_no_collection")
def test_a_task_that_will_not_end_is_left_alone(decider: Decider) -> None:
    class Stubborn(Workflow[int]):
        async def handle(self) -> int:
            async def stay() -> None:
                never = asyncio.Event()
                while True:
                    try:
                        await never.wait()
                    except asyncio.CancelledError:
                        continue
                    finally:
                        await asyncio.sleep(0)

            asyncio.ensure_future(stay())  # noqa: RUF006 - nobody awaits it
            return await double(2)

    driver = Driver(Stubborn(), decider).settle()
    assert driver.succeed("0/0.0", 4).output == 4
    other = Driver(Collecting(), decider, id="other").settle()
    assert other.mode == "run"


@pytest.mark.parametrize("forget", [False, True], ids=["live", "replayed"])
def test_a_generator_that_is_left_is_closed(decider: Decider, forget: bool) -> None:  # noqa: FBT001
    class Some(Workflow[list[int]]):
        def __init__(self) -> None:
            self.seen: list[int] = []

        async def numbers(self) -> AsyncIterator[int]:
            try:
                for number in range(10):
                    yield await double(number)
            finally:
                self.seen = [*self.seen, await double(13)]

        async def handle(self) -> list[int]:
            async for number in self.numbers():
                self.seen = [*self.seen, number]
                break
            await double(7)
            await double(8)
            return self.seen

    driver = Driver(Some(), decider, forget=forget)
    driver.run(lambda _, given: given["number"])
    assert driver.output == [0, 13]
    assert [given["number"] for _, _, given in driver.steps] == [0, 7, 13, 8]


class LongAsync(Workflow[int]):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    async def handle(self) -> int:
        return sum([await double(number) for number in range(self.steps)])


def test_r25_a_long_coroutine_is_not_replayed(decider: Decider, stacks: str) -> None:
    driver = Driver(LongAsync(2000), decider)
    assert driver.run(lambda _, given: given["number"]) == sum(range(2000))
    statistics = decider.statistics()
    threads = int(stacks == "threads")
    assert (statistics.begun, statistics.replays, statistics.threads) == (1, 0, threads)


def test_waiting_coroutines_hold_no_threads(decider: Decider, stacks: str) -> None:
    drivers = [Driver(LongAsync(1), decider, id=f"i-{n}").settle() for n in range(50)]
    assert decider.statistics().threads == int(stacks == "threads")
    assert [driver.succeed("0/0.0", 3).output for driver in drivers] == [3] * 50


def test_an_endless_loop_of_a_coroutine_is_reported() -> None:
    reports: list[BlockedBranch] = []

    class Spinning(Workflow[str]):
        async def handle(self) -> str:
            while not reports:  # noqa: ASYNC110 - the mistake that is reported
                await asyncio.sleep(0)
            return "ok"

    decider = Decider(blocked_after=0.01, on_blocked=reports.append)
    assert Driver(Spinning(), decider).settle().output == "ok"
    assert reports[0].branch == "branch 0 (handle)"
    decider.close()


async def decide_in_a_running_loop(decider: Decider) -> None:
    driver = Driver(Gathering(2), decider)
    assert driver.run(lambda _, given: sum(given.values())) == [0, 1, 3]


def test_a_decision_can_be_taken_inside_of_another_loop(decider: Decider) -> None:
    asyncio.run(decide_in_a_running_loop(decider))
