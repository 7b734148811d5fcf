"""pykka's own tests of proxies (attributes, methods, traversal, mocks), against `af.Actor`.

Typed proxies (`pykka.typing`) are a matter of annotations only, so there is nothing to run. The
message of a proxy to a dead actor is pykka's ("... not found"), since the proxy is.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pykka
import pytest
from pykka import ActorProxy, CallableProxy

import actorflow as af
from tests.runtime.actor.actors import Echo
from tests.runtime.worker.probe import PATIENCE


class Plain:
    inner = "inner"


class Slotted:
    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = "slotted"


@pykka.traversable
class Decorated:
    inner = "decorated"

    def play(self, what: str) -> str:
        return f"plays {what}"


class Attributed:
    pykka_traversable = True
    inner = "attributed"


class SlottedAttributed:
    __slots__ = ("inner", "pykka_traversable")

    def __init__(self) -> None:
        self.pykka_traversable = True
        self.inner = "slotted and attributed"


class Subject(af.Actor):
    a_class_attribute = "of the class"
    cat = "dog"
    plain = Plain()
    marked = pykka.traversable(Plain())
    decorated = Decorated()
    attributed = Attributed()
    slotted = SlottedAttributed()
    _private = "secret"

    def __init__(self) -> None:
        super().__init__()
        self.an_instance_attribute = "of the instance"
        self.failures: list[Any] = []
        self._value = "value"

    @property
    def fixed(self) -> str:
        return "fixed"

    @property
    def value(self) -> str:
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        self._value = value

    @property
    def nested(self) -> Attributed:
        return Attributed()

    @staticmethod
    def shout(word: str) -> str:
        return word.upper()

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    def on_failure(self, *arguments: Any) -> None:
        self.failures.append(arguments)

    def hello(self, name: str, *, mark: str = "!") -> str:
        return f"Hello, {name}{mark}"

    def set_cat(self, cat: str) -> None:
        self.cat = cat

    def fail(self) -> None:
        raise ValueError("boom")

    def talk_to_myself(self) -> Any:
        return self.actor_ref.proxy().hello("from the future")

    def add_method(self, name: str) -> None:
        setattr(self, name, lambda: f"returned by {name}")

    def use_foo(self) -> Any:
        proxy: Any = self.actor_ref.proxy()
        return proxy.foo()


@pytest.fixture
def proxy() -> Any:
    return Subject.start().proxy()


def get(future: Any) -> Any:
    return future.get(timeout=PATIENCE)


# The proxy itself.


def test_proxies_are_equal_by_actor_and_path(proxy: Any) -> None:
    again = proxy.actor_ref.proxy()
    assert proxy == again
    assert hash(proxy) == hash(again)
    assert proxy != proxy.decorated
    assert proxy != Subject.start().proxy()
    assert proxy.__eq__("something else") is False


def test_repr_and_str_name_actor_and_path(proxy: Any) -> None:
    urn = proxy.actor_ref.actor_urn
    assert repr(proxy) == f"<ActorProxy for Subject ({urn}), attr_path=()>"
    assert str(proxy) == repr(proxy)
    assert "attr_path=('decorated',)" in repr(proxy.decorated)


def test_dir_lists_the_actors_attributes_and_the_proxys_own(proxy: Any) -> None:
    names = dir(proxy)
    for name in ("a_class_attribute", "an_instance_attribute", "hello", "fixed", "actor_urn"):
        assert name in names
    for name in ("__class__", "__dict__", "__getattr__", "__setattr__"):
        assert name in names


def test_the_public_names_of_an_actor_are_pykkas_and_the_documented_one() -> None:
    names = {name for name in dir(af.Actor()) if not name.startswith("_")}
    pykkas = {name for name in dir(pykka.ThreadingActor()) if not name.startswith("_")}
    assert names == pykkas - {"use_daemon_thread"} | {"ask_failures"}


def test_a_ref_makes_proxies(proxy: Any) -> None:
    assert isinstance(proxy, ActorProxy)
    assert isinstance(ActorProxy(actor_ref=proxy.actor_ref), ActorProxy)


def test_a_dead_actor_gets_no_proxy_but_a_proxy_keeps_its_ref(proxy: Any) -> None:
    ref = proxy.actor_ref
    ref.stop(timeout=PATIENCE)
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ActorProxy(actor_ref=ref)
    assert not proxy.actor_ref.is_alive()
    with pytest.raises(af.WorkerStopped):
        get(proxy.hello("late"))


def test_a_public_proxy_to_oneself_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Selfish(af.Actor):
        def __init__(self) -> None:
            super().__init__()
            self.self_proxy = self.actor_ref.proxy()
            self.word = "here"

    proxy: Any = Selfish.start().proxy()
    assert get(proxy.word) == "here"
    with pytest.raises(AttributeError, match="has no attribute 'self_proxy'"):
        proxy.self_proxy  # noqa: B018
    assert "'self_proxy' is a proxy to itself" in caplog.text


def test_a_private_proxy_to_oneself_is_fine() -> None:
    class Defers(Echo):
        def on_start(self) -> None:
            self._later = self.actor_ref.proxy()

        def work(self) -> str:
            self._later.rest.defer()
            return "begun"

        def rest(self) -> None:
            self.log.append("rest")

    proxy: Any = Defers.start().proxy()
    assert get(proxy.work()) == "begun"
    assert get(proxy.log) == ["rest"]


def test_the_proxy_can_stop_the_actor(proxy: Any) -> None:
    get(proxy.stop())
    assert proxy.actor_ref.actor_stopped.wait(PATIENCE)


# Attributes.


def test_attributes_are_read_and_set(proxy: Any) -> None:
    assert get(proxy.a_class_attribute) == "of the class"
    assert get(proxy.an_instance_attribute) == "of the instance"
    proxy.a_class_attribute = "another"
    assert get(proxy.a_class_attribute) == "another"
    proxy.brand_new = "new"
    assert get(proxy.brand_new) == "new"
    assert Subject.a_class_attribute == "of the class"


@pytest.mark.parametrize("name", ["_private", "_actorflow", "missing"])
def test_private_and_missing_attributes_are_not_there(proxy: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(proxy, name)


def test_properties_are_read_and_set(proxy: Any) -> None:
    assert get(proxy.fixed) == "fixed"
    assert get(proxy.value) == "value"
    proxy.value = "changed"
    assert get(proxy.value) == "changed"
    with pytest.raises(AttributeError):
        proxy.fixed = "changed"
    assert proxy.actor_ref.is_alive()


def test_making_a_proxy_reads_no_property() -> None:
    class Expensive(af.Actor):
        @property
        def costly(self) -> str:
            raise AssertionError("making a proxy has read it")

    Expensive.start().proxy()


def test_pykkas_own_attributes_can_be_read(proxy: Any) -> None:
    assert get(proxy.actor_urn) == proxy.actor_ref.actor_urn
    assert get(proxy.actor_stopped) is proxy.actor_ref.actor_stopped
    assert get(proxy.actor_inbox).empty()


# Methods.


def test_methods_are_called_with_their_arguments(proxy: Any) -> None:
    assert get(proxy.hello("world")) == "Hello, world!"
    assert get(proxy.hello("moon", mark="?")) == "Hello, moon?"
    assert get(proxy.shout("quiet")) == "QUIET"
    assert get(proxy.kind)() == "Subject"  # to pykka a class method is an attribute


def test_side_effects_are_seen_in_order(proxy: Any) -> None:
    assert get(proxy.set_cat("eagle")) is None
    assert get(proxy.cat) == "eagle"
    assert proxy.set_cat.defer("lion") is None
    assert get(proxy.cat) == "lion"


def test_an_exception_of_a_call_is_raised_by_its_future(proxy: Any) -> None:
    future = proxy.fail()
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            get(future)
    assert get(proxy.failures) == []


def test_an_exception_of_a_deferred_call_is_a_crash(proxy: Any) -> None:
    assert proxy.fail.defer() is None
    assert proxy.actor_ref.actor_stopped.wait(PATIENCE)
    ((kind, error, traceback),) = proxy.actor_ref.actor.failures
    assert kind is ValueError
    assert str(error) == "boom"
    assert traceback is error.__traceback__


def test_unknown_methods_are_attribute_errors(proxy: Any) -> None:
    with pytest.raises(AttributeError, match=r"<ActorProxy for Subject .*'unknown'$"):
        proxy.unknown()
    with pytest.raises(AttributeError, match=r"<ActorProxy for Subject .*'unknown'$"):
        proxy.unknown.defer()


def test_wrong_arguments_are_the_callers_mistake(proxy: Any) -> None:
    with pytest.raises(TypeError):
        get(proxy.hello())
    assert proxy.actor_ref.is_alive()


def test_callable_proxies_are_cached(proxy: Any) -> None:
    assert isinstance(proxy.hello, CallableProxy)
    assert proxy.hello is proxy.hello
    assert proxy.decorated is proxy.decorated


def test_an_actor_can_call_itself_later(proxy: Any) -> None:
    assert get(get(proxy.talk_to_myself())) == "Hello, from the future!"


def test_methods_added_at_run_time_are_found(proxy: Any) -> None:
    get(proxy.add_method("foo"))
    assert get(proxy.foo()) == "returned by foo"
    assert get(get(proxy.use_foo())) == "returned by foo"


# Traversal.


def test_unmarked_attributes_are_not_traversed(proxy: Any) -> None:
    with pytest.raises(AttributeError, match="no attribute 'inner'"):
        proxy.plain.inner.get()
    assert get(proxy.plain).inner == "inner"


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("marked", "inner"),
        ("decorated", "decorated"),
        ("attributed", "attributed"),
        ("slotted", "slotted and attributed"),
    ],
)
def test_marked_attributes_are_traversed(proxy: Any, name: str, inner: str) -> None:
    assert get(getattr(proxy, name).inner) == inner


def test_methods_of_traversable_attributes_are_called_in_the_actor(proxy: Any) -> None:
    assert get(proxy.decorated.play("music")) == "plays music"
    proxy.attributed.inner = "set"
    assert get(proxy.attributed.inner) == "set"
    del Subject.attributed.__dict__["inner"]


def test_what_a_property_returns_is_not_traversed(proxy: Any) -> None:
    assert get(proxy.nested).inner == "attributed"


def test_slotted_objects_cannot_be_marked() -> None:
    with pytest.raises(ValueError, match="using slots"):
        pykka.traversable(Slotted())


# Mocks: the one place where pykka's rule shows only on something that is not a real object.


def test_a_mocked_method_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = mock.MagicMock(return_value="mocked")
    monkeypatch.setattr(Subject, "fail", stand_in)
    assert get(Subject.start().proxy().fail()) == "mocked"
    assert stand_in.call_count == 1


@pytest.mark.parametrize("callable_", [True, False])
def test_a_mocked_property_must_not_be_callable(
    callable_: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in: Any = mock.Mock() if callable_ else mock.NonCallableMock()
    stand_in.__get__ = mock.Mock(return_value="mocked")
    monkeypatch.setattr(Subject, "fixed", stand_in)
    proxy: Any = Subject.start().proxy()
    if callable_:
        assert isinstance(proxy.fixed, CallableProxy)
    else:
        assert get(proxy.fixed) == "mocked"
