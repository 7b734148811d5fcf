"""Start a fresh interpreter that knows the main module of this one, as multiprocessing does."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any

from actorflow.runtime.errors import LaunchFailed, traceback_of
from actorflow.runtime.processes.child.parent import die_with_parent, watching_parent
from actorflow.runtime.processes.memory import write_segment
from actorflow.runtime.processes.packed import main_is_importable, pack_value

__all__ = ["check_main", "main", "start_interpreter"]

_CODE = (
    "import sys; role, end, prepared, *sys.path = sys.argv[1:]; "
    "from actorflow.runtime.processes.interpreter import main; "
    "main(role, int(end), int(prepared))"
)

_GUARD = """\
worker processes cannot be started while the main module is being imported by one of them. Guard the
part of your program that starts things, so that it runs in the main process only:

    if __name__ == "__main__":
        main()
"""


def check_main() -> None:
    """Refuse to start processes from a main module without a guard.

    Raises:
        LaunchFailed: this is a worker process that is importing the main module.

    """
    if getattr(process.current_process(), "_inheriting", False):
        raise LaunchFailed(_GUARD)


def start_interpreter(role: str, endpoint: socket.socket) -> subprocess.Popen[bytes]:
    """Start an interpreter that plays a role: "fork server" or "worker".

    Raises:
        OSError: the interpreter cannot be started.
        LaunchFailed: see `check_main`.

    """
    check_main()
    preparation = spawn.get_preparation_data(f"actorflow-{role}")
    preparation["authkey"] = bytes(preparation["authkey"])  # else it refuses to be pickled
    if not main_is_importable():
        preparation.pop("init_main_from_path", None)  # there is no such file
    prepared = pickle.dumps(preparation)
    executable: Any = spawn.get_executable()
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
    path = [each or str(Path.cwd()) for each in sys.path]
    file = write_segment([prepared])
    files = [endpoint.fileno(), file]
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            [os.fsdecode(executable), *flags, "-c", _CODE, role, *map(str, files), *path],
            stdin=subprocess.DEVNULL,
            pass_fds=files,
            process_group=0,  # Ctrl-C is for the parent, which decides
        )
    finally:
        os.close(file)


def main(role: str, end: int, prepared: int) -> None:
    """Prepare this interpreter as multiprocessing does, and play the role. In the new process."""
    os.set_inheritable(end, False)  # noqa: FBT003 - the name of the standard library
    endpoint = socket.socket(fileno=end)
    with os.fdopen(prepared, "rb") as file:
        preparation = pickle.load(file)  # noqa: S301 - from our own parent
    current: Any = process.current_process()
    current._inheriting = True  # noqa: SLF001 - so nobody starts processes while main is imported
    try:
        with watching_parent(endpoint):  # the main module may be slow, or hang
            spawn.prepare(preparation)
    except BaseException as error:  # noqa: BLE001 - the parent gets the error
        text = traceback_of(error).rstrip()
        _refuse(endpoint, f"the main module cannot be imported there:\n{text}")
        return
    finally:
        del current._inheriting  # noqa: SLF001
    if role == "fork server":
        from actorflow.runtime.processes.child.fork_server import tend  # noqa: PLC0415 - one role of two

        tend(endpoint)
    else:
        from actorflow.runtime.processes.child.loop import serve  # noqa: PLC0415 - the other

        die_with_parent(os.getppid(), endpoint)
        serve(endpoint)


def _refuse(endpoint: socket.socket, why: str) -> None:
    from actorflow.runtime.processes.wire import UNFIT, Channel, encode  # noqa: PLC0415 - rare

    Channel(endpoint).send(*encode(UNFIT, 0, pack_value((LaunchFailed(why), "", "", "", ()))))
