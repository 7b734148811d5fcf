"""Whatever arrives, in whatever order: nothing raises, and the invariants of a state hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import StepFailed
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.invariants import violations
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import StepInfo, Workflow
from tests.workflows.driving import Driver

if TYPE_CHECKING:
    from collections.abc import Callable


@task(timeout=5)
def step(number: int) -> Any:
    return number


class Busy(Workflow[str]):
    def __init__(self) -> None:
        self.seen = 0

    def handle(self) -> str:
        self.execute(step(1), Wait("E", seconds=4))
        self.dispatch(step(2), Wait("F"))
        self.first(step(3), Wait("E", seconds=3), step(4), cancel=True)
        try:
            self.execute(step(5), raises=True)
        except StepFailed:
            self.seen += 100
        self.wait("F", seconds=20)
        return f"seen {self.seen}"

    def on_event(self, event: Event) -> None:
        self.seen += 1
        if event.data == 3:
            raise ValueError(event.data)
        if event.data == 2:
            self.execute(step(6))

    def on_failure(self, info: StepInfo, error: Any) -> None:
        self.execute(step(7))


POSITIONS = ["0/0.0", "0/0.1", "0/1.0", "0/2.0", "0/2.2", "0/3.0", "3/0.0", "5/0.0", "9/9.9"]
WORKS = st.sampled_from(POSITIONS)
ARRIVALS: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("event"), st.sampled_from("EFG"), st.integers(0, 3)),
    st.tuples(
        st.sampled_from(["started", "succeeded", "failed", "timeout", "cancel", "retry", "rewind"]),
        WORKS,
    ),
    st.tuples(st.sampled_from(["tick", "pause", "resume", "restore", "forget", "stale"])),
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("decide")),
    st.tuples(st.just("kill"), st.integers(0, 9)),
)


MESSAGES: dict[str, Callable[..., m.Received]] = {
    "event": m.EventSent,
    "started": m.Started,
    "succeeded": lambda at, step: m.Succeeded(at, step, 1),
    "failed": lambda at, step: m.StepHasFailed(at, step, {"name": "IOError"}),
    "timeout": m.TimedOut,
    "cancel": m.StopStep,
    "retry": m.RetryStep,
    "rewind": m.Rewind,
    "tick": m.Tick,
    "pause": m.Pause,
    "resume": m.Resume,
    "stale": lambda at: m.Completed(at, "i-1/0", []),
}


def message(arrival: tuple[Any, ...], driver: Driver) -> m.Received | None:
    what, *rest = arrival
    at = driver.now
    if what == "finish":
        # Storms get nowhere if they do not know the open steps.
        steps = [*driver.open, "9/9.9"]
        return m.Succeeded(at, steps[rest[0] % len(steps)], 1)
    if what == "kill":
        # Seldom, because later actions are less interesting.
        return m.Kill(at) if rest == [0] else None
    make = MESSAGES.get(what)
    return None if make is None else make(at, *rest)


@given(st.lists(st.tuples(ARRIVALS, st.integers(0, 3), st.booleans()), max_size=40))
def test_a_storm_of_messages_breaks_nothing(arrivals: list[tuple[Any, int, bool]]) -> None:
    decider = Decider()
    driver = Driver(Busy(), decider)
    batch: list[m.Received] = []
    for arrival, by, wait in arrivals:
        at = driver.tick(by)
        if arrival[0] == "decide":
            if driver.state.decision_ongoing:
                driver.decide()
        elif arrival[0] == "forget":
            decider.forget("i-1")
        elif arrival[0] == "restore":
            driver.restart().receive(m.Restore(at))
        elif (found := message(arrival, driver)) is not None:
            batch.append(found)
        if not wait:
            driver.receive(*batch)
            batch = []
        assert violations(driver.state) == []
    ended = [each for each in driver.sent if isinstance(each, m.Ended)]
    assert len(ended) == driver.state.ended
    decider.close()


@given(st.lists(st.tuples(ARRIVALS, st.integers(0, 3)), max_size=30))
def test_a_restart_before_every_message_changes_nothing(
    arrivals: list[tuple[Any, int]],
) -> None:
    drivers = [Driver(Busy(), Decider()), Driver(Busy(), Decider())]
    for arrival, by in arrivals:
        for number, driver in enumerate(drivers):
            driver.tick(by)
            found = message(arrival, driver)
            if number:
                driver.restart()
            if found is not None:
                driver.receive(found)
            driver.settle()
            if driver.mode == "failed":
                # The code raises again and again: go on without it.
                driver.receive(m.Kill(driver.now))
    plain, restarted = (driver.state for driver in drivers)
    assert plain == restarted
    assert drivers[0].sent == drivers[1].sent
    for driver in drivers:
        driver.decider.close()
