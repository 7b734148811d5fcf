"""Checks that a function is pure: clocks and random numbers raise while it runs."""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Impure", "no_outside"]

_OUTSIDE: dict[Any, tuple[str, ...]] = {
    time: ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
           "localtime", "gmtime", "sleep"),
    random: ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform",
             "getrandbits", "gauss"),
    secrets: ("token_hex", "token_bytes", "token_urlsafe", "randbelow", "choice"),
    uuid: ("uuid1", "uuid4"),
    os: ("urandom",),
}  # fmt: skip


class Impure(BaseException):
    """A function used more than its arguments. Not an `Exception`: user code must not catch it."""


def _refusing(name: str, function: Any) -> Any:
    mine = threading.get_ident()

    def refuse(*args: Any, **options: Any) -> Any:
        # Other threads go on, and log records may contain the time.
        if threading.get_ident() != mine or sys._getframe(1).f_globals["__name__"] == "logging":  # noqa: SLF001
            return function(*args, **options)
        raise Impure(name)

    return refuse


@contextmanager
def no_outside() -> Iterator[None]:
    """Make the clocks and random numbers of the standard library raise `Impure` in this thread.

    What a module has imported by name before (`from time import time`) is not caught.
    """
    kept = [
        (module, name, getattr(module, name))
        for module, names in _OUTSIDE.items()
        for name in names
    ]
    try:
        for module, name, function in kept:
            setattr(module, name, _refusing(f"{module.__name__}.{name}()", function))
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)
