"""The whole application, control and agent, fuzzed from its own description over a real socket."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.parameters import ParameterLocation

import actorflow as af
from actorflow.engine.operations.export import export_lines
from tests.api.ledger import PATIENCE, Ledger
from tests.engine.kinds import flush, until
from tests.workflows.agent.worker import Agency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAITS = {"/env/{env}/lang/{lang}/job": "wait", "/api/wait": "timeout", "/api/follow": "timeout"}
"""Requests that wait, and what says how long."""

NOTHING_TO_GET_WRONG = {
    "GET /health",
    "GET /metrics",
    "GET /api/stats",
    "GET /api/workers",
    "GET /api/schedules",
    "GET /api/cluster",
    "POST /env/{env}/lang/{lang}/job",  # as the route with GET
}


def fuzz(operation: Any, mode: Any, examples: int, check: Callable[[Any], None]) -> None:
    """Call a check with requests for an operation."""

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        check(case)

    run()


class Target:
    """An engine with something of everything, and the operations of its application."""

    def __init__(self, engine: af.Engine) -> None:
        self.engine = engine
        engine.register(Ledger())
        engine.tasker("desk", lambda _: af.HOLD)
        self.begun: dict[str, Any] = {}
        """The branch that was begun of the decision that is out."""
        self._order = engine.workflows.remote("Order", lang="test", tasks=["charge"])
        engine.start("ledger", {"hold": "t1"}, id="a")
        engine.launch("stall _", id="f")
        url = engine.serve_agent(port=0)
        self.agency = Agency(url)
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", wait_for_schema=PATIENCE)
        found: list[Any] = [*schema.get_all_operations()]
        self.operations: dict[str, Any] = {each.ok().label: each.ok() for each in found}

    def job(self, label: str) -> str | None:
        """Return the uuid of a job that is out, for a request about one."""
        if "{uuid}" not in label:
            return None
        self.engine.start(self._order())
        while (decision := self.agency.job())["action"] != "DecisionScheduled":
            pass
        uuid: str = decision["uuid"]
        self.begun = self.agency.next_branch(uuid)
        if "/tasks/" not in label:
            return uuid
        self.agency.execute(uuid, [{"name": "charge", "position": "0.0", "sync": False}])
        self.agency.finish_branch(uuid, {"properties": {}, "output": 1})
        self.agency.next_branch(uuid)
        while (task := self.agency.job())["action"] != "TaskScheduled":
            pass
        found: str = task["uuid"]
        return found

    def ask(self, case: Any, uuid: str | None = None) -> Any:
        """Send a request; check that it is answered, and that an error is named."""
        name = WAITS.get(case.operation.path)
        if name is not None:
            given = case.query if isinstance(case.query, dict) else {}
            case.query = {**given, name: "0"}
        if uuid is not None and isinstance(case.path_parameters, dict):
            case.path_parameters["uuid"] = uuid
        answer = case.call(timeout=PATIENCE)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        if answer.status_code >= 400 and case.method != "HEAD":
            assert set(answer.json()) == {"error", "message"}, answer.text
        return answer

    def stored(self) -> list[str]:
        """Return all that is stored."""
        return list(export_lines(self.engine.parts.store))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    where: Path = tmp_path_factory.mktemp("fuzz") / "store.db"
    with af.Engine(where, durability="off") as engine:
        yield Target(engine)


def test_every_route_is_described(target: Target) -> None:
    agent = [label for label in target.operations if "/api/" not in label]
    assert set(agent) == {
        "GET /health",
        "GET /metrics",
        "GET /env/{env}/lang/{lang}/job",
        "POST /env/{env}/lang/{lang}/job",
        "GET /decisions/{uuid}/branch",
        "POST /decisions/{uuid}/branch",
        "POST /decisions/{uuid}/execute",
        "POST /decisions/{uuid}/error",
        "POST /tasks/{uuid}",
    }
    assert len(target.operations) >= 20


def is_malformed(case: Any, part: str) -> bool:
    found = case.meta.components.get(ParameterLocation(part))
    return found is not None and found.mode is GenerationMode.NEGATIVE


@pytest.mark.timeout(300)  # some forty routes, on a busy machine
def test_malformed_requests_are_refused_and_change_nothing(target: Target) -> None:
    codes = set()
    for label, operation in target.operations.items():
        if label in NOTHING_TO_GET_WRONG:
            continue
        job = target.job(label)
        flush(target.engine)
        until(target.engine, lambda: target.engine.parts.writer.quiet)

        def check(case: Any, job: str | None = job) -> None:
            before = target.stored()
            answer = target.ask(case, None if is_malformed(case, "path") else job)
            assert target.stored() == before, case.as_curl_command()
            codes.add(answer.status_code)
            if case.method == "POST":
                assert 400 <= answer.status_code < 500, (case.as_curl_command(), answer.text)

        fuzz(operation, GenerationMode.NEGATIVE, 8, check)
        if job is not None and "/tasks/" not in label:
            assert target.agency.next_branch(job) == target.begun
    assert codes >= {200, 422}


@pytest.mark.timeout(300)  # some forty routes, on a busy machine
def test_requests_that_fit_the_description_are_answered(target: Target) -> None:
    codes = Counter[int]()
    for label, operation in target.operations.items():

        def check(case: Any, label: str = label) -> None:
            codes[target.ask(case, target.job(label)).status_code] += 1

        fuzz(operation, GenerationMode.POSITIVE, 6, check)
    assert codes[200] >= 40
    assert codes[410] == 0
    assert target.agency.request("GET", "/health")["status"] == "ok"
