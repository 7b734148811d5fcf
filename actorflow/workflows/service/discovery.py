"""Which tasks and sub-workflows the code of a workflow names."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from actorflow.workflows.task import Task
from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["found_in"]


def found_in(cls: type[Workflow[Any]]) -> tuple[list[Task[..., Any]], list[type[Workflow[Any]]]]:
    """Return the tasks and the other workflows that a class may use, each once.

    They are the ones that its methods name, directly or through a module, the ones that these name,
    and all tasks of the module that it is defined in.
    """
    tasks: dict[int, Task[..., Any]] = {}
    classes: dict[type[Workflow[Any]], None] = {cls: None}
    waiting = [cls]
    while waiting:
        each = waiting.pop()
        module = sys.modules.get(each.__module__)
        values = [value for value in vars(module or cls).values() if isinstance(value, Task)]
        for value in (*values, *_named_by(each)):
            if isinstance(value, Task):
                tasks[id(value)] = value
            elif _is_workflow(value) and value not in classes:
                classes[value] = None
                waiting.append(value)
    del classes[cls]
    return list(tasks.values()), list(classes)


def _is_workflow(value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Workflow)
        and value.handle is not Workflow.handle
    )


def _named_by(cls: type[Any]) -> Iterator[Any]:
    """Yield what the methods of a class name."""
    for base in cls.__mro__:
        if base in (Workflow, object):
            continue
        for value in vars(base).values():
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                yield from _named_in(function)
            elif isinstance(value, Task) or _is_workflow(value):
                yield value


def _named_in(function: FunctionType) -> Iterator[Any]:
    names = _names(function.__code__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    seen = dict(function.__globals__)
    for name, cell in cells:
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # it is not bound yet
            continue
        names.add(name)
    for name in names:
        value = seen.get(name)
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            # A helper beside the class; its own helpers are not followed.
            inner = value.__globals__
            yield from (inner.get(each) for each in _names(value.__code__))
        elif isinstance(value, ModuleType):
            yield from (vars(value).get(each) for each in names)
        else:
            yield value


def _names(code: CodeType) -> set[str]:
    """Return the global names and attributes that code uses, nested functions included."""
    found = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
