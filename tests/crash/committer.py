"""A program that is killed: commits to a store, and notes acknowledged commits.

`committer.py STORE NOTES LAST` goes on with the number that the store holds, up to LAST. Number n
is one commit of several changes: the state of two executions, a line more in that of a third, which
is written whole now and then, a message, a timer, a task, an entry
of the history, and the removal of what number n - 3 has added. Each is acknowledged by a line.
"""

from __future__ import annotations

import sys

from actorflow.engine.stores.protocol import Change, NewMessage, TaskRow, TimerRow
from actorflow.engine.stores.sqlite.store import SqliteStore

KEPT = 3
"""What this many commits have added is in the store; older rows were removed."""
COMPACTED = 7
"""After so many lines the log is written whole."""


def logged(number: int, *, whole: bool = True) -> bytes:
    """Return the lines up to a number, or only the last."""
    return b"".join(b"%d\n" % each for each in range(1 if whole else number, number + 1))


def main(path: str, notes: str, last: str) -> None:
    store = SqliteStore(path)
    names = ("a", "b", "log")
    rows = store.executions(names)
    revisions = {name: rows[name].revision if name in rows else 0 for name in names}
    number = int(rows["a"].state or b"0") if "a" in rows else 0
    messages = [row.id for row in store.pending(execution="a").rows]
    with open(notes, "a", encoding="ascii", buffering=1) as file:  # noqa: PTH123
        while number < int(last):
            number += 1
            state = b"%d" % number
            old = number - KEPT
            change = Change(
                "a", kind="k", expected=revisions["a"], state=state, at=float(number),
                messages=[NewMessage("a", "message", state)],
                consumed=messages[:1] if len(messages) == KEPT else [],
                timers=[TimerRow("a", f"t{number}", float(number), state)],
                cancelled_timers=[("a", f"t{old}")],
                tasks=[TaskRow(f"x{number}", "a", "tasker", state)], finished_tasks=[f"x{old}"],
                history=[state],
            )  # fmt: skip
            other = Change("b", kind="k", expected=revisions["b"], state=state, at=float(number))
            whole = number % COMPACTED == 0
            log = Change(
                "log", kind="k", expected=revisions["log"], state=logged(number, whole=whole),
                appends=not whole, at=float(number),
            )  # fmt: skip
            changes = [change, other, log]
            store.commit(changes)
            assert all(each.committed for each in changes)
            revisions = {each.execution: each.revision for each in changes}
            messages = [*messages[-KEPT + 1 :], change.rows[0].id]
            file.write(f"{number}\n")
            if number == 1:
                print("running", flush=True)  # noqa: T201
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
