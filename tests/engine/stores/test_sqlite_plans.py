"""No statement reads a whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.protocol import (
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskResult,
    TaskRow,
    TimerRow,
)
from actorflow.engine.stores.sqlite import schema
from actorflow.engine.stores.sqlite.file import StoreFile
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.stores.files import full

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# --- plans: nothing reads a whole table ----------------------------------------------------------


class Plans:
    """Collects the plan of every statement that a store runs."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path, durability="off")
        self.found: dict[str, list[str]] = {}
        self._explainer = StoreFile(path).connect("mode=ro")
        assert self.store._session is not None
        self.store._session.connection.set_trace_callback(self.note)
        read = self.store._readers.read

        def noted(text: str, values: Sequence[Any] = ()) -> list[Any]:
            self.explain(text, values)
            return read(text, values)

        self.store._readers.read = noted  # type: ignore[method-assign]

    def note(self, text: str) -> None:
        if text.startswith(("DELETE", "UPDATE", "SELECT")):
            self.explain(text)

    def explain(self, text: str, values: Sequence[Any] = ()) -> None:
        rows = self._explainer.execute(f"EXPLAIN QUERY PLAN {text}", values)
        self.found[text] = [row[3] for row in rows]

    def close(self) -> None:
        self.store.close()
        self._explainer.close()


def test_no_statement_reads_a_whole_table(tmp_path: Path) -> None:
    plans = Plans(tmp_path / "s.db")
    store = plans.store
    store.commit([full(number) for number in range(3)])
    store.commit(
        [
            Change("a", clear=True, creates=[NewExecution("a", "k")], consumed=[1, 2, 7],
                   attempted=[3], cancelled_timers=[("a", "t")], finished_tasks=["x"],
                   cancelled_watches=[("a", "w")], purged_letters=[1], requeued_letters=[2],
                   fired_timers=[(TimerRow("a", "t", 1.0, b""),
                                  NewMessage("a", "timer", b"", "key"))],
                   task_results=[TaskResult("y", NewMessage("a", "ended", b""))],
                   retried=[TaskRow("z", "a", "t", b"")],
                   dead=[NewDead(5, "a", "message", b"", "why")]),
            Change("execution-1", expected=1, state=b"new"),
            Change("execution-2", expected=1, state=b"new", status="done"),
        ]
    )  # fmt: skip
    for revision, appends in enumerate((True, True, False), start=2):
        store.commit([Change("execution-1", expected=revision, state=b"x", appends=appends)])
    store.purge(before=9.0, keys_before=9.0, limit=2)
    for options in (
        {"kind": "k"}, {"status": "done"}, {"status": "active"}, {"parent": "p"},
        {"kind": "k", "status": "failed"}, {"kind": "k", "status": "done"},
        {"kind": "k", "status": "active", "parent": "p", "after": "x"}, {"after": "x"},
        {"tags": {"x": "y"}}, {"tags": {"x": "y", "z": "1"}, "kind": "k", "after": "x"},
    ):  # fmt: skip
        store.listing(**options)
    for message in ({"execution": "a"}, {"execution": "a", "after": 1}, {"kind": "k"},
                    {"after": ("a", 1)}, {"kind": "k", "after": ("a", 1)}):  # fmt: skip
        store.pending(**message)
    for task in ({"execution": "a"}, {"tasker": "t"}, {"execution": "a", "tasker": "t"},
                 {"after": 1}, {"tasker": "t", "after": 1}):  # fmt: skip
        store.open(**task)
    store.due(execution="a")
    store.task("x")
    store.history("a")
    store.history("a", after=1)
    store.dead(execution="a", after=1)
    store.dead(after=1)
    store.dead_letter(1)
    store.keyed("a", "x")
    store.tags("a")
    store.watches(after=("a", "w"))
    store.counts(["a", "b"])
    store.executions(["a", "b"])
    plans.close()
    assert len(plans.found) > 40
    ours = set(schema.COLUMNS)
    for text, steps in plans.found.items():
        scans = [s for s in steps if s.startswith("SCAN") and s.split()[1] in {*ours, "m", "e"}]
        assert not scans, f"{text}: {scans}"


def test_pages_of_everything_are_read_in_the_order_of_an_index(tmp_path: Path) -> None:
    plans = Plans(tmp_path / "s.db")
    store = plans.store
    for read in (store.listing, store.pending, store.due, store.open, store.watches, store.dead):
        read(limit=10)
    plans.close()
    assert len(plans.found) == 6
    for text, steps in plans.found.items():
        assert not [step for step in steps if "TEMP B-TREE" in step], f"{text}: {steps}"
