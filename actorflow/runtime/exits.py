"""Exit reasons and exit callbacks, shared by actors, workers, monitors and supervisors.

There are four reasons. `Normal` and `Shutdown` are clean: the actor was done, or was asked to stop.
`Killed` and `Crash` are not. A supervisor decides by `is_clean` whether to restart a transient
child; people read `describe()`. The `detail` of a supervisor's `Shutdown` says why it ended:
`FailedToStart` if one of its first children did not start, `GaveUp` if it reached its limit of
restarts.

All of them are immutable and safe to share between threads. `Stop` is how user code ends its own
actor with one of them, and `Notices` passes one on to the callbacks that watch an actor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.behaviours.errors import brief, kind_of

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = [
    "Crash",
    "ExitReason",
    "FailedToStart",
    "GaveUp",
    "Killed",
    "Normal",
    "Notice",
    "Notices",
    "Shutdown",
    "Stop",
]


@dataclass(frozen=True, slots=True)
class Normal:
    """The actor had nothing more to do and stopped by itself.

    >>> Normal().is_clean, Normal().describe()
    (True, 'normal')
    """

    @property
    def is_clean(self) -> bool:
        """Whether a transient child that ends like this stays ended: yes."""
        return True

    def describe(self) -> str:
        """Return the reason in one line."""
        return "normal"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The actor was asked to stop, or it is a supervisor that gave up; `detail` may say more.

    A supervisor that reached its limit of restarts ends like this as well, with a `GaveUp`. So
    a transient supervisor is *not* restarted by its own supervisor, a permanent one is.

    >>> Shutdown("deploy").is_clean, Shutdown("deploy").describe()
    (True, 'shutdown: deploy')
    """

    detail: object = None

    @property
    def is_clean(self) -> bool:
        """Whether a transient child that ends like this stays ended: yes."""
        return True

    def describe(self) -> str:
        """Return the reason in one line."""
        return "shutdown" if self.detail is None else f"shutdown: {_text(self.detail)}"


@dataclass(frozen=True, slots=True)
class Killed:
    """The actor was ended from outside without a chance to clean up.

    `abandoned` says that its code may still be running: Python cannot kill a thread, so the
    actor was cut off from its inbox and its thread was left behind.

    >>> Killed().is_clean, Killed(abandoned=True).describe()
    (False, 'killed (its thread was abandoned)')
    """

    abandoned: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether a transient child that ends like this stays ended: no."""
        return False

    def describe(self) -> str:
        """Return the reason in one line."""
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
        """Whether a transient child that ends like this stays ended: no."""
        return False

    @property
    def text(self) -> str:
        """The exception in one line."""
        text = _text(self.exception)
        try:
            name = type(self.exception).__name__
        except Exception:  # noqa: BLE001 - the class is the user's
            name = kind_of(self.exception)
        return f"{name}: {text}" if text else name

    def describe(self) -> str:
        """Return the reason in one line."""
        return f"crash: {self.text}"


FORKED = Shutdown("it runs in the parent process, and this is a forked child")
"""Why the actors of a parent process have ended in its forked children."""

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
        return f"child {brief(self.id)} failed to start: {self.reason.describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The `detail` of a supervisor's `Shutdown` when its children crash too often.

    The children that it stops for this end with the same `Shutdown`, down to the last descendant,
    so that each of their errors names the child that started it all.

    >>> gave_up = GaveUp(
    ...     child="db", reason=Crash(OSError("disk full")), restarts=4, max_restarts=3, within=5.0
    ... )
    >>> print(Shutdown(gave_up).describe())
    shutdown: gave up on child 'db' (crash: OSError: disk full): 4 restarts within 5.0 s, limit 3
    """

    child: Hashable
    """The id of the child whose failure was one too many."""
    reason: ExitReason
    """How that child ended, or why it did not start again."""
    restarts: int
    """Restarts within the window, including the one that was not made any more."""
    max_restarts: int
    within: float

    def __str__(self) -> str:
        plural = "" if self.restarts == 1 else "s"
        return (
            f"gave up on child {brief(self.child)} ({self.reason.describe()}): "
            f"{self.restarts} restart{plural} within {self.within} s, limit {self.max_restarts}"
        )


def _text(value: object) -> str:
    """Turn a user's object into one line of text, whatever its `__str__` does.

    A reason is described while something has just failed; that must not fail in its turn.
    """
    try:
        return " ".join(str(value).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - user code may raise anything
        return f"<{kind_of(value)} that cannot be printed>"


# How user code asks for the end of its own actor or worker.


class Stop(Exception):
    """Return or raise this from a hook or a job to end the actor.

    >>> Stop().reason, Stop("enough").reason
    (Normal(), Shutdown(detail='enough'))
    """

    reason: ExitReason = Normal()  # also for a subclass whose `__init__` does not call this one's

    def __init__(self, reason: object = None) -> None:
        super().__init__(reason)
        if isinstance(reason, ExitReason):
            self.reason = reason
        elif reason is not None:
            self.reason = Shutdown(reason)


# Exit callbacks.

Notice: TypeAlias = Callable[[Any, ExitReason], object]
"""Called as `notice(ref, reason)`."""


class Notices:
    """Exit callbacks of one actor. Thread-safe without a lock."""

    __slots__ = ("_notices",)

    def __init__(self) -> None:
        self._notices: list[Notice] = []

    def __len__(self) -> int:
        return len(self._notices)

    def add(self, notice: Notice) -> None:
        """Add a notice."""
        self._notices.append(notice)

    def discard(self, notice: Notice) -> None:
        """Remove a notice, if it is there."""
        try:
            self._notices.remove(notice)
        except ValueError:
            return

    def notify(self, ref: Any, reason: ExitReason, failed: Callable[[BaseException], None]) -> None:
        """Call each notice once and report what it raises; Ctrl-C may at worst make that twice.

        Raises:
            KeyboardInterrupt: some may not have been called yet, so call this again.

        """
        notices = self._notices
        taken: list[Notice] = []
        try:
            while notices:
                taken.extend(map(notices.pop, (0,)))  # one C call, so that none can get lost
                _give(taken[0], ref, reason, failed)
                taken.clear()
        except IndexError:  # another thread has taken the last one
            return
        except BaseException:
            notices.extend(taken)
            raise


def _give(
    notice: Notice, ref: Any, reason: ExitReason, failed: Callable[[BaseException], None]
) -> None:
    try:
        notice(ref, reason)
    except KeyboardInterrupt:  # it may not have been called; now the others come first
        raise
    except BaseException as error:  # noqa: BLE001 - the others must be called
        failed(error)
