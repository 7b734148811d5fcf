"""Engines that cannot be opened say why; one whose opening is interrupted holds nothing."""

from __future__ import annotations

import errno
import shutil
import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.closer import OPEN
from actorflow.engine.errors import StoreBroken, StoreBusy
from actorflow.engine.stores.sqlite.lock import FileLock
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.kinds import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "where",
    [
        "actorflow.application.Flows",
        "actorflow.application.Workflows",
        "actorflow.application.Plans",
        "actorflow.engine.engine.EngineParts",
        "actorflow.engine.engine.CronKind",
    ],
)
def test_an_interrupt_while_an_engine_is_opened_leaves_the_store_to_the_next(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = set(OPEN)
    with monkeypatch.context() as patch:
        patch.setattr(where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            af.Engine(tmp_path / "store.db", durability="off")
    assert before == OPEN
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        assert list(engine.executions()) == []


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match="is a directory: name a file"):
        af.Engine(tmp_path)
    with pytest.raises(af.BadOption, match="'' is not a path: name a file"):
        af.Engine("")
    with pytest.raises(af.BadOption, match="is not a path: it has a null character in it"):
        af.Engine("orders\0.db")


@pytest.mark.parametrize("where", [":memory:", "store.db"])
def test_a_durability_that_there_is_not_is_refused(where: str, tmp_path: Path) -> None:
    where = where if where == ":memory:" else str(tmp_path / where)
    with pytest.raises(af.BadOption, match=r"durability='ful' is not a setting.*'full'"):
        af.Engine(where, durability="ful")


@pytest.mark.parametrize("timeout", ["5", float("nan"), True])
def test_a_timeout_that_is_no_number_is_refused_before_anything_is_pushed(timeout: Any) -> None:
    with af.Engine(":memory:") as engine:
        worker = engine.worker("w", lambda batch, state: state + len(batch), state=0)
        for push in (worker.push_ack, worker.push_block):
            with pytest.raises(af.BadOption, match="must be a number of seconds"):
                push(1, timeout=timeout)
        worker.push_block(1)
        assert worker.state() == 1


def test_a_schedule_needs_a_durable_worker() -> None:
    with af.Engine(":memory:") as engine, pytest.raises(af.BadOption, match="not a durable worker"):
        engine.every("daily", "0 2 * * *", "worker", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where", ["session.CommitLog", "store.SqliteReaders.open", "store.StoreFile.remember"]
)
@pytest.mark.parametrize("life", ["new", "closed", "killed"])
def test_a_store_whose_opening_fails_at_its_end_can_be_opened_again(
    where: str, life: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    if life != "new":
        with af.Engine(path, durability="off") as engine:
            engine.worker("w", lambda batch, state: state + len(batch), state=0).push_block(1)
            if life == "killed":
                for name in ("store.db", "store.db-wal", "store.db.lock"):
                    shutil.copy(tmp_path / name, tmp_path / f"copy of {name}")
        if life == "killed":
            for name in ("store.db", "store.db-wal", "store.db.lock"):
                shutil.move(tmp_path / f"copy of {name}", tmp_path / name)

    def fails(*_: Any, **_options: Any) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(f"actorflow.engine.stores.sqlite.{where}", fails)
        with pytest.raises(OSError, match="too many open files"):
            af.Engine(path)
    with af.Engine(path, durability="off") as engine:
        worker = engine.worker("w", lambda batch, state: state + len(batch), state=0)
        worker.push_block(2)
        assert worker.state() == (1 if life == "new" else 2)


@pytest.mark.parametrize("verb", ["open", "close"])
def test_an_interrupt_leaves_neither_the_lock_nor_a_wrong_note(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, go = threading.main_thread().ident, threading.Event()
    assert main is not None
    path = tmp_path / "store.db"
    write = FileLock._write

    def interrupts(lock: FileLock, *, sync: bool = False) -> None:
        write(lock, sync=sync)
        signal.pthread_kill(main, signal.SIGINT)
        assert go.wait(PATIENCE)

    store = SqliteStore(path, durability="off") if verb == "close" else None
    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "_write", interrupts)
        with pytest.raises(KeyboardInterrupt):
            SqliteStore(path, durability="off") if store is None else store.close()
    go.set()
    if store is not None:
        store.close()  # waits for the first
    end = monotonic() + PATIENCE
    while True:
        try:
            SqliteStore(path, durability="off").close()
        except StoreBusy:  # it is being closed
            assert monotonic() < end
        else:
            return
