"""Drives a store and the model with the same random steps."""

# ruff: noqa: S101 - these checks consist of assertions

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.testing.stores.comparison import compare, read_all
from actorflow.testing.stores.model import Conflict, Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["COMMITS", "NAMES", "machine_of", "planned", "settle"]

PATIENCE = 60.0  # seconds for a future
NAMES = ["a", "b", "c"]
KINDS = ["even", "odd"]
TASKS = ["t1", "t2", "t3", "t4"]
TAGS = ["x", "y", ""]

_name = st.sampled_from(NAMES)
_small = st.integers(0, 3)
_moment = st.integers(0, 9).map(float)
_body = st.sampled_from([b"", b"x", b"y" * 40])
_picks = st.lists(st.integers(0, 20), min_size=1, max_size=3)
_step = st.one_of(
    st.tuples(
        st.just("state"),
        st.sampled_from(["now", "now", "now", "stale", "never"]),
        st.sampled_from(["active", "active", "stuck", "done", "failed", "cancelled"]),
        st.none() | _body,
    ),
    st.tuples(
        st.just("append"),
        st.sampled_from(["now", "now", "now", "stale"]),
        st.sampled_from(["active", "active", "active", "stuck", "done", "failed"]),
        _body,
    ),
    st.tuples(st.just("create"), _name, st.integers(0, 5), st.none() | _name),
    st.tuples(st.just("new_only")),
    st.tuples(st.just("epoch"), st.booleans()),
    st.tuples(st.just("clear")),
    st.tuples(st.just("consume"), _picks),
    st.tuples(st.just("attempt"), _picks),
    st.tuples(st.just("message"), _name, _body, st.none() | _small),
    st.tuples(st.just("message"), _name, _body, st.none()),
    st.tuples(st.just("timer"), _small, _moment),
    st.tuples(st.just("cancel_timer"), _name, _small),
    st.tuples(st.just("fire"), _picks, st.booleans(), st.none() | _small),
    st.tuples(st.just("task"), st.sampled_from(TASKS), _small),
    st.tuples(st.just("retry"), st.sampled_from(TASKS), _small),
    st.tuples(st.just("finish"), st.sampled_from(TASKS)),
    st.tuples(st.just("answer"), st.sampled_from(TASKS), _name),
    st.tuples(st.just("watch"), _small, _body),
    st.tuples(st.just("cancel_watch"), _name, _small),
    st.tuples(st.just("history"), _body),
    st.tuples(st.just("tag"), st.dictionaries(st.sampled_from(TAGS), st.sampled_from(TAGS))),
    st.tuples(st.just("dead"), st.none() | _picks),
    st.tuples(st.just("revive"), _picks),
    st.tuples(st.just("bury"), _picks),
)
_plan = st.tuples(_name, _moment, st.lists(_step, min_size=1, max_size=5))
COMMITS = st.lists(st.lists(_plan, min_size=1, max_size=4), min_size=1, max_size=6)
"""Plans of commits: what each change of each does."""


def settle(result: Any) -> None:
    """Wait for a commit that is under way."""
    if result is not None:
        result.result(PATIENCE)


