"""pykka actors on our lanes: many of them on few threads, each with an end that can be watched.

`Actor` is a `pykka.Actor`: refs, the registry, `tell`, `ask` and proxies work as there. What
differs:

* The mailbox, the loop and the threads are ours (`lifespan.py`, `lanes/`).
* `start` returns when `on_start` has returned, and raises `StartFailed` if it failed.
* An actor ends exactly once, with an `ExitReason`, and notifies its watchers. An `ask`
  never hangs on an actor that has ended.
* `SystemExit` or `KeyboardInterrupt` in one actor ends that actor, not all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykka

from actorflow.runtime.actor.answers import AnswerFuture, reply, reply_error
from actorflow.runtime.actor.lifespan import Lifespan, Mailbox
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import NotHandling
from actorflow.runtime.exits import Stop
from actorflow.runtime.registry import CURRENT

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from actorflow.runtime.lanes.lane import RuntimeLane

__all__ = ["CURRENT", "Actor", "Ref", "Stop", "reply", "reply_error", "stash", "unstash_all"]


class _Slot:
    """Makes the lifespan of an actor when it is first needed, whatever its `__init__` does.

    A `cached_property` would take a lock (on Python 3.11) and twice the time.
    """

    def __get__(self, actor: Actor, _owner: type[Actor]) -> Lifespan:
        lifespan: Lifespan = actor.__dict__.setdefault("_actorflow", Lifespan(actor))
        return lifespan


class Actor(pykka.Actor):
    """A pykka actor that runs on a lane (by default the elastic pool) instead of a thread.

    Subclasses own their namespace: besides the hooks, pykka's names (`actor_...`, `start`,
    `stop`) and `ask_failures`, every name is free. `super().__init__()` need not be called.

    Hooks run one at a time, in some thread of the lane. What happens when one raises:

    * `on_start`: the actor ends, `start` raises `StartFailed`.
    * `on_receive` for a `tell`: the actor crashes, `on_failure` is called.
    * `on_receive` for an `ask`, or a proxy call: the caller gets the exception and the actor goes
      on, as in pykka, unless the class says `ask_failures = "crash"`. Anything that is not an
      `Exception` (`SystemExit`, ...) crashes the actor in any case.
    * `on_stop`, `on_failure`: logged; the actor ends regardless.

    Any of them may return or raise `Stop` to end the actor.

    Args:
        lane: where the actor runs. Other arguments are ignored, as pykka does.

    """

    ask_failures: str = "reply"
    """`"reply"`: an exception goes to the caller only. `"crash"`: it ends the actor too."""

    _actorflow = _Slot()
    """The framework's side of the actor: the only name that is ours in an instance."""

    def __init__(self, *_args: Any, lane: RuntimeLane | None = None, **_kwargs: Any) -> None:
        if lane is not None:
            self._actorflow.lane = lane

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Any:
        """Create the actor, run its `on_start`, and return its ref once that has returned.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        actor = cls(*args, **kwargs)
        lifespan = actor._actorflow
        lifespan.launch()
        return lifespan.actor_ref

    def stop(self) -> None:
        """Ask the actor to stop after the messages in its inbox; return at once. Thread-safe."""
        self._actorflow.stop()

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The unique name of the actor."""
        return self._actorflow.actor_urn

    @property
    def actor_ref(self) -> Any:
        """The actor's ref."""
        return self._actorflow.actor_ref

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """The inbox as pykka sees it: `put`, `get` (never blocks), `empty`."""
        return self._actorflow.actor_inbox

    @property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """An event that is set once the actor has ended."""
        return self._actorflow.actor_stopped

    def __repr__(self) -> str:
        return f"{type(self).__name__} ({self.actor_urn})"

    def __str__(self) -> str:
        return repr(self)

    # What pykka asks of a runtime.

    @staticmethod
    def _create_actor_inbox() -> Any:
        msg = "the inbox of an actorflow.Actor is made by its lifespan"
        raise NotImplementedError(msg)

    @staticmethod
    def _create_future() -> AnswerFuture:
        return AnswerFuture()

    def _start_actor_loop(self) -> None:
        self._actorflow.launch()

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception_value is not None:
            self._actorflow._crash(exception_value)  # noqa: SLF001


def stash() -> None:
    """Put the message that this actor handles aside, until it calls `unstash_all`.

    What the handler returns is ignored, and a caller goes on waiting. The messages that an actor
    has stashed are refused when it ends.

    Raises:
        NotHandling: no actor handles a message here, or it has stashed it already.

    """
    _mailbox("stash").stash()


def unstash_all() -> int:
    """Handle all stashed messages next, in their order; return how many there are.

    Raises:
        NotHandling: called outside the handlers of an actor.

    """
    return _mailbox("unstash_all").unstash_all()


def _mailbox(function: str) -> Mailbox:
    """Return the mailbox of the actor whose handler calls."""
    current = CURRENT.get()
    if type(current) is not Lifespan:
        msg = f"af.{function}() is called in a handler of an af.Actor, and none runs here"
        raise NotHandling(msg)
    return current.mailbox
