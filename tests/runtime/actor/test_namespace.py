"""Users own the namespace of their actors: every name is theirs unless it is a documented hook."""

from __future__ import annotations

import dataclasses
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.runtime.actor.lifespan import Lifespan, Mailbox
from tests.runtime.actor.actors import Echo
from tests.runtime.worker.probe import PATIENCE

DOCUMENTED = {
    "on_start", "on_stop", "on_failure", "on_receive", "start", "stop", "ask_failures",
    "actor_urn", "actor_ref", "actor_inbox", "actor_stopped",
}  # fmt: skip

ASKED_FOR = {
    "put", "run", "die", "kill", "watch", "unwatch", "state", "name", "lane", "supervisor", "title",
    "_inbox", "_process", "_handle", "_lane", "exit_reason", "_idle", "_life", "_launch", "launch",
    "shut_down", "child_id", "starter", "being_started", "dead_error", "_ref", "_urn", "_asked",
    "_crash", "_watchers", "_stop", "_handle_receive", "_actor_loop", "mailbox", "actor",
    "lifespan",
}  # fmt: skip


def internal_names() -> set[str]:
    """Return every name of the framework's own objects."""
    actor = af.Actor()
    lifespan = actor._actorflow
    names = {*dir(lifespan), *dir(Mailbox()), *dir(af.Actor().actor_ref)}
    return {name for name in names if not name.startswith("__")}


NAMES = sorted((ASKED_FOR | internal_names()) - DOCUMENTED)


def lived(kind: type[af.Actor]) -> Any:
    """Lead an actor through a whole life, and return its ref."""
    ref: Any = kind.start()
    assert ref.ask("hello", timeout=PATIENCE) == "hello"
    with pytest.raises(ValueError, match="mine"):
        ref.ask(ValueError("mine"), timeout=PATIENCE)
    notices: list[Any] = []
    ref.watch(lambda *notice: notices.append(notice))
    assert ref in pykka.ActorRegistry.get_by_class(kind)
    assert ref.stop(timeout=PATIENCE) is True
    assert notices == [(ref, af.Normal())]
    assert ref.actor.log[-1] == "stop"
    return ref


@pytest.mark.parametrize("name", NAMES)
def test_a_method_may_have_any_name(name: str) -> None:
    def own(self: Any, *arguments: Any) -> str:
        self.log.append(f"{name} was called")
        return f"own {name}"

    ref = lived(type("Named", (Echo,), {name: own}))
    assert f"{name} was called" not in ref.actor.log
    assert getattr(ref.actor, name)() == f"own {name}"


@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_may_have_any_name(name: str) -> None:
    class Named(Echo):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, name, "mine")

    assert getattr(lived(Named).actor, name) == "mine"


@pytest.mark.parametrize("name", sorted(name for name in NAMES if not name.startswith("_")))
def test_proxies_reach_a_method_of_any_name(name: str) -> None:
    ref = type("Named", (Echo,), {name: lambda self, word: f"{name} {word}"}).start()  # type: ignore[attr-defined]
    assert getattr(ref.proxy(), name)("there").get(timeout=PATIENCE) == f"{name} there"


def test_an_actor_that_crashes_or_is_supervised_keeps_its_names() -> None:
    own = {name: property(lambda self: pytest.fail("read by the framework")) for name in NAMES}
    named = type("Named", (Echo,), own)
    crashed = named.start()  # type: ignore[attr-defined]
    crashed.tell(ValueError("a crash"))
    assert crashed.actor_stopped.wait(PATIENCE)
    assert isinstance(crashed.exit_reason, af.Crash)
    with af.Supervisor([af.Child("n", named)]).start() as supervisor:
        child = supervisor.which_child("n").ref
        assert child.ask("hello", timeout=PATIENCE) == "hello"
    assert child.exit_reason == af.Shutdown()


def test_the_framework_adds_one_name_to_an_instance() -> None:
    ref = af.Actor.start()
    assert set(vars(ref.actor)) == {"_actorflow"}
    ours = set(vars(af.Actor)) - set(vars(pykka.Actor)) - {"__repr__", "__annotations__"}
    assert {name for name in ours if not name.startswith("__")} == {
        "_actorflow", "ask_failures", "actor_urn", "actor_inbox", "actor_stopped",
    }  # fmt: skip


def test_few_public_names() -> None:
    for kind in (af.Actor, Lifespan, Mailbox, type(Echo.start())):
        assert len([name for name in dir(kind) if not name.startswith("_")]) <= 40, kind


def test_dataclasses_may_be_actors() -> None:
    @dataclasses.dataclass
    class Account(af.Actor):
        owner: str
        balance: int = 0

        def deposit(self, amount: int) -> int:
            self.balance += amount
            return self.balance

    one, other = Account.start("ann"), Account.start("ann")
    assert one.proxy().deposit(5).get(timeout=PATIENCE) == 5
    assert other.proxy().balance.get(timeout=PATIENCE) == 0
    assert one.stop(timeout=PATIENCE)
    assert other.is_alive()


def test_actors_may_have_odd_special_methods() -> None:
    class Odd(Echo):
        def __len__(self) -> int:
            return 0

        def __bool__(self) -> bool:
            return False

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

        def __setattr__(self, name: str, value: Any) -> None:
            assert name == "log"
            super().__setattr__(name, value)

    lived(Odd)
