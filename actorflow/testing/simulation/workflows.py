"""Workflows in a simulated cluster: their own code and tasks, replayed after every crash."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Status
from actorflow.testing.simulation.client import Cancel, Sent
from actorflow.testing.simulation.simulate import simulate
from actorflow.workflows.decider import Decider
from actorflow.workflows.frames.properties import capture
from actorflow.workflows.frames.values import freeze
from actorflow.workflows.service.discovery import found_in
from actorflow.workflows.service.dispatched import DispatchedKind
from actorflow.workflows.service.incoming import event_body, start_body
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.workflow import Workflow, read_result, workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.testing.simulation.cluster import Parts
    from actorflow.testing.simulation.faults import Faults
    from actorflow.workflows.task import Task

__all__ = ["simulate_workflows"]


def simulate_workflows(
    workflows: Mapping[str, Workflow[Any]],
    *,
    seed: int,
    events: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    check: Callable[[Mapping[str, Any]], None] | None = None,
    faults: Faults | None = None,
    parts: Parts | None = None,
) -> dict[str, Any]:
    """Run workflows on a simulated cluster; return the results of those that are done.

    Like `simulate`, for workflows as code. Tasks are called as they are, in this thread; a task may
    be called more than once, as always. One that raises has failed; it is not tried again.

    Args:
        workflows: the objects to start, by their ids.
        seed: of all that is left to chance.
        events: what is sent to them: the id, the name of the event and its data, in this order.
        check: gets the results; for what must hold of yours.
        faults: what goes wrong; drawn from the seed by default.
        parts: what the cluster is made of.

    Raises:
        SimulationFailed: something does not hold.

    >>> from actorflow.workflows.task import task
    >>> @task
    ... def charge(order: str) -> int:
    ...     return 40
    >>> class Order(Workflow[int]):
    ...     def __init__(self, id: str):
    ...         self.id, self.paid = id, 0
    ...
    ...     def handle(self) -> int:
    ...         amount = self.execute(charge(self.id))
    ...         while self.paid < amount:
    ...             self.wait("paid", days=3)
    ...         return self.paid
    ...
    ...     def on_event(self, event):
    ...         self.paid += event.data["amount"]
    >>> payments = [("o-1", "paid", {"amount": 20}), ("o-1", "paid", {"amount": 20})]
    >>> simulate_workflows({"o-1": Order("o-1")}, seed=7, events=payments)
    {'o-1': 40}
    """
    tasks, classes = _reachable(type(each) for each in workflows.values())
    deciders: list[Decider] = []

    def kinds() -> list[Kind]:
        decider = Decider()
        deciders.append(decider)
        return [*(WorkflowKind(cls, decider) for cls in classes), DispatchedKind()]

    names = {name: kind_name(workflow_name(type(each))) for name, each in workflows.items()}
    sent: list[Sent | Cancel] = [
        Sent(name, start_body(capture(each)), names[name]) for name, each in workflows.items()
    ]
    for name, event, data in events:
        if name not in workflows:
            msg = f"an event is for {name!r}; there are {', '.join(sorted(workflows))}"
            raise ValueError(msg)
        body = event_body(event, freeze(dict(data), Any, f"the data of the event {event!r}"))
        sent.append(Sent(name, body, names[name], in_order=True))

    def results(rows: Mapping[str, ExecutionRow]) -> dict[str, Any]:
        return {
            name: read_result(type(each), _output(rows[name]))
            for name, each in workflows.items()
            if name in rows and rows[name].status == Status.DONE
        }

    try:
        history = simulate(
            kinds,
            seed=seed,
            messages=sent,
            taskers={task.name: _tasker(task) for task in tasks},
            check=None if check is None else lambda rows: check(results(rows)),
            faults=faults,
            parts=parts,
        )
    finally:
        for decider in deciders:
            decider.close()
    return results(history.executions)


def _output(row: ExecutionRow) -> Any:
    return None if row.result is None else bodies.decode(row.result)


def _reachable(
    given: Iterable[type[Workflow[Any]]],
) -> tuple[list[Task[..., Any]], list[type[Workflow[Any]]]]:
    """Return the tasks and classes that the code of some classes names, these included."""
    tasks: dict[str, Task[..., Any]] = {}
    classes: dict[type[Workflow[Any]], None] = {}
    for cls in given:
        named, others = found_in(cls)
        tasks.update({each.name: each for each in named})
        classes.update(dict.fromkeys((cls, *others)))
    return [*tasks.values()], [*classes]


def _tasker(task: Task[..., Any]) -> Callable[[Any], Any]:
    def do(body: Any) -> Any:
        args, kwargs = task.arguments(body["input"])
        result = task.function(*args, **kwargs)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return task.write(result)

    return do
