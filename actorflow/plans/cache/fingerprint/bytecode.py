"""The instructions of a function: the names it uses, and a form to compare it by."""

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
_REVEALING = {"locals", "vars", "dir", "eval", "exec"}
_LOCALS = set(dis.haslocal) | set(dis.hasfree)


@dataclass(frozen=True, slots=True)
class Import:
    """An import inside a function."""

    module: str
    level: int
    names: tuple[str, ...]
    """The names imported from it; empty for `import module`."""
    variables: tuple[str, ...]
    """The variables that hold them: one for each name, or one for the module."""


@dataclass(frozen=True, slots=True)
class Uses:
    """What a function, with all that is nested in it, refers to."""

    globals: tuple[tuple[str, ...], ...]
    """Global names, each with the attributes that are looked up on it at once."""
    imports: tuple[Import, ...]
    attributes: frozenset[str]
    """Every name that is looked up on anything."""
    lines: dict[str, int]
    """The first line on which each global name or attribute is used."""
    loose: frozenset[str]
    """Variables that are handed on or looked into by other means than `variable.name`."""
    texts: frozenset[str]
    """The text constants, but for docstrings."""


def uses(code: types.CodeType) -> Uses:
    """Return the names that a function uses, sorted."""
    chains: set[tuple[str, ...]] = set()
    imports: set[Import] = set()
    attributes: set[str] = set()
    lines: dict[str, int] = {}
    everything = [list(dis.get_instructions(each)) for each in _with_nested(code)]
    for found in everything:
        for at, instruction in enumerate(found):
            if instruction.opname in _LOADS:
                chains.add((instruction.argval, *_attributes_after(found, at)))
                lines.setdefault(instruction.argval, _line_of(instruction))
            elif instruction.opname in _ATTRIBUTES:
                attributes.add(instruction.argval)
                lines.setdefault(instruction.argval, _line_of(instruction))
            elif instruction.opname == "IMPORT_NAME":
                # Two constants are pushed before it: the level, and the names or None.
                level, names = (found[at - 2].argval, found[at - 1].argval)
                names = tuple(names or ())
                variables = tuple(_variables(found[at + 1 :], len(names) or 1))
                imports.add(Import(instruction.argval, level, names, variables))
    return Uses(
        tuple(sorted(chains)),
        tuple(sorted(imports, key=lambda each: (each.module, each.level, each.names))),
        frozenset(attributes),
        lines,
        frozenset(name for found in everything for name in _loose(found)),
        frozenset(text for found in everything for text in _texts(found)),
    )


def _texts(found: list[dis.Instruction]) -> Iterator[str]:
    """Yield the texts that a function loads: its docstring is a constant that it does not load."""
    for instruction in found:
        if instruction.opname.endswith("LOAD_CONST"):
            values = instruction.argval
            for each in values if isinstance(values, tuple | frozenset) else (values,):
                if isinstance(each, str):
                    yield each


def _line_of(instruction: dis.Instruction) -> int:
    positions = instruction.positions
    return (positions.lineno if positions else None) or 0


def _variables(after: list[dis.Instruction], count: int) -> Iterator[str]:
    """Yield the variables that the instructions after an import store its names in."""
    for instruction in after:
        if not count or instruction.opname == "IMPORT_NAME":
            return
        if instruction.opname.startswith("STORE_"):
            yield _names(instruction.argval)[0]
            count -= 1


def _loose(found: list[dis.Instruction]) -> Iterator[str]:
    """Yield the variables that are used otherwise than to look up a plain attribute.

    One that is stored as a global may be used by any other function.

    Where a function can see its own variables, these are all it has.
    """
    for at, instruction in enumerate(found):
        if instruction.opname == "STORE_GLOBAL":
            yield instruction.argval
        if not instruction.opname.startswith("LOAD_") or instruction.opname in _ATTRIBUTES:
            continue
        if instruction.opname in _LOADS and instruction.argval in _REVEALING:
            for each in found:
                if each.opname.startswith("STORE_"):
                    yield from map(str, _names(each.argval))
        elif not _is_attribute(found, at):
            yield from map(str, _names(instruction.argval))


def _is_attribute(found: list[dis.Instruction], at: int) -> bool:
    """Return whether a plain attribute is looked up on what an instruction has loaded."""
    if at + 1 == len(found) or found[at + 1].opname not in _ATTRIBUTES:
        return False
    name: str = found[at + 1].argval
    return not (name.startswith("__") and name.endswith("__"))


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
    ordinals: dict[int, int] = {}  # by offset; a jump to a silent one goes to the next one
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
