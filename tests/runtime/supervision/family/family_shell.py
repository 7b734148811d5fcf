"""A supervisor without actors: performs what a `Family` asks for, at once or step by step."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from actorflow.runtime.exits import Crash, ExitReason, GaveUp, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    Action,
    Exit,
    LogAction,
    LogKind,
    Ready,
    Reply,
    ScheduleRetry,
    StartChild,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.children import ChildInfo, ChildState
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import Child, Flags

if TYPE_CHECKING:
    from collections.abc import Hashable


BOOM = Crash(ValueError("boom"))
REFUSED = Crash(OSError("refused"))
CLEAN = [Normal(), Shutdown(), Shutdown("because")]
UNCLEAN = [BOOM, Killed(), Killed(abandoned=True)]


def start(*_args: object, **_kwargs: object) -> None:
    """Stand for the function that starts a child; the shell below decides the outcome."""


def child(id: Hashable, *args: object, **options: Any) -> Child:  # noqa: A002
    return Child(id, start, *args, **options)


class Shell:
    """Performs actions at once, unless `hold` is set, and records what it does.

    The n-th incarnation of child "a" has the ref "an". `outcomes` are the outcomes of the next
    starts of a child (default: it runs); `endings` say how a child ends when asked to stop.
    """

    def __init__(self, *children: Child, draw: float = 0.0, **flags: Any) -> None:
        self.family = Family(children, Flags(**flags), draw=lambda: draw)
        self.now = 0.0
        self.trace: list[str] = []
        self.logs: list[LogAction] = []
        self.replies: dict[object, object] = {}
        self.retries: list[ScheduleRetry] = []
        self._exit: Exit | None = None
        self._ready = False
        self.outcomes: defaultdict[Hashable, deque[object]] = defaultdict(deque)
        self.endings: dict[object, ExitReason] = {}
        self.held: list[Action] = []
        self.hold = False
        self._births: defaultdict[Hashable, int] = defaultdict(int)

    def perform(self, actions: list[Action]) -> None:
        steps = [isinstance(action, StartChild | StopChildren) for action in actions]
        assert steps == sorted(steps), "steps come last"
        for action in actions:
            match action:
                case StartChild() | StopChildren() if self.hold:
                    self.held.append(action)
                case StartChild():
                    self.start(action)
                case StopChildren():
                    self.stop(action)
                case ScheduleRetry():
                    self.retries.append(action)
                case Reply(to, answer):
                    assert to not in self.replies
                    self.replies[to] = answer
                case Ready():
                    assert not self._ready
                    self._ready = True
                case Exit():
                    assert self._exit is None
                    self._exit = action
                case LogAction():
                    self.logs.append(action)
        self.family.check()

    def start(self, action: StartChild) -> None:
        key, spec = action.key, action.child
        outcomes = self.outcomes[spec.id]
        outcome = outcomes.popleft() if outcomes else "ok"
        if outcome == "ok":
            self._births[spec.id] += 1
            ref = f"{spec.id}{self._births[spec.id]}"
            self.trace.append(f"+{ref}")
            self.perform(self.family.started(key, ref, "extra", now=self.now))
        elif outcome == "ignore":
            self.trace.append(f"?{spec.id}")
            self.perform(self.family.start_ignored(key, now=self.now))
        else:
            self.trace.append(f"!{spec.id}")
            self.perform(self.family.start_failed(key, REFUSED, now=self.now))

    def stop(self, action: StopChildren) -> None:
        self.trace.append("-" + ",".join(action.refs))
        for ref in action.refs:
            reason = Killed() if action.shutdown == "brutal_kill" else Shutdown()
            self.exits(ref, self.endings.get(ref, reason))

    def begin(self) -> Shell:
        self.perform(self.family.begin(now=self.now))
        return self

    def exits(self, ref: object, reason: ExitReason = BOOM) -> None:
        self.perform(self.family.exited(ref, reason, now=self.now))

    def retry(self) -> None:
        self.perform(self.family.retry(self.retries.pop(0), now=self.now))

    def release(self) -> None:
        """Perform the step that was held back; the next one is held in its turn."""
        (action,), self.held = self.held, []
        if isinstance(action, StartChild):
            self.start(action)
        elif isinstance(action, StopChildren):
            self.stop(action)

    def ask(self, request: str, *args: Any, **options: Any) -> Any:
        """Make a request and return the answer, or None if it has not come yet."""
        caller = object()
        self.perform(getattr(self.family.requests, request)(*args, caller=caller, **options))
        return self.replies.get(caller)

    def ending(self) -> Exit | None:
        return self._exit

    def gave_up(self) -> GaveUp:
        """Return why the family gave up, which it must have done."""
        assert self._exit is not None
        assert self._exit.why is Why.TOO_MANY_RESTARTS
        reason = self._exit.reason
        assert isinstance(reason, Shutdown)
        assert isinstance(reason.detail, GaveUp)
        return reason.detail

    def is_ready(self) -> bool:
        return self._ready

    def take_trace(self) -> str:
        text, self.trace = " ".join(self.trace), []
        return text

    def state(self, id: Hashable) -> ChildState:  # noqa: A002
        info = self.family.requests.which_child(id)
        assert isinstance(info, ChildInfo)
        return info.state

    def refs(self) -> list[object]:
        return [info.ref for info in reversed(self.family.requests.which_children())]

    def kinds(self) -> list[LogKind]:
        return [log.kind for log in self.logs if log.kind is not LogKind.PROGRESS]


def up(*children: Child, **flags: Any) -> Shell:
    shell = Shell(*children, **flags).begin()
    shell.take_trace()
    return shell


def abc(**options: Any) -> list[Child]:
    return [child(name, **options) for name in "abc"]
