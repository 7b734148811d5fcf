"""pykka's own tests of the registry, against our actors, pykka's actors and workers together."""

from __future__ import annotations

from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.runtime.registry import ActorList
from tests.runtime.actor.actors import Echo, Gate, Theirs
from tests.runtime.worker.probe import PATIENCE, ended


def test_actors_are_registered_from_start_to_stop() -> None:
    ref = Echo.start()
    assert ref in pykka.ActorRegistry.get_all()
    ref.stop(timeout=PATIENCE)
    assert ref not in pykka.ActorRegistry.get_all()


def test_actors_may_be_registered_by_hand() -> None:
    ref = Echo.start()
    for _ in range(2):  # the second time it is not there any more
        pykka.ActorRegistry.unregister(ref)
        assert ref not in pykka.ActorRegistry.get_all()
    pykka.ActorRegistry.register(ref)
    assert pykka.ActorRegistry.get_all() == [ref]


def test_both_kinds_and_workers_stand_side_by_side_in_order() -> None:
    theirs, ours = Theirs.start(), Echo.start()
    worker = af.spawn(lambda batch, state: None)
    everyone = pykka.ActorRegistry.get_all()
    assert {theirs, ours, worker} <= set(everyone)
    assert everyone.index(theirs) < everyone.index(ours) < everyone.index(worker)
    for ref in (theirs, ours, worker):
        assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) == ref
    for ref in (worker, ours, theirs):
        ref.stop()
        assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is None


def test_lookup_by_class_superclass_and_name() -> None:
    class Louder(Echo):
        pass

    plain, louder, theirs = Echo.start(), Louder.start(), Theirs.start()
    registry: Any = pykka.ActorRegistry
    assert registry.get_by_class(Echo) == [plain, louder]
    assert registry.get_by_class(Louder) == [louder]
    assert registry.get_by_class(af.Actor) == [plain, louder]
    assert registry.get_by_class(pykka.Actor) == [plain, louder, theirs]
    assert registry.get_by_class_name("Echo") == [plain]
    assert registry.get_by_class_name("Theirs") == [theirs]
    assert registry.get_by_class_name("Nobody") == []


def test_lookup_by_urn() -> None:
    ref = Echo.start()
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is ref
    assert pykka.ActorRegistry.get_by_urn("urn:foo:bar") is None


def test_stop_all_stops_everybody_and_drains_workers() -> None:
    seen: list[Any] = []
    theirs, ours = Theirs.start(), Echo.start()
    worker = af.spawn(lambda batch, state: seen.extend(batch))
    worker.push_many(range(100))
    results = pykka.ActorRegistry.stop_all(timeout=PATIENCE)
    assert len(results) >= 3
    assert not any(ref.is_alive() for ref in (theirs, ours, worker, worker.executor))
    assert seen == list(range(100))
    assert pykka.ActorRegistry.get_all() == []


def test_stop_all_stops_the_last_started_first() -> None:
    order: list[int] = []

    class Leaves(af.Actor):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_stop(self) -> None:
            order.append(self.number)

    for number in range(3):
        Leaves.start(number)
    assert pykka.ActorRegistry.stop_all(block=True, timeout=PATIENCE) == [True, True, True]
    assert order == [2, 1, 0]


def test_stop_all_without_waiting_returns_futures() -> None:
    worker, ours = af.spawn(lambda batch, state: None), Echo.start()
    futures = pykka.ActorRegistry.stop_all(block=False)
    assert ended(worker) == af.Normal()
    assert futures[0].get(timeout=PATIENCE) is True
    assert not ours.is_alive()


def test_stop_all_raises_timeout_for_one_that_is_busy() -> None:
    ref = Gate.start()
    ref.tell(ref.actor.hold)
    with pytest.raises(pykka.Timeout):
        pykka.ActorRegistry.stop_all(timeout=0)
    ref.actor.opened.set()
    assert ref.actor_stopped.wait(PATIENCE)


def test_broadcast_reaches_everybody() -> None:
    ours, theirs = Echo.start(), Theirs.start()
    pykka.ActorRegistry.broadcast("hello")
    assert ours.ask("end", timeout=PATIENCE) == theirs.ask("end", timeout=PATIENCE) == "end"
    assert ours.actor.log == ["start", "hello", "end"]
    assert theirs.proxy().log.get(timeout=PATIENCE) == ["hello", "end"]


@pytest.mark.parametrize("target", [Echo, "Echo"])
def test_broadcast_to_a_class_or_its_name(target: Any) -> None:
    ours, theirs = Echo.start(), Theirs.start()
    pykka.ActorRegistry.broadcast("hello", target_class=target)
    assert ours.ask("end", timeout=PATIENCE) == theirs.ask("end", timeout=PATIENCE) == "end"
    assert ours.actor.log == ["start", "hello", "end"]
    assert theirs.proxy().log.get(timeout=PATIENCE) == ["end"]


def test_broadcast_reaches_workers_as_a_push() -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, state: seen.extend(batch))
    pykka.ActorRegistry.broadcast("hello", target_class=worker.actor_class)  # type: ignore[arg-type]
    worker.push_block("end")
    assert seen == ["hello", "end"]


def test_actors_that_are_equal_or_unhashable_are_registered_one_by_one() -> None:
    class Equal(Echo):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    one, other = Equal.start(), Equal.start()
    assert pykka.ActorRegistry.get_by_class(Equal) == [one, other]
    one.stop(timeout=PATIENCE)
    assert pykka.ActorRegistry.get_all() == [other]


def test_the_roster_does_what_pykka_does_with_its_list() -> None:
    actors = ActorList()
    theirs, ours = Theirs.start(), Echo.start()
    for ref in (theirs, ours):
        actors.append(ref)
        assert ref in actors
    assert list(actors) == actors[:] == [theirs, ours]
    assert len(actors) == 2
    actors.remove(theirs)
    assert theirs not in actors
    for _ in range(2):
        actors.remove(ours)
    assert actors[:] == []
    actors.add(ours.lifespan)
    assert ours in actors
    for _ in range(2):
        actors.discard(ours.lifespan)
    assert len(actors) == 0
