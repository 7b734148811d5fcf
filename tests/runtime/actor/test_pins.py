"""What we rely on inside pykka. If one of these fails, pykka has changed: look at our code."""

from __future__ import annotations

import inspect
import queue
import re
from typing import Any

import pykka
import pytest
from pykka import messages
from pykka._envelope import Envelope
from pykka._threading import ThreadingFuture

import actorflow as af
from actorflow.runtime.registry import ACTORS
from tests.runtime.actor.actors import Echo, Theirs


def test_the_registry_is_our_roster_and_its_lock_reentrant() -> None:
    registry: Any = pykka.ActorRegistry
    assert registry._actor_refs is ACTORS
    with registry._actor_refs_lock, registry._actor_refs_lock:
        pass
    source = inspect.getsource(pykka.ActorRegistry)
    uses = re.findall(r"(?:in )?cls\._actor_refs(?!_lock)(?:\[:\]|\.\w+)?", source)
    assert set(uses) == {
        "cls._actor_refs[:]", "in cls._actor_refs", "cls._actor_refs.append",
        "cls._actor_refs.remove",
    }  # fmt: skip


def test_the_messages() -> None:
    assert messages._ActorStop() == messages._ActorStop()
    for name in ("ProxyCall", "ProxyGetAttr", "ProxySetAttr"):
        assert inspect.isclass(getattr(messages, name))


def test_the_envelope() -> None:
    envelope = Envelope("message")
    assert (envelope.message, envelope.reply_to) == ("message", None)
    future: Any = ThreadingFuture()
    assert Envelope("message", reply_to=future).reply_to is future


def test_futures_refuse_a_second_answer_with_queue_full() -> None:
    future: ThreadingFuture[int] = ThreadingFuture()
    assert future._result is None
    assert future._get_hook is None
    future.set(1)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    assert future.get(timeout=0) == 1
    assert future._result is not None


def test_refs_find_their_actor_and_its_inbox_by_these_names() -> None:
    theirs = Theirs.start()
    assert theirs._actor_weakref() is not None
    for name in ("actor_class", "actor_urn", "actor_inbox", "actor_stopped"):
        assert hasattr(theirs, name)
    ours = Echo.start()
    assert ours._actor_weakref() is ours.actor
    assert set(inspect.signature(pykka.ActorRef.ask).parameters) == set(
        inspect.signature(type(ours).ask).parameters
    )


def test_the_hooks_of_pykkas_actor() -> None:
    for name in (
        "_create_actor_inbox", "_create_future", "_start_actor_loop", "_handle_receive",
        "_handle_failure", "on_start", "on_stop", "on_failure", "on_receive", "stop",
    ):  # fmt: skip
        assert callable(getattr(pykka.Actor, name))
    assert isinstance(af.Actor._create_future(), ThreadingFuture)
    assert pykka.Actor.on_start is not Echo.on_start
