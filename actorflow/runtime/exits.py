"""Why an actor ended: a closed set of reasons, shared by actors, monitors and supervisors.

There are four. `Normal` and `Shutdown` are clean: the actor was done, or was asked to stop.
`Killed` and `Crash` are not. A supervisor decides by `is_clean` whether a transient child is
started again; a person reads `describe()`.

All of them are immutable and safe to share between threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Crash", "ExitReason", "FailedToStart", "Killed", "Normal", "Shutdown"]


@dataclass(frozen=True, slots=True)
class Normal:
    """The actor had nothing more to do and stopped by itself.

    >>> Normal().is_clean, Normal().describe()
    (True, 'normal')
    """

    @property
    def is_clean(self) -> bool:
        """A transient child that ends like this is not started again."""
        return True

    def describe(self) -> str:
        """Say it in one line."""
        return "normal"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The actor was asked to stop, or it is a supervisor that gave up; `detail` may say more.

    A supervisor that reached its limit of restarts ends like this as well, after logging why.
    So a transient supervisor is *not* started again by its own supervisor, a permanent one is.

    >>> Shutdown("deploy").is_clean, Shutdown("deploy").describe()
    (True, 'shutdown: deploy')
    """

    detail: object = None

    @property
    def is_clean(self) -> bool:
        """A transient child that ends like this is not started again."""
        return True

    def describe(self) -> str:
        """Say it in one line."""
        return "shutdown" if self.detail is None else f"shutdown: {_text(self.detail)}"


@dataclass(frozen=True, slots=True)
class Killed:
    """The actor was ended from outside without a chance to clean up.

    `abandoned` says that it could not really be ended: a thread cannot be killed in Python, so
    it was cut off from its inbox and left behind.

    >>> Killed().is_clean, Killed(abandoned=True).describe()
    (False, 'killed (its thread was abandoned)')
    """

    abandoned: bool = False

    @property
    def is_clean(self) -> bool:
        """A transient child that ends like this is started again."""
        return False

    def describe(self) -> str:
        """Say it in one line."""
        return "killed (its thread was abandoned)" if self.abandoned else "killed"


@dataclass(frozen=True, slots=True)
class Crash:
    """The actor died of an exception; `exception` still has its traceback.

    Two crashes are equal when they hold the very same exception object.

    >>> Crash(ValueError("no such order")).describe()
    'crash: ValueError: no such order'
    """

    exception: BaseException

    @property
    def is_clean(self) -> bool:
        """A transient child that ends like this is started again."""
        return False

    def describe(self) -> str:
        """Say it in one line."""
        text = _text(self.exception)
        name = type(self.exception).__name__
        return f"crash: {name}: {text}" if text else f"crash: {name}"


ExitReason: TypeAlias = Normal | Shutdown | Killed | Crash
"""Why an actor ended; `match` on it is exhaustive."""


@dataclass(frozen=True, slots=True)
class FailedToStart:
    """The `detail` of a supervisor's `Shutdown` when one of its first children did not start.

    >>> Shutdown(FailedToStart("db", Crash(OSError("refused")))).describe()
    "shutdown: child 'db' failed to start: crash: OSError: refused"
    """

    id: Hashable
    reason: ExitReason

    def __str__(self) -> str:
        return f"child {self.id!r} failed to start: {self.reason.describe()}"


def _text(value: object) -> str:
    """Turn a user's object into one line of text, whatever its `__str__` does.

    A reason is described while something has just failed; that must not fail in its turn.
    """
    try:
        return " ".join(str(value).split())
    except Exception:  # noqa: BLE001
        return f"<{type(value).__name__} that cannot be printed>"
