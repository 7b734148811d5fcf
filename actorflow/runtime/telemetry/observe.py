"""Show the workers of this process to `actorflow top`, over a Unix socket.

The figures are read on request, so observation costs nothing while no viewer is connected. A
request is a line of JSON, `{"do": "look"}` or `{"do": "pause", "worker": NAME}`; so is the answer.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from actorflow.behaviours.errors import brief
from actorflow.runtime import registry
from actorflow.runtime.errors import ActorflowError, BadOption, UnknownWorker, WorkerStopped
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.supervision.actor import SupervisorActor
from actorflow.runtime.supervision.tree import outline
from actorflow.runtime.worker.ref import WorkerRef
from actorflow.runtime.worker.statistics import WorkerStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Observation", "act", "folder", "look", "observe", "snapshot", "worker_named"]

_LONGEST = 16 << 20  # bytes of one answer
_LONGEST_REQUEST = 10_000
_PATIENCE = 5.0  # seconds
_FIGURES = tuple(each.name for each in fields(WorkerStatistics))


class Observation:
    """An open socket; `close()` removes it. Usable as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = _listen(path)
        self._thread = threading.Thread(target=self._serve, name="actorflow-observe", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection, suppress(OSError):
                connection.settimeout(_PATIENCE)
                with connection.makefile("rb") as lines:
                    request = lines.readline(_LONGEST_REQUEST)
                connection.sendall(json.dumps(_answer(request)).encode())

    def close(self) -> None:
        """Close the socket and remove its file. Idempotent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def observe(path: str | os.PathLike[str] | None = None) -> Observation:
    """Let `actorflow top` look at the workers of this process. Thread-safe.

    Args:
        path: of the socket, which only the owner may open. By default `actorflow top PID` finds it.

    Raises:
        BadOption: the socket cannot be made.

    """
    return Observation(folder() / f"{os.getpid()}.sock" if path is None else Path(path))


def folder() -> Path:
    """Return the folder of the sockets of this user; create it if need be."""
    found = Path(tempfile.gettempdir()) / f"actorflow-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    if found.stat().st_uid != os.getuid():
        msg = f"{found} belongs to another user: set TMPDIR to a folder of your own"
        raise BadOption(msg)
    return found


def snapshot() -> dict[str, Any]:
    """Return the figures of the workers, the supervision trees and the pool, as plain data."""
    workers = {}
    for name, ref in _workers():
        try:
            found = ref.statistics()
        except WorkerStopped:
            continue
        life = ref.actor.lifecycle
        workers[name] = {
            **{each: getattr(found, each) for each in _FIGURES},
            "batch_sizes": {str(size): count for size, count in found.batch_sizes.items()},
            "state": "paused" if ref.actor.is_paused else ref.status.name.lower(),
            "behaviour": brief(ref.actor.core.behaviour),
            "supervisor": None if life.supervisor is None else repr(life.supervisor),
        }
    return {
        "process": os.getpid(),
        "workers": workers,
        "trees": [outline(each) for each in _roots()],
        "pool": asdict(POOL.statistics()),
    }


def worker_named(name: str) -> WorkerRef:
    """Return the worker that `snapshot` shows under a name.

    Raises:
        UnknownWorker: there is no such worker, or it has ended.

    """
    found = dict(_workers())
    if name not in found:
        raise UnknownWorker(name, found)
    return found[name]


def _workers() -> Iterator[tuple[str, WorkerRef]]:
    """Yield the workers with their names; those of durable executions are left out."""
    for ref in registry.ACTORS:
        if isinstance(ref, WorkerRef) and not ref.actor.lifecycle.durable:
            yield _name(ref), ref


def _name(ref: WorkerRef) -> str:
    """Return the name of a worker, or else its place or job with the beginning of its URN."""
    if ref.name is not None:
        return str(ref.name)
    life, settings = ref.actor.lifecycle, ref.actor.settings
    what = settings.title if life.child_id is None else life.child_id
    return f"{what} {ref.actor_urn.removeprefix('urn:uuid:')[:8]}"


def _roots() -> list[SupervisorActor]:
    """Return the supervisors that no other supervisor has started."""
    actors = [getattr(ref, "actor", None) for ref in registry.ACTORS]
    return [
        each for each in actors if isinstance(each, SupervisorActor) and each.supervisor is None
    ]


_ACTIONS: dict[str, Callable[[WorkerRef], Any]] = {
    "pause": lambda worker: worker.pause(),
    "resume": lambda worker: worker.resume(),
    "retry": lambda worker: worker.dead_letters.retry(),
}


def _answer(request: bytes) -> dict[str, Any]:
    """Return the answer to a request. Runs in the thread of the socket, so it must not raise."""
    try:
        asked = json.loads(request)
        if asked["do"] == "look":
            return snapshot()
        return {"done": _ACTIONS[asked["do"]](worker_named(asked["worker"]))}
    except ActorflowError as error:
        return {"error": str(error)}
    except (ValueError, TypeError, KeyError):
        return {"error": f"{request!r:.80} is not a request: {', '.join(['look', *_ACTIONS])}"}


def look(path: Path) -> dict[str, Any]:
    """Return the snapshot of an observed process.

    Raises:
        OSError: no process answers there.

    """
    return _ask(path, {"do": "look"})


def act(path: Path, action: str, worker: str) -> Any:
    """Let a worker of an observed process `pause`, `resume`, or `retry` its dead letters.

    Raises:
        BadOption: the process refused it, and says why.
        OSError: no process answers there.

    """
    answer = _ask(path, {"do": action, "worker": worker})
    if "error" in answer:
        raise BadOption(answer["error"])
    return answer["done"]


def _ask(path: Path, request: dict[str, str]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        parts = []
        size = 0
        while part := connection.recv(65_536):
            parts.append(part)
            size += len(part)
            if size > _LONGEST:
                msg = f"{path} answers with more than {_LONGEST:,} bytes"
                raise OSError(msg)
    try:
        found: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError as error:
        msg = f"{path} ended its answer too early: {error}"
        raise OSError(msg) from error
    return found


def _listen(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        made.bind(str(path))
        path.chmod(0o600)  # nobody can connect before listen()
        made.listen()
    except OSError as error:
        made.close()
        msg = f"the socket {path} cannot be made ({error.strerror or error}): choose another path"
        raise BadOption(msg) from error
    return made
