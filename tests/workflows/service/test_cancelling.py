"""Cancels that the code of a workflow sees: rules X1 to X7."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionCancelled, ExecutionEnded
from actorflow.workflows.errors import InvalidWorkflow
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock

DONE: list[str] = []


@pytest.fixture(autouse=True)
def _none_done() -> None:
    DONE.clear()


@af.task
def do(what: str) -> str:
    """Record a call."""
    DONE.append(what)
    return what


class Saga(af.Workflow[str]):
    """Books three things, and undoes them in reverse order if it is cancelled."""

    def handle(self) -> str:
        """Book, then wait for a confirmation."""
        booked: list[str] = []
        try:
            for what in ("car", "hotel", "flight"):
                self.execute(do(f"book {what}"))
                booked.append(what)
                self.wait(what)
        except af.Cancelled:
            for what in reversed(booked):
                self.execute(do(f"undo {what}"))
            raise
        return "booked"


class AsyncSaga(af.Workflow[str]):
    """The same as `Saga`."""

    async def handle(self) -> str:
        """Book, then wait for a confirmation."""
        booked: list[str] = []
        try:
            for what in ("car", "hotel", "flight"):
                await do(f"book {what}")
                booked.append(what)
                await af.Wait(what)
        except af.Cancelled:
            for what in reversed(booked):
                await do(f"undo {what}")
            raise
        return "booked"


@pytest.mark.parametrize("saga", [Saga, AsyncSaga])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_x01_x03_a_cancelled_saga_undoes_what_it_has_done(
    engine: af.Engine, saga: type[af.Workflow[str]], steps: int
) -> None:
    trip = engine.start(saga())
    names = ["car", "hotel", "flight"]
    for name in names[:steps]:
        trip.send(name)
    until(engine, lambda: [each.event for each in trip.query().state.waits] == [names[steps]])
    assert trip.cancel()
    with pytest.raises(ExecutionCancelled):
        trip.result(PATIENCE)
    booked = names[: steps + 1]
    assert [f"book {name}" for name in booked] + [f"undo {name}" for name in booked[::-1]] == DONE
    assert trip.status == "cancelled"
    assert trip.query().mode == "cancelled"
    assert not trip.cancel()
    assert [*trip.history()][-1]["type"] == "cancelled"
    assert rows(engine, "timers") == rows(engine, "tasks") == rows(engine, "messages") == []


def test_x01_a_workflow_that_was_just_started_is_told_at_its_first_step(engine: af.Engine) -> None:
    class Greets(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.wait(days=1)
            except af.Cancelled:
                self.execute(do("say goodbye"))
                raise
            return "hello"

    greets = engine.start(Greets())
    greets.cancel()
    with pytest.raises(af.Cancelled):
        greets.result(PATIENCE)
    assert DONE == ["say goodbye"]


def test_x02_x06_children_are_told_first_last_or_never(
    engine: af.Engine, clock: VirtualClock
) -> None:
    class Child(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.wait("go")
            finally:
                self.execute(do("child"))
            return "went"

    class First(af.Workflow[str]):
        def handle(self) -> str:
            try:
                return self.execute(Child())
            finally:
                self.wait("clean")
                self.execute(do("parent"))

    class Last(First, cancel_children="last"):
        pass

    class Leave(First, cancel_children="leave"):
        pass

    seen: dict[str, Any] = {}
    for cls in (First, Last, Leave):
        parent = engine.start(cls(), id=cls.__name__)
        child = _first_child(engine, Child, cls.__name__)
        parent.cancel()
        if cls is First:
            with pytest.raises(af.Cancelled):
                child.result(PATIENCE)
        else:
            assert child.status == "active"
        parent.send("clean")
        with pytest.raises(af.Cancelled):
            parent.result(PATIENCE)
        if cls is Leave:
            child.send("go")
            seen[cls.__name__] = child.result(PATIENCE)
        else:
            with pytest.raises(af.Cancelled):
                child.result(PATIENCE)
            seen[cls.__name__] = "cancelled"
    assert seen == {"First": "cancelled", "Last": "cancelled", "Leave": "went"}
    assert DONE == ["child", "parent", "parent", "child", "parent", "child"]


def test_x02_children_have_ended_before_the_code_sees_the_cancel(
    engine: af.Engine, clock: VirtualClock
) -> None:
    class Child(af.Workflow[str]):
        def __init__(self, name: str) -> None:
            self.name = name

        def handle(self) -> str:
            try:
                self.wait("go")
            finally:
                self.wait("clean")
                self.execute(do(self.name))
            return "went"

    class Parent(af.Workflow[None]):
        def handle(self) -> None:
            try:
                self.execute(Child("one"), Child("two"), af.Wait("never"))
            finally:
                self.execute(do("parent"))

    parent = engine.start(Parent(), id="p")
    children = ["p/0/0.0", "p/0/0.1"]
    until(engine, lambda: set(children) <= set(_ids(engine)))
    parent.cancel()
    for child in children:
        handle = engine.workflows.get(Child, child)
        _until_it_waits_for(engine, handle, "clean")
        assert (["one"] if child == children[1] else []) == DONE
        engine.send(child, {"event": "clean", "data": None})
        with pytest.raises(af.Cancelled):
            engine.result(child, PATIENCE)
    with pytest.raises(af.Cancelled):
        parent.result(PATIENCE)
    assert DONE == ["one", "two", "parent"]

    # A child that does not end is left behind after the time for cleaning up.
    parent = engine.start(Parent(), id="q")
    until(engine, lambda: "q/0/0.1" in _ids(engine))
    parent.cancel()
    _until_it_waits_for(engine, engine.workflows.get(Child, "q/0/0.0"), "clean")
    clock.advance(3_601)
    with pytest.raises(af.Cancelled):
        parent.result(PATIENCE)
    assert DONE[-1] == "parent"


def test_x02_a_child_that_is_stuck_or_done_delays_no_cancel(engine: af.Engine) -> None:
    class Child(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.wait("go")
            except af.Cancelled:
                raise ValueError("a bug") from None
            return "went"

    class Parent(af.Workflow[None]):
        def handle(self) -> None:
            try:
                self.execute(Child(), af.Wait("never"))
            finally:
                self.execute(do("parent"))

    for name in ("stuck", "done"):
        parent = engine.start(Parent(), id=name)
        child = _first_child(engine, Child, name)
        if name == "done":
            child.send("go")
            assert child.result(PATIENCE) == "went"
        parent.cancel()
        with pytest.raises(af.Cancelled):
            parent.result(PATIENCE)
    assert DONE == ["parent", "parent"]


def _until_it_waits_for(engine: af.Engine, handle: af.WorkflowHandle[Any], event: str) -> None:
    until(engine, lambda: [each.event for each in handle.query().state.waits] == [event])


def _first_child(engine: af.Engine, cls: type[af.Workflow[Any]], of: str) -> Any:
    """Return the handle of the first child of an execution, once it waits."""
    until(engine, lambda: f"{of}/0/0.0" in _ids(engine))
    child = engine.workflows.get(cls, f"{of}/0/0.0")
    until(engine, lambda: child.query().state.waits)
    return child


def _ids(engine: af.Engine) -> list[str]:
    return [each.id for each in engine.executions()]


def test_x06_a_parent_of_a_cancelled_child_gets_step_failed(engine: af.Engine) -> None:
    class Child(af.Workflow[None]):
        def handle(self) -> None:
            self.wait("never")

    class Parent(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.execute(Child(), raises=True)
            except af.StepFailed as error:
                return f"{error.error['name']}"
            return "?"

    parent = engine.start(Parent(), id="p")
    until(engine, lambda: "p/0/0.0" in _ids(engine))
    engine.workflows.get(Child, "p/0/0.0").cancel()
    assert parent.result(PATIENCE) == "Cancelled"


class Cleans(af.Workflow[str]):
    """Waits for an event when it is cancelled."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self) -> str:
        """Wait, and wait once more."""
        try:
            self.wait("end")
        except af.Cancelled:
            self.wait("cleaned")
        return "done"

    def on_event(self, event: af.Event) -> None:
        """Note it."""
        self.seen.append(event.name)


