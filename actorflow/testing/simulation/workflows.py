"""Workflows in a simulated cluster: their own code and tasks, replayed after every crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Status
from actorflow.engine.typed import freeze
from actorflow.testing.simulation.cluster import Cancel, Sent
from actorflow.testing.simulation.simulate import Simulation
from actorflow.testing.simulation.store import SimulatedStore
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.service.received_messages import event_body, start_body
from actorflow.workflows.suspended.properties import capture
from actorflow.workflows.workflow import read_result, workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.application import Engine
    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.testing.simulation.faults import Faults
    from actorflow.testing.simulation.process import Process
    from actorflow.workflows.workflow import Workflow

__all__ = ["simulate_workflows"]


def simulate_workflows(
    workflows: Mapping[str, Workflow[Any]],
    *,
    seed: int,
    events: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    deploys: Sequence[Sequence[type[Workflow[Any]]]] = (),
    check: Callable[[Mapping[str, Any]], None] | None = None,
    faults: Faults | None = None,
    store: type[SimulatedStore] = SimulatedStore,
    shorten: bool = True,
) -> dict[str, Any]:
    """Run workflows on a simulated cluster; return the results of the completed ones.

    Like `simulate`, for workflows as code. Tasks are called as they are, with their own retries,
    in virtual time; a task may be called more than once, as always.

    Args:
        workflows: the objects to start, by their ids.
        seed: of all that is left to chance.
        events: the events to send, in this order: id, name of the event, data.
        deploys: the classes of later versions of the code, for faults of the type `DEPLOY`: each
            replaces the one whose workflows have the same name.
        check: gets the results; raises if they are wrong.
        faults: the faults to inject; drawn from the seed by default.
        store: what each engine stores in.
        shorten: whether to look for fewer faults that still make it fail.

    Raises:
        SimulationFailed: something does not hold.

    """
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

    def set_up(engine: Engine, process: Process) -> None:
        classes = {workflow_name(type(each)): type(each) for each in workflows.values()}
        for later in deploys[: process.version]:
            classes.update((workflow_name(each), each) for each in later)
        engine.workflows.register(*classes.values())

    checked = None if check is None else lambda rows: check(results(rows))
    run = Simulation(seed, set_up, sent, checked, store)
    return results(run.history(faults, shorten=shorten).executions)


def _output(row: ExecutionRow) -> Any:
    return None if row.result is None else bodies.decode(row.result)
