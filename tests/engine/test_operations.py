"""A store as JSON lines and back, and the metrics of an engine. Commands: tests/api."""

from __future__ import annotations

import io

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import StoreBroken
from actorflow.engine.operations.export import export_lines, import_lines, readable
from actorflow.engine.operations.metrics import EngineCollector
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import Change, NewExecution


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"actorflow": 1}\n{"table": "moon"}', "nonsense"]
)
def test_nonsense_is_not_imported(text: str) -> None:
    with pytest.raises(StoreBroken):
        import_lines(MemoryStore(), io.StringIO(text))


def test_only_an_empty_store_takes_an_import() -> None:
    store = MemoryStore()
    store.commit([Change("a", creates=[NewExecution("a", "k")])])
    with pytest.raises(StoreBroken, match="only an empty store"):
        import_lines(store, export_lines(store))


def test_bodies_are_shown_as_json_only_where_nothing_is_lost() -> None:
    assert readable(None) is None
    assert readable(b"\x01") == {"json": 1}
    assert readable(b"\xc4\x01\xff") == {"base64": "xAH/"}  # bytes
    assert readable(b"\x81\x01\x02") == {"base64": "gQEC"}  # a dict whose key is a number
    assert readable(b"\xc1 nonsense") == {"base64": "wSBub25zZW5zZQ=="}


def test_metrics_can_be_scraped() -> None:
    with BareEngine() as engine:
        engine.worker("w", lambda batch, state: state).push_block(1)
        registry = CollectorRegistry()
        registry.register(EngineCollector(engine, "orders"))
        text = generate_latest(registry).decode()
    assert 'actorflow_engine_live{engine="orders"} 1.0' in text
    assert 'actorflow_engine_messages_total{engine="orders"} 1.0' in text
