"""The conformance check of kinds: whether a kind of your own is one that an engine can rely on.

`check_kind(factory)` plays the engine: it delivers messages, fires the timers that the kind has
set, ends its tasks and children, and looks at each outcome. No threads, no store, no clock.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.behaviours import Queue
from actorflow.behaviours.adapt import adapt
from actorflow.engine import bodies
from actorflow.engine.envelopes import pack
from actorflow.engine.executions.outcomes import change_of
from actorflow.engine.ids import check_id
from actorflow.engine.kind import (
    ENDED,
    Addition,
    ChildEnded,
    Context,
    Envelope,
    Failure,
    Message,
    Options,
    Outcome,
    Status,
    TaskEnded,
    TaskStarted,
    TimerFired,
    Watch,
)
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.testing.behaviour_checker import RuleBroken
from actorflow.testing.purity import Impure, no_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hypothesis.strategies import SearchStrategy

    from actorflow.engine.kind import Kind

__all__ = ["RULES", "awaited", "check_kind"]

RULES = {
    "name": "its name is text that every store can keep",
    "options": "options() returns Options, with another behaviour each time",
    "pure": "the same context, state and batch lead to the same outcome",
    "outside": "a run uses no clock and no random numbers but those of its context",
    "state": "a state that was stored and read again leads to what the state itself leads to",
    "round trip": "decode(encode(state)) is the state",
    "hands off": "a run does not change the messages of its batch: it may be done again",
    "outcome": "an outcome can be stored: ids are text, bodies are plain data, times are finite",
    "ended": "an execution that ends sets nothing, and only a done one has a result",
    "tasks": "the id of a task is used once, also by different executions",
    "upgrade": "a state of an older version is upgraded",
    "errors": "a run of requested messages does not raise",
}

_Event = tuple[str, int, Any]
_NOW = 1_700_000_000.0
_FAILURE = Failure("ValueError", "no", "a traceback")
_PLAIN: list[Any] = [
    None, True, 0, -1, 7.5, "", "text", b"\xff", [], [1, "a"], {}, {"a": [1]}, [{"b": None}],
]  # fmt: skip


def check_kind(
    factory: Callable[[], Kind],
    *,
    messages: SearchStrategy[Any] | None = None,
    results: SearchStrategy[Any] | None = None,
    execution: str = "checked",
    compared: Callable[[bytes], Any] = bytes,
    refuses: tuple[type[Exception], ...] = (),
    old: Mapping[int, bytes] | None = None,
    max_examples: int = 100,
) -> None:
    """Check that what `factory` makes is a kind of execution that an engine can rely on.

    Needs hypothesis; the batches are the same in every run. About 50 ms for each ten examples.

    Args:
        factory: a class or function that makes the same kind at each call, without memory of what
            another one has done.
        messages: a hypothesis strategy for the bodies of messages; small plain data by default.
        results: a hypothesis strategy for the results of tasks and children.
        execution: the id of the execution that is run.
        compared: returns what two equal states have in common, given their bytes, for kinds whose
            bytes also say how a state came about.
        refuses: what a run may raise for a message that it cannot handle; the engine makes a dead
            letter of that one.
        old: states of older versions, by their version, which `upgrade` must be able to read.
        max_examples: how many sequences of batches to try.

    Raises:
        AssertionError: a rule does not hold, shown with the shortest batches that break it.
        ModuleNotFoundError: hypothesis is not installed.

    >>> from actorflow.engine.kinds.cron import CronKind
    >>> plan = {"cron": "* * * * *", "zone": "UTC", "to": "w", "kind": "worker", "body": 1}
    >>> from hypothesis import strategies as st
    >>> check_kind(CronKind, messages=st.just({"set": plan}), max_examples=10)

    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - optional
        from hypothesis import strategies as st  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "check_kind needs hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(msg, name="hypothesis") from error

    plain = st.sampled_from(_PLAIN).map(copy.deepcopy)
    given_bodies = plain if messages is None else messages
    news = st.sampled_from(
        ["timer", "started", "ok", "failed", "crashed", "done child", "failed child", "stuck child"]
    )
    event = st.tuples(st.just("message"), st.just(0), given_bodies) | st.tuples(
        news, st.integers(0, 3), plain if results is None else results
    )
    batch = st.tuples(st.lists(event, min_size=1, max_size=3), st.booleans())
    batches = st.lists(batch, max_size=6)

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(batches, given_bodies)
    def conforms(drawn: list[tuple[list[_Event], bool]], first: Any) -> None:
        check = _Check(factory, execution, refuses, compared)
        try:
            check.begin(old or {})
            for events, keep_going in [([("message", 0, first)], True), *drawn]:
                check.step(events, keep_going=keep_going)
                if check.status in ENDED:
                    break
        except RuleBroken as broken:
            raise AssertionError(check.report(broken)) from broken.__cause__

    conforms()


