"""Where large results go: files of a folder, or objects below a URL that fsspec can open.

A name is never written twice, because a job may run on two machines at the same time: one of them
was cut off, and does not know yet that the other has begun it again.

Imported by every worker process, so it imports little.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from posixpath import dirname
from typing import Any, BinaryIO

from actorflow.runtime.errors import BadOption, install_hint, kind_and_text

__all__ = ["check_url", "is_url", "open_file", "remove_files", "write_file"]


def is_url(path: str) -> bool:
    """Return whether fsspec opens a path, and not the operating system.

    >>> is_url("s3://bucket/plans"), is_url("/shared/plans")
    (True, False)
    """
    return "://" in path


def check_url(url: str) -> None:
    """Check that results can go below a URL, as far as that can be seen without a connection.

    Raises:
        BadOption: fsspec is missing, or it knows no such URL.

    """
    try:
        _system(url)
    except BadOption:
        raise
    except Exception as error:
        msg = f"directory={url!r} cannot be used: {kind_and_text(error)}"
        raise BadOption(msg) from error


def write_file(path: str, data: bytes) -> str:
    """Write a file; return its path, which is new each time and begins with `path`.

    A worker that dies while it writes leaves a part of a file, whose path nobody gets to know.
    """
    fresh = f"{path}-{os.urandom(6).hex()}"
    if is_url(fresh):
        system, inside = _system(fresh)
        system.makedirs(dirname(inside), exist_ok=True)
        system.pipe_file(inside, data)
    else:
        Path(fresh).write_bytes(data)
    return fresh


def open_file(path: str) -> BinaryIO:
    """Open a file for reading."""
    if not is_url(path):
        return Path(path).open("rb")
    system, inside = _system(path)
    file: BinaryIO = system.open(inside, "rb")
    return file


def remove_files(folder: str) -> None:
    """Delete a folder with its files, as far as that is possible."""
    if not is_url(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    system, inside = _system(folder)
    if system.exists(inside):
        system.rm(inside, recursive=True)


def _system(url: str) -> tuple[Any, str]:
    """Return what opens a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = f"{url!r} needs fsspec: {install_hint('remote')}"
        raise BadOption(msg) from error
    found: tuple[Any, str] = url_to_fs(url)
    return found
