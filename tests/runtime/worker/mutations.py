"""Safeguards taken away one at a time, to show that the storms notice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from actorflow.runtime.worker.accumulator import Accumulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest


class NoLock:
    """A lock that everybody may pass."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as a lock has it
        return True

    def release(self) -> None:
        return

    def locked(self) -> bool:
        return False

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        return


def without_the_lock(patch: pytest.MonkeyPatch) -> None:
    """Let everybody drain at the same time."""
    begin = Accumulator.__init__

    def begin_without(self: Accumulator, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.lock = NoLock()  # type: ignore[assignment]

    patch.setattr(Accumulator, "__init__", begin_without)


def without_looking_again(patch: pytest.MonkeyPatch) -> None:
    """Go idle without looking at the inbox once more."""
    patch.setattr(Accumulator, "_has_more", lambda self: False)


def with_a_careless_token(patch: pytest.MonkeyPatch) -> None:
    """Look at the token first and take it later, outside of the lock, where two may see it."""
    wake = Accumulator.wake

    def wake_carelessly(self: Accumulator, pushed: Sequence[Any]) -> None:
        if self.stopping is not None or self.exit_reason is not None:
            wake(self, pushed)
        elif self.idle:
            time.sleep(0)
            self.idle.clear()
            with self.lock:
                awake = self._lead()
            if awake is not None:
                self.lane.submit(awake)

    patch.setattr(Accumulator, "wake", wake_carelessly)


MUTATIONS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    without_the_lock,
    without_looking_again,
    with_a_careless_token,
)
