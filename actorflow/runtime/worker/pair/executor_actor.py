"""The actor that stands for an executor: pykka's refs and proxies reach it, and it ends once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pykka
from pykka import messages

from actorflow.runtime.actor.lifespan import Lifespan
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.worker.job.executor import Executor
from actorflow.runtime.worker.pair.interface import Effects
from actorflow.runtime.worker.pair.offers import refuse_late
from actorflow.runtime.worker.pair.requests import abandon_executor, kill, shut_down
from actorflow.runtime.worker.pair.states import MAIL, PARKED, WAITING
from actorflow.runtime.worker.pair.transitions import schedule

if TYPE_CHECKING:
    from pykka._envelope import Envelope

    from actorflow.runtime.errors import WorkerStopped
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.pair.interface import Pair

__all__ = ["ExecutorActor", "ExecutorRef"]

_PROXY = (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr)


class _Function(Executor):
    """Stands for a job that is a function: what refs and proxies see."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def __repr__(self) -> str:
        return self._pair.settings.title

    @property
    def state(self) -> Any:
        """The state of the job."""
        return self._pair.value


class ExecutorActor(Lifespan):
    """Makes an executor reachable: its mail goes to the pair, which serves it between batches."""

    def __init__(self, pair: Pair, subject: Executor | None) -> None:
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
    def pair(self) -> Pair:
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
            self._pair.lifecycle.refuse_mail()  # it ended just now: nobody else looks at the mail

    def put_urgent(self, envelope: Envelope[Any]) -> None:
        """Like `put`: mail is urgent by itself, because it does not wait for held messages."""
        self.put(envelope)

    def _is_over(self) -> bool:
        if self.exit_reason is not None or self._pair.exit_reason is not None:
            return True
        return self._pair.state is PARKED

    def receive(self, message: Any) -> Any:
        """Let the executor answer a message, or do what a proxy means. In the lane's thread."""
        if isinstance(message, _PROXY):
            return pykka.Actor._handle_receive(self._subject, message)  # type: ignore[arg-type] # noqa: SLF001 - pykka's own
        return self._subject.handle_message(message)

    def refuse_asked(self) -> None:
        """Refuse the caller whose message is being handled."""
        self._refuse_asked()

    def kill(self) -> None:
        """Cut the executor off; the accumulator of a supervised pair stays."""
        if self._pair.lifecycle.supervised:
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
        return (
            self._pair.lifecycle.dead_error() if self.exit_reason is None else super().dead_error()
        )


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


def _post(pair: Pair, envelope: Envelope[Any]) -> None:
    """Put an envelope in and make the pair serve it. Thread-safe.

    The main thread only appends to a list and hands the token over.
    """
    if type(pair.mail) is tuple or pair.state is WAITING:
        pair.refuse_own_functions()  # this takes the lock
    if type(pair.mail) is tuple:
        UNINTERRUPTIBLE.run(_make_mail, pair)
    pair.mail.append(envelope)  # type: ignore[union-attr]
    if pair.idle:
        if _takes_messages(pair):
            pair.settings.lane.claim(pair.idle)
            if not _takes_messages(pair):
                UNINTERRUPTIBLE.run(refuse_late, pair, ())  # the token was in place for good
    elif pair.state is WAITING:
        UNINTERRUPTIBLE.run(_serve, pair)


def _takes_messages(pair: Pair) -> bool:
    return pair.mode is None and pair.exit_reason is None


def _make_mail(pair: Pair) -> None:
    with pair.lock:
        if type(pair.mail) is tuple:
            pair.mail = deque()


def _serve(pair: Pair) -> None:
    with pair.lock:
        effects = Effects()
        schedule(pair, MAIL, effects)
    pair.conclude(effects)
