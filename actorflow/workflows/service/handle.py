"""The handle of an instance."""

from __future__ import annotations

import asyncio
import uuid
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actorflow.behaviours.errors import Displaced
from actorflow.engine.errors import ExecutionEnded, ExecutionFailed, WaitTimeout
from actorflow.engine.ids import check_id
from actorflow.engine.kind import ENDED, Status
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, check_timeout
from actorflow.workflows.errors import WorkflowFailed
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.rewind import forked
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.service.questions import Question, Reader, has_event, is_unheard
from actorflow.workflows.service.received_messages import control_body, event_body, fork_body
from actorflow.workflows.service.run_outcome import unanswerable
from actorflow.workflows.service.stored import read_row, record_of
from actorflow.workflows.wait import written_event
from actorflow.workflows.workflow import read_result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.handle import Execution
    from actorflow.workflows.service.kind import WorkflowKind
    from actorflow.workflows.service.view import WorkflowView

__all__ = ["WorkflowHandle"]

R_co = TypeVar("R_co", covariant=True)


class WorkflowHandle(Generic[R_co]):
    """An instance of a workflow on an engine. Thread-safe.

    Verbs that begin with an `a` are for tasks of any event loop.
    """

    __slots__ = ("_engine", "_kind", "_parts", "_read_to", "id")

    def __init__(self, engine: BareEngine, kind: WorkflowKind, id: str) -> None:  # noqa: A002 - its id
        self._engine = engine
        self._parts = engine.parts
        self._kind = kind
        self._read_to: Any = None  # a place in the history before which no new answer can be
        self.id = id

    def __repr__(self) -> str:
        return f"<handle of {self._kind.workflow} {self.id!r}>"

    # Looking.

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self._engine.parts.status(self.id)

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until it has ended; return what `handle` has returned.

        Raises:
            ExecutionFailed: its code raised or was modified, or it waits for a step that failed.
                `failure` says why; it goes on after `resume` or `retry`.
            WorkflowFailed: its code has raised `Failed`; `data` is what it has said. It has ended.
            ExecutionCancelled: it was cancelled.
            WaitTimeout: not in time. It goes on.

        """
        try:
            output = self._engine.result(self.id, timeout)
        except ExecutionFailed as error:
            raise self._failed(error) from None
        found: R_co = read_result(self._kind.cls, output)
        return found

    async def aresult(self, timeout: float | None = None) -> R_co:
        """Like `result`."""
        try:
            output = await self._engine.aresult(self.id, timeout)
        except ExecutionFailed as error:
            raise self._failed(error) from None
        found: R_co = read_result(self._kind.cls, output)
        return found

    def _failed(self, error: ExecutionFailed) -> ExecutionFailed:
        if not error.ended:
            return error
        msg = f"{self!r} has failed: {error.failure.message}"
        return WorkflowFailed(msg, error.failure, error.data)

    def query(self) -> WorkflowView:
        """Return its properties and its state as they were last committed, at any time.

        Raises:
            LookupError: its first message was refused, so that it has never run.

        """
        while True:
            found = self._engine.execution(self.id)
            view: WorkflowView | None = found.view
            if view is not None:
                return view
            if found.status != Status.ACTIVE:
                msg = f"{self!r} has never run: {found.failure or found.status}"
                raise LookupError(msg)
            self._next_commit()  # it is about to begin

    def missing(self) -> list[str]:
        """Return the tasks and workflows that it waits for and that are not registered."""
        parts = self._parts
        taskers, kinds = set(parts.tasks.names()), set(parts.kinds)
        return sorted(
            {
                status.name
                for status in self.query().running
                if (
                    kind_name(status.name) not in kinds
                    if status.type is StepType.FLOW
                    else status.name not in taskers
                )
            }
        )

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of its history, oldest first."""
        for record in self._engine.execution(self.id).history():
            yield from record["entries"]

    def export(self) -> dict[str, Any]:
        """Return all that is recorded of it, as data that JSON can hold.

        For `engine.workflows.check`, in a test of the code that is to run it from now on.
        """
        self.query()
        return record_of(read_row(self._parts.row(self.id)))

    def follow(self, offset: int = 0, timeout: float | None = None) -> Iterator[Any]:
        """Yield the values that it publishes, those before included, until it has ended.

        Args:
            offset: how many to leave out.
            timeout: seconds that the next one may take.

        Raises:
            BadOption: the offset is negative or no number.
            WaitTimeout: the next value does not come in time.

        """
        _check_offset(offset, timeout)
        reader = Reader(self._parts, self.id)
        while True:
            ticket = ThreadTicket()
            try:
                ended = self._watch(ticket)
                for entry in reader.read():
                    if entry.get("type") == "published":
                        if offset == 0:
                            yield entry["value"]
                        offset -= offset > 0
                if ended:
                    return
                if not ticket.wait(timeout):
                    raise WaitTimeout(f"{self!r} has published nothing for {timeout} s")
                if ticket.error is not None:
                    raise ticket.error
            finally:
                self._forget(ticket)

    async def afollow(self, offset: int = 0, timeout: float | None = None) -> AsyncIterator[Any]:
        """Like `follow`."""
        _check_offset(offset, timeout)
        reader = Reader(self._parts, self.id)
        while True:
            ticket = AsyncTicket()
            try:
                ended = self._watch(ticket)
                for entry in reader.read():
                    if entry.get("type") == "published":
                        if offset == 0:
                            yield entry["value"]
                        offset -= offset > 0
                if ended:
                    return
                if not await ticket.wait(timeout):
                    raise WaitTimeout(f"{self!r} has published nothing for {timeout} s")
            finally:
                self._forget(ticket)

    # Events.

    def send(self, event: Any, /, *, id: str | None = None, **data: Any) -> None:  # noqa: A002
        """Send an event; return when it is stored.

        Args:
            event: its name, with its data as keyword arguments; or an object (a dataclass, a
                msgspec struct), whose class names the event.
            id: only the first event with the same id counts, for a week, also after the end. `ask`
                with the same id returns the answer to it.
            **data: what `event.data` is then.

        Raises:
            ExecutionEnded: it has ended.
            Rejected: the behaviour in front of it refuses the event.
            NotStorable: the data is not plain data.

        """
        name, given = written_event(event, data)
        self._engine.send(self.id, event_body(name, given, id), key=self._key(id))

    async def asend(self, event: Any, /, *, id: str | None = None, **data: Any) -> None:  # noqa: A002
        """Like `send`."""
        name, given = written_event(event, data)
        await self._engine.asend(self.id, event_body(name, given, id), key=self._key(id))

    def ask(
        self,
        event: Any,
        /,
        *,
        id: str | None = None,  # noqa: A002 - as for send
        timeout: float | None = None,
        **data: Any,
    ) -> Any:
        """Send an event; return what `on_event` has returned for it, once that is committed.

        Args:
            event: as for `send`.
            id: the same question with the same id is answered once, and gets the same answer; also
                if it was sent before.
            timeout: seconds.
            **data: as for `send`.

        Raises:
            ExecutionFailed: the code raised, or `on_event` waits for a step that failed. After
                `resume` or `retry`, ask again with the same id.
            ExecutionEnded: it has ended without an answer.
            Refused: `on_event` has refused the event; nothing was changed.
            Displaced: its inbox has replaced, dropped or merged the event, or let it expire.
            WaitTimeout: not in time; it may be answered yet.

        """
        question = self._question(event, data, id, timeout)
        stored = self._parts.writer.wakes.ticket()
        try:
            self._put(question, stored, patience=inf)
            self._parts.writer.wait_for(stored, None, question.body)
        except ExecutionEnded:
            if question.find_answer():
                return question.answer
            raise
        while True:
            ticket = question.waiting = ThreadTicket()
            try:
                if self._is_answered(question, ticket):
                    return question.answer
                if not ticket.wait(question.left()):
                    raise WaitTimeout(question.late(self))
                if ticket.error is not None:
                    raise ticket.error
            finally:
                self._forget(ticket)

    async def aask(
        self,
        event: Any,
        /,
        *,
        id: str | None = None,  # noqa: A002 - as for send
        timeout: float | None = None,
        **data: Any,
    ) -> Any:
        """Like `ask`."""
        question = self._question(event, data, id, timeout)
        stored = AsyncTicket()
        try:
            self._put(question, stored)
            await self._parts.writer.await_for(stored, None, question.body)
        except ExecutionEnded:
            if question.find_answer():
                return question.answer
            raise
        while True:
            ticket = question.waiting = AsyncTicket()
            try:
                if self._is_answered(question, ticket):
                    return question.answer
                if not await ticket.wait(question.left()):
                    raise WaitTimeout(question.late(self))
            finally:
                self._forget(ticket)

    def _question(
        self,
        event: Any,
        data: dict[str, Any],
        id: str | None,  # noqa: A002 - as for send
        timeout: float | None,
    ) -> Question:
        if timeout is not None:
            check_timeout(timeout)
        name, given = written_event(event, data)
        # A new question is answered after all that was read before; an old one was, perhaps.
        reader = Reader(self._parts, self.id, self._read_to if id is None else None)
        self._parts.ownership.follow(self.id)
        return Question(name, given, id, timeout, reader)

    def _put(self, question: Question, stored: Any, patience: float = 0.0) -> None:
        """Send a question, which hears what happens to it in the inbox."""
        parts, key = self._parts, self._key(question.id)
        parts.state.require_open()
        body = parts.sender.check_message(self.id, None, question.body)
        parts.sender.append(
            self.id, None, (body,), stored=stored, processed=question, key=key,
            patience=patience,
        )  # fmt: skip

    def _is_answered(self, question: Question, ticket: Any) -> bool:
        """Look for an answer; if it is missing, the ticket is resolved after the next commit."""
        self._listen(ticket)
        if question.find_answer():  # before the execution is read, which may be large
            self._read_to = question.reader.cursor
            return True
        found = self._engine.execution(self.id)
        if found.status in ENDED:
            if question.find_answer():
                return True
            raise ExecutionEnded(f"{self!r} has ended without an answer")
        self._refuse_if_stuck(question, found)
        if question.handed_over and not question.is_pending():
            question.handed_over = False  # one look is enough
            # A run of the instance that has answered may be over when its state is read.
            if question.find_answer() or self._is_over(question):
                return True
        if question.displaced is not None:
            raise question.displaced
        return False

    def _is_over(self, question: Question) -> bool:
        """Return whether an answer has just come; refuse to wait if none is to come."""
        state = self.query().state
        if question.find_answer():
            return True
        if is_unheard(state, question.id):
            raise ExecutionEnded(f"{self!r} is being cancelled: it answers no more events")
        if not has_event(state, question.id):
            question.displaced = Displaced(
                f"{question.name!r} was merged into another event, replaced or dropped"
            )
        return False

    def _key(self, id_: str | None) -> str | None:
        return None if id_ is None else f"{self.id}/{check_id(id_, 'an event')}"

    def _refuse_if_stuck(self, question: Question, found: Execution) -> None:
        """Refuse to wait for an answer that cannot come before an operator acts."""
        if found.status == Status.STUCK and found.failure is not None:
            view: WorkflowView | None = found.view
            if view is None:
                return
            if view.error is not None:
                _ = found.result  # raises
            failure = unanswerable(Instance(view.state), question.id)
            if failure is not None:
                raise ExecutionFailed(
                    f"{self!r} cannot answer {question.name!r}: {failure}", failure
                )

    # Steering.

    def pause(self) -> None:
        """Take no new decisions until `resume`; what happens meanwhile is kept."""
        self._do("pause")

    def resume(self) -> None:
        """Resume after a pause, or after an error in the code, with the current code."""
        self._do("resume")

    def retry(self, step: str | None = None) -> None:
        """Do a step again that has failed: one of `query().failed`, or all of these.

        Raises:
            LookupError: there is no such step.
            ExecutionEnded: it has ended.

        """
        if step is not None:
            self._find(step)
        self._do("retry", step)

    def rewind(self, step: str) -> None:
        """Go back to before a step: the code that is there now runs again from there.

        Steps that were asked for later are cancelled, and their results are forgotten; done again,
        they have another id. Later events are handled again, and so are later results of steps
        that had begun before. The clock of the instance goes back as well: `self.now()` and
        the durations of waits count from then. An instance that was paused, or whose code failed,
        goes on. Tags and published values stay.

        Args:
            step: one of `query().state.statuses`, such as `"0/2.0"`: the branch and the position.

        Raises:
            LookupError: there is no such step.
            ExecutionEnded: it has ended; `fork` it.

        """
        self._find(step)
        self._do("rewind", step)

    def fork(self, step: str, *, id: str | None = None) -> WorkflowHandle[R_co]:  # noqa: A002
        """Start another instance with the past of this one before a step; return its handle.

        It goes on from there with the current code, without anything that has happened
        since; steps that were under way then are begun again, under new ids. It has the
        same inbox, unless this instance has ended. This instance is left alone.

        Args:
            step: as for `rewind`.
            id: of the new instance; only the first call with the same id starts one.

        Raises:
            LookupError: there is no such step.
            BadOption: the id is that of this instance.
            KindMismatch: the id is that of another kind of execution, or another workflow.

        """
        view = self._find(step)
        name = f"{self.id}-{uuid.uuid4().hex}" if id is None else check_id(id, "a workflow")
        if name == self.id:
            raise BadOption(f"id={name!r:.80} is the id of the instance itself: give another one")
        state = forked(view.state, step, name)
        body = fork_body(self.id, step, state, view.tags, inbox=view.has_inbox)
        self._kind.share_inbox(self.id, name)
        done = ThreadTicket()
        self._parts.sender.create(name, self._kind.name, body, done)
        self._parts.sender.wait_created(done)
        return WorkflowHandle(self._engine, self._kind, name)

    def _find(self, step: str) -> WorkflowView:
        """Return the instance, if it has a step of that name."""
        view = self.query()
        known = [status.step for status in view.state.statuses]
        if step not in known:
            msg = (
                f"{self!r} has no step {step!r:.80} (see query().state.statuses)"
                f"{near(str(step), known)}"
            )
            raise LookupError(msg)
        return view

    def discard(self, event: str | int) -> None:
        """Forget an event that is kept: no wait gets it any more. `on_event` has seen it.

        Args:
            event: the id with which it was sent, or its number in `query().kept_events`.

        Raises:
            LookupError: no such event is kept.
            ExecutionEnded: it has ended.

        """
        kept = self.query().kept_events
        number = next((each.number for each in kept if event in (each.number, each.id)), None)
        if number is None:
            known = ", ".join(f"{each.number} ({each.name})" for each in kept[:20]) or "none"
            msg = f"{self!r} keeps no event {event!r:.80}; kept are: {known}"
            raise LookupError(msg)
        self._put_control({"do": "discard", "number": number})

    def cancel(self, step: str | None = None, *, id: str | None = None) -> bool:  # noqa: A002
        """Cancel it, or fail one of its steps; return whether it was still there.

        Its code gets `af.Cancelled` at the steps where its methods wait, and may execute more steps
        before it ends as cancelled: `result` raises `ExecutionCancelled` then. A second cancel, or
        `kill`, ends it at once; so does the first one if its code was broken. Its sub-workflows and
        tasks are also cancelled; tasks in other processes are killed. A wait that is cancelled and
        retried has the same deadline.

        Args:
            step: one of `query().state.statuses`, such as `"0/2.0"`; otherwise the whole instance.
            id: only the first cancel with the same id counts, for a week. So a program that may be
                restarted does not cancel twice.

        Raises:
            LookupError: there is no such step.

        """
        if step is not None:
            self._find(step)
        try:
            self._put_control(self._kind.cancel(step), self._key(id))
        except ExecutionEnded:
            return False
        return True

    def kill(self) -> bool:
        """End it whatever its code does; return whether it was still there.

        Unlike `cancel`, its code is not told: a decision that is being taken is thrown away, and
        sub-workflows go on.
        """
        done = ThreadTicket()
        self._parts.state.require_open()
        self._parts.cancellation.end(self.id, done)
        return bool(self._parts.writer.wait_for(done, None, self.id))

    def delete(self) -> bool:
        """Delete it, with its sub-workflows and all that is stored of them; it must have ended.

        After that, its id can be used again. Return whether it was there.

        Raises:
            ExecutionActive: it has not ended, or one of its sub-workflows has not.

        """
        return self._engine.upkeep.delete(self.id)

    async def adelete(self) -> bool:
        """Like `delete`."""
        return await asyncio.to_thread(self.delete)

    async def apause(self) -> None:
        """Like `pause`."""
        await asyncio.to_thread(self.pause)

    async def aresume(self) -> None:
        """Like `resume`."""
        await asyncio.to_thread(self.resume)

    async def aretry(self, step: str | None = None) -> None:
        """Like `retry`."""
        await asyncio.to_thread(self.retry, step)

    async def arewind(self, step: str) -> None:
        """Like `rewind`."""
        await asyncio.to_thread(self.rewind, step)

    async def afork(self, step: str, *, id: str | None = None) -> WorkflowHandle[R_co]:  # noqa: A002
        """Like `fork`."""
        return await asyncio.to_thread(self.fork, step, id=id)

    async def adiscard(self, event: str | int) -> None:
        """Like `discard`."""
        await asyncio.to_thread(self.discard, event)

    async def acancel(self, step: str | None = None, *, id: str | None = None) -> bool:  # noqa: A002
        """Like `cancel`."""
        return await asyncio.to_thread(self.cancel, step, id=id)

    async def akill(self) -> bool:
        """Like `kill`."""
        return await asyncio.to_thread(self.kill)

    def _do(self, verb: str, step: str | None = None) -> None:
        self._put_control(control_body(verb, step))

    def _put_control(self, body: dict[str, Any], key: str | None = None) -> None:
        """Send a control; return when what it led to is committed."""
        processed = ThreadTicket()
        self._parts.state.require_open()
        self._parts.row(self.id)
        self._parts.sender.append(self.id, None, (body,), processed=processed, key=key)
        self._parts.writer.wait_for(processed, None, body)

    # Waiting for commits.

    def _watch(self, ticket: Any) -> bool:
        """Resolve a ticket after the next commit; return whether the instance has ended."""
        self._listen(ticket)
        return self._parts.row(self.id).status in ENDED

    def _listen(self, ticket: Any) -> None:
        """Resolve a ticket after the next commit."""
        parts = self._parts
        parts.state.require_open()
        parts.resume()
        self._kind.waiters.add(self.id, ticket)
        parts.waiters.add(self.id, ticket)  # it hears of the end, and of the engine's
        parts.ownership.follow(self.id)

    def _next_commit(self) -> None:
        """Wait until it has run for the first time, or is stuck before."""
        ticket = ThreadTicket()
        try:
            self._watch(ticket)
            row = self._parts.row(self.id)
            if row.state is None and row.status == Status.ACTIVE:
                ticket.wait(None)
            if ticket.error is not None:
                raise ticket.error
        finally:
            self._forget(ticket)

    def _forget(self, ticket: Any) -> None:
        self._kind.waiters.remove(self.id, ticket)
        self._parts.waiters.remove(self.id, ticket)


def _check_offset(offset: Any, timeout: Any) -> None:
    """Validate the arguments of `follow`.

    Raises:
        BadOption: one of them is wrong.

    """
    if type(offset) is not int or offset < 0:
        msg = f"offset={offset!r:.40} must be how many values to leave out: 0 or more"
        raise BadOption(msg)
    if timeout is not None:
        check_timeout(timeout)