class _Maker:
    """Makes a change of a plan: what a plan only points at is looked up in the model."""

    def __init__(self, model: Model, execution: str, at: float) -> None:
        self._model = model
        kind = KINDS[NAMES.index(execution) % 2]
        self.change = Change(execution, kind=kind, at=at)
        for name in (
            "creates", "consumed", "attempted", "messages", "timers", "cancelled_timers",
            "fired_timers", "tasks", "retried", "finished_tasks", "task_results",
            "watches", "cancelled_watches",
            "history", "dead", "requeued_letters", "purged_letters",
        ):  # fmt: skip
            setattr(self.change, name, [])
        self._lists: Any = self.change

    def _ids(self, picks: list[int]) -> list[Any]:
        """Return ids of messages of the execution, and of some that are gone, or of others."""
        ids = [row.id for row in self._model.messages if row.execution == self.change.execution]
        ids += [each for each in self._model.used if each not in ids][:2]
        return [ids[pick % len(ids)] for pick in picks] if ids else []

    def state(self, which: str, status: str, state: bytes | None) -> None:
        change = self.change
        row = self._model.executions.get(change.execution)
        revision = NEVER_RUN if row is None else row.revision
        change.expected = {"now": revision, "never": NEVER_RUN, "stale": 1_000_000}[which]
        change.status, change.state, change.version = status, state, 3
        change.appends = False
        change.result, change.error = b"result", b"error"

    def append(self, which: str, status: str, state: bytes) -> None:
        self.state(which, status, state)
        self.change.appends = True

    def create(self, name: str, wrong: int, parent: str | None) -> None:
        kind = KINDS[(NAMES.index(name) + (wrong == 0)) % 2]
        self._lists.creates.append(NewExecution(name, kind, parent))

    def new_only(self) -> None:
        self.change.new_only = bool(self.change.creates)

    def epoch(self, right: bool) -> None:  # noqa: FBT001 - drawn
        epoch = self._model.epoch_of(self.change.execution)
        if epoch is not None:
            self.change.epoch = epoch if right else epoch - 1

    def clear(self) -> None:
        self.change.clear = True

    def consume(self, picks: list[int]) -> None:
        self._lists.consumed.extend(self._ids(picks))

    def attempt(self, picks: list[int]) -> None:
        self._lists.attempted.extend(dict.fromkeys(self._ids(picks)))

    def message(self, to: str, body: bytes, key: int | None) -> None:
        made = NewMessage(to, "message", body, None if key is None else f"key-{key}")
        self._lists.messages.append(made)

    def timer(self, number: int, due: float) -> None:
        row = TimerRow(self.change.execution, f"timer-{number}", due, b"t")
        self._lists.timers.append(row)

    def cancel_timer(self, name: str, number: int) -> None:
        self._lists.cancelled_timers.append((name, f"timer-{number}"))

    def fire(self, picks: list[int], right: bool, key: int | None) -> None:  # noqa: FBT001 - drawn
        timers = list(self._model.timers.values())
        for pick in picks if timers else ():
            row = timers[pick % len(timers)]
            if not right:
                row = row._replace(due=row.due + 1.0)
            message = NewMessage(
                row.execution, "timer", b"f", None if key is None else f"key-{key}"
            )
            self._lists.fired_timers.append((row, message))

    def task(self, task: str, attempts: int) -> None:
        name = self.change.execution
        row = TaskRow(
            task, name, f"tasker-{attempts % 2}", b"w", attempts, 1.5, 2.5, 3, attempts - 1,
            attempts > 1,
        )  # fmt: skip
        self._lists.tasks.append(row)

    def retry(self, task: str, attempts: int) -> None:
        row = TaskRow(
            task, self.change.execution, "other", b"other", attempts, 7.5, worker="w" * attempts
        )
        self._lists.retried.append(row)

    def finish(self, task: str) -> None:
        self._lists.finished_tasks.append(task)

    def answer(self, task: str, to: str) -> None:
        self._lists.task_results.append(TaskResult(task, NewMessage(to, "ended", b"a")))

    def watch(self, number: int, body: bytes) -> None:
        row = WatchRow(self.change.execution, f"watch-{number}", self.change.kind, body)
        self._lists.watches.append(row)

    def cancel_watch(self, name: str, number: int) -> None:
        self._lists.cancelled_watches.append((name, f"watch-{number}"))

    def tag(self, tags: dict[str, str]) -> None:
        self.change.tags = tags

    def history(self, body: bytes) -> None:
        self._lists.history.append(body)

    def dead(self, picks: list[int] | None) -> None:
        ids = [None] if picks is None else self._ids(picks[:1])
        name = self.change.execution
        self._lists.dead.extend(NewDead(id_, name, "message", b"d", "why") for id_ in ids)

    def _letters(self, picks: list[int]) -> list[Any]:
        letters = [row.id for row in self._model.dead if row.id is not None]
        return [letters[pick % len(letters)] for pick in picks] if letters else []

    def revive(self, picks: list[int]) -> None:
        self._lists.requeued_letters.extend(self._letters(picks))

    def bury(self, picks: list[int]) -> None:
        self._lists.purged_letters.extend(self._letters(picks))


def planned(model: Model, plans: list[Any]) -> list[Change]:
    """Return the changes of a planned commit."""
    changes = []
    for execution, at, steps in plans:
        maker = _Maker(model, execution, at)
        for step, *arguments in steps:
            getattr(maker, step)(*arguments)
        changes.append(maker.change)
    return changes


