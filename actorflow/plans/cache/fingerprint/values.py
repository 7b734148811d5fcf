"""The digest of a value: the same in every process, and different when the value is.

Built from the structure of a value, not from its pickle, which depends on the order of sets and
on which objects are shared. Objects of other classes count as what `__reduce_ex__` says of them.
"""

from __future__ import annotations

import contextvars
import copyreg
import functools
import pickle
import struct
import sys
import threading
import types
import typing
import weakref
from hashlib import blake2b, file_digest
from typing import TYPE_CHECKING, Any

from actorflow.plans.arguments import InputFile
from actorflow.plans.cache.fingerprint.bytecode import instructions
from actorflow.plans.cache.fingerprint.definitions import is_a
from actorflow.plans.cache.fingerprint.ownership import home_of, is_own
from actorflow.plans.cache.fingerprint.sharing import Sharing
from actorflow.plans.cache_protocol import Input
from actorflow.runtime.errors import ActorflowError, kind_and_text, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

__all__ = ["Unstable", "Values", "plain_digest"]

_SIZE = 20
_PROTOCOL = 5
_LONGEST = 5  # items of what `__reduce_ex__` returns that say how to rebuild a value
# Not data: a job computes the same with any two of them.
_BLANK = (
    type(threading.Lock()),
    type(threading.RLock()),
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
_TYPE_PARAMETERS = {"ParamSpec", "TypeAliasType", "TypeVar", "TypeVarTuple"}
# What these hold when a job runs cannot be seen from here.
_HIDDEN = (
    threading.local,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
    weakref.WeakValueDictionary,
)


class Unstable(ActorflowError):
    """A value has no digest that holds in another process."""


class Values:
    """Digests of values. Not thread-safe. Keeps what it has seen alive.

    `refer` is asked first about each object that is not plain data. It returns a text that stands
    for functions, classes and modules, and `None` for everything else. A job gets values that are
    `pickled` as their pickle says; others as they are, with what a pickle would leave out.
    """

    def __init__(
        self,
        refer: Callable[[Any], str | None],
        sharing: Sharing | None = None,
        *,
        pickled: bool = False,
    ) -> None:
        self._refer = refer
        self._pickled = pickled
        self.sharing = sharing or Sharing()
        """Which objects have been seen in several places."""
        self._known: dict[int, tuple[bytes, Any]] = {}
        self._path: list[int] = []
        self._containers: dict[type, Callable[[Any], bytes]] = {
            list: self._sequence,
            tuple: self._sequence,
            dict: self._mapping,
            types.MappingProxyType: self._mapping,
            set: self._set,
            frozenset: self._set,
            bytearray: lambda value: _hash("bytearray", bytes(value)),
            Input: self._input,
            pickle.PickleBuffer: self._buffer,
            InputFile: self._file,
            types.CodeType: self._code,
        }

    def digest(self, value: Any) -> str:
        """Return the digest of a value, as hexadecimal digits.

        Raises:
            Unstable: it holds something that only exists in this process, such as an open file.

        """
        try:
            return self._digest(value).hex()
        except RecursionError:
            raise Unstable(f"a {type(value).__qualname__} is nested too deeply") from None
        except Unstable:
            raise
        except (Exception, SystemExit) as error:  # code of the user runs here
            why = f"looking at a {type(value).__qualname__} raised {kind_and_text(error)}"
            raise Unstable(why) from error
        finally:
            self._path.clear()

    def part(self, value: Any) -> str:
        """Like `digest`, but for `refer` to ask about a part of the value it is asked about."""
        return self._digest(value).hex()

    def leave(self) -> None:
        """Forget where `part` was, after it has raised."""
        self._path.clear()

    def _digest(self, value: Any) -> bytes:
        cls = type(value)
        plain = _PLAIN.get(cls)
        if plain is not None:
            return _hash(cls.__name__, plain(value))
        self.sharing.visit(value)
        identity = id(value)
        if identity in self._known:
            return self._known[identity][0]
        if identity in self._path:
            return _hash("cycle", str(len(self._path) - self._path.index(identity)).encode())
        self._path.append(identity)
        found = self._compound(value, cls)
        self._path.pop()
        self._known[identity] = (found, value)
        return found

    def _compound(self, value: Any, cls: type) -> bytes:
        container = self._containers.get(cls)
        if container is not None:
            return container(value)
        if issubclass(type(value), _HIDDEN):
            why = "shows another thread or another moment something else"
            raise Unstable(f"a {cls.__qualname__} {why}")
        if issubclass(type(value), _BLANK):
            return _hash("blank", _name(cls))
        if is_a(value, contextvars.ContextVar):
            return self._all("context", [value.name, *_current(value)])
        parts = _parts(value)
        if parts is not None:
            return self._all(
                cls.__name__, [self._refer(cls), getattr(value, "__dict__", None), *parts]
            )
        reference = self._refer(value)
        if reference is not None:
            return _hash("reference", reference.encode())
        return self._reduced(value, cls)

    def _mapping(self, value: Mapping[Any, Any]) -> bytes:
        # In the order of the items: a job can see it.
        # Of a copy: a visit may import a module, and so add to a table.
        return self._all("dict", [part for item in list(value.items()) for part in item])

    def _set(self, value: AbstractSet[Any]) -> bytes:
        with self.sharing.unordered():
            return _hash(type(value).__name__, *sorted(map(self._digest, list(value))))

    def _sequence(self, value: Sequence[Any]) -> bytes:
        return self._all(type(value).__name__, value)

    def _input(self, value: Input) -> bytes:
        return _hash("input", value.name.encode())

    def _buffer(self, value: pickle.PickleBuffer) -> bytes:
        with value.raw() as view:
            return _hash("buffer", view)

    def _file(self, value: InputFile) -> bytes:
        try:
            with value.open("rb") as file:
                content = file_digest(file, lambda: blake2b(digest_size=_SIZE))
        except OSError as error:
            why = f"{value} cannot be read ({error.strerror}), and is made by no job before it"
            raise Unstable(why) from error
        return _hash("file", str(value).encode("utf-8", "surrogateescape"), content.digest())

    def _code(self, value: types.CodeType) -> bytes:
        return self._digest(instructions(value))

    def _all(self, tag: str, values: Iterable[Any]) -> bytes:
        return _hash(tag, *map(self._digest, values))

    def _reduced(self, value: Any, cls: type) -> bytes:
        reducer = copyreg.dispatch_table.get(cls)
        try:
            reduced = reducer(value) if reducer else value.__reduce_ex__(_PROTOCOL)
        except (Exception, SystemExit) as error:  # __reduce_ex__ is the user's
            raise Unstable(f"a {cls.__qualname__} cannot be hashed ({text_of(error)})") from error
        if isinstance(reduced, str):
            return self._named(value, cls, reduced)
        rebuild, arguments, state, items, pairs = (*reduced, None, None, None)[:_LONGEST]
        if isinstance(state, dict) and not is_own(home_of(cls)):
            state = {name: self._lenient(each) for name, each in state.items()}
        return self._all(
            "object",
            [
                self._refer(cls) or _name(cls),
                rebuild,
                tuple(arguments),
                state,
                None if items is None else list(items),
                None if pairs is None else list(pairs),
                None if self._pickled or not _leaves_out(cls) else self._unpickled(value),
            ],
        )

    def _unpickled(self, value: Any) -> list[Any]:
        """Return all that an object holds; its `__reduce__` or `__getstate__` may leave some out.

        They do so mostly with attributes that cannot be pickled.
        """
        slots = [getattr(each, "__slots__", ()) for each in type(value).__mro__]
        names = [name for each in slots for name in ((each,) if type(each) is str else each)]
        held = {name: object.__getattribute__(value, name) for name in names if _has(value, name)}
        held |= getattr(value, "__dict__", {})
        cls = type(value)
        return [
            {name: self._lenient(each) for name, each in held.items()},
            list(dict.items(value)) if issubclass(cls, dict) else None,
            list(list.__iter__(value)) if issubclass(cls, list) else None,
            list(tuple.__iter__(value)) if issubclass(cls, tuple) else None,
        ]

    def _named(self, value: Any, cls: type, name: str) -> bytes:
        """Return the digest of an object whose pickle is the name of a variable.

        The job gets what the variable holds then, so its attributes count.
        """
        if not is_own(home_of(cls)):
            home: str = pickle.whichmodule(value, name)  # type: ignore[attr-defined] # not in typeshed
            if getattr(sys.modules.get(home), name, None) is not value:
                raise Unstable(
                    f"a {cls.__qualname__} is not what the name in its pickle stands for"
                )
            return _hash("named", _name(cls), home.encode(), name.encode())
        state = object.__getstate__(value)
        return self._all("named", [self._refer(cls) or _name(cls), name, state])

    def _lenient(self, value: Any) -> Any:
        """Return the digest of an attribute of an object of a library.

        What the library keeps there for itself, and cannot be pickled, is not user data.
        """
        path = len(self._path)
        try:
            return self._digest(value)
        except Unstable:
            del self._path[path:]
            return _name(type(value))


def _leaves_out(cls: type) -> bool:
    """Return whether the pickle of an object of the user's may tell less than the object holds."""
    return is_own(home_of(cls)) and (
        issubclass(cls, dict | list | tuple)
        or any(getattr(cls, name) is not getattr(object, name) for name in _PICKLING)
    )


_PICKLING = ("__getstate__", "__reduce__", "__reduce_ex__")


def _has(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def plain_digest(value: Any) -> str | None:
    """Return the digest of a number or text; `None` for other types. Fast."""
    plain = _PLAIN.get(type(value))
    return None if plain is None else _hash(type(value).__name__, plain(value)).hex()


def _hash(tag: str, *parts: bytes | memoryview) -> bytes:
    """Return the digest of a tag and some parts; no two lists of parts run into each other."""
    made = blake2b(tag.encode(), digest_size=_SIZE)
    for part in parts:
        made.update(struct.pack("<Q", len(part)))
        made.update(part)
    return made.digest()


def _parts(value: Any) -> list[Any] | None:  # noqa: PLR0911 - a case for each type
    """Return the parts of a value of Python whose pickle does not show them; None for others."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if is_a(value, property):
        return [value.fget, value.fset, value.fdel]
    if is_a(value, functools.singledispatchmethod):
        return [value.func, dict(value.dispatcher.registry)]
    if isinstance(value, functools.partial | functools.partialmethod):
        return [value.func, value.args, value.keywords]
    if is_a(value, struct.Struct):
        return [value.format]
    if is_a(value, typing.ForwardRef):
        return [value.__forward_arg__]  # the rest of it changes when it is looked up
    if type(value).__name__ in _TYPE_PARAMETERS and type(value).__module__ == "typing":
        bounds = ("__bound__", "__constraints__", "__value__")
        return [value.__name__, *(getattr(value, each, None) for each in bounds)]
    return None


def _current(variable: contextvars.ContextVar[Any]) -> list[Any]:
    """Return the value of a variable here, or its default; nothing if it has neither."""
    try:
        return [variable.get()]
    except LookupError:
        return []


def _name(cls: type) -> bytes:
    return f"{home_of(cls)}.{cls.__qualname__}".encode()


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    type(Ellipsis): lambda _: b"",
    type(NotImplemented): lambda _: b"",
    bool: lambda value: b"1" if value else b"0",
    int: lambda value: value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True),
    float: lambda value: struct.pack("<d", value),
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    range: lambda value: repr(value).encode(),
}
