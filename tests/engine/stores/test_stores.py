"""All stores keep the promises of the protocol, and the check finds stores that do not."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from actorflow.engine.errors import StoreConflict, StoreRefused
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    MessageRow,
    NewMessage,
    Page,
    StoreTraits,
)
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.testing.stores import check_store
from actorflow.testing.stores.cases import CASES, DURABLE_CASES
from actorflow.testing.stores.machine import machine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.engine.stores.protocol import Store


ROOT = Path(__file__).parents[3]


class Later:
    """A store whose commits are decided later, in another thread: up to four are under way."""

    traits = StoreTraits(in_flight=4)

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._thread = ThreadPoolExecutor(1)
        self._open = True

    def commit(self, changes: Sequence[Change]) -> Future[None]:
        if not self._open:
            msg = "closed"
            raise StoreRefused(msg)
        return self._thread.submit(self._decide, changes)

    def _decide(self, changes: Sequence[Change]) -> None:
        self.inner.commit(changes)

    def purge(self, **options: Any) -> int:
        if not self._open:
            msg = "closed"
            raise StoreRefused(msg)
        return self._thread.submit(lambda: self.inner.purge(**options)).result()

    def close(self) -> None:
        self._open = False
        self._thread.shutdown()
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def new_file(tmp_path: Path) -> Callable[[], SqliteStore]:
    """Return what makes a store in a new file."""
    numbers = itertools.count()
    return lambda: SqliteStore(tmp_path / f"{next(numbers)}.db", durability="off")


def reopened(store: Any) -> SqliteStore:
    return SqliteStore(store.path, durability="off")


def test_the_store_in_memory_keeps_every_promise() -> None:
    check_store(MemoryStore, max_examples=40)


def test_the_store_in_a_file_keeps_every_promise(new_file: Callable[[], SqliteStore]) -> None:
    check_store(new_file, reopen=reopened, max_examples=40)


def test_commits_may_be_decided_later(new_file: Callable[[], SqliteStore]) -> None:
    check_store(lambda: Later(MemoryStore()), max_examples=20)
    check_store(
        lambda: Later(new_file()),
        reopen=lambda store: Later(reopened(store)),
        max_examples=10,
    )


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_stores_keep_their_promises_for_long(new_file: Callable[[], SqliteStore]) -> None:
    check_store(MemoryStore, max_examples=5_000)
    check_store(new_file, reopen=reopened, max_examples=5_000)


# --- stores that break one promise each ----------------------------------------------------------


class IgnoresRaces(MemoryStore):
    def _refusal(self, change: Change) -> Any:
        refusal = super()._refusal(change)
        return None if refusal is not None and refusal.reason == "raced" else refusal


class ReplacesWhatGrows(MemoryStore):
    def _update(self, change: Change) -> None:
        change.appends = False
        super()._update(change)


class IgnoresEpochs(MemoryStore):
    def _refusal(self, change: Change) -> Any:
        epoch, change.epoch = change.epoch, None
        try:
            return super()._refusal(change)
        finally:
            change.epoch = epoch


class ForgetsKeys(MemoryStore):
    def _add_message(self, message: NewMessage, at: float) -> Any:
        return super()._add_message(message._replace(key=None), at)


class KeepsWatches(MemoryStore):
    def _remove(self, change: Change) -> Any:
        kept = [
            self._tables.watches.rows[k] for k in self._tables.watches.keys_of(change.execution)
        ]
        extra = super()._remove(change)
        for row in kept if change.clear else ():
            self._tables.watches.put((row.execution, row.id), row)
        return extra


class FiresWhatWasSetAnew(MemoryStore):
    def _take_timer(self, timer: Any) -> bool:
        found = self._tables.timers.rows.get((timer.execution, timer.id))
        return super()._take_timer(timer if found is None else found)


class LeavesHalf(MemoryStore):
    def commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            super().commit([change])


class PurgesWithoutLimit(MemoryStore):
    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        del limit
        return super().purge(before=before, keys_before=keys_before, limit=1_000_000, only=only)


class PurgesMoreThanIsNamed(MemoryStore):
    def purge(self, **options: Any) -> int:
        return super().purge(**options | {"only": None})


class LosesPages(MemoryStore):
    def open(self, **options: Any) -> Any:
        return Page(super().open(**options).rows, None)


class UsesIdsAgain(MemoryStore):
    def commit(self, changes: Sequence[Change]) -> None:
        if not self._tables.messages.rows:
            self._tables._last = 0
        super().commit(changes)


class ShowsLaterCommits(MemoryStore):
    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield ("meta", ("last_id", 0))
        yield from super().snapshot()


class RevivesTwice(MemoryStore):
    def _remove(self, change: Change) -> Any:
        found = [self.kept.get(letter) for letter in change.requeued_letters]
        self.kept.update((row.id, row) for row in self._tables.dead.rows.values())
        extra = super()._remove(change)
        return extra + [NewMessage(row.execution, row.type, row.body) for row in found if row]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}


class AnswersWhatIsGone(MemoryStore):
    def _remove(self, change: Change) -> Any:
        there = [
            answer for answer in change.task_results if answer.task in self._tables.task_numbers
        ]
        extra = super()._remove(change)
        return extra + [each.message for each in change.task_results if each not in there]


class StaysOpen(MemoryStore):
    def close(self) -> None:
        pass


class KeepsOldTags(MemoryStore):
    def _update(self, change: Change) -> None:
        if change.tags is not None:
            change.tags = self.tags_now(change.execution) | dict(change.tags)
        super()._update(change)

    def tags_now(self, name: str) -> dict[str, str]:
        return dict(self._tables.tags_of(name))


class FindsAnyTag(MemoryStore):
    def listing(self, *, tags: Any = None, **options: Any) -> Any:
        first = dict(list(tags.items())[:1]) if tags else None
        return super().listing(tags=first, **options)


MUTANTS = [
    KeepsOldTags,
    FindsAnyTag,
    IgnoresRaces,
    ReplacesWhatGrows,
    IgnoresEpochs,
    ForgetsKeys,
    KeepsWatches,
    FiresWhatWasSetAnew,
    LeavesHalf,
    PurgesMoreThanIsNamed,
    PurgesWithoutLimit,
    LosesPages,
    UsesIdsAgain,
    ShowsLaterCommits,
    RevivesTwice,
    AnswersWhatIsGone,
    StaysOpen,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_store_that_breaks_a_promise_is_found(mutant: type[MemoryStore]) -> None:
    with pytest.raises(AssertionError, match="the store breaks a promise"):
        check_store(mutant, max_examples=1)


class ForgetsWhenItWasCreated(MemoryStore):
    def _update(self, change: Change) -> None:
        super()._update(change)
        row = self._tables.executions[change.execution]
        self._tables.put_execution(row._replace(created=change.at))


class ClearsTimersOfAll(MemoryStore):
    def _remove(self, change: Change) -> Any:
        if change.clear and change.status == "cancelled":
            for key in list(self._tables.timers.rows):
                self._tables.drop_timer(key)
        return super()._remove(change)


class MovesWhatIsTriedAgain(MemoryStore):
    def _count_attempts(self, change: Change) -> None:
        super()._count_attempts(change)
        for task in change.retried:
            number = self._tables.task_numbers.get(task.id)
            if number is not None and task.attempts > 1:
                row = self._tables.tasks.rows[number]
                self._tables.drop_task(task.id)
                self._tables.add_task(row)


@pytest.mark.parametrize(
    "mutant", [ForgetsWhenItWasCreated, ClearsTimersOfAll, MovesWhatIsTriedAgain]
)
@pytest.mark.timeout(180)
def test_random_steps_find_what_no_case_was_written_for(mutant: type[MemoryStore]) -> None:
    steps = settings(
        max_examples=300, stateful_step_count=8, database=None, deadline=None, derandomize=False,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )  # fmt: skip
    for number in range(20):
        machine = seed(number)(machine_of(mutant, None))
        try:
            run_state_machine_as_test(machine, settings=steps)
        except AssertionError:  # a rule of the machine does not hold
            return
    pytest.fail("6,000 histories have not found it")


def test_each_promise_is_on_the_page_with_the_test_that_holds_it() -> None:
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    cases = {case.__name__ for case in (*CASES, *DURABLE_CASES)}
    named = set(re.findall(r"`((?:[a-z]+_){2,}[a-z]+)`", page))
    assert cases <= named
    tests = {name for name in named if name.startswith("test_")}
    files = sorted((ROOT / "tests/engine/stores").glob("test_sqlite*.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in tests if f"def {name}(" not in text] == []
    assert named - cases - tests <= {"verify_store"}


# --- between stores ------------------------------------------------------------------------------


def test_a_snapshot_fills_a_store_of_another_sort(new_file: Callable[[], SqliteStore]) -> None:
    memory, file = MemoryStore(), new_file()
    memory.commit(
        [
            Change("a", kind="k", expected=NEVER_RUN, state=b"s", at=1.0, history=[b"h"]),
            Change("a", messages=[NewMessage("a", "message", b"1", "key")], at=2.0),
        ]
    )
    assert file.restore(memory.snapshot()) == 4
    back = MemoryStore()
    assert back.restore(file.snapshot()) == 4
    without_meta = [each for each in memory.snapshot() if each[0] != "meta"]
    assert [each for each in back.snapshot() if each[0] != "meta"] == without_meta
    change = Change("a", messages=[NewMessage("a", "message", b"2")])
    file.commit([change])
    (row,) = change.rows
    assert isinstance(row, MessageRow)
    assert row.id > max(r.id for r in memory.pending().rows)
    file.close()


def test_ids_of_another_sort_become_numbers_in_the_same_order(
    new_file: Callable[[], SqliteStore],
) -> None:
    rows: list[tuple[str, tuple[Any, ...]]] = [
        ("messages", ("01HX-b", "a", "message", b"1", 1.0, 0)),
        ("messages", ("01HX-c", "a", "message", b"2", 1.0, 0)),
        ("dead", ("01HX-a", "a", "message", b"0", "why", 1.0)),
        ("keys", ("a", "key", "01HX-c", 1.0)),
    ]
    stores: list[Store] = [MemoryStore(), new_file()]
    for store in stores:
        assert store.restore(iter(rows)) == 4
        assert [row.body for row in store.pending(execution="a").rows] == [b"1", b"2"]
        change = Change("a", messages=[NewMessage("a", "message", b"3", "key")])
        store.commit([change])
        assert change.rows[0].id == store.pending(execution="a").rows[1].id
        store.close()


def test_a_restore_that_fails_leaves_the_store_empty(new_file: Callable[[], SqliteStore]) -> None:
    task = ("t", "a", "tasker", b"", 0, 0.0, None, None, 0, False, None)
    stores: list[Store] = [MemoryStore(), new_file()]
    for store in stores:
        with pytest.raises(StoreConflict):
            store.restore(iter([("tasks", task), ("tasks", task)]))
        assert store.open().rows == []
        assert store.restore(iter([("tasks", task)])) == 1
        store.close()
