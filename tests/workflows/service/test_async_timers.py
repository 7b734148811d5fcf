"""Timers of asyncio in workflows: recorded waits, which survive restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.testing import WorkflowHarness
from tests.engine.kinds import flush, rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock


@af.task
def fetch() -> str:
    """Return a page."""
    return "page"


class Sleeps(af.Workflow[str]):
    """Sleeps twice, the second time from when the first one was over."""

    async def handle(self) -> str:
        """Sleep."""
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(5)
        await asyncio.sleep(7, result="ignored")
        return f"slept {asyncio.get_running_loop().time() - before:.0f} s"


class Timeout(af.Workflow[str]):
    """Gives a step ten seconds."""

    async def handle(self) -> str:
        """Fetch, or give up."""
        try:
            async with asyncio.timeout(10):
                return await fetch()
        except TimeoutError:
            return "too late"


class WaitFor(af.Workflow[str]):
    """The same by `wait_for`."""

    async def handle(self) -> str:
        """Fetch, or give up."""
        try:
            return await asyncio.wait_for(asyncio.ensure_future(fetch()), 10)
        except TimeoutError:
            return "too late"


class Several(af.Workflow[list[str]]):
    """Sleeps in several tasks, and waits for some of them."""

    async def handle(self) -> list[str]:
        """Sleep."""
        slow = asyncio.ensure_future(asyncio.sleep(100, "slow"))
        done, left = await asyncio.wait([asyncio.ensure_future(fetch()), slow], timeout=20)
        both = await asyncio.gather(asyncio.sleep(2, "b"), asyncio.sleep(1, "a"))
        slow.cancel()
        return [*both, *(each.result() for each in done), f"{len(left)} left"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sleep_ends_when_time_has_passed(restarts: bool) -> None:  # noqa: FBT001
    with WorkflowHarness(Sleeps()) as sleeps:
        for seconds in (4, 1, 6):
            sleeps.advance(seconds=seconds)
            if restarts:
                sleeps.restart()
        with pytest.raises(LookupError, match="it waits for Timer"):
            _ = sleeps.result
        sleeps.advance(seconds=1)
        assert sleeps.result == "slept 12 s"
        assert [name for name, _ in sleeps.steps] == ["Timer", "Timer"]


@pytest.mark.parametrize("cls", [Timeout, WaitFor])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_timeout_is_the_first_of_both(
    cls: type[af.Workflow[str]],
    restarts: bool,  # noqa: FBT001
    late: bool,  # noqa: FBT001
) -> None:
    with WorkflowHarness(cls()) as tested:
        tested.advance(seconds=9)
        if restarts:
            tested.restart()
        if late:
            tested.advance(seconds=1)
        else:
            tested.succeed(fetch, "page")
        assert tested.result == ("too late" if late else "page")
        if restarts:
            tested.restart()
        tested.advance(days=1)


@pytest.mark.parametrize("restarts", [False, True])
def test_sleeps_of_several_tasks(restarts: bool) -> None:  # noqa: FBT001
    with WorkflowHarness(Several()) as several:
        several.succeed(fetch, "page")
        for _ in range(23):
            several.advance(seconds=1)
            if restarts:
                several.restart()
        assert several.result == ["b", "a", "page", "1 left"]


class CleansUp(af.Workflow[None]):
    """Cleans up when it is cancelled in its sleep."""

    async def handle(self) -> None:
        """Sleep for a long time."""
        try:
            await asyncio.sleep(100)
        finally:
            await fetch()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cancel_reaches_code_that_sleeps(restarts: bool) -> None:  # noqa: FBT001
    with WorkflowHarness(CleansUp()) as tested:
        tested.cancel()
        if restarts:
            tested.restart()
        tested.succeed(fetch, "page")
        assert tested.mode == "cancelled"


def has_timer(engine: af.Engine) -> None:
    until(engine, lambda: len(rows(engine, "timers")) == 1)


def test_a_sleep_goes_on_after_a_restart_of_the_engine(
    reopen: Callable[..., af.Engine], clock: VirtualClock
) -> None:
    engine = reopen()
    engine.start(Sleeps(), id="s")
    for seconds in (5.0, 7.0):
        has_timer(engine)
        engine = reopen()
        engine.workflows.register(Sleeps)
        engine.resume()
        has_timer(engine)
        flush(engine)
        clock.advance(seconds)
    assert engine.result("s", PATIENCE) == "slept 12 s"
    assert rows(engine, "timers") == []


def test_a_sleep_counts_from_when_the_code_has_begun(tmp_path: Path, clock: VirtualClock) -> None:
    with af.Engine(tmp_path / "store.db", clock=clock, durability="off") as engine:
        engine.pause(af.Lane("c"))
        held = engine.start(Sleeps(), id="s", lane=af.Lane("c"))
        clock.advance(50.0)
        engine.resume(af.Lane("c"))
        until(engine, lambda: len(rows(engine, "timers")) == 1)
        assert rows(engine, "timers")[0].due == clock.now() + 5
        assert not held.query().held
