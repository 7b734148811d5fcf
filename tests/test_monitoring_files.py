"""The alert rules and the dashboard in docs/: they parse, and name metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, generate_latest

import actorflow as af
from actorflow.engine.operations.metrics import EngineCollector, StoreCollector
from actorflow.runtime.telemetry.prometheus import Collector

FOLDER = Path(__file__).parent.parent / "docs" / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0][
    "rules"
]
PANELS: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text())["panels"]
METRIC = re.compile(r"actorflow_[a-z0-9_]+")


def served() -> set[str]:
    """Return the metrics of an engine on a shared store, with a worker that has a name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    with (
        af.Engine("memory://monitored") as engine,
        af.spawn(lambda batch, state: state, name="monitored worker") as worker,
    ):
        worker.push_block("message")
        engine.tasker("nobody", lambda task: af.HOLD)
        registry.register(EngineCollector(engine))
        registry.register(StoreCollector(engine.parts.store))
        return set(METRIC.findall(generate_latest(registry).decode()))


@pytest.fixture(scope="module")
def metrics() -> set[str]:
    return served()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_metrics_that_exist_and_an_action(
    rule: dict[str, Any], metrics: set[str]
) -> None:
    named = set(METRIC.findall(rule["expr"]))
    assert named
    assert named - metrics - MEMBERS == set()
    assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_names_metrics_that_exist(panel: dict[str, Any], metrics: set[str]) -> None:
    named = {name for target in panel["targets"] for name in METRIC.findall(target["expr"])}
    assert named
    assert named - metrics - MEMBERS == set()


MEMBERS = {
    f"actorflow_store_{name}"
    for name in (
        "member_lag_seconds", "member_messages", "members", "unowned_partitions", "open_tasks",
    )
}  # fmt: skip
"""Only of stores with a register; tests/cluster/test_monitor.py sees them on Postgres and NATS."""
