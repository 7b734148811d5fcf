"""A store and forks of its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.stores.files import PATIENCE, ROOT, contents, full, python

# --- forks ---------------------------------------------------------------------------------------

IN_A_CHILD = """
import os, sys
from actorflow.engine.errors import StoreRefused
from tests.engine.stores.files import SqliteStore, full
from actorflow.engine.stores.protocol import Change

path = sys.argv[1]
store = SqliteStore(path, durability="off")
store.commit([full(0)])
rows = store.snapshot()
child = os.fork()
if child == 0:
    for use in (
        lambda: store.commit([Change("a")]),
        lambda: store.execution("a"),
        lambda: store.listing(),
        lambda: store.snapshot(),
        lambda: store.purge(before=0.0, keys_before=0.0),
        lambda: store.backup(path + ".copy"),
    ):
        try:
            use()
        except StoreRefused as error:
            assert "forked" in str(error), error
        else:
            os._exit(3)
    store.close()
    sys.exit(7)  # with all that the end of an interpreter does
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
store.commit([full(1)])
assert len(list(rows)) == 9
assert os.path.exists(path + "-wal")
store.close()
print("fine")
"""


OUTLIVED = """
import os, signal, sys
from tests.engine.stores.files import SqliteStore, full

store = SqliteStore(sys.argv[1], durability="off")
store.commit([full(0)])
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    sys.stdin.readline()
    store.close()
    sys.exit(0)
os.read(ready, 1)  # the child has let go of the lock
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_forked_child_cannot_use_the_store_of_its_parent(tmp_path: Path) -> None:
    done = python(IN_A_CHILD, str(tmp_path / "s.db"))
    assert done.stdout == "fine\n", done.stderr
    assert len(contents(tmp_path / "s.db")) == 2 * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_child_that_outlives_its_parent_holds_no_lock_and_takes_no_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    process = subprocess.Popen(
        [sys.executable, "-c", OUTLIVED, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert int(process.stdout.readline()) > 0
    assert process.wait(PATIENCE) == -signal.SIGKILL
    log = Path(f"{path}-wal").read_bytes()
    store = SqliteStore(path, durability="off")  # the child still lives
    store.commit([full(1)])
    process.stdin.write("go\n")
    process.stdin.close()
    assert process.stdout.read() == ""  # until the child has ended
    process.stdout.close()
    assert len(log) > 0
    assert Path(f"{path}-wal").exists()
    store.commit([full(2)])
    store.close()
    assert len(contents(path)) == 3 * 8
