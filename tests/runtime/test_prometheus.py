"""Metrics for Prometheus, read back from the text that a scrape gets."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import actorflow as af
from actorflow.runtime import registry as names
from actorflow.runtime.errors import install_hint
from actorflow.runtime.telemetry.prometheus import Collector, Families

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.testing import ManualLane


def scrape(*collectors: Any) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    text = generate_latest(registry).decode()
    assert list(text_string_to_metric_families(text))  # it can be parsed
    return text


def samples(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert name not in found, f"{name} is there twice"
            found[name] = float(value)
    return found


def job(batch: Any, state: Any) -> None:
    pass


def test_named_workers_are_shown_by_their_name(lane: ManualLane) -> None:
    worker = af.spawn(job, executor=lane, name="shown")
    unnamed = af.spawn(job, executor=lane)
    for message in range(6):
        worker.push(message)
        unnamed.push(message)
    lane.run()
    worker.push("another")
    found = samples(scrape(Collector()))
    assert found['actorflow_worker_accepted_total{worker="shown"}'] == 7.0
    assert found['actorflow_worker_batches_total{worker="shown"}'] >= 2.0
    assert found['actorflow_worker_restarts_total{worker="shown"}'] == 0.0
    assert 0.0 <= found['actorflow_worker_busy_ratio{worker="shown"}'] <= 1.0
    assert found['actorflow_worker_batch_sizes_bucket{le="1.0",worker="shown"}'] >= 1.0
    shown = {name for name in found if name.startswith("actorflow_worker_accepted")}
    assert shown == {'actorflow_worker_accepted_total{worker="shown"}'}
    unnamed.stop()
    worker.stop()
    assert "shown" not in scrape(Collector())


def test_every_number_of_the_statistics_has_a_family_with_a_text(lane: ManualLane) -> None:
    worker = af.spawn(job, executor=lane, name="whole")
    worker.push(1)
    lane.run()
    text = scrape(Collector())
    statistics = worker.statistics()
    for each in fields(statistics):
        value = getattr(statistics, each.name)
        if value is not None and value != {}:
            assert re.search(
                rf"^# HELP actorflow_worker_{each.name}(_\w+)? [A-Z0-9]", text, re.MULTILINE
            )
    worker.stop()


def test_supervisors_are_shown_by_their_name() -> None:
    with af.Supervisor([af.Worker("a", job), af.Worker("b", job)], name="top"):
        found = samples(scrape(Collector()))
    assert found['actorflow_supervisor_children_active{supervisor="top"}'] == 2.0
    assert found['actorflow_supervisor_restarts_total{supervisor="top"}'] == 0.0
    assert found['actorflow_supervisor_phase{phase="up",supervisor="top"}'] == 1.0


def test_workers_of_servers_are_shown_with_their_server(lane: ManualLane) -> None:
    alone = af.spawn(job, executor=lane, name="alone")
    with af.Server([af.Worker("writer", job), af.Worker("mailer", job)]) as server:
        server.push_block("writer", 1)
        found = samples(scrape(Collector({"orders": server})))
    assert found['actorflow_worker_processed_total{server="orders",worker="writer"}'] == 1.0
    assert found['actorflow_worker_processed_total{server="orders",worker="mailer"}'] == 0.0
    assert found['actorflow_worker_processed_total{server="",worker="alone"}'] == 0.0
    alone.stop()


def test_the_pool_is_shown() -> None:
    with af.spawn(job) as worker:
        worker.push_block(1)
        found = samples(scrape(Collector()))
    assert found['actorflow_pool_threads{pool="actorflow"}'] >= 1.0
    assert found['actorflow_pool_runs_total{pool="actorflow"}'] >= 1.0


def test_one_that_ends_or_fails_meanwhile_does_not_spoil_the_scrape(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended:
        def statistics(self) -> None:
            raise af.WorkerStopped("it has just ended")

    class Broken:
        def statistics(self) -> None:
            raise RuntimeError("of a behaviour")

    monkeypatch.setitem(names._names, "ended", Ended())
    with af.spawn(job, name="fine"):
        found = samples(scrape(Collector({"broken": Broken()})))
    assert 'actorflow_worker_accepted_total{server="",worker="fine"}' in found
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "name='broken'" in caplog.text
    assert "of a behaviour" in caplog.text


def test_names_of_any_kind_are_labels() -> None:
    with af.spawn(job, name=("shard", 7)), af.spawn(job, name='quo"te\n'):
        text = scrape(Collector())
    assert "worker=\"('shard', 7)\"" in text
    assert 'worker="quo\\"te\\n"' in text


class Phase(Enum):
    UP = 1


@dataclass(frozen=True)
class Inner:
    parts: int = 3


@dataclass(frozen=True)
class Everything:
    """A field of each sort."""

    accepted: int = 7
    in_flight: int = 2
    busy: float = 0.25
    latency_p50: float | None = 0.5
    wait_p50: float | None = None
    batch_sizes: dict[int, int] = field(default_factory=lambda: {1: 2, 8: 3})
    reasons: dict[str, int] = field(default_factory=lambda: {"idle": 4, "size": 5})
    phase: Phase = Phase.UP
    inner: Inner = Inner()
    fresh: int = 9
    text: str = "is no metric"


class Fixed:
    """A collector of what it is given."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Any:
        return iter(self._families)


