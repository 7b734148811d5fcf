"""The key of a job: what its result depends on, in named parts."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.components import Component, ComponentKind, digest_of, key_of
from actorflow.plans.cache.fingerprint.sharing import Sharing
from actorflow.plans.cache.fingerprint.values import plain_digest
from actorflow.plans.cache.fingerprint.walk import SHARED, Walk
from actorflow.plans.cache.references import BY_VALUE, resolve
from actorflow.plans.results import load
from actorflow.runtime.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actorflow.plans.cache.fingerprint.components import Components
    from actorflow.plans.cache_protocol import JobSpec
    from actorflow.plans.results import Value

__all__ = ["Description", "FunctionFacts", "Keys"]


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """What all jobs with the same function share."""

    components: Components
    digest: str
    unstable: Mapping[Component, str]


@dataclass(frozen=True, slots=True)
class Description:
    """All that a job's result depends on."""

    code: FunctionFacts
    own: Components
    """Its arguments and inputs."""
    unstable: Mapping[Component, str] = field(default_factory=dict)
    """Components without a stable digest, with the reasons: a job with any of these has no key."""

    @property
    def components(self) -> dict[Component, str]:
        """All components."""
        return {**self.code.components, **self.own}

    @property
    def key(self) -> str:
        """One digest of all components."""
        return digest_of(f"{self.code.digest} {key_of(self.own)}".encode())


class Keys:
    """Describes jobs. Use one for each run: a function is looked at once, a global may change.

    Not thread-safe. Runs `__reduce_ex__` of user classes, and imports the modules that
    functions import when they run.
    """

    def __init__(self) -> None:
        self._codes: dict[int, tuple[FunctionFacts, Any]] = {}
        self._names: dict[str, Walk] = {}
        self._signatures: dict[int, tuple[inspect.Signature | None, Any]] = {}
        # Of the thread that starts the run: it has imported the modules, which may set variables.
        self._context = contextvars.copy_context()

    def describe(self, job: JobSpec, inputs: Mapping[str, Value]) -> Description:
        """Return the dependencies of a job; `inputs` has the value of each input by its name."""
        return self._context.run(self._describe, job, inputs)

    def _describe(self, job: JobSpec, inputs: Mapping[str, Value]) -> Description:
        function, args, kwargs = _unwrapped(job)
        code = self._code(function)
        own: dict[Component, str] = {}
        unstable = dict(code.unstable)
        for name, value in inputs.items():
            self._input(Component(ComponentKind.INPUT, name), value, own, unstable)
        sharing = Sharing()
        for name, value in self._arguments(function, args, kwargs):
            component = Component(ComponentKind.ARGUMENT, name)
            plain = plain_digest(value)
            if plain is not None:
                own[component] = plain
                continue
            walk = Walk(sharing, pickled=True)
            walk.value(component, value)
            if walk.unstable:
                unstable[component] = next(iter(walk.unstable.values()))
            # The code that an argument brings along changes the argument.
            own[component] = key_of(walk.components)
        if sharing.repeats:
            shared = digest_of(repr(sharing.repeats).encode())
            own[Component(ComponentKind.ARGUMENT, SHARED)] = shared
        return Description(code, own, unstable)

    def _input(
        self,
        component: Component,
        value: Value,
        own: dict[Component, str],
        unstable: dict[Component, str],
    ) -> None:
        """Add an input, with the functions and classes that it contains."""
        own[component] = value.digest
        for name in value.code:
            walk = self._walked(component, value) if name == BY_VALUE else self._named(name)
            own.update(walk.components)
            unstable.update(walk.unstable)
        if BY_VALUE in value.code:
            own[component] = digest_of(f"{value.digest} {own[component]}".encode())

    def _named(self, name: str) -> Walk:
        """Return what a name in the pickle of an input stands for now."""
        walk = self._names.get(name)
        if walk is None:
            walk = self._names[name] = Walk()
            try:
                thing = resolve(name)
            except Exception as error:  # noqa: BLE001 - importing runs code of the user
                shown = name.replace(":", ".")
                walk.unstable[Component(ComponentKind.CLASS, name)] = (
                    f"{shown} cannot be imported: {text_of(error)}"
                )
            else:
                walk.named(name, thing)
        return walk

    def _walked(self, component: Component, value: Value) -> Walk:
        """Return what an input consists of that holds code by value."""
        walk = Walk()
        try:
            walk.value(component, load(value))
        except Exception as error:  # noqa: BLE001 - unpickling runs code of the user
            walk.unstable[component] = f"it cannot be unpickled: {text_of(error)}"
        return walk

    def _code(self, function: Any) -> FunctionFacts:
        known = self._codes.get(id(function))
        if known is not None:
            return known[0]
        walk = Walk()
        walk.root(function)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        components = {**walk.components, Component(ComponentKind.PYTHON, ""): version}
        code = FunctionFacts(components, key_of(components), walk.unstable)
        self._codes[id(function)] = (code, function)
        return code

    def _arguments(
        self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the arguments with the names of their parameters."""
        signature = self._signature(function)
        try:
            bound = signature.bind(*args, **kwargs) if signature else None
        except TypeError:
            bound = None  # the call will fail; that is the job's to tell
        if signature is None or bound is None:
            yield from ((str(at), value) for at, value in enumerate(args, start=1))
            yield from kwargs.items()
            if len(kwargs) > 1:
                yield "**kwargs in order", tuple(kwargs)
            return
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                yield from ((f"{name}[{at}]", each) for at, each in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                for keyword, each in value.items():
                    # One may be called as a parameter is (`f(1, a=2)` of `def f(a, /, **kw)`).
                    plain = keyword.isidentifier() and keyword not in signature.parameters
                    yield (keyword if plain else f"**{keyword!r}"), each
                if len(value) > 1:
                    yield f"**{name} in order", tuple(value)  # the function can see it
            else:
                yield name, value

    def _signature(self, function: Any) -> inspect.Signature | None:
        known = self._signatures.get(id(function))
        if known is not None:
            return known[0]
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None  # a function in C that does not say
        self._signatures[id(function)] = (signature, function)
        return signature


def _unwrapped(job: JobSpec) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function behind partials and bound methods, with the arguments these add."""
    function: Any = job.function
    args, kwargs = job.args, dict(job.kwargs)
    while True:
        if isinstance(function, functools.partial):
            args, kwargs = function.args + args, {**function.keywords, **kwargs}
            function = function.func
        elif isinstance(function, types.MethodType):
            args, function = (function.__self__, *args), function.__func__
        else:
            return function, args, kwargs
