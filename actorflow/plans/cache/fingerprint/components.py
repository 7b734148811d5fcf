"""The parts of a job's key, each with a name, so that a change of one can be explained."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Component", "ComponentKind", "Components", "digest_of", "key_of"]

_SIZE = 20  # bytes: 160 bits


class ComponentKind(StrEnum):
    """What kind of part a component is; in the order in which changes are reported."""

    CODE = "code"
    DEFAULT = "default argument"
    CLOSURE = "closure value"
    HELPER = "helper"
    CLASS = "class"
    GLOBAL = "global"
    MODULE = "module"
    ARGUMENT = "argument"
    INPUT = "input"
    PYTHON = "Python"


class Component(NamedTuple):
    """One part of a key.

    The name of a thing of a module is `module:qualname`; that of a default or closure value is
    `name` for the job's own function and `name of module:qualname` for a helper.
    """

    part: ComponentKind
    name: str

    def __str__(self) -> str:
        if self.part is ComponentKind.CODE:
            return "code"
        if self.part is ComponentKind.PYTHON:
            return "the version of Python"
        first, _, owner = self.name.partition(" of ")
        shown = f"{self.part} `{_short(first)}`"
        return f"{shown} of `{_short(owner)}`" if owner else shown


def _short(name: str) -> str:
    return name.partition(":")[2] or name


Components: TypeAlias = "Mapping[Component, str]"
"""The digest of each component."""


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, as hexadecimal digits."""
    return blake2b(data, digest_size=_SIZE).hexdigest()


def key_of(components: Components) -> str:
    """Return the key that stands for all components together."""
    lines = sorted(f"{part}\0{name}\0{digest}" for (part, name), digest in components.items())
    return digest_of("\1".join(lines).encode())
