"""Runs a message alone that may have ended the process, to find out whether it does.

Problem
    After a crash nobody knows which of the messages that were being processed has caused it, or
    whether somebody killed the process. If each death counted against them, innocent messages would
    become dead letters after a few kills.

Approach
    Messages that were there at two crashes are suspects. They run one after the other, and while
    one of them runs, no other run begins. The store notes beside the data which suspect runs alone
    (`Store.note_trial`), in a way that costs no commit and outlives a kill but no power cut. Only
    if an engine finds such a note at its start, the message gets an attempt. So a kill from outside
    counts only if it strikes during the run of a suspect, and a message is given up after several
    such deaths in a row of trials, none of which it survived.

Limits
    A trial lasts 0.2 s; then the others go on, because a job may be slow. If the process ends
    after that, the next trial of this message lasts up to a minute. Tasks are not held back, so
    the death counts if a task ends the process during the run of a suspect. A store without notes
    counts an attempt before each trial.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from actorflow.engine.stores.protocol import Change, TrialNote

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.loaded import LoadedExecution, MessageTicket
    from actorflow.engine.stores.protocol import MessageRow, NotingStore, Store

__all__ = ["Quarantine"]

_UNSTARTED = 1.0  # seconds that a run may take to begin: a behaviour may hold the message back
_SHORT = 0.2  # seconds after which the next trial begins: a job may be slow
_LONG = 60.0  # the same for a message whose last trial ended the process later than that


class SuspectRun(Protocol):
    """A batch that a lane is about to run."""

    live: LoadedExecution
    tickets: list[MessageTicket]

    def run(self) -> None:
        """Run it. Only the lane calls this."""


class Quarantine:
    """Executions with a suspect, and the one whose turn it is.

    For the writer's thread, except `admits_run` and `run_ended`.

    Args:
        store: keeps the note of the suspect that runs alone.
        clock: limits the time of a turn.
        writer: in whose thread turns begin.
        everyone: returns all executions in memory.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        everyone: Callable[[], list[LoadedExecution]],
    ) -> None:
        self._notes = store.traits.notes_trials
        self._store = cast("NotingStore", store)  # if its traits say so
        self._clock = clock
        self._writer = writer
        self._everyone = everyone
        self.read_on: Callable[[LoadedExecution], None]
        """Makes an execution whose turn has come read on in the store. The backlog sets it."""
        self._waiting: deque[LoadedExecution] = deque()
        self._alarm: Any = None
        self._message: Any = None
        self._slow: Any = None  # a message that gets a long trial
        self._alone = False  # the suspect runs, and is noted
        self._deferred: deque[SuspectRun] = deque()
        self.current: LoadedExecution | None = None
        """The execution whose message is being tried."""

    def count_last(self) -> None:
        """Count the death of the last engine against the message that ran alone then.

        The note is removed first: if this process is killed in between, the death does not count.
        """
        if not self._notes:
            return
        store = self._store
        note = store.last_trial()
        store.note_trial(None)
        if note is None:
            return
        if note.late:
            self._slow = note.message
            return
        self._writer.commit([Change(note.execution, attempted=(note.message,))])

    def admit(self, live: LoadedExecution, row: MessageRow) -> bool:
        """Begin a trial of a message; return false if another has its turn, so that it waits."""
        if self.current is None:
            self.current, self._message = live, row.id
            self._set_alarm(live, row.id, _UNSTARTED)
        elif self.current is not live and live not in self._waiting:
            self._waiting.append(live)
        return self.current is live

    def admits_run(self, run: SuspectRun) -> bool:
        """Return whether a run may begin now; else it begins after the trial. In its lane."""
        live, message = self.current, self._message
        if live is None:
            return True
        if run.live is live:
            ids = [ticket.id for ticket in run.tickets]
            if ids == [message] and self._notes and self._is_alone(live):
                self._alarm.cancel()
                self._set_alarm(live, message, _LONG if message == self._slow else _SHORT)
                self._alone = True
                self._store.note_trial(TrialNote(live.id, message))
            return True
        self._deferred.append(run)
        if self.current is None:  # the trial has ended meanwhile
            self._writer.call(self._release)
        return False

    def _set_alarm(self, live: LoadedExecution, message: Any, seconds: float) -> None:
        clock = self._clock
        late = partial(self._writer.call, partial(self._on_late, live, message))
        self._alarm = clock.call_at(clock.now() + seconds, late)

    def _on_late(self, live: LoadedExecution, message: Any) -> None:
        if self._message == message:
            self.end(live, late=True)

    def _is_alone(self, live: LoadedExecution) -> bool:
        deferred = {id(run.live) for run in list(self._deferred)}
        return all(
            each is live or each.port is None or each.port.is_idle or id(each) in deferred
            for each in self._everyone()
        )

    def run_ended(self, live: LoadedExecution) -> None:
        """Remove the note of a suspect whose run has returned. In any thread."""
        if self._alone and self.current is live:
            self._alone = False
            self._store.note_trial(None)

    def end(self, live: LoadedExecution, *, late: bool = False) -> None:
        """End the trial of an execution, if it has its turn, and begin the next one."""
        if self.current is not live:
            return
        self.current = None
        self._alarm.cancel()
        if self._alone:
            self._alone = False
            note = TrialNote(live.id, self._message, late=True) if late else None
            self._store.note_trial(note)
        if self._waiting:
            # Later: what the last commit has stored is to be delivered before anything is read.
            self._writer.call(self._begin_next)
        else:
            self._release()

    def close(self) -> None:
        """Stop all trials when the engine is closed. Thread-safe."""
        self._waiting.clear()
        if self.current is not None:
            self.end(self.current)

    def _begin_next(self) -> None:
        while self._waiting and self.current is None:
            self.read_on(self._waiting.popleft())
        if self.current is None:
            self._release()

    def _release(self) -> None:
        """Begin the deferred runs."""
        while self._deferred and self.current is None:
            run = self._deferred.popleft()
            if run.live.port is not None:
                run.live.port.submit(run)
