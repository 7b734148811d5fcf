"""A simulated worker process: a member of the ring, its driver, and a clock of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import (
    Bury,
    Drain,
    Leave,
    Left,
    Lose,
    Own,
    Perform,
    Post,
    Process,
    Processed,
    Received,
    Register,
    Registered,
    Send,
    SendFailed,
    Sweep,
)
from actorflow.engine.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.cluster.ring import Action, Event, Member, Verdict
    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.runtime.clock import Timer
    from actorflow.testing.simulation.cluster import Cluster
    from actorflow.testing.simulation.driver import Part

__all__ = ["Worker"]


class Worker:
    """One life of a worker. After a kill, another one with another name takes its place.

    Args:
        cluster: the world around it.
        place: where it runs: what the network and the faults know it by.
        name: unique for this life.

    """

    def __init__(self, cluster: Cluster, place: str, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.store = cluster.store
        self.place = place
        self.name = name
        self.alive = True
        self.leaving = False
        self._paused = False
        self._missed: list[Callable[[], None]] = []
        self._skew = cluster.faults.skew_of(place)
        self._timer: Timer | None = None
        self.member: Member = cluster.parts.member(name, cluster.options, taskers=cluster.taskers)
        self.driver = cluster.parts.driver(self, cluster.kinds(), cluster.taskers)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Register: self._register,
            Send: self._send,
            Own: self._own,
            Lose: self._lose,
            Drain: lambda action: self.driver.drain(action.partition),
            Process: self._process,
            Sweep: self._sweep,
            Perform: lambda action: self.driver.perform(action.task),
            Bury: self._bury,
            Left: self._left,
        }
        self._turn()

    # Its clock.

    @property
    def local(self) -> float:
        """The time of its own clock."""
        return self._skew.offset + self.world.now * self._skew.rate

    def after(self, seconds: float, call: Callable[[], Any]) -> Timer:
        """Schedule a call, by its own clock."""
        return self.world.after(seconds / self._skew.rate, lambda: self._enter(call))

    def _enter(self, call: Callable[[], Any]) -> None:
        """Call something inside the process, now or when it is resumed."""
        if not self.alive:
            return
        if self._paused:
            self._missed.append(call)
            return
        call()
        self._turn()

    def _turn(self) -> None:
        """Step until there is nothing to do."""
        while self.alive:
            step = self.member.step(self.local)
            self._carry_out(step.actions)
            if step.wait:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self.after(step.wait, lambda: None)
                return

    # Faults.

    def kill(self) -> None:
        """End at once."""
        self.world.note(self.name, "is killed")
        self.alive = False

    def pause(self) -> None:
        """Stop, with everything as it is."""
        self.world.note(self.name, "is stopped")
        self._paused = True

    def go_on(self) -> None:
        """Go on after a pause, with all that has arrived meanwhile."""
        if not self._paused or not self.alive:
            return
        self.world.note(self.name, "goes on")
        self._paused = False
        missed, self._missed = self._missed, []
        for call in missed:
            self._enter(call)

    def leave(self) -> None:
        """Hand everything over, then end."""
        if not self.leaving:
            self.leaving = True
            self._enter(lambda: self.tell(Leave()))

    # Events and actions.

    def tell(self, event: Event) -> None:
        """Pass an event to the member, and do what it says."""
        self._carry_out(self.member.receive(event, self.local))

    def hear(self, event: Event) -> None:
        """Apply an event from outside."""
        self._enter(lambda: self.tell(event))

    def ask(self, request: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        """Pass a request to the store."""
        self.cluster.network.ask(
            self.place, request, lambda result: self._enter(lambda: then(result))
        )

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._handlers[type(action)](action)

    def _own(self, action: Own) -> None:
        self.world.note(self.name, "owns partition", action.partition, "epoch", action.epoch)
        self.driver.own(action.partition, action.epoch)

    def _lose(self, action: Lose) -> None:
        self.world.note(self.name, "loses partition", action.partition)
        self.driver.lose(action.partition)

    def _process(self, action: Process) -> None:
        self.cluster.checks.processing(self.name, action.post)
        self.driver.process(action.post)

    def _sweep(self, action: Sweep) -> None:
        for partition in action.partitions:
            self.driver.look(partition)

    def _bury(self, action: Bury) -> None:
        self.world.note(self.name, "gives up", action.post)

    def _left(self, _action: Left) -> None:
        self.world.note(self.name, "has left")
        self.alive = False

    def _register(self, action: Register) -> None:
        def answered(result: Any) -> None:
            view = None if isinstance(result, StoreRefused) else result
            self.tell(Registered(action.number, view))

        self.ask(lambda _: self.store.check_in(action.request), answered)

    def _send(self, action: Send) -> None:
        to, payload = action
        if isinstance(payload, Post):
            self.cluster.checks.emitting(self.name, payload)
        other = self.cluster.find(to)
        if other is None or not self.cluster.network.send(
            self.place, other.place, lambda: other.hear(Received(payload))
        ):
            self.after(0.05, lambda: self.tell(SendFailed(to, payload)))

    # What is checked.

    def started(self, part: Part, name: str) -> None:
        """Note that a run starts."""
        self.cluster.checks.started(self.name, part.number, part.epoch, name)

    def ended(self, post: Post, verdict: Verdict) -> None:
        """Say what became of a wake-up."""
        self.cluster.checks.processed(self.name, post, verdict)
        self.tell(Processed(post, verdict))

    def performed(self, task: TaskRow) -> None:
        """Note that a task is done."""
        self.world.note(self.name, "performs", task.id)
