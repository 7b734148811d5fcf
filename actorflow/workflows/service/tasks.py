"""Tasks as taskers of an engine."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import BadOption
from actorflow.runtime.supervision.spec import Backoff
from actorflow.runtime.worker.batched import batched
from actorflow.workflows.running import leave_task, run_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.tasks.tasker import Task as Job
    from actorflow.workflows.task import Task

__all__ = ["THREADS", "remote_options", "tasker_of"]

THREADS = 32
"""Calls of one task at the same time, unless its `concurrency` says otherwise."""
_COROUTINES = 1_000
_LONGEST = 3_600.0  # seconds between two attempts


def tasker_of(task: Task[..., Any], clock: Any) -> tuple[Callable[[Job], Any], dict[str, Any], Any]:
    """Return the function of the tasker that does a task, its options, and what is to be stopped.

    Raises:
        BadOption: the options of the task do not fit its function.

    """
    options = task.options
    given = {**remote_options(task), "concurrency": options.concurrency or THREADS}
    asynchronous = inspect.iscoroutinefunction(task.function)
    if options.batch is not None:
        return _batched(task, given, clock)
    if options.executor == "process":
        given |= {"executor": "process", "kills": True}
        return _Elsewhere(task), given, None
    if options.executor == "loop" or (asynchronous and options.executor is None):
        given |= {"concurrency": options.concurrency or _COROUTINES, "kills": True}
        return _on_loop(task), given, None
    return _in_thread(task, asynchronous=asynchronous), given, None


def remote_options(task: Task[..., Any]) -> dict[str, Any]:
    """Return the options of the tasker, wherever the task runs."""
    backoff = float(task.options.backoff)
    return {
        "retries": task.options.retries,
        "backoff": Backoff(initial=backoff, maximum=max(_LONGEST, backoff), jitter=0.1),
    }


def _in_thread(task: Task[..., Any], *, asynchronous: bool) -> Callable[[Job], Any]:
    def do(job: Job) -> Any:
        args, kwargs = task.arguments(job.body["input"])
        token = run_task(job)
        try:
            result = task.function(*args, **kwargs)
            if asynchronous:
                result = asyncio.run(result)
        finally:
            leave_task(token)
        return task.write(result)

    return do


def _on_loop(task: Task[..., Any]) -> Callable[[Job], Any]:
    async def do(job: Job) -> Any:
        args, kwargs = task.arguments(job.body["input"])
        token = run_task(job)
        try:
            result = task.function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
        finally:
            leave_task(token)
        return task.write(result)

    return do


def _batched(
    task: Task[..., Any], given: dict[str, Any], clock: Any
) -> tuple[Callable[[Job], Any], dict[str, Any], Any]:
    """Accumulate calls of different instances in one behaviour; each gets its own answer."""
    options = task.options
    if options.executor == "process":
        raise BadOption(
            f"the task {task.name} has batch= and executor='process': batches are made in this "
            "process; use executor='thread', and start processes from the function"
        )
    front: Any = batched(options.batch, concurrency=options.concurrency or 1, clock=clock)(
        task.function
    )
    given["concurrency"] = _COROUTINES

    async def do(job: Job) -> Any:
        args, kwargs = task.arguments(job.body["input"])
        (item,) = (*args, *kwargs.values())
        return task.write(await front.aio(item))

    return do, given, front


class _Elsewhere:
    """Does a task in another process, which imports it by its name."""

    def __init__(self, task: Task[..., Any]) -> None:
        self._module = task.function.__module__
        self._name = task.function.__qualname__
        found: Any = importlib.import_module(self._module)
        for part in self._name.split("."):
            found = getattr(found, part, None)
        if found is not task:
            raise BadOption(
                f"the task {task.name} has executor='process', and the process could not import "
                f"it: define it at the top of a module, not {self._module}.{self._name}"
            )

    def __call__(self, job: Job) -> Any:
        """Do it. In the other process."""
        found: Any = importlib.import_module(self._module)
        for part in self._name.split("."):
            found = getattr(found, part)
        task: Task[..., Any] = found
        args, kwargs = task.arguments(job.body["input"])
        result = task.function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return task.write(result)


async def _awaited(result: Any) -> Any:
    return await result