def test_x03_events_end_waits_while_it_cleans_up_but_on_event_is_not_called(
    engine: af.Engine,
) -> None:
    cleans = engine.start(Cleans())
    cleans.ask("first")
    cleans.cancel()
    with pytest.raises(ExecutionEnded, match="is being cancelled"):
        cleans.ask("second", timeout=PATIENCE)
    assert [each.name for each in cleans.query().kept] == ["first", "second"]
    cleans.send("cleaned")
    with pytest.raises(af.Cancelled):
        cleans.result(PATIENCE)
    assert cleans.query().properties["seen"] == ["first"]


def test_x04_what_code_returns_that_swallows_the_cancel_is_kept(engine: af.Engine) -> None:
    cleans = engine.start(Cleans())
    cleans.cancel()
    cleans.send("cleaned")
    with pytest.raises(af.Cancelled):
        cleans.result(PATIENCE)
    assert cleans.query().result == "done"
    assert [*cleans.history()][-1]["output"] == "done"


def test_x05_a_second_cancel_ends_it_at_once(engine: af.Engine) -> None:
    cleans = engine.start(Cleans())
    assert cleans.cancel()
    assert cleans.status == "active"
    assert cleans.cancel()
    assert cleans.status == "cancelled"
    assert rows(engine, "timers") == []


