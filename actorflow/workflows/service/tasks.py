"""Tasks as taskers of an engine."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from msgspec import structs

from actorflow.runtime.errors import BadOption
from actorflow.runtime.tickets import AsyncTicket
from actorflow.runtime.worker.batched import batched
from actorflow.runtime.worker.pair.runner import current_batch
from actorflow.workflows.task import leave_task, run_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.tasks.task import TaskAttempt as Job
    from actorflow.workflows.task import Task

__all__ = ["THREADS", "remote_options", "tasker_of"]

THREADS = 32
"""Calls of one task at the same time, unless its `concurrency` says otherwise."""
_COROUTINES = 1_000


def tasker_of(task: Task[..., Any], clock: Any) -> tuple[Callable[[Job], Any], dict[str, Any], Any]:
    """Return the function of the tasker for a task, its options, and the object to stop.

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
        return _ImportedTask(task), given, None
    if options.executor == "loop" or (asynchronous and options.executor is None):
        given |= {"concurrency": options.concurrency or _COROUTINES, "kills": True}
        return _on_loop(task), given, None
    return _in_thread(task, asynchronous=asynchronous), given, None


def remote_options(task: Task[..., Any]) -> dict[str, Any]:
    """Return the options of the tasker, wherever the task runs."""
    options = task.options
    return {
        "retries": options.retries,
        "backoff": options.backoff,
        "timeout": options.attempt_timeout,
        "heartbeat": options.heartbeat,
        "may_hang": options.timeout is not None,
        "retry_on": options.retry_on,
        "give_up_on": options.give_up_on,
        "renews": False,
        "check_result": task.check,
        "describe_result": task.describe,
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
        _with_tasks(task.function)
    )
    given |= {"concurrency": _COROUTINES, "kills": True}

    async def do(job: Job) -> Any:
        args, kwargs = task.arguments(job.body["input"])
        (item,) = (*args, *kwargs.values())
        return task.write(await front.worker.answer(item, _BatchTicket(job)))

    return do, given, front


class _BatchTicket(AsyncTicket):
    """A call of a task that waits for its batch."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job


def _with_tasks(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of batches that runs as the tasks of its batch."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(items: Any) -> Any:
            token = run_task(_batch_task())
            try:
                return await function(items)
            finally:
                leave_task(token)
    else:

        @functools.wraps(function)
        def call(items: Any) -> Any:
            token = run_task(_batch_task())
            try:
                return function(items)
            finally:
                leave_task(token)

    return call


def _batch_task() -> Job | None:
    """Return the task of the first item of the current batch, with those of all items."""
    batch: Any = current_batch()
    jobs: dict[int, Job] = {}
    for place, ticket in reversed(batch.tickets or ()):
        if isinstance(ticket, _BatchTicket):
            jobs.setdefault(place, ticket.job)
    if not jobs:
        return None  # all callers have left
    each = tuple(jobs[place] for place in sorted(jobs))
    return structs.replace(each[0], batch=each)


class _ImportedTask:
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
        token = run_task(job)
        try:
            result = task.function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
        finally:
            leave_task(token)
        return task.write(result)


async def _awaited(result: Any) -> Any:
    return await result
