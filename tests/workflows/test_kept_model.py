"""Kept and refused events against a model (E3 to E8, E13, F1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import actorflow as af
from actorflow.testing import WorkflowHarness

Wanted = tuple[str, float | None]
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["all", "first"]),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0.0, 3.0, 7.0])),
            min_size=1,
            max_size=3,
        ),
    ),
    max_size=6,
)


class Waits(af.Workflow[list[Any]]):
    """Makes the calls that it is given."""

    calls: list[tuple[str, list[Wanted]]]

    def __init__(self, calls: list[tuple[str, list[Wanted]]]) -> None:
        self.calls = list(calls)
        self.found: list[Any] = []

    def handle(self) -> list[Any]:
        """Make one call after the other."""
        for how, wanted in self.calls:
            waits: list[af.Wait[Any]] = [
                af.Wait(name) if seconds is None else af.Wait(name, seconds=seconds)
                for name, seconds in wanted
            ]
            if how == "first":
                first = self.first(*waits)
                found = [first.index, _number(first.value)]
            else:
                found = [_number(event) for event in self.execute_all(waits)]
            self.found = [*self.found, found]
        return self.found

    def on_event(self, event: af.Event) -> None:
        """Refuse some events, which are then as if they had never come (F1)."""
        if event.data["n"] < 0:
            self.found = []
            raise af.Refused("negative")


def _number(event: af.Event | None) -> int | None:
    return None if event is None else event.data["n"]


@dataclass
class Pending:
    """A wait of the call that is being made."""

    place: int
    name: str
    deadline: float | None
    end: tuple[float, int] | None = None
    """When it was complete, and as which of all completions."""
    event: int | None = None


class Model:
    """What the rules say, with lists."""

    def __init__(self, calls: list[tuple[str, list[Wanted]]]) -> None:
        self.calls = list(calls)
        self.kept: list[tuple[int, str]] = []
        self.names: list[str] = []
        self.found: list[Any] = []
        self.how = "all"
        self.pending: list[Pending] | None = None
        self.ends = 0

    def finish(self, wait: Pending, at: float, event: int | None) -> None:
        """Complete a wait."""
        self.ends += 1
        wait.end, wait.event = (at, self.ends), event

    def expire(self, now: float, unless: str | None = None) -> None:
        """End the waits that are due; an event of this very moment wins."""
        due = [each for each in self.pending or [] if not each.end and each.deadline is not None]
        for wait in sorted(due, key=lambda each: each.deadline or 0):
            assert wait.deadline is not None
            if wait.deadline < now or (wait.deadline == now and wait.name != unless):
                self.finish(wait, wait.deadline, None)

    def receive(self, name: str, now: float) -> None:
        """E3: an event completes all waits that are pending for it, or is kept."""
        if self.pending is None:
            return  # it has ended
        self.expire(now, unless=name)
        number = len(self.names)
        self.names.append(name)
        waits = [each for each in self.pending if not each.end and each.name == name]
        for wait in waits:
            self.finish(wait, now, number)
        if not waits:
            self.kept.append((number, name))

    def go_on(self, now: float) -> None:
        """Let the code run as far as it can."""
        while True:
            if self.pending is not None:
                ended = [each for each in self.pending if each.end]
                if len(ended) < (1 if self.how == "first" else len(self.pending)):
                    return
                self.answer(ended)
            if not self.calls:
                self.pending = None
                return
            self.begin(now)

    def answer(self, ended: list[Pending]) -> None:
        """Return what the call returns; E8: give back what the others have taken."""
        if self.how == "all":
            self.found.append([each.event for each in self.pending or []])
            return
        winner = min(ended, key=lambda each: each.end or (0, 0))
        self.found.append([winner.place, winner.event])
        back = {each.event for each in ended} - {winner.event, None}
        self.kept = sorted({*self.kept, *((n, self.names[n]) for n in back if n is not None)})

    def begin(self, now: float) -> None:
        """E4 and E7: take the oldest kept event, or end at once if there is no time."""
        self.how, wanted = self.calls.pop(0)
        self.pending = []
        for place, (name, seconds) in enumerate(wanted):
            deadline = None if seconds is None else now + seconds
            wait = Pending(place, name, deadline)
            self.pending.append(wait)
            oldest = next((each for each in self.kept if each[1] == name), None)
            if oldest is not None:
                self.kept.remove(oldest)
                self.finish(wait, now, oldest[0])
            elif seconds == 0:
                self.finish(wait, now, None)


class KeptEvents(RuleBasedStateMachine):
    """Drives a workflow and the model alike."""

    @initialize(calls=CALLS)
    def start(self, calls: list[tuple[str, list[Wanted]]]) -> None:
        """Start both."""
        self.real = WorkflowHarness(Waits(calls))
        self.model = Model(calls)
        self.now = 0.0
        self.model.go_on(self.now)

    @rule(name=st.sampled_from("ab"))
    def send(self, name: str) -> None:
        """Send one event."""
        self.real.send(name, n=len(self.model.names))
        self.model.receive(name, self.now)
        self.model.go_on(self.now)

    @rule(name=st.sampled_from("ab"))
    def send_refused(self, name: str) -> None:
        """Send an event that is refused."""
        self.real.send(name, n=-1)
        self.model.expire(self.now)
        self.model.go_on(self.now)

    @rule(names=st.text("abAB", max_size=4), seconds=st.sampled_from([0, 1, 5]))
    def send_together(self, names: str, seconds: int) -> None:
        """Send several events in one batch, with some time before each; refuse capital ones."""
        refused = False
        with self.real.together():
            for name in names:
                self.real.advance(seconds=seconds)
                self.now += seconds
                if name.isupper():
                    refused = self.model.pending is not None
                    self.real.send(name.lower(), n=-1)
                    self.model.expire(self.now, unless=name.lower())
                else:
                    self.real.send(name, n=len(self.model.names))
                    self.model.receive(name, self.now)
        if refused:
            self.model.expire(self.now)
        self.model.go_on(self.now)

    @rule(seconds=st.integers(1, 8))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.real.advance(seconds=seconds)
        end = self.now + seconds
        while True:
            due = [
                each.deadline
                for each in self.model.pending or []
                if not each.end and each.deadline is not None and each.deadline <= end
            ]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.model.expire(min(due))
            self.model.go_on(self.now)
        self.now = end

    @rule()
    def restart(self) -> None:
        """Decode the stored state and replay all code."""
        self.real.restart()

    @invariant()
    def both_agree(self) -> None:
        """Compare the results and the kept events."""
        assert self.real.properties["found"] == self.model.found
        assert [event.data["n"] for event in self.real.kept] == [n for n, _ in self.model.kept]

    def teardown(self) -> None:
        """Replay all, and stop."""
        if hasattr(self, "real"):
            with self.real:
                pass


KeptEvents.TestCase.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestKeptEvents = KeptEvents.TestCase