def test_x05_it_ends_when_the_timeout_is_over(engine: af.Engine, clock: VirtualClock) -> None:
    class Slow(Cleans, cancel_timeout=60):
        pass

    slow = engine.start(Slow())
    slow.cancel()
    clock.advance(59)
    assert slow.status == "active"
    clock.advance(1)
    with pytest.raises(af.Cancelled):
        slow.result(PATIENCE)
    assert slow.query().mode == "killed"


def test_x05_a_kill_ends_it_at_once(engine: af.Engine) -> None:
    cleans = engine.start(Cleans())
    cleans.cancel()
    assert cleans.kill()
    assert cleans.status == "cancelled"


def test_x07_rewind_and_fork_from_before_forget_the_cancel(engine: af.Engine) -> None:
    cleans = engine.start(Cleans())
    cleans.ask("first")
    cleans.cancel()
    cleans.send("second")
    other = cleans.fork("0/0.0")
    other.send("end")
    assert other.result(PATIENCE) == "done"
    assert other.query().properties["seen"] == ["end"]
    cleans.rewind("0/0.0")
    cleans.ask("third")
    assert cleans.query().properties["seen"] == ["first", "second", "third"]
    cleans.send("end")
    assert cleans.result(PATIENCE) == "done"


def test_x07_a_task_that_was_open_is_begun_again(engine: af.Engine) -> None:
    gate = threading.Event()

    @af.task(name="held")
    def held() -> str:
        task = af.current_task().id
        DONE.append(task)
        gate.wait(PATIENCE)
        return task

    class Holds(af.Workflow[str]):
        def handle(self) -> str:
            try:
                return self.execute(held())
            except af.Cancelled:
                self.wait("x")
                raise

    holds = engine.start(Holds(), id="h")
    until(engine, lambda: DONE == ["h/0/0.0"])
    holds.cancel()
    holds.rewind("0/0.0")
    until(engine, lambda: DONE == ["h/0/0.0", "h/0/0.0#2"])
    gate.set()
    assert holds.result(PATIENCE) == "h/0/0.0#2"


