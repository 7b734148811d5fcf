"""The executor: a user's job with hooks, a plain object that owns its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadJob
from actorflow.runtime.exits import Stop
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from types import TracebackType


__all__ = ["Executor"]


class Executor:
    """A job with hooks. Subclass it, implement `handle`, and `spawn` the class.

    Besides the names below, every name is yours. The hooks run one at a time, in some thread of
    the worker's lane. If one of them is an `async def`, they all run on the event loop. Each may
    return or raise `Stop(reason)` to end the worker. Any other exception is a crash, except one
    raised while answering an `ask`, which goes to the caller (see `ask_failures`).
    """

    state: Any = None
    """What `spawn` was given as `state`; the executor may use it as it likes."""
    idle_timeout: float | None = None
    """Seconds without anything to do after which `on_idle` is called."""
    ask_failures: str = "reply"
    """`"reply"`: an exception goes to the caller only. `"crash"`: it ends the executor too."""

    def handle(self, batch: Any) -> Any:
        """Process one batch: a list, unless the behaviour hands over something else.

        Return `Answers(state, answers)` to answer each caller, or nothing. If it raises, the
        worker crashes, and the callers of the messages in this batch get the exception itself.
        """
        msg = f"{type(self).__name__} must define handle(self, batch)"
        raise BadJob(msg)

    def handle_message(self, message: Any) -> Any:
        """Answer a message from `worker.executor.tell` or `.ask`, between two batches."""
        log.warning("unexpected message", executor=brief(self), message=brief(message))

    def on_start(self) -> Any:
        """Prepare. If it raises, `spawn` raises `StartFailed`."""

    def on_stop(self) -> Any:
        """Clean up after the last batch. What it raises is logged."""

    def on_idle(self) -> Any:
        """React to `idle_timeout` seconds without work. By default the worker ends.

        It is called once for each stretch of idleness.
        """
        return Stop()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        """React to a crash, before the executor ends. What it raises is logged."""
