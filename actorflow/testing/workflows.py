"""The harness of workflows: one instance in virtual time, with tasks that the test answers.

No engine, no store, no tasker threads: the same steps lead to the same history each time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actorflow.engine.errors import ExecutionCancelled, ExecutionFailed
from actorflow.engine.kind import Failure
from actorflow.engine.typed import freeze
from actorflow.runtime.errors import text_of
from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import InvalidWorkflow, WorkflowFailed, refusal_of
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, DecisionMode, StepState, StepStatus, StepType
from actorflow.workflows.suspended.properties import capture
from actorflow.workflows.task import Task
from actorflow.workflows.wait import Event, written_event
from actorflow.workflows.workflow import Workflow, cancel_of, read_result, workflow_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["WorkflowHarness"]

R = TypeVar("R")
_START = 1_700_000_000.0


class WorkflowHarness(Generic[R]):
    """Runs one instance of a workflow under the control of a test.

    Steps that have a stub are done at once; the others wait for `succeed` or `fail`. When it is
    closed without an error, all code is replayed once more: code that does not do the same again
    fails the test.

    Args:
        workflow: the object to start.
        stubs: results of tasks and sub-workflows, by the task, the class or its name: a value, an
            exception, or a function of the arguments.
        id: of the instance.
        start: when it begins, in seconds since the epoch.

    >>> from actorflow.workflows.task import task
    >>> @task
    ... def charge(order: str) -> int: ...
    >>> class Order(Workflow[str]):
    ...     def handle(self) -> str:
    ...         amount = self.execute(charge("o-1"))
    ...         return "late" if self.wait("paid", days=3) is None else f"paid {amount}"
    >>> with WorkflowHarness(Order(), stubs={charge: 40}) as order:
    ...     order.advance(days=2)
    ...     order.send("paid")
    ...     print(order.result, order.steps)
    paid 40 [('charge', {'order': 'o-1'}), ('Wait', {'event': 'paid', 'duration': 259200.0})]
    """

    def __init__(
        self,
        workflow: Workflow[R],
        *,
        stubs: Mapping[Any, Any] | None = None,
        id: str = "instance",  # noqa: A002 - as for start
        start: float = _START,
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise InvalidWorkflow(f"{workflow!r:.80} is not a workflow: give Order('o-1')")
        self._cls = type(workflow)
        self._stubs = {_name(key): value for key, value in (stubs or {}).items()}
        self._tasks = {key.name: key for key in stubs or () if isinstance(key, Task)}
        self._decider = Decider(strict=True)
        self._now = start
        self._jobs: deque[m.StepJob] = deque()
        self._output: Any = UNSET
        self._batch: list[m.Received] | None = None
        self.published: list[Any] = []
        """What it has published."""
        self.refused: list[tuple[str, str]] = []
        """Events that it has refused: their names and why."""
        self.sent: list[tuple[str, str, Any]] = []
        """Events that it has sent to others: their ids, the names and the data."""
        self.started: list[tuple[str, str]] = []
        """Workflows that it has started: their names and ids."""
        self.tags: dict[str, Any] = {}
        """What it has been tagged with."""
        self._instance, sent = Instance.start(
            id,
            workflow_name(self._cls),
            capture(workflow),
            at=start,
            keeps_events=self._cls._actorflow_keeps_events,  # noqa: SLF001 - an option of the class
            kept_names=self._cls._actorflow_kept_names,  # noqa: SLF001 - the same
        )
        self._take(sent)
        self._settle()

    # Looking.

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return datetime.fromtimestamp(self._now, UTC)

    @property
    def mode(self) -> DecisionMode:
        """Whether it runs, is paused, has failed or ended."""
        return self._instance.state.decision_mode

    @property
    def state(self) -> stored.InstanceState:
        """All of it, as it would be stored."""
        return self._instance.state

    @property
    def properties(self) -> dict[str, Any]:
        """The properties as the last method has left them."""
        return self._instance.state.properties[-1].values

    @property
    def result(self) -> R:
        """What `handle` has returned.

        Raises:
            WorkflowFailed: its code has raised `Failed`.
            ExecutionFailed: its code has raised, or it waits for a step that has failed.
            ExecutionCancelled: it was killed.
            LookupError: it goes on; the message says what it waits for.

        """
        if self._output is not UNSET:
            found: R = read_result(self._cls, self._output)
            return found
        error = self._instance.state.error
        if error is not None:
            failure = Failure(error["name"], error["message"], error["stacktrace"])
            if self.mode is DecisionMode.GIVEN_UP:
                msg = f"the workflow has failed: {failure.message}"
                raise WorkflowFailed(msg, failure, error["data"])
            msg = f"the workflow has failed: {failure}\n{failure.traceback}"
            raise ExecutionFailed(msg, failure)
        stuck = self._instance.stuck_on()
        if stuck is not None and self.mode is DecisionMode.RUN:
            error = stuck.error or {}
            failure = Failure(str(error.get("name")), str(error.get("message", "")))
            msg = f"the workflow waits for {stuck.name} ({stuck.step}), which failed: {failure}"
            raise ExecutionFailed(msg, failure)
        if self.mode in (DecisionMode.KILLED, DecisionMode.CANCELLED):
            msg = f"the workflow was {self.mode}"
            raise ExecutionCancelled(msg)
        waits = _listed(self._scheduled(), none="a resume")
        msg = f"the workflow has not ended; it waits for {waits}"
        raise LookupError(msg)

    @property
    def steps(self) -> list[tuple[str, Any]]:
        """The steps that it has asked for: their names and inputs, in order."""
        return [(each.name, each.input) for each in self._instance.state.statuses]

    @property
    def open(self) -> list[str]:
        """The names of the tasks and sub-workflows that nobody has answered, in order."""
        return [each.name for each in self._scheduled() if each.type is not StepType.WAIT]

    @property
    def history(self) -> list[tuple[str, str]]:
        """The history so far: the type of each branch, and the event or step it is about."""
        return [
            (str(each.type), str(each.event_name if each.task_name is UNSET else each.task_name))
            if not (each.event_name is UNSET and each.task_name is UNSET)
            else (str(each.type), "")
            for each in self._instance.state.branches
        ]

    @property
    def kept(self) -> list[Event]:
        """Events that no wait has taken, oldest first."""
        return [Event(each.name, each.input) for each in self._instance.kept]

    def _scheduled(self) -> list[StepStatus]:
        return [each for each in self._statuses() if each.status is StepState.SCHEDULED]

    def _statuses(self) -> list[StepStatus]:
        return self._instance.state.statuses

    # What happens.

    def send(self, event: Any, /, **data: Any) -> None:
        """Send an event: its name and its data, or an object whose class names it."""
        name, given = written_event(event, data)
        self._receive(m.EventSent(self._now, name, given))

    def succeed(self, name: Task[..., Any] | type[Workflow[Any]] | str, output: Any = None) -> None:
        """Answer a step, with plain data: the oldest open one of a name, or that at "0/2.0"."""
        status = self._oldest(_name(name))
        self._receive(m.Succeeded(self._now, status.step, freeze(output, Any, "the output")))

    def fail(self, name: Task[..., Any] | type[Workflow[Any]] | str, error: Exception) -> None:
        """Fail a step, named as for `succeed`, after its last attempt."""
        given: Any = error
        if not isinstance(given, BaseException):
            msg = f"{given!r:.80} is not an error: fail(charge, ValueError('no money'))"
            raise TypeError(msg)
        self._receive(m.StepHasFailed(self._now, self._oldest(_name(name)).step, _described(error)))

    def advance(
        self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Move time on; what becomes due happens in order, each at its time.

        Raises:
            ValueError: it would go back.

        """
        by = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if by < timedelta(0):
            msg = f"time cannot go back by {-by}: advance by 0 or more"
            raise ValueError(msg)
        end = self._now + by.total_seconds()
        if self._batch is not None:
            self._now = end
            return
        while (due := self._next_due()) is not None and due[0] <= end:
            self._now = max(self._now, due[0])
            self._receive(due[1])
        self._now = end

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let all that happens in the block arrive in one batch, before any code runs."""
        self._batch = []
        try:
            yield
        finally:
            received, self._batch = self._batch, None
        self._receive(*received)

    def rewind(self, step: str) -> None:
        """Go back to before a step, named as "0/2.0"."""
        self._receive(m.Rewind(self._now, step))

    def retry(self, name: Task[..., Any] | type[Workflow[Any]] | str) -> None:
        """Do a failed step again: the oldest one of a name, or that at "0/2.0"."""
        failed = [each for each in self._statuses() if each.status is StepState.FAILED]
        status = next((each for each in failed if _is_called(each, _name(name))), None)
        if status is None:
            msg = f"no {_name(name)!r} has failed: there are {_listed(failed)}"
            raise LookupError(msg)
        self._receive(m.RetryStep(self._now, status.step))

    def cancel(self) -> None:
        """Cancel it: its code gets `Cancelled` where it waits. The second time, it ends at once."""
        self._receive(cancel_of(self._cls, self._now))

    def kill(self) -> None:
        """End it as it is."""
        self._receive(m.Kill(self._now))

    def pause(self) -> None:
        """Take no decisions until `resume`."""
        self._receive(m.Pause(self._now))

    def resume(self) -> None:
        """Continue after a pause or an error."""
        self._receive(m.Resume(self._now))

    def restart(self) -> None:
        """Continue from the stored state, as after a crash: all code is replayed."""
        self._decider.forget(self._instance.state.id)
        self._instance = Instance(stored.decode(stored.encode(self._instance.state)))

    def check(self) -> None:
        """Replay all code; it must repeat the recorded steps.

        Raises:
            AssertionError: it does something else; the message says what and where.

        """
        found = self._decider.check(self._cls, self._instance.state)
        if found is not None:
            msg = f"a replay does something else: {found}"
            raise AssertionError(msg)

    def close(self) -> None:
        """Stop the threads that hold its code."""
        self._decider.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._instance.state.error is None:
                self.check()
        finally:
            self.close()

    # How.

    def _oldest(self, name: str) -> StepStatus:
        opened = [each for each in self._scheduled() if each.type is not StepType.WAIT]
        for status in opened:
            if _is_called(status, name):
                return status
        msg = f"no {name!r} is open: there are {_listed(opened)}"
        raise LookupError(msg)

    def _next_due(self) -> tuple[float, m.Received] | None:
        state = self._instance.state
        due: list[tuple[float, int, m.Received]] = [
            (each.timestamp, 0, m.Tick(each.timestamp))
            for each in state.waits
            if each.timestamp is not None
        ]
        due += [
            (each.timestamp, 1, m.TimedOut(each.timestamp, each.step)) for each in state.timeouts
        ]
        if state.cancellation is not None and not state.ended:
            deadline = state.cancellation.deadline
            due.append((deadline, 2, m.Tick(deadline)))
        if not due:
            return None
        at, _, message = min(due, key=lambda each: each[:2])
        return at, message

    def _receive(self, *received: m.Received) -> None:
        if self._batch is not None:
            self._batch += received
            return
        self._pass(received)
        self._settle()

    def _pass(self, received: Sequence[m.Received]) -> None:
        self._take(self._instance.receive(received, now=self._now))
        if self.mode is DecisionMode.CONTINUED:
            self._decider.forget(self._instance.state.id)
            self._jobs.clear()
            self._instance, sent = self._instance.again(at=self._now)
            self._take(sent)

    def _settle(self) -> None:
        """Take decisions and do the steps that have stubs, until there is nothing to do."""
        while True:
            while self._instance.state.decision_ongoing:
                answer = self._decider.decide(self._cls, self._instance, at=self._now)
                self._pass((answer,))
            if self._end_children():
                continue
            if not self._jobs or self._instance.state.ended:
                return
            job = self._jobs.popleft()
            status = self._instance.status(job.step)
            if status is not None and status.status is StepState.SCHEDULED:
                ended = self._do(job)
                begun: list[m.Received] = [m.Started(self._now, job.step)]
                self._pass([*begun, *ended])

    def _end_children(self) -> bool:
        """End the sub-workflows that a cancel has asked to end; return whether there were any."""
        cancellation = self._instance.state.cancellation
        found = False
        for step in () if cancellation is None else tuple(cancellation.ending):
            status = self._instance.status(step)
            if status is None or status.type is not StepType.FLOW or status.error is not UNSET:
                continue
            if status.status is StepState.SCHEDULED:
                error = {"name": "Cancelled", "message": "it was cancelled"}
                self._pass([m.StepHasFailed(self._now, step, error)])
                found = True
        return found

    def _take(self, sent: list[m.Outgoing]) -> None:
        for each in sent:
            match each:
                case m.StepJob():
                    self._jobs.append(each)
                case m.Send():
                    self.sent.append((each.to, each.name, each.data))
                case m.StartOther():
                    self.started.append((each.workflow, each.id))
                case m.Published(value=value):
                    self.published.append(value)
                case m.Tagged(values=values):
                    self.tags |= values
                case m.RefusedByCode():
                    self.refused.append((each.name, refusal_of(each.error)))
                case m.Ended() if each.output is not UNSET and not each.cancelled:
                    self._output = each.output

    def _do(self, job: m.StepJob) -> list[m.Received]:
        if job.name not in self._stubs:
            return []
        stub, task = self._stubs[job.name], self._tasks.get(job.name)
        attempts = 1 + (task.options.retries if task is not None else 0)
        for attempt in range(attempts):
            try:
                output = self._called(stub, task, job.input)
            except Exception as error:  # noqa: BLE001 - what the stub stands for fails
                if attempt + 1 == attempts:
                    return [m.StepHasFailed(self._now, job.step, _described(error))]
            else:
                return [m.Succeeded(self._now, job.step, output)]
        return []

    def _called(self, stub: Any, task: Task[..., Any] | None, given: Any) -> Any:
        value = stub
        if isinstance(stub, Exception):
            raise stub
        if callable(stub):
            args, kwargs = ((), given or {}) if task is None else task.arguments(given)
            value = stub(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        return freeze(value, Any, "the stub's result") if task is None else task.write(value)


def _name(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, Task):
        return key.name
    if isinstance(key, type) and issubclass(key, Workflow):
        return workflow_name(key)
    msg = f"{key!r:.80} names no step: give a task, a class of workflows, or its name"
    raise TypeError(msg)


def _is_called(status: StepStatus, name: str) -> bool:
    return name in (status.name, str(status.step))


def _listed(statuses: list[StepStatus], none: str = "none") -> str:
    return ", ".join(f"{each.name} ({each.step})" for each in statuses) or none


def _described(error: Exception) -> dict[str, Any]:
    return {"name": type(error).__name__, "message": text_of(error)}
