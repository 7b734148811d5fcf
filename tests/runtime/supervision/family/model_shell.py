"""The real family in the world of the model: each of its actions is performed, and noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.supervision.actions import (
    Action,
    ChildStarted,
    Exit,
    Ignored,
    LogAction,
    Ready,
    Release,
    Reply,
    RequestDenied,
    RequestDone,
    ScheduleRetry,
    StartChild,
    StopChildren,
)
from actorflow.runtime.supervision.spec import Child
from tests.runtime.supervision.family.blocking_model import FAILURE, Kid, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.runtime.supervision.family import Family


class Shell:
    """Performs the actions of a family step by step and notes what arrived in which step."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.world = World()
        self.now = 0.0
        self.alive: dict[int, Child] = {}
        self.trace: list[object] = []
        self.logs: list[tuple[str, str]] = []
        self.answers: dict[int, tuple[object, ...]] = {}
        self.retries: list[ScheduleRetry] = []
        self.ready = False
        self.released: set[int] = set()
        self.exit: Exit | None = None

    def run(
        self, message: tuple[Any, ...], during: list[tuple[int, tuple[Any, ...]]]
    ) -> dict[int, list[tuple[Any, ...]]]:
        arrivals: dict[int, list[tuple[Any, ...]]] = {}
        step = self.absorb(self.deliver(message))
        number = 0
        while step:
            report = self.perform(step)
            arrivals[number] = []
            stopping = {
                r for action in step if isinstance(action, StopChildren) for r in action.refs
            }
            for _, wish in (each for each in during if each[0] == number):
                event = self.choose(wish, stopping)
                if event is not None:
                    arrivals[number].append(event)
                    assert self.absorb(self.deliver(event)) == []
            self.family.check()
            step = self.absorb(report)
            self.family.check()
            number += 1
        return arrivals

    def choose(self, wish: tuple[Any, ...], stopping: set[int]) -> tuple[Any, ...] | None:
        """Turn a wish ("some child", "some retry") into an event that can happen now."""
        what, number, *details = wish
        if what == "exit":
            living = [ref for ref in self.alive if ref not in stopping]
            return ("exit", living[number % len(living)], *details) if living else None
        if what == "retry":
            return ("retry", number % len(self.retries)) if self.retries else None
        if what == "call" and details[0] == "terminate_ref":
            return ("call", number, "terminate_ref", max(0, self.world.births - details[1]))
        return wish

    def deliver(self, message: tuple[Any, ...]) -> Iterator[Action]:
        what, *details = message
        match what:
            case "begin":
                actions = self.family.begin(now=self.now)
            case "exit":
                self.alive.pop(details[0], None)
                actions = self.family.exited(*details, now=self.now)
            case "retry":
                actions = self.family.retry(self.retries.pop(details[0]), now=self.now)
            case "shutdown":
                actions = self.family.shutdown(details[0])
            case _:
                caller, name, argument = details
                if isinstance(argument, Kid):
                    argument = as_child(argument)
                arguments = [] if argument is None else [argument]
                actions = getattr(self.family.requests, name)(*arguments, caller=caller)
        return iter(actions)

    def perform(self, step: list[Action]) -> Iterator[Action]:
        """Perform the step now, and return an iterator over the actions that follow from it."""
        first = step[0]
        if isinstance(first, StartChild):
            assert len(step) == 1
            outcome = self.world.start(first.child.id)  # type: ignore[arg-type]
            self.trace.append(("start", first.child.id, outcome))
            return self.report_start(first, outcome)
        stops = [action for action in step if isinstance(action, StopChildren)]
        assert len(stops) == len(step)
        self.trace.append(("stop", sorted(ref for stop in stops for ref in stop.refs)))
        return self.report_stops(stops)

    def report_start(self, action: StartChild, outcome: int | str) -> Iterator[Action]:
        if isinstance(outcome, int):
            self.alive[outcome] = action.child
            yield from self.family.started(action.key, outcome, now=self.now)
        elif outcome == "ignore":
            yield from self.family.start_ignored(action.key, now=self.now)
        else:
            yield from self.family.start_failed(action.key, FAILURE, now=self.now)

    def report_stops(self, stops: list[StopChildren]) -> Iterator[Action]:
        for stop in stops:
            for ref in stop.refs:
                child = self.alive.pop(ref)
                assert child.shutdown == stop.shutdown
                ending = self.world.ending(str(child.id), stop.shutdown)
                yield from self.family.exited(ref, ending, now=self.now)

    def absorb(self, actions: Iterator[Action]) -> list[Action]:
        """Record everything, and return the next step."""
        step: list[Action] = []
        for action in actions:
            assert self.exit is None or isinstance(action, Reply), "nothing comes after Exit"
            match action:
                case StartChild() | StopChildren():
                    step.append(action)
                case ScheduleRetry():
                    self.retries.append(action)
                case Reply(to, answer):
                    assert to not in self.answers
                    self.answers[to] = plain(answer)
                case Release(ref, _):
                    assert ref not in self.alive
                    assert ref not in self.released, "released twice"
                    self.released.add(ref)
                case Ready():
                    self.ready = True
                case Exit():
                    self.exit = action
                case LogAction():
                    self.logs.append((action.kind.name, str(action.child.id)))
        return step


def plain(answer: object) -> tuple[object, ...]:
    match answer:
        case ChildStarted(ref, _):
            return ("started", ref)
        case Ignored():
            return ("ignored",)
        case RequestDone():
            return ("done",)
        case RequestDenied(why, None, _):
            return ("refused", why.name)
        case RequestDenied(why, ref, _):
            return ("refused", why.name, ref)
    raise AssertionError(answer)


def as_child(kid: Kid) -> Child:
    options: dict[str, Any] = {
        "restart": kid.restart,
        "shutdown": kid.grace,
        "type": kid.kind,
        "significant": kid.significant,
    }
    return Child(kid.name, dict, **options)
