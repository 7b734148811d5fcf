"""Messages that join a batch which is already running, because its job asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadJob, BadOption, NotHandling
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, in_main_thread
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.latency import Probe
from actorflow.runtime.worker.pair.interface import Effects
from actorflow.runtime.worker.pair.states import DUE, RUNNING, STOPPING, WAITING, StopMode
from actorflow.runtime.worker.pair.transitions import schedule, span_of

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.interface import Pair

__all__ = ["JobInbox", "current_inbox"]


def current_inbox() -> JobInbox:
    """Return the inbox of the calling job, from which it can take messages into its batch.

    Raises:
        NotHandling: no job of a worker runs here. That is also so where the job runs in another
            process than its inbox.
        BadOption: the worker is durable: its batch is recorded before its job begins.

    """
    slot = CURRENT.get()
    batch = getattr(slot, "batch", None)
    if type(batch) is not Batch:
        msg = (
            "current_inbox() was called outside a job; call it in a job that runs in the process "
            "of its worker, so not with executor='process'"
        )
        raise NotHandling(msg)
    pair: Pair = slot.pair
    if pair.lifecycle.durable:
        msg = (
            "a durable worker records its batch before its job begins, so nothing can join it; "
            "a workflow takes an event with self.receive(name, seconds=0)"
        )
        raise BadOption(msg)
    return JobInbox(pair, slot, batch)


class JobInbox:
    """The waiting messages of a worker, for its running job; made by `current_inbox()`.

    It belongs to one call of the job: after that nothing can be taken from it.
    """

    __slots__ = ("_batch", "_pair", "_slot")

    def __init__(self, pair: Pair, slot: Any, batch: Batch) -> None:
        self._pair = pair
        self._slot = slot
        self._batch = batch

    def __repr__(self) -> str:
        return f"<inbox of {self._pair!r}>"

    def take_now(self) -> list[Any]:
        """Take new messages into the running batch, and return them. It never waits.

        They are the ones that the behaviour would hand over next, if these may leave now; of
        `Lanes` only those of the first lane. They stand at the end of the batch from now on: they
        are processed, fail and are retried with it, their callers are answered when it is done,
        and `Answers` need one answer for each of them. The list that the job was given does not
        grow.

        Once the batch has ended, was preempted or was cut off, nothing is taken.

        Raises:
            BadOption: the behaviour cannot add to a batch: it pads batches, learns from calls of
                the job, or hands its messages over as a whole.
            BadJob: the job has removed messages from its batch, so that later ones would take
                their places.

        """
        pair = self._pair
        pair.refuse_own_functions()
        effects = Effects()
        args = (pair, self._slot, self._batch, effects)
        taken: list[Any]
        taken = UNINTERRUPTIBLE.run(_join, *args) if in_main_thread() else _join(*args)
        return taken


def _join(pair: Pair, slot: Any, batch: Batch, effects: Effects) -> list[Any]:
    """Take messages into a batch in flight, and return them."""
    try:
        with pair.lock:
            if slot.batch is not batch or not _hands_over(pair):
                return []
            _check(pair, batch)
            now = pair.timed_now()
            pair.core.fold(now)
            if batch.cancelled:  # perhaps by one of these messages
                return []
            more = pair.core.take_steering(now)
            if pair.existing_offers is not None and pair.existing_offers.is_blocking:
                pair.existing_offers.admit(now)
            taken = [] if more is None else _extend(pair, slot, batch, more)
            if pair.state is WAITING:  # for messages that may have left
                schedule(pair, DUE, effects)
    finally:
        pair.conclude(effects)
    return taken


def _hands_over(pair: Pair) -> bool:
    """Return whether the pair would give held messages to its executor. Under the lock."""
    if pair.state is STOPPING:
        return pair.mode is StopMode.DRAIN
    return not pair.is_paused and (pair.state is RUNNING or pair.state is WAITING)


def _check(pair: Pair, batch: Batch) -> None:
    """Refuse to add to a batch where that cannot be done rightly. Under the lock."""
    core = pair.core
    traits = core.behaviour.traits
    if traits.pads or traits.observes or type(batch.payload) is not list:
        why = (
            "pads its batches"
            if traits.pads
            else "learns from each call of the job"
            if traits.observes
            else "hands its messages over as a whole"
        )
        msg = f"nothing can join a batch of {core.behaviour!r}, which {why}"
        raise BadOption(msg)
    if core.shape.tracks and len(batch.payload) != batch.size:
        msg = (
            f"the batch had {batch.size} messages, and the job has made {brief(batch.payload)} of "
            "it; let the job change a copy, as in left = list(batch)"
        )
        raise BadJob(msg)


def _extend(pair: Pair, slot: Any, batch: Batch, more: Batch) -> list[Any]:
    """Put messages that were taken at the end of a batch in flight. Under the lock."""
    at = len(batch.payload)
    taken: list[Any] = more.messages()
    batch.payload = [*batch.payload, *taken]
    batch.size += more.size
    pair.core.in_flight += more.size
    moment = pair.settings.clock.now()
    if more.tickets:
        for _, ticket in more.tickets:
            if type(ticket) is Probe:
                ticket.begun = moment
        if batch.tickets is None:
            batch.tickets = []
        batch.tickets[:0] = [(at + place, ticket) for place, ticket in more.tickets]
    low, high, begun = slot.span
    slot.span = (low, max(high, span_of(pair, more.size, moment, woken=False)[1]), begun)
    pair.waiting_since = moment
    return taken[:]