def test_a_step_that_has_failed_and_waits_for_a_retry_is_cancelled(engine: af.Engine) -> None:
    @af.task(name="fails", retries=0)
    def fails() -> None:
        raise ValueError

    class Stuck(af.Workflow[None]):
        def handle(self) -> None:
            try:
                self.execute(fails())
            finally:
                self.execute(do("clean"))

    stuck = engine.start(Stuck())
    until(engine, lambda: stuck.status == "stuck")
    stuck.cancel()
    with pytest.raises(af.Cancelled):
        stuck.result(PATIENCE)
    assert DONE == ["clean"]


def test_every_open_method_is_told(engine: af.Engine) -> None:
    class Many(af.Workflow[None]):
        def handle(self) -> None:
            try:
                self.until(lambda: False)
            finally:
                self.execute(do("handle"))

        def on_event(self, event: af.Event) -> None:
            try:
                self.first(af.Wait(days=1), af.Wait("x"))
            finally:
                self.execute(do(event.name))

        def on_failure(self, step: Any, error: Any) -> None:
            DONE.append("on_failure")

    many = engine.start(Many())
    many.send("a")
    many.send("b")
    until(engine, lambda: len(many.query().state.waits) == 5)
    many.cancel()
    with pytest.raises(af.Cancelled):
        many.result(PATIENCE)
    assert sorted(DONE) == ["a", "b", "handle"]


def test_gathered_steps_of_an_async_method_are_told(engine: af.Engine) -> None:
    class Gathers(af.Workflow[None]):
        async def handle(self) -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._wait("a"))
                    group.create_task(self._wait("b"))
            finally:
                await do("clean")

        async def _wait(self, name: str) -> None:
            await af.Wait(name)

    gathers = engine.start(Gathers())
    until(engine, lambda: len(gathers.query().state.waits) == 2)
    gathers.cancel()
    with pytest.raises(af.Cancelled):
        gathers.result(PATIENCE)
    assert DONE == ["clean"]


def test_except_exception_lets_a_cancel_pass(engine: af.Engine) -> None:
    class Catches(af.Workflow[str]):
        def handle(self) -> str:
            while True:
                with contextlib.suppress(Exception):
                    self.wait(days=1)

    catches = engine.start(Catches())
    until(engine, lambda: catches.query().state.waits)
    catches.cancel()
    with pytest.raises(af.Cancelled):
        catches.result(PATIENCE)


def test_a_loop_over_kept_events_is_told_at_its_next_step(engine: af.Engine) -> None:
    class Reads(af.Workflow[int]):
        def __init__(self) -> None:
            self.read = 0

        def handle(self) -> int:
            while True:
                self.wait("item")
                self.read += 1

    reads = engine.start(Reads())
    until(engine, lambda: reads.query().state.waits)
    reads.pause()
    for _ in range(5):
        reads.send("item")
    reads.cancel()
    with pytest.raises(af.Cancelled):
        reads.result(PATIENCE)
    assert reads.query().properties["read"] == 1
    assert len(reads.query().kept) == 4


def test_it_goes_on_to_clean_up_after_a_restart(
    tmp_path: Path, opens: Callable[..., af.Engine]
) -> None:
    with opens(tmp_path / "a.db") as engine:
        cleans = engine.start(Cleans(), id="c")
        engine.cancel("c")
        until(engine, lambda: cleans.query().state.cancellation is not None)
    with opens(tmp_path / "a.db") as engine:
        cleans = engine.workflows.get(Cleans, "c")
        cleans.send("cleaned")
        with pytest.raises(af.Cancelled):
            cleans.result(PATIENCE)
        assert cleans.query().result == "done"


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="cancel_children='never'"):

        class Never(af.Workflow[None], cancel_children="never"):
            def handle(self) -> None: ...

    with pytest.raises(InvalidWorkflow, match="cancel_timeout"):

        class Wrong(af.Workflow[None], cancel_timeout="soon"):  # type: ignore[arg-type]
            def handle(self) -> None: ...
