"""What a run says about itself: where latency comes from, age, goodput, intervals, warm-up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.behaviours import Chunk, PerKey, Queue
from actorflow.lab.models.traffic import Given
from actorflow.lab.run.intervals import decide, samples_needed, warm_up
from actorflow.lab.run.result import QUANTILES
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption


@pytest.mark.parametrize(
    "policy", ["queue", "linger(queue, 20ms)", "chunk(stack, 3)", "throttle(queue, 7ms)"]
)
@pytest.mark.parametrize("executors", [1, 3])
def test_a_percentile_is_the_sum_of_what_messages_wait_for(policy: str, executors: int) -> None:
    traffic = "bursty(900, on=1s, off=1s, quiet_rate=50, duration=6s)"
    result = simulate(traffic, "2ms + 1ms*n", policy, concurrency=executors)
    for name in QUANTILES:
        parts = result.split[name]
        assert sum(parts.values()) == pytest.approx(result.latency[name])
        assert min(parts.values()) >= 0


def test_a_policy_that_waits_makes_messages_wait_for_the_batch() -> None:
    split = simulate("constant(10, duration=20s)", "1ms", "linger(queue, 50ms)").split["p99"]
    assert split == pytest.approx({"batch": 0.050, "executor": 0.0, "service": 0.001}, rel=1e-3)


def test_a_busy_executor_makes_messages_wait_for_it() -> None:
    # Two come at once every 100 ms: the second waits for the first.
    messages = [(at, 0, 1.0, at // 2 / 10) for at in range(2_000)]
    split = simulate(Given(messages), "10ms", "chunk(queue, 1)").split["p99"]
    assert split == pytest.approx({"batch": 0.0, "executor": 0.010, "service": 0.010}, rel=1e-3)


def test_the_age_of_information_is_that_of_the_newest_processed() -> None:
    # One key, a message each second, 0.2 s of service: the age grows from 0.2 to 1.2.
    messages = [("a", 0, 1.0, float(at)) for at in range(100)]
    result = simulate(Given(messages), "200ms", "unique")
    assert result.age == pytest.approx(0.7)
    # An old message that is processed after a newer one makes nothing younger.
    stack = simulate("poisson(1500, duration=5s, keys=uniform(5))", "1ms*n", "chunk(stack, 1)")
    queue = simulate("poisson(1500, duration=5s, keys=uniform(5))", "1ms*n", "chunk(queue, 1)")
    assert stack.age is not None
    assert queue.age is not None
    assert stack.age < queue.age / 10


def test_goodput_counts_what_is_lost_or_replaced_as_missed() -> None:
    traffic = "poisson(1500, duration=10s)"
    lossy = simulate(traffic, "1ms*n", "chunk(bounded(queue, 20, reject), 1)")
    slow = simulate(traffic, "1ms*n", "chunk(queue, 1)")
    assert lossy.within(10.0) == pytest.approx(lossy.carried, abs=0.001)
    assert (
        lossy.within(0.030)
        == pytest.approx(lossy.carried, abs=0.001)
        == pytest.approx(0.67, abs=0.03)
    )
    assert slow.within(0.030) < 0.1
    assert lossy.within(0.0) == 0.0
    assert lossy.goodput(0.030) == pytest.approx(1_000, rel=0.05)


def test_batches_are_counted_by_size() -> None:
    result = simulate("constant(1000, duration=1s)", "10ms", "chunk(queue, 7)")
    sizes = result.batch_histogram
    assert sum(sizes.values()) == result.batches
    assert sum(size * count for size, count in sizes.items()) == result.processed
    assert max(sizes) == result.batch_max == 7


def test_every_message_is_in_one_stretch_of_time() -> None:
    result = simulate("step(100, 3000, at=5s, duration=10s)", "1ms", "chunk(queue, 1)")
    arrived = [point[1] for point in result.time_series]
    assert sum(arrived) == result.arrived
    assert len(result.time_series) <= 128
    early, late = result.time_series[10], result.time_series[-5]
    assert early[4] < 0.01 < late[4]  # p99 before and after the step


def test_single_runs_have_intervals_that_hold_the_figure() -> None:
    result = simulate("poisson(900, duration=60s)", "exp(1ms)", "chunk(queue, 1)")
    for name in ("p50", "p99", "p99.9"):
        low, high = result.intervals[name]
        assert low < result.latency[name] < high
    assert "p99.9" not in simulate("poisson(900, duration=2s)", "exp(1ms)", "queue").intervals


def test_percentiles_need_data() -> None:
    result = simulate("constant(93, duration=1s)", "1ms", "queue")
    assert [result.needed(name) for name in QUANTILES] == [0, 0, 459, 4603]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_the_data_that_a_percentile_needs_is_what_early_stopping_needs(share: float) -> None:
    needed = samples_needed(share)
    assert decide(0, needed, share) == "pass"
    assert decide(0, needed - 1, share) == "undecided"


@given(st.integers(0, 400), st.integers(1, 400))
def test_more_late_messages_never_make_a_verdict_better(over: int, more: int) -> None:
    order = ["pass", "undecided", "fail"]
    count = 2_000
    one, two = decide(over, count, 0.99), decide(over + more, count, 0.99)
    assert order.index(one) <= order.index(two)


def test_the_warm_up_is_cut_and_an_overload_has_no_steady_state() -> None:
    backlog = [(at, 0, 1.0, 0.0) for at in range(3_000)]  # 3 s of work at once
    calm = [(at, 0, 1.0, 3.0 + at / 100) for at in range(3_000)]
    found = simulate(Given([*backlog, *calm]), "1ms", "chunk(queue, 1)", warm_up=3.0)
    assert found.processed == 6_000
    assert found.observed == 3_000
    assert found.latency["max"] == pytest.approx(0.001)
    assert found.busy == pytest.approx(0.1, rel=0.05)
    assert warm_up([float(at) for at in range(1_000)]) is None
    assert warm_up([9.0] * 100 + [1.0, 2.0, 3.0] * 300) == 100


def test_runs_are_repeated_until_they_are_precise() -> None:
    found = simulate(
        "poisson(700, duration=4s)", "exp(1ms)", "chunk(queue, 1)", precision="10%",
        figures=["p50", "mean"],
    )  # fmt: skip
    assert found.runs >= 5
    assert found.steady
    for name, figure in (("p50", found.latency["p50"]), ("latency_mean", found.latency_mean)):
        low, high = found.intervals[name]
        assert low < figure < high
        assert high - low <= 0.2 * figure
    assert found.latency_mean == pytest.approx(0.001 / 0.3, rel=0.2)


def test_traffic_that_is_the_same_for_each_seed_is_run_once() -> None:
    messages = [(at, 0, 1.0, at / 100) for at in range(3_000)]
    assert simulate(Given(messages), "1ms", "queue", precision=0.05).runs == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"precision": 5}, "precision=5 must be a share"),
        ({"precision": "5ms"}, "precision='5ms' must be a share"),
        ({"precision": "5%", "figures": ["p98"]}, "there is no figure 'p98'"),
        ({"concurrency": 0}, "concurrency=0 must be a whole number"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        simulate("constant(100, duration=1s)", "1ms", "queue", **options)  # type: ignore[arg-type]


def test_executors_share_the_work_and_have_a_price() -> None:
    traffic = "poisson(2500, duration=5s)"
    one = simulate(traffic, "1ms", "chunk(queue, 1)", price=0.01)
    four = simulate(traffic, "1ms", "chunk(queue, 1)", concurrency=4, price=0.01)
    assert one.latency["p99"] > 10 * four.latency["p99"]
    assert four.busy == pytest.approx(2.5 / 4, rel=0.05)
    assert four.cost == pytest.approx(4 * 0.01 * four.duration)
    assert one.cost == pytest.approx(0.01 * one.duration)


def test_batches_of_one_key_do_not_run_at_once() -> None:
    messages = [(at % 2, 0, 1.0, 0.0) for at in range(8)]  # two keys
    result = simulate(
        Given(messages), "10ms", lambda: PerKey(Chunk(Queue(), 1), key=0), concurrency=4, keep=True
    )
    assert result.processed == 8
    assert result.duration == pytest.approx(0.040)  # two at a time
    assert {each.executor for each in result.batch_log} <= {0, 1, 2, 3}
    starts = sorted(each.began for each in result.batch_log)
    assert starts == pytest.approx([0, 0, 0.01, 0.01, 0.02, 0.02, 0.03, 0.03])


@given(
    policy=st.sampled_from(
        ["queue", "chunk(queue, 2)", "linger(queue, 5ms, 4)", "per_key(chunk(queue, 1))",
         "bounded(chunk(queue, 3), 6, block)", "expire(queue, 8ms)", "unique",
         "deadline(queue, 9ms)", "throttle(queue, 4ms)", "chunk(priority, 2)"]
    ),
    executors=st.integers(1, 4),
    seed=st.integers(0, 50),
)  # fmt: skip
def test_any_number_of_executors_accounts_for_every_message(
    policy: str, executors: int, seed: int
) -> None:
    result = simulate(
        "bursty(2000, on=50ms, off=50ms, quiet_rate=100, duration=300ms, keys=uniform(4))",
        "uniform(1ms, 4ms) + 500us*n + fail(5%)", policy, seed=seed, concurrency=executors,
        on_failure="isolate", keep=True,
    )  # fmt: skip
    assert result.processed + result.replaced + result.merged + result.lost == result.arrived
    assert not result.unaccounted
    events = sorted(
        [(each.began, 1) for each in result.batch_log]
        + [(each.done, -1) for each in result.batch_log]
    )
    running = 0
    for _, change in events:
        running += change
        assert running <= executors
    assert result.busy <= 1 + 1e-9
