"""What a verb is. A verb is a function of an engine; its signature is its definition.

`verb` turns the annotated parameters into a msgspec struct. From the table `VERBS` follow:

- the routes, which read parameters from a query or a JSON body, and their OpenAPI description;
- the methods of `Verbs` (an engine in this process) and `Client` (an engine in another one);
- the commands, whose arguments are the positional parameters and whose options are the rest.
"""

from __future__ import annotations

import asyncio
import inspect
from enum import StrEnum
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from actorflow.api.errors import BadParameters
from actorflow.api.verbs import audit
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.engine.engine import BareEngine

__all__ = [
    "Access",
    "Verb",
    "VerbCaller",
    "Verbs",
    "all_verbs",
    "find_verb",
    "verb",
]


class Access(StrEnum):
    """The access that a verb requires."""

    READ = "read"
    WRITE = "write"


class Verb:
    """One verb.

    Args:
        run: the function; its first parameter is the engine.
        rights: what a caller needs.
        audited: whether each call is noted in the audit log.
        waits: the parameter that says how many seconds a call may wait.

    """

    def __init__(
        self, run: Callable[..., Any], rights: Access, *, audited: bool, waits: str | None
    ) -> None:
        self.run = run
        self.name = run.__name__
        self.rights = rights
        self.audited = audited
        self.waits = waits
        self.help = inspect.getdoc(run) or ""
        self.parameters = list(inspect.signature(run).parameters.values())[1:]
        """As they are defined, without the engine."""

    def __repr__(self) -> str:
        return f"<verb {self.name}>"

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "GET" if self.rights is Access.READ else "POST"

    @property
    def path(self) -> str:
        """The path of its route."""
        return f"/api/{self.name.replace('_', '-')}"

    @cached_property
    def types(self) -> dict[str, Any]:
        """The annotations of the parameters."""
        return get_type_hints(self.run, localns={"BareEngine": Any}, include_extras=True)

    @cached_property
    def struct(self) -> type[msgspec.Struct]:
        """The parameters as a struct."""
        fields: list[Any] = [
            (each.name, self.types[each.name])
            if each.default is each.empty
            else (each.name, self.types[each.name], each.default)
            for each in self.parameters
        ]
        return msgspec.defstruct(
            f"{self.name.title().replace('_', '')}Parameters",
            fields,
            forbid_unknown_fields=True,
            kw_only=True,
        )

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a call by name, except those left at their default.

        Raises:
            TypeError: they do not fit the signature.

        """
        signature = inspect.Signature(self.parameters)
        given = signature.bind(*args, **kwargs).arguments
        return {name: value for name, value in given.items() if value is not None}

    def read(self, given: Mapping[str, Any], *, from_text: bool = False) -> dict[str, Any]:
        """Return checked parameters; `from_text` also takes numbers that are written as text.

        Raises:
            BadParameters: one is missing, unknown or has another type.

        """
        try:
            found = msgspec.convert(dict(given), self.struct, strict=not from_text)
        except msgspec.ValidationError as error:
            raise BadParameters(f"{self.name}: {error}") from None
        return {name: getattr(found, name) for name in self.struct.__struct_fields__}

    def apply(self, engine: BareEngine, parameters: Mapping[str, Any]) -> Any:
        """Call the function with checked parameters; the result may be a coroutine."""
        found = self.run(engine, **parameters)
        if self.audited:
            audit.note(engine, self.name, dict(parameters), found)
        return found


VERBS: dict[str, Verb] = {}
"""The verbs that are loaded, by name; `all_verbs` and `find_verb` load them."""


def all_verbs() -> dict[str, Verb]:
    """Return all verbs by name."""
    for room in _ROOMS:
        import_module(room)
    return VERBS


def find_verb(name: str) -> Verb | None:
    """Return a verb; stop importing modules once it is found, because some import slowly."""
    for room in _ROOMS:
        if name not in VERBS:
            import_module(room)
    return VERBS.get(name)


_ROOMS = (
    "actorflow.api.verbs.queries",
    "actorflow.api.verbs.actions",
    "actorflow.api.verbs.process",
    "actorflow.api.verbs.diagnosis",
)


def verb(
    rights: Access, *, audited: bool = False, waits: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the table."""

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        VERBS[run.__name__] = Verb(run, rights, audited=audited, waits=waits)
        return run

    return add


class VerbCaller:
    """Has a method for each verb; a subclass says how it is called."""

    def call(self, verb: Verb, parameters: dict[str, Any]) -> Any:
        """Call a verb and return its result."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = None if name.startswith("_") else find_verb(name)
        if found is None:
            msg = f"{type(self).__name__} has no verb {name!r}{near(name, VERBS)}"
            raise AttributeError(msg)
        return partial(self._called, found)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *all_verbs()]

    def _called(self, verb: Verb, *args: Any, **kwargs: Any) -> Any:
        return self.call(verb, verb.bound(args, kwargs))


class Verbs(VerbCaller):
    """The verbs on an engine in this process. Thread-safe; each returns when its effect is stored.

    Args:
        engine: a live one; or one that only stores (`engine.parts.state.passive = True`), whose
            messages then wait for the next.

    """

    def __init__(self, engine: BareEngine) -> None:
        self.engine = engine

    def call(self, verb: Verb, parameters: dict[str, Any]) -> Any:
        """Call a verb and return its result."""
        found = verb.apply(self.engine, verb.read(parameters))
        return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found


async def _awaited(what: Any) -> Any:
    return await what
