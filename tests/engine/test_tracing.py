"""Spans of batches, runs, decisions and tasks, in one trace across messages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine import bodies
from actorflow.runtime.errors import BadOption
from tests.servers import store_for

sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry import trace as api  # noqa: E402 - skipped where it is missing
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60.0


class Spans:
    """The exported spans, and a tracer for the test's own spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[Any]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def one(self, name: str) -> Any:
        found = self.named(name)
        assert len(found) == 1, [each.name for each in self.exporter.get_finished_spans()]
        return found[0]


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    with af.trace(spans.provider):
        yield spans


@pytest.fixture(params=["memory", "sqlite", "postgres", "nats"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, spans: Spans) -> Iterator[af.Engine]:
    assert spans
    with af.Engine(store_for(request, tmp_path / "store.db")) as engine:
        yield engine


def parent(span: Any) -> int:
    return int(span.parent.span_id)


def trace_of(span: Any) -> int:
    return int(span.context.trace_id)


@af.task
def charge(amount: int) -> int:
    with api.get_tracer_provider().get_tracer("bank").start_as_current_span("bank"):
        return amount + 1


class Order(af.Workflow[int]):
    def handle(self) -> int:
        return self.execute(charge(1))


def test_a_workflow_and_its_tasks_are_in_the_trace_of_their_starter(
    engine: af.Engine, spans: Spans
) -> None:
    engine.workflows.register(Order)
    with spans.tracer.start_as_current_span("request") as request:
        order = engine.start(Order(), id="o-1")
    assert order.result(timeout=PATIENCE) == 2
    engine.close()
    first: Any
    first, *rest = sorted(spans.named("decision workflow:Order"), key=lambda span: span.start_time)
    task: Any
    (task,) = [
        each for each in spans.exporter.get_finished_spans() if each.name.startswith("task ")
    ]
    assert parent(first) == request.get_span_context().span_id
    assert parent(task) == first.context.span_id
    assert {trace_of(each) for each in (first, task, *rest)} == {
        request.get_span_context().trace_id
    }
    assert first.attributes["actorflow.execution"] == "o-1"
    assert task.attributes["actorflow.attempt"] == 1


def test_a_run_continues_the_first_message_and_links_to_the_others(
    engine: af.Engine, spans: Spans
) -> None:
    ledger = engine.worker("ledger", lambda batch, state: state + sum(batch), state=0)
    senders = []
    for number in range(3):
        with spans.tracer.start_as_current_span(f"sender {number}") as sender:
            ledger.push_ack(number)
            senders.append(sender.get_span_context().span_id)
    ledger.push_block(10, timeout=PATIENCE)
    engine.close()
    runs = [each for each in spans.exporter.get_finished_spans() if each.name.startswith("run ")]
    seen = [each.parent.span_id for each in runs if each.parent is not None]
    seen += [link.context.span_id for each in runs for link in each.links]
    assert sorted(seen) == sorted(senders)


def test_a_failed_task_is_an_error_and_each_attempt_a_span(engine: af.Engine, spans: Spans) -> None:
    attempts = []

    def work(task: Any) -> dict[str, bool]:
        attempts.append(task.attempt)
        if len(attempts) == 1:
            msg = "not yet"
            raise ValueError(msg)
        return {"done": True}

    engine.tasker("alice", work, retries=1, backoff=af.Backoff(initial=0.01))
    exid = engine.launch("alice 'x'")
    assert engine.result(exid, timeout=PATIENCE)["done"]
    engine.close()
    found = sorted(spans.named("task alice"), key=lambda span: span.start_time)
    assert [each.attributes["actorflow.attempt"] for each in found] == [1, 2]
    assert [each.status.is_ok for each in found] == [False, True]
    assert found[0].events[0].attributes["exception.message"] == "not yet"
    assert len({trace_of(each) for each in found}) == 1


def test_a_batch_of_a_worker_is_a_span_and_code_in_it_its_child(spans: Spans) -> None:
    def save(batch: list[int], state: int) -> int:
        with spans.tracer.start_as_current_span("insert"):
            return state + len(batch)

    with af.spawn(save, state=0, name="writer") as writer:
        writer.push_block(1, timeout=PATIENCE)
    batch = spans.one("batch writer")
    assert parent(spans.one("insert")) == batch.context.span_id
    assert batch.attributes["actorflow.batch.size"] == 1


def test_a_coroutine_job_is_traced_too(spans: Spans) -> None:
    async def save(batch: list[int], state: int) -> int:
        with spans.tracer.start_as_current_span("insert"):
            return state + len(batch)

    with af.spawn(save, state=0, name="writer") as writer:
        writer.push_block(1, timeout=PATIENCE)
    assert parent(spans.one("insert")) == spans.one("batch writer").context.span_id


def test_what_was_stored_with_a_context_is_read_without_a_tracer(
    tmp_path: Path,
) -> None:
    spans = Spans()
    with af.trace(spans.provider), af.Engine(tmp_path / "store.db") as engine:
        engine.tasker("alice", lambda _: af.HOLD)
        with spans.tracer.start_as_current_span("request"):
            exid = engine.launch("sequence\n  alice 'x'\n")
            engine.send("nobody", {"a": 1}, kind="unknown")
    with af.Engine(tmp_path / "store.db") as engine:
        engine.tasker("alice", lambda _: {"done": True})
        assert engine.result(exid, timeout=PATIENCE)["done"]
        (row,) = engine.parts.store.pending(execution="nobody").rows
        context, body = bodies.split_context(row.body)
        assert len(context) == 25
        assert bodies.decode(row.body) == bodies.decode(body) == {"a": 1}


def test_there_is_one_tracer_and_it_needs_its_extra(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadOption, match="called before"):
        af.trace(spans.provider)
    monkeypatch.setattr("actorflow.runtime.tracing.TRACER", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BadOption, match="otel"):
        af.trace()
