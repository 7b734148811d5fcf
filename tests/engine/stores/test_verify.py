"""`verify` reports every fault in a store, and nothing else."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from actorflow.engine import bodies
from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import StoreBroken
from actorflow.engine.operations.export import export_lines, import_lines
from actorflow.engine.operations.verify import verify_store
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewDead,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.engine.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.engine.stores.protocol import Store

GOOD = bodies.encode({"plain": [1, "data", None]})


def sound(store: Store) -> None:
    store.commit(
        [
            Change(
                "a", kind="k", expected=NEVER_RUN, state=b"\xc1 only its kind can read this",
                result=GOOD, error=GOOD, at=1.0, version=2,
                messages=[NewMessage("a", "message", GOOD, "key")],
                timers=[TimerRow("a", "t", 5.0, GOOD)], tasks=[TaskRow("x", "a", "tasker", GOOD)],
                watches=[WatchRow("a", "w", "k", GOOD)], history=[GOOD],
                dead=[NewDead(None, "a", "message", GOOD, "why")],
            )
        ]
    )  # fmt: skip


def found(store: Store) -> list[str]:
    return [str(problem) for problem in verify_store(store)]


def test_a_sound_store_has_no_problems(tmp_path: Path) -> None:
    stores: list[Store] = [MemoryStore(), SqliteStore(tmp_path / "s.db", durability="off")]
    for store in stores:
        sound(store)
        assert found(store) == []
        store.close()


def test_each_fault_is_found() -> None:
    store = MemoryStore()
    sound(store)
    store.commit(
        [
            Change("odd", kind="k", expected=NEVER_RUN, status="asleep", result=b"\xc1"),
            Change("a", messages=[NewMessage("a", "message", b"\xc1")]),
            Change("a", messages=[NewMessage("a", "telegram", GOOD)]),
            Change("nobody", timers=[TimerRow("nobody", "t", 1.0, GOOD)]),
            Change("ended", kind="k", expected=NEVER_RUN, status="done",
                   tasks=[TaskRow("late", "ended", "tasker", GOOD)]),
            Change("a", history=[b"\x92\x01"]),
        ]
    )  # fmt: skip
    problems = found(store)
    for text in (
        "executions: 'odd': the status 'asleep' is unknown",
        "executions: 'odd': its result cannot be decoded",
        "its body cannot be decoded: MessagePack data is malformed",
        "the type 'telegram', which this version does not know",
        "timers: 't': its execution 'nobody' is not there",
        "tasks: 'late': its execution 'ended' has ended (done)",
        "history: ",
    ):
        assert [problem for problem in problems if text in problem], (text, problems)
    assert len(problems) == 7


def test_messages_of_an_execution_that_was_cancelled_are_no_damage(tmp_path: Path) -> None:
    with BareEngine(tmp_path / "s.db", durability="off") as engine:
        engine.send("order", 1, kind="unknown")
        assert engine.cancel("order")
    store = SqliteStore(tmp_path / "s.db", durability="off")
    assert [row.execution for row in store.pending().rows] == ["order"]
    assert found(store) == []
    store.close()


def test_a_damaged_file_is_told_before_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, durability="off")
    sound(store)
    store.close()
    connection = sqlite3.connect(path)
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'tasks_tasker'"
    ).fetchone()
    connection.close()
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"tasker", (root - 1) * 4_096)] ^= 1
    path.write_bytes(whole)
    store = SqliteStore(path, read_only=True)
    problems = found(store)
    store.close()
    assert problems
    assert all(problem.startswith("file: ") for problem in problems)


def test_every_row_is_exported_and_imported(tmp_path: Path) -> None:
    store = MemoryStore()
    sound(store)
    file = SqliteStore(tmp_path / "s.db", durability="off")
    assert import_lines(file, export_lines(store)) == 8
    again = MemoryStore()
    assert import_lines(again, export_lines(file)) == 8
    assert list(again.snapshot())[1:] == list(store.snapshot())[1:]
    with pytest.raises(StoreBroken, match="name a new file"):
        import_lines(file, export_lines(store))
    file.close()


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["nonsense"],
        ['{"actorflow": 1}'],
        ['{"actorflow": 2}', "[]"],
        ['{"actorflow": 2}', '{"table": "executions", "id": "a"}'],
        ['{"actorflow": 2}', '{"table": "novelties"}'],
        [
            '{"actorflow": 2}',
            '{"table": "timers", "execution": "a", "id": "t", "due": 1, "body": 7}',
        ],
    ],
)
def test_what_is_not_an_export_is_refused_and_nothing_is_stored(
    lines: list[str], tmp_path: Path
) -> None:
    stores: list[Store] = [MemoryStore(), SqliteStore(tmp_path / "s.db", durability="off")]
    for store in stores:
        with pytest.raises(StoreBroken):
            import_lines(store, lines)
        assert [each for each in store.snapshot() if each[0] != "meta"] == []
        store.close()
