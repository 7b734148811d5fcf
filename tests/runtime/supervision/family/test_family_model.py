"""Random families against a naive model of OTP's supervisor.

Both sides live in the same little world. Whatever arrives in the middle of a step of the real one
arrives in the middle of that step of the model.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actorflow.runtime.restarts import Backoff
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import Flags
from tests.runtime.supervision.family.blocking_model import REASONS, WITHIN, Kid, Model, Rules
from tests.runtime.supervision.family.model_shell import Shell, as_child

if TYPE_CHECKING:
    from actorflow.runtime.exits import ExitReason

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
        assert self.family.requests.statistics().restarts == len(model.times)
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
        seen = list(reversed(self.family.requests.which_children()))
        assert [
            (info.id, states[info.state.name], info.ref, info.restarts, info.restart, info.type)
            for info in seen
        ] == [
            (k.name, k.status, k.ref if k.status == "up" else None, k.restarts, k.restart, k.kind)
            for k in self.model.kids
        ]
        assert sorted(self.real.alive) == sorted(info.ref for info in seen if info.ref is not None)
        counts = self.family.requests.count_children()
        assert counts.active == len(self.real.alive)
        assert counts.supervisors == sum(kid.kind == "supervisor" for kid in self.model.kids)
        assert counts.supervisors + counts.workers == len(self.model.kids)


Families.TestCase.settings = settings(
    max_examples=max(200, settings().max_examples), stateful_step_count=40
)
TestFamilies = Families.TestCase