@dataclass
class _Check:
    """One execution, played by hand."""

    factory: Callable[[], Kind]
    execution: str
    refuses: tuple[type[Exception], ...]
    compared: Callable[[bytes], Any]
    kind: Any = None
    options: Options = field(default_factory=Options)
    state: bytes | None = None
    held: Any = None
    """The state as the last run left it in memory."""
    twin: bytes | None = None
    """The state of another execution, which gets the same messages."""
    has_twin: bool = True
    status: Status = Status.ACTIVE
    now: float = _NOW
    revision: int = 0
    timers: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, bool] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    children: dict[str, None] = field(default_factory=dict)
    watches: dict[str, Any] = field(default_factory=dict)
    batches: list[Any] = field(default_factory=list)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def begin(self, old: Mapping[int, bytes]) -> None:
        """Make the kind, and look at all of it that does not run."""
        self.kind = self.factory()
        try:
            check_id(self.kind.name, "a kind")
        except (TypeError, ValueError) as error:
            raise RuleBroken("name", str(error)) from error
        found = [self.kind.options(self.execution) for _ in range(2)]
        for each in found:
            if type(each) is not Options:
                raise RuleBroken("options", f"it returned {each!r:.100}")
        given = found[0].behaviour
        if given is not None and not callable(given) and given is found[1].behaviour:
            raise RuleBroken("options", f"both have the behaviour {given!r:.100}")
        self.options = found[0]
        version = getattr(self.kind, "version", 1)
        if version > 1 and not callable(getattr(self.kind, "upgrade", None)):
            raise RuleBroken("upgrade", f"its version is {version}, and it has no upgrade()")
        for number, data in old.items():
            self._round_trip(self._guarded(self.kind.upgrade, data, number), f"version {number}")
        self._round_trip(None, "the first state")
        self.held = self._guarded(self.kind.decode, None)

    def step(self, events: list[_Event], *, keep_going: bool) -> None:
        """Deliver some envelopes, in the batches that the behaviour makes of them."""
        self.now += 1.0
        envelopes = [made for each in events if (made := self._envelope(each)) is not None]
        for batch in self._accumulated(envelopes):
            self._run(batch, keep_going=keep_going)
            if self.status in ENDED:
                return

    def _envelope(self, event: _Event) -> Envelope | None:
        """Return what happens next; `None` if there is nothing that it could happen to."""
        what, index, body = event
        number = next(self._ids)
        if what == "message":
            return Message(number, self.now, body)
        pool: Any = self.timers if what == "timer" else self.tasks
        if what.endswith("child"):
            pool = self.children
        if not pool:
            return None
        name = sorted(pool)[index % len(pool)]
        if what == "started":
            return TaskStarted(number, self.now, name) if self.tasks[name] else None
        if what == "stuck child":  # it may end later
            return ChildEnded(number, self.now, name, "stuck", error=_FAILURE)
        return self._end_of(what, name, body, number, pool.pop(name))

    def _end_of(self, what: str, name: str, body: Any, number: int, ended: Any) -> Envelope:
        if what == "timer":
            self.now = max(self.now, ended.at)
            return TimerFired(number, self.now, name, ended.at, _stored(ended.body))
        if what == "ok":
            return TaskEnded(number, self.now, name, "ok", body)
        if what == "done child":
            return ChildEnded(number, self.now, name, "done", body)
        if what == "failed child":
            return ChildEnded(number, self.now, name, "failed", error=_FAILURE)
        outcome: Any = what
        return TaskEnded(number, self.now, name, outcome, error=_FAILURE)

    def _accumulated(self, envelopes: list[Envelope]) -> list[Any]:
        unwrapped = self.options.bodies
        items = [
            each.body if unwrapped and isinstance(each, Message) else each for each in envelopes
        ]
        options = self.kind.options(self.execution)
        behaviour = adapt(Queue if options.behaviour is None else options.behaviour)
        if behaviour.traits.timed:  # its time is not the matter here
            return [items] if items else []
        for item in items:
            try:
                behaviour.add(item)
            except Exception:  # noqa: BLE001, S112 - a behaviour may refuse
                continue
        found = []
        while len(behaviour):
            found.append(behaviour.take())
        return found

    # One run.

    def _run(self, batch: Any, *, keep_going: bool) -> None:
        self.batches.append(batch)
        before = _seen(batch)
        stored = self._guarded(self.kind.decode, self.state)
        first = self._outcome(self.kind, stored, copy.deepcopy(batch), keep_going=keep_going)
        self._compare("pure", first, self.kind, self._read_again(), batch, keep_going=keep_going)
        if _seen(batch) != before:
            raise RuleBroken("hands off", f"the batch is {batch!r:.200} after the run")
        self._compare("pure", first, self.factory(), self._read_again(), batch,
                      keep_going=keep_going)  # fmt: skip
        self._compare("state", first, self.kind, self.held, batch, keep_going=keep_going)
        if isinstance(first, Exception):
            self.held = self._read_again()  # as the engine does: it may be half changed
            return
        self._look_at(first)
        self._look_at_tasks(first, batch, keep_going=keep_going)
        self._apply(first)

    def _read_again(self) -> Any:
        return self._guarded(self.kind.decode, self.state)

    def _context(self, name: str, *, keep_going: bool) -> Context:
        return Context(
            name,
            self.now,
            lambda: keep_going,
            seed=self.revision,
            watches=[Watch(name, key, copy.deepcopy(body)) for key, body in self.watches.items()],
        )

    def _outcome(
        self, kind: Any, state: Any, batch: Any, *, keep_going: bool, name: str = ""
    ) -> Any:
        """Run; return an outcome, or what the kind may raise."""
        context = self._context(name or self.execution, keep_going=keep_going)
        try:
            return awaited(self._guarded(kind.run, context, state, batch))
        except RuleBroken:
            raise
        except self.refuses as error:
            return error
        except Exception as error:
            raise RuleBroken("errors", f"it raised {error!r:.200}") from error

    def _guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            with no_outside():
                result = function(*args)
                if inspect.iscoroutine(result):
                    return _stepped(result)
                return result
        except Impure as error:
            msg = f"{function.__name__}() calls {error}; use context.now and context.random"
            raise RuleBroken("outside", msg) from None

    def _compare(
        self, rule: str, first: Any, kind: Any, state: Any, batch: Any, *, keep_going: bool
    ) -> None:
        again = self._outcome(kind, state, batch, keep_going=keep_going)
        if isinstance(first, Exception) or isinstance(again, Exception):
            if type(first) is not type(again):
                raise RuleBroken(rule, f"first {first!r:.200}, then {again!r:.200}")
            return
        for each in (first, again):
            if type(each) is not Outcome:
                raise RuleBroken("outcome", f"it returned {each!r:.200}, not an Outcome")
        for name in Outcome.__struct_fields__:
            here, there = getattr(first, name), getattr(again, name)
            if name == "state":
                here, there = (self._encoded(each, self.state) for each in (here, there))
                if here != there:
                    here, there = self.compared(here), self.compared(there)
            if here != there:
                raise RuleBroken(rule, f"first {name}={here!r:.200}, then {there!r:.200}")

    # Its outcome.

    def _look_at(self, outcome: Outcome) -> None:
        stand_in: Any = SimpleNamespace(
            id=self.execution, kind=self.kind, revision=self.revision, parent=None
        )
        try:
            change_of(stand_in, outcome)
        except Exception as error:
            raise RuleBroken("outcome", str(error)) from error
        times = [timer.at for timer in outcome.timers] + [task.due for task in outcome.tasks]
        if not all(isfinite(each) for each in times):
            raise RuleBroken("outcome", f"one of the times {times} never comes")
        self._round_trip(self._encoded(outcome.state, self.state), "the new state")
        if outcome.result is not None and outcome.status not in (Status.DONE, Status.FAILED):
            raise RuleBroken(
                "ended", f"it is {outcome.status}, with the result {outcome.result!r:.80}"
            )
        if outcome.error is not None and outcome.status == Status.DONE:
            raise RuleBroken(
                "ended", f"it is done, with the error {outcome.error!r:.80}: it is failed or stuck"
            )
        if outcome.status in ENDED:
            for name in ("timers", "tasks", "watches"):
                if getattr(outcome, name):
                    what = (
                        f"it is {outcome.status}, and sets {name}: {getattr(outcome, name)!r:.100}"
                    )
                    raise RuleBroken("ended", what)

    def _look_at_tasks(self, outcome: Outcome, batch: Any, *, keep_going: bool) -> None:
        other = self._twin_outcome(batch, keep_going=keep_going)
        ids = [task.id for task in outcome.tasks]
        again = [each for each in ids if each in self.used or ids.count(each) > 1]
        if again:
            raise RuleBroken("tasks", f"task {again[0]!r} was handed out before")
        shared = set(ids) & {task.id for task in getattr(other, "tasks", ())}
        if shared:
            what = f"another execution hands out task {min(shared)!r}, too: name context.id in it"
            raise RuleBroken("tasks", what)

    def _twin_outcome(self, batch: Any, *, keep_going: bool) -> Any:
        """Run another execution that gets the same; only as long as that is messages."""
        items = batch if isinstance(batch, list) else [batch]
        self.has_twin = self.has_twin and not any(
            hasattr(each, "__struct_fields__") and not isinstance(each, Message) for each in items
        )
        knows = getattr(self.kind, "knows", None)
        if not self.has_twin or (knows is not None and not knows(f"{self.execution}-2")):
            return None
        state = self._guarded(self.kind.decode, self.twin)
        name = f"{self.execution}-2"
        other = self._outcome(self.kind, state, batch, keep_going=keep_going, name=name)
        if isinstance(other, Outcome):
            self.twin = self._encoded(other.state, self.twin)
        return other

    def _apply(self, outcome: Outcome) -> None:
        self.state = self._encoded(outcome.state, self.state)
        self.held = outcome.state
        self.status = Status(outcome.status)
        self.revision += 1
        for names, pool in (
            (outcome.cancelled_timers, self.timers),
            (outcome.cancelled_tasks, self.tasks),
            (outcome.cancelled_children, self.children),
            (outcome.cancelled_watches, self.watches),
        ):
            for name in names:
                pool.pop(name, None)
        self.timers.update({timer.id: timer for timer in outcome.timers})
        self.tasks.update({task.id: task.tell_start for task in outcome.tasks})
        self.used.update(task.id for task in outcome.tasks)
        self.children.update(dict.fromkeys(child.id for child in outcome.children))
        self.watches.update({watch.id: _stored(watch.body) for watch in outcome.watches})

    def _encoded(self, state: Any, before: bytes | None = None) -> bytes:
        """Return a state as it would be stored: added to what there was, if the kind says so."""
        try:
            data = self._guarded(self.kind.encode, state)
        except Exception as error:
            if isinstance(error, RuleBroken):
                raise
            raise RuleBroken("outcome", f"the state cannot be encoded: {error}") from error
        if isinstance(data, Addition):
            return (before or b"") + data.data
        if type(data) is not bytes:
            raise RuleBroken("outcome", f"encode() returned {data!r:.80}, not bytes")
        return data

    def _round_trip(self, data: bytes | None, what: str) -> None:
        try:
            once = self._encoded(self._guarded(self.kind.decode, data)) if data else data
            twice = once if once is None else self._encoded(self._guarded(self.kind.decode, once))
        except RuleBroken as broken:
            raise RuleBroken("round trip", f"{what}: {broken}") from broken
        except Exception as error:
            raise RuleBroken("round trip", f"{what} cannot be read again: {error!r}") from error
        if data is not None and twice != data:
            raise RuleBroken("round trip", f"{what} is {data!r:.100}, and {twice!r:.100} when read")

    def report(self, broken: RuleBroken) -> str:
        """Return which rule does not hold, and what led to that."""
        name = getattr(self.kind, "name", "the kind")
        lines = [
            f"{name!r} breaks the rule {broken.rule!r}: {RULES[broken.rule]}",
            f"  {broken}",
            "  after these batches:" if self.batches else "  before any batch",
            *(f"    {each!r:.300}" for each in self.batches),
        ]
        return "\n".join(lines)