def everything(texts: Mapping[str, str]) -> str:
    families = Families(
        "x", ["worker"], help=texts, counters={"accepted"},
        units={"busy": "ratio", "latency_p50": "seconds"},
    )  # fmt: skip
    families.add(["a"], Everything())
    families.add(["b"], Everything(batch_sizes={}, accepted=8))
    return scrape(Fixed(families))


def test_names_with_the_same_text_are_told_apart() -> None:
    """Prometheus rejects a scrape in which two samples have the same labels."""

    class Same:
        def __repr__(self) -> str:
            return "5"

    given = [5, "5", Same(), Same()]
    workers = [af.spawn(lambda batch, state: None, name=name) for name in given]
    try:
        lines = [line for line in scrape(Collector()).splitlines() if "accepted_total{" in line]
    finally:
        for worker in workers:
            worker.stop()
    found = [line.partition('"')[2].partition('"')[0] for line in lines]
    assert [name for name in found if "5" in name] == ["int 5", "str 5", "Same 5", "Same 5 (2)"]


def test_each_sort_of_field_becomes_its_sort_of_metric() -> None:
    text = everything({"accepted": "Messages accepted"})
    found = {name: value for name, value in samples(text).items() if 'worker="a"' in name}
    assert found == {
        'x_accepted_total{worker="a"}': 7.0,
        'x_in_flight{worker="a"}': 2.0,
        'x_busy_ratio{worker="a"}': 0.25,
        'x_latency_p50_seconds{worker="a"}': 0.5,
        'x_batch_sizes_bucket{le="1.0",worker="a"}': 2.0,
        'x_batch_sizes_bucket{le="2.0",worker="a"}': 2.0,
        'x_batch_sizes_bucket{le="4.0",worker="a"}': 2.0,
        'x_batch_sizes_bucket{le="8.0",worker="a"}': 5.0,
        'x_batch_sizes_bucket{le="+Inf",worker="a"}': 5.0,
        'x_reasons_total{reason="idle",worker="a"}': 4.0,
        'x_reasons_total{reason="size",worker="a"}': 5.0,
        'x_phase{phase="up",worker="a"}': 1.0,
        'x_inner_parts{worker="a"}': 3.0,
        'x_fresh{worker="a"}': 9.0,
    }
    assert samples(text)['x_accepted_total{worker="b"}'] == 8.0
    assert samples(text)['x_batch_sizes_bucket{le="+Inf",worker="b"}'] == 0.0
    assert text.count("# TYPE x_accepted_total counter") == 1
    assert "# HELP x_accepted_total Messages accepted" in text
    assert "# HELP x_in_flight in flight" in text


def test_without_prometheus_client_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=re.escape(install_hint("web"))):
        Collector()


def test_importing_the_collector_does_not_import_prometheus_client() -> None:
    script = (
        "import sys, actorflow.runtime.telemetry.prometheus\n"
        "assert 'prometheus_client' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
