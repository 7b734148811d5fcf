"""Simulation: against closed forms, against the obvious, and against itself."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actorflow.behaviours import Base
from actorflow.lab.models.policies import BUILT_INS, Policy, policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import Given, Poisson
from actorflow.lab.run.simulate import PolicySimulation, simulate
from actorflow.runtime.worker.job.failure import Drop
from tests.behaviours.compositions import Part, built, compositions, leaves, possible
from tests.lab.naive import Naive

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent

# --- closed forms --------------------------------------------------------------------------------

SIZES = [
    pytest.param(200_000, 0.07, id="200k"),
    pytest.param(1_000_000, 0.02, id="1M", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
]


def alone(arrivals: int, load: float, service: str) -> float:
    """Return the mean wait of messages that are processed one by one, 1 ms each."""
    traffic = Poisson(1000 * load, duration=arrivals / (1000 * load))
    result = simulate(traffic, service, "chunk(queue, 1)")
    assert result.arrived == pytest.approx(arrivals, rel=0.01)
    assert result.busy == pytest.approx(load, rel=0.02)
    return result.latency_mean - 0.001


@pytest.mark.parametrize("load", [0.5, 0.7])
@pytest.mark.parametrize(("arrivals", "tolerance"), SIZES)
def test_a_fixed_time_each_waits_as_m_d_1(arrivals: int, tolerance: float, load: float) -> None:
    expected = load / (2 * (1 - load)) * 0.001
    assert alone(arrivals, load, "1ms") == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("load", [0.5, 0.7])
@pytest.mark.parametrize(("arrivals", "tolerance"), SIZES)
def test_an_exponential_time_each_waits_as_m_m_1(
    arrivals: int, tolerance: float, load: float
) -> None:
    expected = load / (1 - load) * 0.001
    assert alone(arrivals, load, "exp(1ms)") == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(
    ("service", "policy", "limit"),
    [
        ("10ms", "chunk(queue, 20)", 2_000),
        ("2ms + 400us*n", "chunk(queue, 20)", 2_000),
        ("1ms + 500us*n", "queue", 2_000),
        ("1ms", "throttle(chunk(queue, 20), 10ms)", 2_000),
    ],
)
def test_the_throughput_limit_of_batch_service(service: str, policy: str, limit: int) -> None:
    result = simulate("poisson(5000, duration=40s)", service, policy)
    assert result.throughput == pytest.approx(limit, rel=0.02)
    assert result.processed == result.arrived


def test_a_batch_per_call_is_as_fast_as_the_load_below_the_limit() -> None:
    result = simulate("constant(1000, duration=10s)", "1ms + 100us*n", "queue")
    assert result.throughput == pytest.approx(1000, rel=0.01)
    # n messages take 1 + 0.1 n ms, and n ms bring n messages: n = 10 / 9, so 1 or 2 at a time.
    assert result.batch_mean == pytest.approx(10 / 9, rel=0.01)


# --- the obvious ---------------------------------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 3.0, 8.0])
    ),
    min_size=1,
    max_size=25,
)


class Chunks:
    """Traffic in given chunks."""

    def __init__(self, chunks: list[list[Any]]) -> None:
        self._chunks = chunks

    def chunks(self, seed: int) -> Iterator[list[Any]]:
        return iter(self._chunks)


class Watched:
    """A service that takes `fixed + each * n` seconds, and remembers the batches."""

    def __init__(self, fixed: float, each: float) -> None:
        self.fixed, self.each = fixed, each
        self.batches: list[list[Any]] = []

    def of(self, count: int) -> float:
        return self.fixed + self.each * count

    def seconds(self, batch: Any, random: Any) -> float:
        self.batches.append(list(batch))
        return self.of(len(batch))


@given(
    layers=st.one_of(compositions, leaves.map(lambda leaf: (leaf,))),
    drawn=ARRIVALS,
    fixed=st.sampled_from([0.0, 0.5, 2.0, 5.0]),
    each=st.sampled_from([0.0, 0.25, 1.0]),
    cuts=st.lists(st.integers(1, 24), max_size=3),
)
def test_a_simulation_is_the_naive_one(
    layers: tuple[Part, ...],
    drawn: list[tuple[int, int, float]],
    fixed: float,
    each: float,
    cuts: list[int],
) -> None:
    assume(possible(layers))
    messages: list[Any] = []
    now = 0.0
    for key, value, gap in drawn:
        now += gap
        messages.append((key, value, 1.0, now))
    edges = [0, *sorted({cut for cut in cuts if cut < len(messages)}), len(messages)]
    chunks = [messages[a:b] for a, b in itertools.pairwise(edges)]
    service = Watched(fixed, each)
    simulation = PolicySimulation(Policy("drawn", lambda: built(layers)), service, 0, Drop())
    result = simulation.run(Chunks(chunks))
    naive = Naive(layers, service.of)
    naive.run(messages)

    assert service.batches == naive.batches
    tally = naive.model.tally()
    assert result.arrived == len(messages)
    assert result.processed == len(naive.latencies)
    assert (result.replaced, result.merged) == (tally.replaced, tally.merged)
    assert (result.dropped, result.expired) == (tally.dropped, tally.expired)
    assert result.rejected == naive.rejected
    assert result.batches == len(naive.batches)
    assert result.peak_depth == max(naive.depths, default=0)
    assert result.latency["max"] == max(naive.latencies, default=0.0)
    mean = sum(naive.latencies) / max(len(naive.latencies), 1)
    assert result.latency_mean == pytest.approx(mean)
    assert result.busy * result.duration == pytest.approx(naive.busy)
    settled = result.processed + result.replaced + result.merged + result.lost
    assert settled == result.arrived


# --- itself --------------------------------------------------------------------------------------

TEXTS = (
    *BUILT_INS, "bounded(chunk(queue, 20), 50, block)", "bounded(unique, 20, reject)",
    "linger(chunk(fair, 30), 5ms, 30)", "bounded(expire(priority, 30ms), 40, drop_newest)",
)  # fmt: skip
TRAFFIC = "bursty(3000, on=1s, off=1s, quiet_rate=200, duration=4s, keys=zipf(200))"
SERVICE = "lognormal(2ms, 0.5) + 300us*n + fail(2%)"


@pytest.mark.parametrize("text", TEXTS)
def test_every_message_is_accounted_for(text: str) -> None:
    result = simulate(TRAFFIC, SERVICE, text, on_failure="isolate")
    settled = result.processed + result.replaced + result.merged + result.lost
    assert settled == result.arrived
    assert 0 < result.busy <= 1
    assert 0 < result.fairness <= 1
    quantiles = [result.latency[name] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert quantiles == sorted(quantiles)
    assert result.oldest <= result.latency["max"]
    assert result.curve[-1][1] == pytest.approx(result.carried)
    assert sum(table["count"] for table in result.priorities.values()) == result.processed


def test_same_seed_same_result_and_another_seed_another_one() -> None:
    one, two = (simulate(TRAFFIC, SERVICE, "queue", seed=3) for _ in range(2))
    assert one == two
    assert one != simulate(TRAFFIC, SERVICE, "queue", seed=4)


FINGERPRINT = f"""
import hashlib
from actorflow.lab.run.simulate import simulate
run = lambda text: simulate({TRAFFIC!r}, {SERVICE!r}, text, seed=5, on_failure="retry")
results = [run(text) for text in {TEXTS!r}]
print(hashlib.sha256(repr(results).encode()).hexdigest())
"""


def fingerprint(python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    libraries = os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]])
    return subprocess.run(
        [python, "-c", FINGERPRINT],
        env={
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": libraries,
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def expected_fingerprint() -> str:
    results = [simulate(TRAFFIC, SERVICE, text, seed=5, on_failure="retry") for text in TEXTS]
    return hashlib.sha256(repr(results).encode()).hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_same_result_in_another_process(hash_seed: str) -> None:
    done = fingerprint(sys.executable, PYTHONHASHSEED=hash_seed)
    assert done.stdout.strip() == expected_fingerprint(), done.stderr


def pythons() -> list[Path]:
    return sorted(Path.home().glob(".pyenv/versions/3.1[1-9]*/bin/python"))


@pytest.mark.parametrize("python", pythons() or [None], ids=lambda path: path and path.parts[-3])
def test_same_result_on_another_python(python: Path | None) -> None:
    if python is None:
        pytest.skip("no other Python under ~/.pyenv/versions")
    done = fingerprint(str(python))
    if "ModuleNotFoundError" in done.stderr or "ImportError" in done.stderr:
        pytest.skip(f"{python} cannot import the libraries: {done.stderr.splitlines()[-1]}")
    assert done.stdout.strip() == expected_fingerprint(), done.stderr


def test_keys_are_the_same_for_every_policy() -> None:
    seen: list[list[Any]] = []
    for text in ("queue", "chunk(queue, 7)", "throttle(queue, 20ms)"):
        service = Watched(0.002, 0.0)
        simulate(parse_traffic(TRAFFIC), service, text, seed=1)
        seen.append([message for batch in service.batches for message in batch])
    assert seen[0] == seen[1] == seen[2]


def test_priorities_have_their_own_latencies() -> None:
    traffic = "poisson(900, duration=20s, priorities=uniform(3))"
    plain = simulate(traffic, "1ms*n", "chunk(queue, 1)").priorities
    sorted_ = simulate(traffic, "1ms*n", "chunk(priority, 1)").priorities
    assert set(plain) == {0.0, 1.0, 2.0}
    assert plain[0.0]["p99"] == pytest.approx(plain[2.0]["p99"], rel=0.2)
    assert sorted_[2.0]["p99"] < sorted_[1.0]["p99"] < sorted_[0.0]["p99"]
    assert sorted_[2.0]["p99"] < plain[2.0]["p99"] / 3


def test_very_many_priorities_are_pooled() -> None:
    messages: Any = [(0, number / 7, 1.0, number / 1000) for number in range(9_000)]
    result = simulate(Given(messages), "1ms", "queue")
    assert len(result.priorities) == 64
    assert sum(table["count"] for table in result.priorities.values()) == 9_000


def test_failures_are_dropped_tried_again_or_isolated() -> None:
    traffic = "poisson(1000, duration=5s)"
    dropped = simulate(traffic, "5ms + fail(20%)", "queue")
    assert dropped.failed == pytest.approx(0.2 * dropped.arrived, rel=0.2)
    retried = simulate(traffic, "5ms + fail(20%)", "queue", on_failure="retry")
    assert 0 < retried.failed < dropped.failed / 2
    isolated = simulate(traffic, "5ms + fail(20%)", "queue", on_failure="isolate")
    assert 0 < isolated.failed < dropped.failed
    assert isolated.processed + isolated.failed == isolated.arrived


def test_pushers_that_wait_lose_nothing() -> None:
    result = simulate("constant(1000, duration=2s)", "2ms*n", "bounded(queue, 10, block)")
    assert result.processed == result.arrived == 2_000
    assert result.peak_depth == 10
    # They wait outside: twice the load for two seconds is two more seconds.
    assert result.latency["max"] == pytest.approx(2.0, rel=0.05)


def test_a_behaviour_that_never_lets_go_ends_the_run() -> None:
    class Miser:
        def __init__(self) -> None:
            self.held: list[Any] = []

        def add(self, message: Any) -> None:
            self.held.append(message)

        def take(self) -> list[Any]:
            return self.held

        def __len__(self) -> int:
            return len(self.held)

        def ready_at(self, now: float) -> float:
            return float("inf")

    result = simulate("constant(10, duration=1s)", "1ms", Miser)
    assert (result.processed, result.unaccounted, result.lost) == (0, 10, 10)


def test_what_a_behaviour_discards_without_a_word_is_lost() -> None:
    class Newest(Base):
        def add(self, messages: Any, message: Any) -> Any:
            return [message]

    result = simulate("constant(1000, duration=1s)", "5ms", Newest)
    assert result.processed + result.lost == result.arrived
    assert result.lost > 0


def test_refused_messages_are_not_kept() -> None:
    run = PolicySimulation(
        policy_of("bounded(queue, 5, reject)"), parse_service("1ms*n"), 0, Drop()
    )
    result = run.run(parse_traffic("constant(5000, duration=1s)"))
    assert result.rejected > 1_000
    assert result.error is None
    assert not run._core.refusals


def test_progress_is_told() -> None:
    told: list[int] = []
    simulate("constant(40000, duration=1s)", "1ms", "queue", progress=told.append)
    assert told == [16_384, 32_768, 40_000]


def test_traffic_without_a_message_gives_zeros() -> None:
    result = simulate(Given([]), "1ms", "queue")
    assert (result.arrived, result.processed, result.latency["max"], result.busy) == (0, 0, 0, 0)
