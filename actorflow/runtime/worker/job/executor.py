"""The executor: a user's job with hooks, and the actor that stands for it.

`Executor` is what users derive from: a plain object that owns its namespace. `ExecutorActor` is
internal: it makes the executor reachable for pykka's refs and proxies, and ends exactly once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pykka
from pykka import messages

from actorflow.runtime.actor.lifespan import Lifespan
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import BadJob
from actorflow.runtime.exits import Stop
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.log import log
from actorflow.runtime.worker.pair.intake import refuse_late
from actorflow.runtime.worker.pair.machine import MAIL, PARKED, WAITING
from actorflow.runtime.worker.pair.stopping import abandon_executor, kill, shut_down
from actorflow.runtime.worker.pair.transitions import Effects, schedule
from behaviours.errors import brief

if TYPE_CHECKING:
    from types import TracebackType

    from pykka._envelope import Envelope

    from actorflow.runtime.errors import WorkerStopped
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["Executor", "ExecutorActor", "ExecutorRef"]

_PROXY = (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr)


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
        """Answer what comes by `worker.executor.tell` or `.ask`, between two batches."""
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


class _Function(Executor):
    """Stands for a job that is a function: what refs and proxies see."""

    def __init__(self, pair: Accumulator) -> None:
        self._pair = pair

    def __repr__(self) -> str:
        return self._pair.settings.title

    @property
    def state(self) -> Any:
        """The state of the job."""
        return self._pair.value


class ExecutorActor(Lifespan):
    """Makes an executor reachable: its mail goes to the pair, which serves it between batches."""

    def __init__(self, pair: Accumulator, subject: Executor | None) -> None:
        self._pair = pair
        self._subject = _Function(pair) if subject is None else subject
        self.lane = pair.settings.lane

    @property
    def actor(self) -> Any:  # type: ignore[override] # a field of other actors
        """The executor whose hooks are called."""
        return self._subject

    @property
    def actor_ref(self) -> Any:
        """The ref of the executor."""
        return self._ref or self.__dict__.setdefault("_ref", ExecutorRef(self))

    @property
    def pair(self) -> Accumulator:
        """The pair that it is a half of."""
        return self._pair

    @property
    def ask_failures(self) -> str:
        """What happens to the executor when an `ask` fails."""
        return self._subject.ask_failures

    @property
    def title(self) -> str:
        """The name for logs and errors."""
        return f"the executor of {self._pair!r}"

    @property
    def asked(self) -> Any:
        """The future of the caller whose message is being handled."""
        return self._asked

    @asked.setter
    def asked(self, future: Any) -> None:
        self._asked = future

    def put(self, envelope: Envelope[Any]) -> None:
        """Put an envelope in; it is served before the next batch. Thread-safe."""
        if self._is_over():
            raise self.dead_error()
        _post(self._pair, envelope)
        if self._is_over():
            self._pair.life.refuse_mail()  # it ended just now: nobody else looks at the mail

    def _is_over(self) -> bool:
        if self.exit_reason is not None or self._pair.exit_reason is not None:
            return True
        return self._pair.state is PARKED

    def receive(self, message: Any) -> Any:
        """Let the executor answer a message, or do what a proxy means. In the lane's thread."""
        if isinstance(message, _PROXY):
            return pykka.Actor._handle_receive(self._subject, message)  # type: ignore[arg-type] # fmt: skip
        return self._subject.handle_message(message)

    def refuse_asked(self) -> None:
        """Refuse the caller whose message is being handled."""
        self._refuse_asked()

    def kill(self) -> None:
        """Cut the executor off; the accumulator of a supervised pair stays."""
        if self._pair.life.supervised:
            abandon_executor(self._pair)
        else:
            kill(self._pair)

    def shut_down(self, reason: ExitReason) -> None:
        """End the whole pair in order."""
        shut_down(self._pair, reason)

    def _cut_off(self) -> None:
        self._refuse_asked()

    def die(self, reason: ExitReason) -> bool:
        """End, once. Called by the pair when the executor has ended. Never in the main thread."""
        if not self._claim_death(reason):
            return False
        self._finish_death()
        return True

    def dead_error(self) -> WorkerStopped:
        """Return the error for callers who come too late."""
        return self._pair.life.dead_error() if self.exit_reason is None else super().dead_error()


class ExecutorRef(Ref[Any]):
    """The ref of an executor: `tell`, `ask` and `proxy()` reach it between two batches."""

    def __init__(self, lifespan: ExecutorActor) -> None:
        self._lifespan = lifespan
        self.actor = lifespan.actor
        self.actor_class = type(lifespan.actor)

    @property
    def lifespan(self) -> ExecutorActor:
        """The framework's side of the executor. Internal."""
        return self._lifespan


def _post(pair: Accumulator, envelope: Envelope[Any]) -> None:
    """Put an envelope in and make the pair serve it. Thread-safe.

    The main thread only appends to a list and hands the token over.
    """
    if type(pair.mail) is tuple or pair.state is WAITING:
        pair._refuse_own_functions()  # this takes the lock
    if type(pair.mail) is tuple:
        SHELTER.run(_make_mail, pair)
    pair.mail.append(envelope)  # type: ignore[union-attr]
    if pair.idle:
        if _takes_messages(pair):
            pair.settings.lane.claim(pair.idle)
            if not _takes_messages(pair):
                SHELTER.run(refuse_late, pair, ())  # the token was in place for good
    elif pair.state is WAITING:
        SHELTER.run(_serve, pair)


def _takes_messages(pair: Accumulator) -> bool:
    return pair.mode is None and pair.exit_reason is None


def _make_mail(pair: Accumulator) -> None:
    with pair.lock:
        if type(pair.mail) is tuple:
            pair.mail = deque()


def _serve(pair: Accumulator) -> None:
    with pair.lock:
        effects = Effects()
        schedule(pair, MAIL, effects)
    pair.conclude(effects)
