"""Notices: whom an actor or a pair tells that it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from actorflow.runtime.exits import ExitReason

__all__ = ["Notice", "Notices"]

Notice: TypeAlias = Callable[[Any, ExitReason], object]
"""Called as `notice(ref, reason)`."""


class Notices:
    """Those who want to know of the end of one actor. Thread-safe without a lock."""

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
    except BaseException as error:  # noqa: BLE001 - the others are called all the same
        failed(error)
