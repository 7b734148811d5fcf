"""What the instructions of a function say: the names it uses, and a form to compare it by."""

from __future__ import annotations

import dis
import inspect
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Import", "Uses", "instructions", "uses"]

_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
# What only serves tracing, or the interpreter.
_SILENT = {"NOP", "RESUME", "CACHE", "EXTENDED_ARG", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL"}
_LOCALS = set(dis.haslocal) | set(dis.hasfree)


@dataclass(frozen=True, slots=True)
class Import:
    """An import inside a function."""

    module: str
    level: int
    names: tuple[str, ...]
    """What is imported from it; empty for `import module`."""


@dataclass(frozen=True, slots=True)
class Uses:
    """What a function, with all that is nested in it, refers to."""

    globals: tuple[tuple[str, ...], ...]
    """Global names, each with the attributes that are looked up on it at once."""
    imports: tuple[Import, ...]
    attributes: frozenset[str]
    """Every name that is looked up on anything."""


def uses(code: types.CodeType) -> Uses:
    """Return the names that a function uses, sorted."""
    chains: set[tuple[str, ...]] = set()
    imports: set[Import] = set()
    attributes: set[str] = set()
    for each in _with_nested(code):
        found = list(dis.get_instructions(each))
        for at, instruction in enumerate(found):
            if instruction.opname in _LOADS:
                chains.add((instruction.argval, *_attributes_after(found, at)))
            elif instruction.opname in _ATTRIBUTES:
                attributes.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                # Two constants are pushed before it: the level, and the names or None.
                level, names = (found[at - 2].argval, found[at - 1].argval)
                imports.add(Import(instruction.argval, level, tuple(names or ())))
    return Uses(
        tuple(sorted(chains)),
        tuple(sorted(imports, key=lambda each: (each.module, each.level, each.names))),
        frozenset(attributes),
    )


def _attributes_after(found: list[dis.Instruction], at: int) -> Iterator[str]:
    for instruction in found[at + 1 :]:
        if instruction.opname not in _ATTRIBUTES:
            return
        yield instruction.argval


def _with_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _with_nested(each)


def instructions(code: types.CodeType) -> tuple[Any, ...]:
    """Return the instructions of a function as plain values, for code without a source.

    Line numbers, docstrings and the names of locals do not show in it. It differs from one
    version of Python to the next.
    """
    found: list[dis.Instruction] = []
    ordinals: dict[int, int] = {}  # by offset; a jump to something silent goes to what comes next
    for each in dis.get_instructions(code):
        ordinals[each.offset] = len(found)
        if each.opname not in _SILENT:
            found.append(each)
    local: dict[str, Any] = {name: name for name in _parameters(code)}
    rows: list[tuple[Any, ...]] = []
    for each in found:
        value = each.argval
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            value = ordinals.get(value, -1)
        elif each.opcode in _LOCALS:
            value = tuple(_renamed(local, name) for name in _names(value))
        elif isinstance(value, types.CodeType):
            value = (value.co_name, instructions(value))
        rows.append((each.opname, value))
    return (
        _parameters(code),
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        tuple(rows),
        code.co_exceptiontable,
    )


def _renamed(local: dict[str, Any], name: str) -> Any:
    return local.setdefault(name, len(local))


def _names(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]