class StoreMachine(RuleBasedStateMachine):
    """Each rule is a step; after each the store must hold what the model does."""

    factory: Callable[[], Store]
    again: Callable[[Store], Store] | None = None
    store: Store | None = None

    @initialize()
    def start(self) -> None:
        self.store = store = self.factory()
        self.model = Model(dict(store.owned()), store.traits.partitions)

    @rule(
        batches=COMMITS,
        limit=st.integers(1, 3),
    )
    def commit(self, batches: list[list[Any]], limit: int) -> None:
        assert self.store is not None
        for plans in batches:
            self._commit(planned(self.model, plans))
            compare(self.store, self.model, NAMES, limit)

    def _commit(self, changes: list[Change]) -> None:
        assert self.store is not None
        trial = self.model.copy()
        try:
            for change in changes:
                trial.apply(change)
        except Conflict as conflict:
            try:
                settle(self.store.commit(changes))
            except StoreConflict:
                assert not any(change.committed for change in changes), "nothing is committed"
                return
            msg = f"commit took the task {conflict}, whose id is in use, without StoreConflict"
            raise AssertionError(msg) from None
        settle(self.store.commit(changes))
        for change in changes:
            self.model.apply(change)

    @rule(before=_moment, limit=st.sampled_from([1, 2, 1_000]))
    def purge(self, before: float, limit: int) -> None:
        assert self.store is not None
        ended = self.model.ended(before)
        keys_before = before if limit > len(self.model.keys) else -1.0
        count = self.store.purge(before=before, keys_before=keys_before, limit=limit)
        gone = [name for name in ended if self.store.execution(name) is None]
        assert count == len(gone), f"purge returned {count}, and {gone} are gone"
        assert count == min(limit, len(ended)), f"{count} of {ended} with limit={limit}"
        self.model.forget(gone)
        self.model.forget_keys(keys_before)
        compare(self.store, self.model, NAMES)

    @precondition(lambda self: self.again is not None)
    @rule()
    def reopen(self) -> None:
        assert self.store is not None
        assert self.again is not None
        self.store.close()
        self.store = self.again(self.store)
        self.model.epochs = dict(self.store.owned())
        compare(self.store, self.model, NAMES)

    @rule()
    def restore_a_snapshot(self) -> None:
        assert self.store is not None
        copy = self.factory()
        try:
            copy.restore(self.store.snapshot())
            _same_but_for_ids(copy, self.store)
        finally:
            copy.close()

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()


def machine_of(
    factory: Callable[[], Store], reopen: Callable[[Store], Store] | None
) -> type[RuleBasedStateMachine]:
    """Return the state machine for the stores of a factory."""
    again = None if reopen is None else staticmethod(reopen)
    return type("Machine", (StoreMachine,), {"factory": staticmethod(factory), "again": again})


_IDS = {"messages": 0, "history": 0, "dead": 0, "keys": 2}  # which column is an opaque id


def _same_but_for_ids(copy: Store, store: Store) -> None:
    """Check that two stores hold the same rows in the same order within each execution."""
    assert _rows_of(copy) == _rows_of(store), "the restored store differs from the snapshot"


def _rows_of(store: Store) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for table, row in store.snapshot():
        if table == "meta":
            continue
        at = _IDS.get(table)
        plain = row if at is None else (*row[:at], *row[at + 1 :])
        rows.setdefault(table, []).append(tuple(plain))
    for table in ("executions", "timers", "watches", "tags", "keys"):
        rows.get(table, []).sort(key=repr)
    for table in ("messages", "history"):  # in order within each execution
        rows.get(table, []).sort(key=lambda row: row[0])
    return rows


# Functions that the directed cases share.


def commit(store: Store, *changes: Change) -> None:
    """Commit, and wait for it."""
    settle(store.commit(changes))


def raised(error: type[Exception], call: Callable[[], object]) -> Exception | None:
    """Return the error that a call raises, or `None` if it raises none."""
    try:
        call()
    except error as found:
        return found
    return None


def state_of(store: Store, name: str = "a") -> Any:
    """Return the state of an execution; `None` if it does not exist."""
    row = store.execution(name)
    return None if row is None else row.state


def bodies(store: Store, name: str = "a") -> list[bytes]:
    """Return the bodies of the messages that an execution has not consumed, in their order."""
    return [row.body for row in read_all(store.pending, 100, execution=name)]


def messages(*texts: bytes, to: str = "a") -> list[NewMessage]:
    """Return messages with these bodies."""
    return [NewMessage(to, "message", text) for text in texts]


def created(store: Store, name: str = "a", *, kind: str = "k") -> Any:
    """Create an execution with a state; return its revision."""
    change = Change(name, kind=kind, expected=NEVER_RUN, state=b"0", at=1.0)
    commit(store, change)
    assert change.committed
    return change.revision
