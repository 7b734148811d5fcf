"""Random families against a naive model of OTP's supervisor, written from its rules alone.

The model is a blocking program with a mailbox, as the original is: it knows nothing of plans,
steps or indexes, and looks for everything in a list. Both sides live in the same little world,
which decides what comes of each start and how each child ends when it is stopped. Whatever
arrives in the middle of a step of the real one arrives in the middle of that step of the model.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actorflow.runtime.exits import Crash, ExitReason, GaveUp, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    Action,
    Done,
    Exit,
    Ignored,
    Log,
    Ready,
    Refused,
    Release,
    Reply,
    ScheduleRetry,
    StartChild,
    Started,
    StopChildren,
)
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import Backoff, Child, Flags

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = 5.0
REASONS: list[ExitReason] = [
    Normal(),
    Shutdown(),
    Shutdown("detail"),
    Killed(),
    Crash(ValueError("boom")),
]
FAILURE = Crash(OSError("refused"))


class World:
    """What happens outside: how starts turn out, how children end, which ref comes next."""

    def __init__(self) -> None:
        self.starts: defaultdict[str, list[str]] = defaultdict(list)
        self.endings: dict[str, ExitReason] = {}
        self.births = 0

    def start(self, name: str) -> int | str:
        script = self.starts[name]
        outcome = script.pop(0) if script else "ok"
        if outcome != "ok":
            return outcome
        self.births += 1
        return self.births

    def ending(self, name: str, grace: object) -> ExitReason:
        return self.endings.get(name, Killed() if grace == "brutal_kill" else Shutdown())


# The model


@dataclass
class Kid:
    name: str
    restart: str
    grace: object
    kind: str
    significant: bool
    ref: int | None = None
    status: str = "down"
    dead: ExitReason | None = None
    token: int = 0
    restarts: int = 0
    failures: int = 0
    since: float = 0.0
    last: int | None = None
    """The last incarnation."""
    kept: bool = False
    """Stopped for a restart that includes its own."""
    trouble: ExitReason = FAILURE
    """Why it had to be started again."""


@dataclass
class Rules:
    strategy: str
    limit: int
    auto: str
    backoff: bool
    room: int | None


class PlanAbandonedError(Exception):
    """The plan under way ends here, because the supervisor has to."""


class Model:
    """A naive supervisor."""

    def __init__(self, rules: Rules, kids: list[Kid], template: Kid | None) -> None:
        self.rules = rules
        self.kids = kids
        self.template = template
        self.world = World()
        self.now = 0.0
        self.times: list[float] = []
        self.mailbox: list[tuple[Any, ...]] = []
        self.trace: list[object] = []
        self.logs: list[tuple[str, str]] = []
        self.answers: dict[int, tuple[object, ...]] = {}
        self.retries: list[tuple[float, str, int]] = []
        self.tokens = 0
        self.ready = False
        self.ending: tuple[object, str] | None = None
        self.leaving = False
        self.gone = False
        self.arrivals: dict[int, list[tuple[Any, ...]]] = {}
        self.steps = 0
        self.released: set[int] = set()

    @property
    def simple(self) -> bool:
        return self.rules.strategy == "dynamic"

    # The mailbox

    def run(self, message: tuple[Any, ...], arrivals: dict[int, list[tuple[Any, ...]]]) -> None:
        self.arrivals, self.steps = arrivals, 0
        self.arrive(message)
        while self.mailbox and self.ending is None:
            what, *details = self.mailbox.pop(0)
            with suppress(PlanAbandonedError):
                getattr(self, f"on_{what}")(*details)
            self.release()
        if self.ending is not None and not self.gone:
            self.finish()

    def arrive(self, message: tuple[Any, ...]) -> None:
        what = message[0]
        if what == "shutdown":
            self.ending = self.ending or (message[1], "REQUESTED")
        elif what == "exit":
            for kid in self.kids:
                if kid.status == "up" and kid.ref == message[1] and kid.dead is None:
                    kid.dead = kid.trouble = message[2]
                    self.mailbox.append(("exit", message[1]))
        elif what == "retry":
            self.mailbox.append(("retry", self.retries.pop(message[1])[2]))
        elif what == "call" and self.ending is not None:
            self.answers[message[1]] = ("refused", "STOPPING")
        else:
            self.mailbox.append(message)

    def release(self) -> None:
        """Note which children are down for good, now that one message has been handled."""
        waiting = any(kid.status == "retry" for kid in self.kids)
        for kid in self.kids:
            if kid.status == "down" and kid.last is not None and not (kid.kept and waiting):
                self.released.add(kid.last)

    def finish(self) -> None:
        for what, *details in self.mailbox:
            if what == "call":
                self.answers[details[0]] = ("refused", "STOPPING")
        self.mailbox = []
        self.leaving = True
        if self.simple:
            for kid in list(self.kids):
                if kid.status != "up" or kid.dead is not None:
                    self.stop(kid)
            self.stop_together()
        else:
            for kid in reversed(list(self.kids)):
                self.stop(kid)
        self.gone = True

    def step(self) -> None:
        for message in self.arrivals.get(self.steps, []):
            self.arrive(message)
        self.steps += 1

    # Starting and stopping one child

    def start(self, kid: Kid, *, quiet: bool = False) -> tuple[object, ...]:
        if self.ending is not None:
            raise PlanAbandonedError
        outcome = self.world.start(kid.name)
        kid.status = "starting"
        self.trace.append(("start", kid.name, outcome))
        self.step()
        if isinstance(outcome, int):
            kid.ref, kid.status, kid.dead, kid.since = outcome, "up", None, self.now
            kid.last, kid.kept = outcome, False
            self.logs.append(("PROGRESS", kid.name))
            return ("started", outcome)
        if outcome == "ignore":
            self.drop(kid)
            return ("ignored",)
        kid.trouble = FAILURE
        if not quiet:
            self.logs.append(("START_ERROR", kid.name))
        return ("refused", "START_FAILED")

    def stop(self, kid: Kid, *, kept: bool = False) -> None:
        kid.kept = kept
        if kid.status == "up" and kid.dead is None:
            if self.ending is not None and not self.leaving:
                raise PlanAbandonedError
            self.trace.append(("stop", [kid.ref]))
            kid.status = "stopping"
            self.step()
            kid.dead = kid.trouble = self.world.ending(kid.name, kid.grace)
        if kid.dead is not None:
            self.judge(kid)
        self.drop(kid)

    def stop_together(self) -> None:
        alive = list(self.kids)
        if alive:
            self.trace.append(("stop", sorted(kid.ref or 0 for kid in alive)))
            for kid in alive:
                kid.status = "stopping"
            self.step()
            # Those with the same grace are told together, and so they are heard together.
            graces = [kid.grace for kid in alive]
            for kid in sorted(alive, key=lambda kid: graces.index(kid.grace)):
                kid.dead = self.world.ending(kid.name, kid.grace)
                self.judge(kid)
                self.drop(kid)

    def judge(self, kid: Kid) -> None:
        fine = kid.dead == (Killed() if kid.grace == "brutal_kill" else Shutdown())
        if kid.restart != "permanent" and isinstance(kid.dead, Normal | Shutdown):
            fine = True
        if not fine:
            self.logs.append(("SHUTDOWN_ERROR", kid.name))

    def drop(self, kid: Kid) -> None:
        kid.status, kid.ref, kid.dead = "down", None, None
        if self.simple or kid.restart == "temporary":
            self.remove(kid)

    def remove(self, kid: Kid) -> None:
        self.kids.remove(kid)
        if kid.last is not None:
            self.released.add(kid.last)

    # Messages

    def on_begin(self) -> None:
        for kid in list(self.kids):
            if self.start(kid)[0] == "refused":
                self.drop(kid)
                self.ending = self.ending or (kid.name, "START_FAILED")
                return
        self.ready = self.ending is None

    def on_exit(self, ref: int) -> None:
        kid = next((kid for kid in self.kids if kid.ref == ref and kid.dead is not None), None)
        if kid is None:
            return
        clean = isinstance(kid.dead, Normal | Shutdown)
        if kid.restart == "permanent" or (kid.restart == "transient" and not clean):
            self.logs.append(("CHILD_TERMINATED", kid.name))
            if self.rules.backoff:
                if self.now - kid.since > WITHIN:
                    kid.failures = 0
                kid.status, kid.dead = "retry", None
                self.again(kid)
            else:
                self.attempt(kid)
            return
        if not clean:
            self.logs.append(("CHILD_TERMINATED", kid.name))
        self.drop(kid)
        others = [other for other in self.kids if other.significant and other.status != "down"]
        if kid.significant and (
            self.rules.auto == "any_significant"
            or (self.rules.auto == "all_significant" and not others)
        ):
            self.ending = (Shutdown(), "AUTO_SHUTDOWN")

    def on_retry(self, token: int) -> None:
        for kid in list(self.kids):
            if kid.status == "retry" and kid.token == token:
                self.attempt(kid)

    def attempt(self, kid: Kid) -> None:
        recent = [time for time in self.times if self.now - time <= WITHIN]
        if len(recent) + 1 > self.rules.limit:
            self.logs.append(("TOO_MANY_RESTARTS", kid.name))
            gave_up = GaveUp(
                child=kid.name,
                reason=kid.trouble,
                restarts=len(recent) + 1,
                max_restarts=self.rules.limit,
                within=WITHIN,
            )
            self.drop(kid)
            self.ending = (Shutdown(gave_up), "TOO_MANY_RESTARTS")
            return
        self.times.append(self.now)
        lot = self.lot(kid)
        if self.rules.strategy in {"one_for_all", "rest_for_one"}:
            kid.status, kid.ref, kid.dead = "down", None, None
            for each in reversed(lot):
                self.stop(each, kept=True)
            lot = [each for each in lot if each.restart != "temporary"]
        for each in lot:
            each.restarts += 1
            if self.start(each)[0] == "refused":
                each.status, each.dead = "retry", None
                self.again(each)
                return

    def again(self, kid: Kid) -> None:
        delay = 0.0
        if self.rules.backoff:
            delay = min(8.0, 2.0**kid.failures)
            for other in reversed(self.lot(kid)):
                if other is not kid:
                    self.stop(other, kept=True)
        kid.failures += 1
        self.tokens += 1
        kid.token = self.tokens
        if self.ending is None:
            self.retries.append((delay, kid.name, kid.token))

    def lot(self, kid: Kid) -> list[Kid]:
        if self.rules.strategy == "one_for_all":
            return list(self.kids)
        if self.rules.strategy == "rest_for_one":
            return self.kids[self.kids.index(kid) :]
        return [kid]

    # Calls

    def on_call(self, caller: int, name: str, argument: Any) -> None:
        self.answers[caller] = getattr(self, name)(argument)

    def start_child(self, kid: Kid) -> tuple[object, ...]:
        if self.simple and self.template is not None:
            return ("refused", "TEMPLATE")
        known = [other for other in self.kids if other.name == kid.name]
        if known and not self.simple:
            if known[0].status == "up":
                return ("refused", "ALREADY_STARTED", known[0].ref)
            return ("refused", "ALREADY_PRESENT")
        return self.enter(kid)

    def start_copy(self, _argument: None) -> tuple[object, ...]:
        if self.template is None:
            return ("refused", "NO_TEMPLATE")
        return self.enter(Kid(**vars(self.template)))

    def enter(self, kid: Kid) -> tuple[object, ...]:
        if self.rules.room is not None and len(self.kids) >= self.rules.room:
            return ("refused", "MAX_CHILDREN")
        self.kids.append(kid)
        answer = self.start(kid, quiet=True)
        if answer[0] == "refused":
            self.kids.remove(kid)
        return answer

    def terminate_child(self, name: str) -> tuple[object, ...]:
        if self.simple:
            return ("refused", "DYNAMIC")
        for kid in self.kids:
            if kid.name == name:
                kid.failures = 0
                self.stop(kid)
                return ("done",)
        return ("refused", "NOT_FOUND")

    def terminate_ref(self, ref: int) -> tuple[object, ...]:
        if not self.simple:
            return ("refused", "NOT_DYNAMIC")
        for kid in self.kids:
            if kid.ref == ref:
                self.stop(kid)
                return ("done",)
        return ("refused", "NOT_FOUND")

    def restart_child(self, name: str) -> tuple[object, ...]:
        kid = self.stopped(name)
        if isinstance(kid, str):
            return ("refused", kid)
        kid.failures = 0
        answer = self.start(kid, quiet=True)
        if answer[0] == "refused":
            kid.status = "down"
        return answer

    def delete_child(self, name: str) -> tuple[object, ...]:
        kid = self.stopped(name)
        if isinstance(kid, str):
            return ("refused", kid)
        self.remove(kid)
        return ("done",)

    def stopped(self, name: str) -> Kid | str:
        if self.simple:
            return "DYNAMIC"
        for kid in self.kids:
            if kid.name == name:
                return {"up": "RUNNING", "retry": "RESTARTING"}.get(kid.status, kid)
        return "NOT_FOUND"


# The real one, in the same world


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
                actions = getattr(self.family, name)(*arguments, caller=caller)
        return iter(actions)

    def perform(self, step: list[Action]) -> Iterator[Action]:
        """Perform the step now, and return an iterator of what follows from it."""
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
                case Log():
                    self.logs.append((action.kind.name, str(action.child.id)))
        return step


def plain(answer: object) -> tuple[object, ...]:
    match answer:
        case Started(ref, _):
            return ("started", ref)
        case Ignored():
            return ("ignored",)
        case Done():
            return ("done",)
        case Refused(why, None, _):
            return ("refused", why.name)
        case Refused(why, ref, _):
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


# Random lives

NAMES = "abcde"
OUTCOMES = ["ok", "ok", "fail", "fail", "ignore"]
kids = st.builds(
    Kid,
    name=st.sampled_from(NAMES),
    restart=st.sampled_from(["permanent", "permanent", "transient", "temporary"]),
    grace=st.sampled_from([5.0, "brutal_kill"]),
    kind=st.sampled_from(["worker", "supervisor"]),
    significant=st.booleans(),
)
flags = st.builds(
    Rules,
    strategy=st.sampled_from(["one_for_one", "one_for_all", "rest_for_one", "dynamic"]),
    limit=st.sampled_from([0, 1, 3, 100, 100]),
    auto=st.sampled_from(["never", "any_significant", "all_significant"]),
    backoff=st.booleans(),
    room=st.none() | st.integers(1, 4),
)
numbers = st.integers(0, 20)
names = st.sampled_from(NAMES)
reasons = st.sampled_from(REASONS)
outcomes = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3)
calls = st.one_of(
    st.tuples(st.just("start_child"), kids),
    st.tuples(st.just("start_copy"), st.none()),
    st.tuples(st.sampled_from(["terminate_child", "restart_child", "delete_child"]), names),
    st.tuples(st.just("terminate_ref"), numbers),
)
exits = st.tuples(st.just("exit"), numbers, reasons)
retries = st.tuples(st.just("retry"), numbers)
requests = st.tuples(st.just("call"), numbers, calls)
ends = st.tuples(st.just("shutdown"), reasons)
wishes = st.one_of(exits, exits, exits, retries, retries, requests, requests, ends)
troubles = st.dictionaries(names, outcomes, max_size=3)
families = st.lists(kids, max_size=5, unique_by=lambda kid: kid.name)
durings: st.SearchStrategy[list[Any]] = st.lists(
    st.tuples(st.integers(0, 4), wishes), max_size=3
) | st.just([])


def random_event(dice: Random, end: float) -> tuple[Any, ...]:
    """Make what the strategies above make, with dice."""
    number = dice.randrange(20)
    if dice.random() < end:
        return ("shutdown", dice.choice(REASONS))
    what = dice.choice([*["exit"] * 5, "retry", "retry", "start", "start", "copy", "name", "ref"])
    if what == "exit":
        return ("exit", number, dice.choice(REASONS))
    if what == "retry":
        return ("retry", number)
    name = dice.choice(NAMES)
    call: tuple[str, Any] = ("terminate_ref", number)
    if what == "start":
        restart = dice.choice(["permanent", "transient", "temporary"])
        grace = dice.choice([5.0, "brutal_kill"])
        call = ("start_child", Kid(name, restart, grace, "worker", significant=number < 10))
    elif what == "copy":
        call = ("start_copy", None)
    elif what == "name":
        call = (dice.choice(["terminate_child", "restart_child", "delete_child"]), name)
    return ("call", 0, call)


class Families(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.callers = 0
        self.now = 0.0

    @initialize(
        flags=flags, some=families, starts=troubles, endings=st.dictionaries(names, reasons)
    )
    def begin(
        self, flags: Rules, some: list[Kid], starts: Any, endings: dict[str, ExitReason]
    ) -> None:
        self.endings = endings
        self.born(flags, some, starts, [])

    @precondition(lambda self: self.model.gone)
    @rule(flags=flags, some=families, starts=troubles, during=durings)
    def begin_again(
        self, flags: Rules, some: list[Kid], starts: dict[str, list[str]], during: list[Any]
    ) -> None:
        self.born(flags, some, starts, during)

    def born(
        self, flags: Rules, some: list[Kid], starts: dict[str, list[str]], during: list[Any]
    ) -> None:
        if flags.strategy == "dynamic":
            flags.auto = "never"
        else:
            flags.room = None
        self.flags = flags
        some = [self.allowed(kid) for kid in some]
        options: dict[str, Any] = {
            "strategy": flags.strategy,
            "max_restarts": flags.limit,
            "within": WITHIN,
            "auto_shutdown": flags.auto,
            "max_children": flags.room,
            "backoff": Backoff(initial=1.0, maximum=8.0) if flags.backoff else None,
        }
        if flags.strategy == "dynamic":
            some = some[:1]
        self.family = Family([as_child(kid) for kid in some], Flags(**options))
        self.real = Shell(self.family)
        template = some[0] if some and flags.strategy == "dynamic" else None
        self.model = Model(flags, [] if template else some, template)
        for world in (self.real.world, self.model.world):
            world.endings = self.endings
        self.happens(("begin",), starts, during)

    def allowed(self, kid: Kid) -> Kid:
        """Make a fresh child of a drawn one, and one that the flags allow."""
        significant = kid.significant and self.flags.auto != "never" and kid.restart != "permanent"
        return Kid(kid.name, kid.restart, kid.grace, kid.kind, significant)

    def happens(
        self, message: tuple[Any, ...], starts: dict[str, list[str]], during: list[Any]
    ) -> None:
        for side in (self.real, self.model):
            side.now = self.now
            for name, script in starts.items():
                side.world.starts[name] = list(script)
        arrivals = self.real.run(message, [(step, self.numbered(wish)) for step, wish in during])
        self.model.run(message, arrivals)

    def numbered(self, wish: tuple[Any, ...]) -> tuple[Any, ...]:
        if wish[0] != "call":
            return wish
        self.callers += 1
        name, argument = wish[2]
        if isinstance(argument, Kid):
            argument = self.allowed(argument)
        return ("call", self.callers, name, argument)

    @rule(seconds=st.sampled_from([0.5, 2.5, 5.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.model.gone)
    @rule(number=numbers, reason=reasons, starts=troubles, during=durings)
    def child_exits(self, number: int, reason: ExitReason, starts: Any, during: list[Any]) -> None:
        living = list(self.real.alive) or [-1]
        self.happens(("exit", living[number % len(living)], reason), starts, during)

    @precondition(lambda self: not self.model.gone)
    @rule(number=numbers, reason=reasons)
    def stranger_exits(self, number: int, reason: ExitReason) -> None:
        if number not in self.real.alive:
            self.happens(("exit", number, reason), {}, [])

    @precondition(lambda self: self.real.retries)
    @rule(number=numbers, starts=troubles, during=durings)
    def retry_comes_due(self, number: int, starts: Any, during: list[Any]) -> None:
        self.happens(("retry", number % len(self.real.retries)), starts, during)

    @rule(call=calls, starts=troubles, during=durings)
    def request_arrives(self, call: tuple[str, Any], starts: Any, during: list[Any]) -> None:
        message = self.real.choose(self.numbered(("call", 0, call)), set())
        assert message is not None
        self.happens(message, starts, during)

    @precondition(lambda self: not self.model.gone)
    @rule(reason=reasons, during=durings, sure=st.integers(0, 9))
    def shutdown(self, reason: ExitReason, during: list[Any], sure: int) -> None:
        if sure == 0:
            self.happens(("shutdown", reason), {}, during)

    @precondition(lambda self: not self.model.gone)
    @rule(seed=st.integers(0, 2**32), length=st.integers(1, 30))
    def storm(self, seed: int, length: int) -> None:
        """Make many random events: hypothesis is better at short lives than at long ones."""
        dice = Random(seed)
        for _ in range(length):
            if self.model.gone:
                return
            self.now += dice.choice([0.0, 0.5, 2.5])
            starts = {name: dice.choices(OUTCOMES, k=3) for name in dice.choices(NAMES, k=2)}
            during = [
                (dice.randrange(4), random_event(dice, end=0.08))
                for _ in range(dice.choice([0, 0, 1, 3]))
            ]
            event = self.real.choose(self.numbered(random_event(dice, end=0.0)), set())
            if event is not None:
                self.happens(event, starts, during)
                self.same_life()
                self.same_children()

    @invariant()
    def same_life(self) -> None:
        real, model = self.real, self.model
        self.family.check()
        assert real.trace == model.trace
        assert real.logs == model.logs
        assert real.answers == model.answers
        assert real.ready == model.ready
        assert [retry.after for retry in real.retries] == [retry[0] for retry in model.retries]
        assert self.family.statistics().restarts == len(model.times)
        assert (real.exit is not None) == model.gone
        if real.exit is None:
            assert real.released == model.released
        if real.exit is not None:
            assert not real.alive
            assert model.ending is not None
            reason, why = model.ending
            assert real.exit.why.name == why
            if why == "START_FAILED":
                assert f"child {reason!r} failed" in real.exit.reason.describe()
            else:
                assert real.exit.reason == reason

    @invariant()
    def same_children(self) -> None:
        states = {"RUNNING": "up", "RESTARTING": "retry", "STOPPED": "down"}
        seen = list(reversed(self.family.which_children()))
        assert [
            (info.id, states[info.state.name], info.ref, info.restarts, info.restart, info.type)
            for info in seen
        ] == [
            (k.name, k.status, k.ref if k.status == "up" else None, k.restarts, k.restart, k.kind)
            for k in self.model.kids
        ]
        assert sorted(self.real.alive) == sorted(info.ref for info in seen if info.ref is not None)
        counts = self.family.count_children()
        assert counts.active == len(self.real.alive)
        assert counts.supervisors == sum(kid.kind == "supervisor" for kid in self.model.kids)
        assert counts.supervisors + counts.workers == len(self.model.kids)


Families.TestCase.settings = settings(
    max_examples=max(200, settings().max_examples), stateful_step_count=40
)
TestFamilies = Families.TestCase
