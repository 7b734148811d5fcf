"""Frames: code that is suspended, on stacks that are bounded, and given up."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from actorflow.runtime.lanes.pool import POOL
from actorflow.workflows.decider import BlockedBranch, Decider
from actorflow.workflows.errors import NotInWorkflow
from actorflow.workflows.instance import messages as m
from actorflow.workflows.suspended import context, threads
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver, drive
from tests.workflows.orders import Long, double, ship


def test_r25_a_long_workflow_is_not_replayed_at_each_step(decider: Decider, stacks: str) -> None:
    driver = Driver(Long(2000), decider)
    assert driver.run(lambda _, given: given["number"]) == sum(range(2000))
    statistics = decider.statistics()
    threads = int(stacks == "threads")
    assert (statistics.begun, statistics.replays, statistics.threads) == (1, 0, threads)


def test_r25_after_a_restart_the_past_is_replayed_once(decider: Decider) -> None:
    driver = drive(Long(50), decider)
    for step in range(25):
        driver.succeed(f"0/{step}.0", step)
    driver.restart()
    assert driver.run(lambda _, given: given["number"]) == sum(range(50))
    assert decider.statistics().replays == 1


def test_stacks_that_hold_frames_are_bounded(stacks: str) -> None:
    decider = Decider(max_parked=3, stacks=stacks)
    drivers = [Driver(Long(2), decider, id=f"i-{number}").settle() for number in range(10)]
    assert decider.statistics().parked == 3
    for driver in drivers:
        driver.run(lambda _, given: given["number"])
    statistics = decider.statistics()
    assert (statistics.parked, statistics.instances) == (0, 0)
    assert statistics.evicted >= 7
    assert [driver.output for driver in drivers] == [1] * 10
    decider.close()


class Tidy(Workflow[str]):
    unwound: list[str] = []  # noqa: RUF012 - shared on purpose

    def handle(self) -> str:
        try:
            self.execute(double(1))
        except Exception:  # noqa: BLE001 - must not see the end of a frame
            return "swallowed"
        finally:
            self.unwound.append("finally")
            self.execute(ship("never"))
        return "ok"


def test_a_frame_that_is_given_up_asks_for_nothing(decider: Decider) -> None:
    Tidy.unwound.clear()
    driver = drive(Tidy(), decider)
    decider.forget("i-1")
    assert Tidy.unwound == ["finally"]
    assert driver.steps == [("0/0.0", "double", {"number": 1})]
    driver.succeed("0/0.0", 2).succeed("0/1.0", "shipped")
    assert driver.output == "ok"


def test_a_frame_whose_code_swallows_everything_does_no_harm(decider: Decider) -> None:
    class Stubborn(Workflow[str]):
        def handle(self) -> str:
            try:
                self.execute(double(1))
            except BaseException:  # noqa: BLE001 - it must do no harm
                return "swallowed"
            return "ok"

    driver = drive(Stubborn(), decider)
    decider.forget("i-1")
    assert driver.succeed("0/0.0", 2).output == "ok"


def test_code_that_catches_everything_is_left_where_it_is(
    decider: Decider, caplog: pytest.LogCaptureFixture
) -> None:
    class Endless(Workflow[str]):
        def handle(self) -> str:
            while True:
                with contextlib.suppress(BaseException):
                    return str(self.execute(double(1)))

    driver = drive(Endless(), decider)
    decider.forget("i-1")
    assert "catches everything; it stays suspended" in caplog.text
    assert driver.succeed("0/0.0", 2).output == "2"


def test_a_coroutine_that_catches_everything_is_left_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Endless(Workflow[None]):
        async def handle(self) -> None:
            while True:
                with contextlib.suppress(BaseException):
                    await self.aexecute(double(1))

    decider = Decider()
    drive(Endless(), decider)
    decider.close()
    assert "catches everything; it stays suspended" in caplog.text


def test_code_that_blocks_while_it_is_unwound_is_left_to_its_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "UNWOUND", 0.1)
    going_on, ended = threading.Event(), threading.Event()

    class Blocking(Workflow[None]):
        def handle(self) -> None:
            try:
                self.execute(double(1))
            finally:
                going_on.wait()
                ended.set()

    decider = Decider(blocked_after=0.05, stacks="threads")
    drive(Blocking(), decider)
    decider.close()
    assert "instance='i-1'" in caplog.text
    assert "does not end; it keeps its thread" in caplog.text
    going_on.set()
    assert ended.wait(30)


def test_code_of_one_thread_goes_on_in_another(decider: Decider, stacks: str) -> None:
    driver = Driver(Long(20), decider)
    for number in range(20):
        with ThreadPoolExecutor(1) as other:
            other.submit(driver.settle if not number else partial(driver.succeed, *_next(driver)))
    driver.succeed(*_next(driver))
    assert driver.output == 20
    # It is replayed once, on a stack that each thread can resume.
    assert decider.statistics().replays == int(stacks == "greenlets")


def _next(driver: Driver) -> tuple[str, int]:
    return driver.open[0], 1


def test_code_that_other_threads_give_up_is_unwound_in_its_own() -> None:
    Tidy.unwound.clear()
    decider = Decider(stacks="greenlets")
    with ThreadPoolExecutor(1) as home:
        home.submit(drive, Tidy(), decider).result()
        decider.forget("i-1")
        assert Tidy.unwound == []
        home.submit(Driver(Long(1), decider, id="i-2").settle).result()
        assert Tidy.unwound == ["finally"]
    decider.close()


def test_a_thread_of_the_pool_unwinds_its_code_when_the_decider_is_closed() -> None:
    Tidy.unwound.clear()
    decider = Decider(stacks="greenlets")
    done = threading.Event()

    class Run:
        def run(self) -> None:
            drive(Tidy(), decider)
            done.set()

    POOL.submit(Run())
    assert done.wait(30)
    decider.close()
    assert Tidy.unwound == ["finally"]


def test_a_lane_and_the_code_in_it_do_not_see_each_other(decider: Decider) -> None:
    drive(Long(2), decider)
    with pytest.raises(NotInWorkflow):
        context.current()


def test_a_decision_that_was_not_committed_is_taken_again(decider: Decider) -> None:
    driver = drive(Long(3), decider)
    driver.receive(m.Succeeded(1, "0/0.0", 5))
    lost = decider.decide(Long, driver.instance, at=1)
    assert isinstance(lost, m.Completed)
    # Its commit is lost; the frame is one step ahead of the stored state.
    again = decider.decide(Long, driver.instance, at=1)
    assert again == lost
    driver.receive(again)
    assert driver.run(lambda *_: 1) == 7


def test_a_branch_that_blocks_is_reported_with_its_stack(stacks: str) -> None:
    reports: list[BlockedBranch] = []
    going_on = threading.Event()

    def report(blocked: BlockedBranch) -> None:
        reports.append(blocked)
        going_on.set()

    class Blocking(Workflow[str]):
        def handle(self) -> str:
            going_on.wait()
            return "ok"

    decider = Decider(blocked_after=0.01, on_blocked=report, stacks=stacks)
    driver = drive(Blocking(), decider)
    assert driver.output == "ok"
    (blocked,) = reports
    assert (blocked.workflow, blocked.instance) == ("Blocking", "i-1")
    assert blocked.branch == "branch 0 (handle)"
    assert "going_on.wait()" in blocked.stack
    assert "workflows/decider.py" not in blocked.stack
    decider.close()


def test_the_threads_are_gone_after_close() -> None:
    before = threading.active_count()
    decider = Decider(stacks="threads")
    drivers = [Driver(Long(2), decider, id=f"i-{number}").settle() for number in range(5)]
    assert len(drivers) == 5
    assert threading.active_count() > before
    decider.close()
    assert threading.active_count() == before


def test_a_report_that_fails_does_not_end_the_decision(
    caplog: pytest.LogCaptureFixture, stacks: str
) -> None:
    going_on = threading.Event()

    def report(blocked: BlockedBranch) -> None:
        going_on.set()
        raise ValueError(blocked.branch)

    class Blocking(Workflow[str]):
        def handle(self) -> str:
            going_on.wait()
            return "ok"

    decider = Decider(blocked_after=0.01, on_blocked=report, stacks=stacks)
    assert drive(Blocking(), decider).output == "ok"
    patience = threading.Event()
    for _ in range(2_000):  # it is logged by the thread that has called `report`
        if "a report of a blocked branch failed" in caplog.text:
            break
        patience.wait(0.01)
    assert "a report of a blocked branch failed" in caplog.text
    decider.close()


def test_many_threads_take_decisions_while_frames_are_given_up(stacks: str) -> None:
    decider = Decider(max_parked=2, stacks=stacks)
    outputs: list[Any] = []

    def run(lane: int) -> None:
        drivers = [Driver(Long(8), decider, id=f"{lane}-{n}").settle() for n in range(4)]
        while any(driver.mode == "run" for driver in drivers):
            for driver in drivers:
                if driver.mode == "run":
                    driver.succeed(driver.open[0], 1)
        outputs.extend(driver.output for driver in drivers)

    lanes = [threading.Thread(target=run, args=(lane,)) for lane in range(4)]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    assert outputs == [8] * 16
    statistics = decider.statistics()
    assert (statistics.parked, statistics.instances) == (0, 0)
    assert statistics.evicted > 0
    decider.close()


def calls_of(steps: int) -> int:
    """Return how many functions are called in a workflow of many steps, in all threads."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        decider = Decider()
        driver = Driver(Long(steps), decider).settle()
        for step in range(steps):
            driver.succeed(f"0/{step}.0", 1)
        decider.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert driver.output == steps
    return count


def test_r25_a_step_costs_the_same_however_long_the_history_is() -> None:
    few, many = calls_of(100) / 100, calls_of(1000) / 1000
    assert many < 1.1 * few
