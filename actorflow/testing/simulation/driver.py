"""The engine of one simulated worker: fetch, run, commit, dispatch, without threads.

It runs real kinds by the engine's own rules: one run of an execution at a time, one commit of many
changes at a time, and nothing goes out before its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.cluster.ring import Committed, Drained, Fenced, Post, TaskNote, Tracker, Verdict
from actorflow.engine import bodies
from actorflow.engine.envelopes import Failure, TaskEnded, TaskStarted, pack
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.protocol import Answer, Change, Duplicate, NewMessage
from actorflow.testing.simulation.runs import UnknownKind, change_for, timer_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import MessageRow, TaskRow, TimerRow
    from actorflow.testing.simulation.store import Fetched, Survey
    from actorflow.testing.simulation.worker import Worker

__all__ = ["Driver", "Part"]

TASK_LEASE = 4.0
"""Seconds after which a task that was handed out counts as lost."""
_AGAIN = 0.2  # seconds after which a request that failed is repeated
_SLICE = 8  # messages of one run, at most

_Then: TypeAlias = Callable[[Change, "StoreRefused | None"], None]


@dataclass(slots=True, eq=False)
class Part:
    """A partition that the worker owns."""

    number: int
    epoch: int
    running: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    """Those that something has arrived for while they ran."""
    posts: dict[str, list[Post]] = field(default_factory=dict)
    claimed: dict[str, float] = field(default_factory=dict)
    """Tasks that were handed out, and until when, by the store's clock."""
    draining: bool = False
    known: bool = False
    """Its timers were read."""


