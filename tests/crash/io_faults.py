"""A program whose disk fails: `io_faults.py FOLDER SHIM CASE...`, run with the shim preloaded.

Each case is a process of its own, forked from this one: its files fail at some call, it sends
messages and notes the answers, and it kills itself. Then the store is opened again, and must agree
with the answers.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import EngineClosed, OutcomeUnknown, StoreRefused
from actorflow.runtime.errors import PushTimeout
from tests.engine.kinds import collect

EVER = 1 << 30
PATIENCE = 20.0
AT_ONCE = 12  # cases, most of which sleep
MESSAGES = 8


def play(store: str, shim: Any, case: str) -> dict[str, Any]:
    """Send messages while calls fail; return the answer to each."""
    begin, count, name, how = case.split(":")
    first, code = int(begin), getattr(errno, name)
    last = EVER if count == "ever" else first + int(count) - 1
    engine = BareEngine(store)
    worker = engine.worker("w", collect, state=[])
    worker.push_block(0, timeout=PATIENCE)
    said: dict[int, str] = {0: "stored"}
    ids: dict[int, str] = {}
    shim.io_faults_arm(store.encode(), first, last, code, int("torn" in how))
    for number in range(1, MESSAGES + 1):
        said[number] = _send(worker, number, ids)
    calls = shim.io_faults_calls()
    if "repeat" in how:  # until it is certain
        shim.io_faults_arm(b"", 0, 0, 0, 0)
        for number, word in said.items():
            if word != "stored":
                worker.push_ack(number, timeout=PATIENCE, key=str(number))
                said[number] = "stored" if number % 2 else "at least once"
    if "ask" in how:
        shim.io_faults_arm(b"", 0, 0, 0, 0)
        worker.push_block("end", timeout=PATIENCE)
        for number, id_ in ids.items():
            answer = str(engine.outcome(id_))
            said[number] = "undecided" if answer == "unknown" else answer
    if "close" in how:
        engine.close()
    return {"said": said, "calls": calls}


def _send(worker: Any, number: int, ids: dict[int, str]) -> str:
    try:
        if number % 2:
            worker.push_ack(number, timeout=0.2, key=str(number))
        else:
            worker.push_block(number, timeout=0.2)
    except StoreRefused:
        return "not stored"
    except OutcomeUnknown as error:
        ids[number] = error.id
        return "unknown"
    except (PushTimeout, EngineClosed):
        return "unknown"
    return "stored"


def judge(store: str, said: dict[str, str]) -> list[str]:
    """Return the answers that are not true."""
    with BareEngine(store) as engine:
        worker = engine.worker("w", collect, state=[])
        worker.push_block("last", timeout=PATIENCE)
        state = worker.state()
    allowed = {
        "stored": (1,), "not stored": (0,), "unknown": (0, 1), "at least once": range(1, 9),
    }  # fmt: skip
    return [
        f"{number} was {word}, and is there {state.count(int(number))} times"
        for number, word in said.items()
        if state.count(int(number)) not in allowed.get(word, ())
    ]


def _forked(call: Any, *, killed: bool) -> tuple[int, int]:
    """Call a function in a child; return its process id and the end of a pipe with the result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found: Any = call()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            found = {"error": repr(error)}
        os.write(writing, json.dumps(found).encode())
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    os.close(writing)
    return child, reading


def _result(child: int, reading: int) -> Any:
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process ended"}


def main(folder: str, library: str, cases: list[str]) -> None:
    """Play each case, and print the wrong answers."""
    shim = ctypes.CDLL(library)
    waiting = list(enumerate(cases))
    while waiting:
        some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        played = []
        for number, case in some:
            store = str(Path(folder) / f"{number}.db")
            child = partial(play, store, shim, case)
            played.append((case, store, *_forked(child, killed=True)))
        judged: list[tuple[str, Any, tuple[int, int] | None]] = []
        for case, store, process, pipe in played:
            found = _result(process, pipe)
            if "error" in found:
                judged.append((case, found, None))
                continue
            said = found["said"]
            look = _forked(partial(judge, store, said), killed=False)
            judged.append((case, found, look))
        for case, found, looking in judged:
            wrong = [found["error"]] if looking is None else _result(*looking)
            print(json.dumps([case, found, wrong]), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