class _Waits(Exception):
    """A coroutine that waits for something outside."""


def _stepped(coroutine: Any) -> Any:
    """Return the result of a coroutine that waits for nothing; else the coroutine begins anew."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    msg = "its coroutine waits for something, which cannot be checked: make run() do its work"
    raise _Waits(msg)


def awaited(result: Any) -> Any:
    """Return the outcome of a run, also if it is asynchronous or deferred."""
    if type(result) is Deferred:
        if not result.resolved:
            msg = "its Deferred is resolved later, which cannot be checked"
            raise _Waits(msg)
        if result.error is not None:
            raise result.error
        return result.result
    if inspect.isawaitable(result):
        return asyncio.run(_finished(result))
    return result


async def _finished(awaitable: Any) -> Any:
    return await awaitable


def _stored(body: Any) -> Any:
    """Return a body as the store gives it back."""
    return bodies.decode(bodies.encode(body))


def _picture(item: Any) -> Any:
    if isinstance(item, Envelope):
        return pack(item)
    # A behaviour may have made something else of it.
    return msgspec.msgpack.encode(item)


def _seen(batch: Any) -> Any:
    """Return a picture of a batch, to tell whether a run has changed it."""
    items = batch if isinstance(batch, Sequence) and not isinstance(batch, str) else [batch]
    return [_picture(each) for each in items]
