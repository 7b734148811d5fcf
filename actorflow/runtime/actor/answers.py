"""Answers to `ask`: pykka's future, which refuses a wait that could never end, and refusals."""

from __future__ import annotations

import contextlib
import queue
from typing import TYPE_CHECKING, Any

from pykka import messages
from pykka._threading import ThreadingFuture

from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.registry import CURRENT

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from pykka._envelope import Envelope

    from actorflow.runtime.actor.lifespan import Lifespan
    from actorflow.runtime.errors import WorkerStopped

__all__ = ["ActorStop", "AnswerFuture", "refuse", "reply", "reply_error"]

ActorStop = messages._ActorStop  # noqa: SLF001
"""The type of pykka's stop message. Compare types: `==` could run code of the message."""


class AnswerFuture(ThreadingFuture[Any]):
    """The future answer of one actor.

    pykka makes further futures of the same class (`map`, `stop`), so there need not be an actor.
    """

    def __init__(self, asked: Lifespan | None = None) -> None:
        super().__init__()
        self._asked = asked

    @property
    def asked(self) -> Lifespan | None:
        """The actor that is to answer."""
        return self._asked

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the answer, as `pykka.Future.get` does.

        Raises:
            WouldDeadlock: the actor that is to answer waits itself, without a timeout.

        """
        asked = self._asked
        if timeout is None and asked is not None and CURRENT.get() is asked and not self._is_there:
            msg = (
                f"{asked.title} would wait for its own answer; use tell() or defer(), call the "
                "method directly, stop with self.stop(), or wait with a timeout"
            )
            raise WouldDeadlock(msg)
        return super().get(timeout=timeout)

    @property
    def _is_there(self) -> bool:
        return self._result is not None or self._get_hook is not None


def reply(future: Any, answer: Any) -> None:
    """Answer an `ask`, unless it has been answered already because the actor was killed."""
    with contextlib.suppress(queue.Full):  # what pykka raises then
        future.set(answer)


def reply_error(future: Any, error: BaseException) -> None:
    """Answer an `ask` with an exception, unless it has been answered already."""
    with contextlib.suppress(queue.Full):  # what pykka raises then
        future.set_exception((type(error), error, error.__traceback__))


def refuse(envelopes: deque[Envelope[Any]], dead: Callable[[], WorkerStopped]) -> None:
    """Remove all envelopes and answer their callers with the error; a stop is granted.

    Several threads may do this at once, and each may be interrupted: an envelope is removed after
    it was answered, and a second answer does nothing.
    """
    while True:
        try:
            envelope = envelopes[0]
        except IndexError:
            return
        if envelope.reply_to is not None:
            if type(envelope.message) is ActorStop:
                reply(envelope.reply_to, None)
            else:
                reply_error(envelope.reply_to, dead())
        with contextlib.suppress(ValueError):  # another thread was faster
            envelopes.remove(envelope)