class Driver:
    """Runs the executions of the partitions that a worker owns."""

    def __init__(
        self,
        worker: Worker,
        kinds: Mapping[str, Kind],
        taskers: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        self._worker = worker
        self._store = worker.store
        self._kinds = kinds
        self._taskers = taskers
        self._dice = worker.world.dice(f"driver {worker.name}")
        self._parts: dict[int, Part] = {}
        self._queue: list[tuple[Change, _Then]] = []
        self._committing = False
        self._posts = 0
        self.tasks = 0

    # What the ring asks for.

    def own(self, partition: int, epoch: int) -> None:
        """Read everything of a partition, then run."""
        self._parts[partition] = Part(partition, epoch)
        self.look(partition)

    def lose(self, partition: int) -> None:
        """Discard everything of a partition."""
        self._parts.pop(partition, None)

    def drain(self, partition: int) -> None:
        """Start nothing more in a partition."""
        part = self._parts.get(partition)
        if part is not None:
            part.draining = True
            self._check_drained(part)

    def process(self, post: Post) -> None:
        """Look at an execution because of a wake-up."""
        part = self._parts.get(post.partition)
        if part is None:
            self._worker.ended(post, Verdict.DONE)
            return
        part.posts.setdefault(post.execution, []).append(post)
        self._wake(part, post.execution)

    def look(self, partition: int) -> None:
        """Look at everything that is stored in a partition."""
        part = self._parts.get(partition)
        if part is not None and not part.draining:
            self._ask(lambda _: self._store.survey(partition), partial(self._looked, part))

    def _ask(self, request: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        self._worker.ask(request, then)

    def _owns(self, part: Part) -> bool:
        return self._parts.get(part.number) is part

    def _looked(self, part: Part, found: Survey | StoreRefused) -> None:
        if not self._owns(part) or part.draining:
            return
        if isinstance(found, StoreRefused):
            self._worker.after(_AGAIN, lambda: self.look(part.number))
            return
        if not part.known:
            part.known = True
            self._worker.tell(Committed(trackers=tuple(self._trackers(found.timers))))
        waiting = [row.execution for row in self.unread(part, found.messages)]
        waiting += [timer.execution for timer in found.timers if timer.due <= found.now]
        for name in dict.fromkeys(waiting):
            self._wake(part, name)
        for task in found.tasks:
            self.claim(part, task, found.now)

    def unread(self, _part: Part, rows: Sequence[MessageRow]) -> Sequence[MessageRow]:
        """Return the messages of a partition to look at: all that are not consumed."""
        return rows

    # Runs.

    def _wake(self, part: Part, name: str) -> None:
        if not self._owns(part) or part.draining:
            return
        if name in part.running:
            part.again.add(name)
            return
        part.running.add(name)
        self._fetch(part, name)

    def _fetch(self, part: Part, name: str) -> None:
        self._ask(lambda _: self._store.fetch(name), partial(self._fetched, part, name))

    def _fetched(self, part: Part, name: str, found: Fetched | StoreRefused) -> None:
        if not self._owns(part):
            return
        if isinstance(found, StoreRefused):
            self._worker.after(_AGAIN, lambda: self._retry(part, name))
            return
        worker = self._worker
        if not worker.member.may_start(part.number, worker.local):
            self._end(part, name, Verdict.DONE)
            return
        worker.started(part, name)
        if found.timers:
            self.fire(part, name, found.timers)
            return
        messages = found.messages[:_SLICE]
        if not messages:
            missing = found.row is None
            self._end(part, name, Verdict.NOT_FOUND if missing else Verdict.DONE)
            return
        if found.row is not None and len(found.messages) > len(messages):
            part.again.add(name)
        patient = self._dice.random() < 0.9  # noqa: PLR2004 - now and then a run is cut short
        try:
            change = change_for(name, found, messages, self._kinds, lambda: patient)
        except UnknownKind as error:
            worker.world.note(worker.name, "cannot run", str(error))
            self._end(part, name, Verdict.DONE)
            return
        change.epoch = part.epoch
        # A run takes time: meanwhile the lease may end, and others may write.
        worker.after(
            self._dice.random() ** 4 * self._dice.choice((0.1, 1.0, 4.0)),
            partial(self._commit, part, name, change),
        )

    def _commit(self, part: Part, name: str, change: Change) -> None:
        if self._owns(part):
            self._submit(change, partial(self._ran, part, name))

    def _retry(self, part: Part, name: str) -> None:
        if self._owns(part):
            self._fetch(part, name)

    def _ran(self, part: Part, name: str, change: Change, error: StoreRefused | None) -> None:
        if not self._owns(part):
            return
        if error is not None:  # what has become of it shows when it is read again
            self._worker.after(_AGAIN, lambda: self._retry(part, name))
        elif change.refusal is not None and change.refusal.reason == "fenced":
            self._worker.tell(Fenced(part.number))
        elif change.refusal is not None:
            self._end(part, name, Verdict.LOST_RACE)
        else:
            self._dispatch(part, change)
            left = name in part.again and not change.fired
            self._end(part, name, Verdict.LEFT if left else Verdict.DONE)

    def _end(self, part: Part, name: str, verdict: Verdict) -> None:
        """End a run; go on with what has arrived meanwhile."""
        part.running.discard(name)
        again = name in part.again or verdict is Verdict.LOST_RACE
        part.again.discard(name)
        posts = part.posts.pop(name, ())
        for post in posts:
            self._worker.ended(post, verdict)
        if again and (verdict is Verdict.DONE or not posts):  # else the member asks for it again
            self._wake(part, name)
        self._check_drained(part)

    def _check_drained(self, part: Part) -> None:
        if part.draining and not part.running:
            self._worker.tell(Drained(part.number))

    def fire(self, part: Part, name: str, timers: Sequence[TimerRow]) -> None:
        """Fire timers that are due: one commit removes them and adds their messages."""
        fired = [(timer, timer_message(timer)) for timer in timers]
        change = Change(name, at=self._store.now, epoch=part.epoch, fired=fired)
        part.again.add(name)
        self._submit(change, partial(self._ran, part, name))

    # Commits: one at a time, of all that has accumulated.

    def _submit(self, change: Change, then: _Then) -> None:
        self._queue.append((change, then))
        self._flush()

    def _flush(self) -> None:
        if self._committing or not self._queue:
            return
        self._committing = True
        entries, self._queue = self._queue, []
        changes = [change for change, _ in entries]
        name = self._worker.name

        def request(number: int) -> None:
            self._store.commit_as(name, number, changes)

        def decided(error: StoreRefused | None) -> None:
            self._committing = False
            for change, then in entries:
                then(change, error)
            self._flush()

        self._ask(request, decided)

    def _dispatch(self, part: Part, change: Change) -> None:
        """Pass on what a commit has led to."""
        rows = (*change.rows, *change.extra)
        names = {row.execution for row in rows if not isinstance(row, Duplicate)}
        if change.execution in names:
            part.again.add(change.execution)
        made = {new.id for new in change.creates}
        self._worker.tell(
            Committed(
                posts=tuple(
                    self._post(name, creates=name in made)
                    for name in sorted(names - {change.execution})
                ),
                trackers=tuple(self._trackers(change.timers)),
            )
        )
        for task in change.tasks:
            self.claim(part, task, change.at)

    def _post(self, name: str, *, creates: bool = False) -> Post:
        self._posts += 1
        number = f"{self._worker.name}/{self._posts}"
        return Post(number, self._store.partition(name), name, creates=creates)

    def _trackers(self, timers: Iterable[TimerRow]) -> Iterable[Tracker]:
        for timer in timers:
            partition = self._store.partition(timer.execution)
            yield Tracker(timer.execution, timer.id, timer.due, partition)

    # Tasks.

    def claim(self, part: Part, task: TaskRow, now: float) -> None:
        """Hand out a task that nobody works on: its lease and attempts are stored first."""
        if max(task.due, part.claimed.get(task.id, 0.0)) > now:
            return
        part.claimed[task.id] = now + TASK_LEASE
        out = task._replace(attempts=task.attempts + 1, due=now + TASK_LEASE)
        change = Change(task.execution, at=now, epoch=part.epoch, retried=(out,))

        def claimed(change: Change, error: StoreRefused | None) -> None:
            if error is None and change.committed and self._owns(part):
                note = TaskNote(task.id, task.tasker, out.attempts)
                self._worker.tell(Committed(tasks=(note,)))

        self._submit(change, claimed)

    def perform(self, note: TaskNote) -> None:
        """Do a task, for whoever owns its execution."""
        self.tasks += 1
        self._worker.member.busy_with(self.tasks)

        def found(task: TaskRow | StoreRefused | None) -> None:
            if task is None or isinstance(task, StoreRefused):  # done, or found again later
                self._finish()
                return
            if task.tell_start:
                self._say_started(task, note.attempt)
            self._worker.after(self._dice.random() ** 2, lambda: self._perform(task))

        self._ask(lambda _: self._store.task(note.id), found)

    def _perform(self, task: TaskRow) -> None:
        self._worker.performed(task)
        try:
            value = self._taskers[task.tasker](bodies.decode(task.body))
            ended = TaskEnded(None, 0.0, task.id, "ok", bodies.decode(bodies.encode(value)))
        except Exception as error:  # noqa: BLE001 - the task has failed
            failure = Failure(type(error).__name__, str(error))
            ended = TaskEnded(None, 0.0, task.id, "failed", error=failure)
        message = NewMessage(task.execution, *pack(ended))
        self._answer(task, message)

    def _answer(self, task: TaskRow, message: NewMessage) -> None:
        """Replace a task by its answer, until it is known that this was done."""
        change = Change(task.execution, at=self._store.now, answers=(Answer(task.id, message),))

        def answered(_change: Change, error: StoreRefused | None) -> None:
            if error is not None:
                self._worker.after(_AGAIN, lambda: self._answer(task, message))
                return
            self._finish()
            self._worker.tell(Committed(posts=(self._post(task.execution),)))

        self._submit(change, answered)

    def _say_started(self, task: TaskRow, attempt: int) -> None:
        """Store that a task has begun; if that fails, nobody misses it."""
        started = TaskStarted(None, 0.0, task.id, attempt)
        message = NewMessage(task.execution, *pack(started))
        change = Change(task.execution, at=self._store.now, messages=(message,))

        def said(_change: Change, error: StoreRefused | None) -> None:
            if error is None:
                self._worker.tell(Committed(posts=(self._post(task.execution),)))

        self._submit(change, said)

    def _finish(self) -> None:
        self.tasks -= 1
        self._worker.member.busy_with(self.tasks)
