"""Goals and advice: valid goals, the policies found, and goals that cannot be met."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Queue
from actorflow.lab.models.notation import BadNotation, seconds_text
from actorflow.lab.models.policies import BUILT_INS, KINDS, NamedBehaviour, policy_of
from actorflow.lab.models.programs import program
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import Given
from actorflow.lab.run import advise as module
from actorflow.lab.run.advise import Advice, GoalUnreachable, advise
from actorflow.lab.run.candidates import candidates
from actorflow.lab.run.goals import Goal, figure_text, parse_goals
from actorflow.lab.run.simulate import simulate

if TYPE_CHECKING:
    from actorflow.lab.run.result import Result


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(
        "poisson(900, duration=5s, priorities=uniform(3))", "1ms*n", "chunk(priority, 1)"
    )


# --- goals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "p99 < 50ms, no loss", "p50 < 5ms, loss < 1%, busy < 80%", "fairness > 0.9",
        "p99.9 <= 1.5s", "p99(priority>=9) < 20ms", "max(high) < 1s", "p50(priority=0) < 1s",
        "throughput >= 5,000".replace(",", ""), "goodput(50ms) > 99%, age < 1s", "no replacement",
        "mean < 20us, depth < 100",
    ],
)  # fmt: skip
def test_goals_are_read_and_shown(text: str) -> None:
    shown = ", ".join(map(str, parse_goals(text)))
    assert parse_goals(shown.replace("5,000", "5000")) == parse_goals(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("p98 < 5ms", "did you mean 'p99'"),
        ("p99", "expected a goal like"),
        ("", "expected a goal like"),
        ("no los", "did you mean 'loss'"),
        ("p99 < fast", "expected a number"),
        ("p99 < -5ms", "expected a number"),
        ("busy(high) < 5%", "only latencies have priorities"),
        ("p99(urgent) < 5ms", "only latencies have priorities"),
        ("p99 < 50", "p99 50 has no unit of time; write 50ms or 50s"),
        ("oldest < 2", "oldest 2 has no unit of time"),
        ("p99 < 50%", "p99 50% is not a time; write for example p99 < 50ms"),
        ("busy < 80", "busy is a share of all messages or time; write 80%"),
        ("loss < 1", "write 1%"),
        ("busy < 80ms", "busy is not a time"),
        ("throughput > 5ms", "throughput is not a time"),
        ("depth < 5%", "depth is not a share; write a number without %"),
    ],
)
def test_bad_goals_say_what_is_known(text: str, complaint: str) -> None:
    with pytest.raises(BadNotation, match=complaint):
        parse_goals(text)


def test_the_place_of_a_bad_goal_is_shown() -> None:
    with pytest.raises(BadNotation) as caught:
        parse_goals("no loss, p98 < 5ms")
    assert str(caught.value).endswith("\n  no loss, p98 < 5ms\n           ^")


def test_goals_are_held_against_a_result(result: Result) -> None:
    held = parse_goals("p99 < 10s, no loss, busy > 50%, fairness > 0.5, p99(high) < 5ms")
    assert all(goal.is_met(result) for goal in held)
    missed = parse_goals("p99 < 1ms, busy < 10%, throughput > 10k, p99(priority>=0) < 5ms")
    assert not any(goal.is_met(result) for goal in missed)
    assert all(goal.miss(result) > 0 for goal in missed)
    assert all(goal.reached(result).is_met(result) for goal in missed)


def test_priorities_are_told_apart(result: Result) -> None:
    def value(text: str) -> float:
        return Goal("p99", "<", 1.0, text).value(result)

    assert value("high") == value("priority=2") == result.priorities[2.0]["p99"]
    assert value("priority>=1") == result.priorities[1.0]["p99"]
    assert value("priority=7") == float("inf")


def test_nothing_processed_meets_no_time(result: Result) -> None:
    nothing = dataclasses.replace(
        result, processed=0, latency=dict.fromkeys(result.latency, 0.0), latency_mean=0, oldest=0
    )
    goals = parse_goals("p99 < 1s, mean < 1s, oldest < 1s, max < 1s")
    assert not any(goal.is_met(nothing) for goal in goals)


def test_a_priority_that_was_never_processed_misses_its_goal() -> None:
    # Of two at once only the first fits, so the higher priority never gets in.
    traffic = Given([(0, at % 2, 1.0, at // 2 * 1.0) for at in range(20)])
    starved = simulate(traffic, "1ms", "bounded(linger(queue, 500ms), 1, drop_newest)")
    assert starved.priorities[1.0]["count"] == 0
    assert parse_goals("p99(priority=0) < 1s")[0].is_met(starved)
    for text in ("p99(high) < 1s", "p99(priority>=0) < 1s", "p99(priority=1) < 1s"):
        assert not parse_goals(text)[0].is_met(starved)


def test_what_loses_less_is_better(result: Result) -> None:
    goals = parse_goals("p99 < 1h, loss < 90%")
    idle = dataclasses.replace(result, busy=0.01, dropped=result.arrived // 2)
    lossy, whole = module.Candidate("b", idle, goals), module.Candidate("a", result, goals)
    assert not lossy.misses
    assert min(lossy, whole, key=module.Candidate.rank) is whole


def test_a_loss_is_a_share(result: Result) -> None:
    lossy = dataclasses.replace(result, dropped=result.arrived // 50)
    [goal] = parse_goals("no loss")
    assert goal.value(lossy) == pytest.approx(0.02, rel=0.01)
    assert not goal.is_met(lossy)
    assert str(goal.reached(lossy)) == "loss <= 2.1%"
    assert parse_goals("loss < 3%")[0].is_met(lossy)


def test_figures_have_units() -> None:
    assert figure_text("p99", 0.0123) == "12.3ms"
    assert figure_text("busy", 0.5) == "50%"
    assert figure_text("throughput", 12_345.6) == "12,346"
    assert seconds_text(float("inf")) == "never"


# --- advice: three cases whose best answer is known ----------------------------------------------


def test_many_duplicates_want_to_be_one() -> None:
    # Four times as much as the job can do one by one, but only fifty different things.
    found = advise(
        "poisson(2000, duration=6s, keys=zipf(50, 1.2))", "1ms + 2ms*n",
        "p99 < 300ms, no loss, replacement < 99%",
    )  # fmt: skip
    assert all("unique" in each.policy or "coalesce" in each.policy for each in found.best)
    assert "of the messages are" in found.best[0].why(found.plain)
    assert "A plain queue: p99" in found.best[0].why(found.plain)
    assert found.plain is not None
    assert found.plain.latency["p99"] > 0.3


def test_a_replaced_message_is_lost_unless_the_goal_allows_it() -> None:
    traffic = "poisson(2000, duration=3s, keys=zipf(50, 1.2))"
    found = advise(traffic, "1ms + 2ms*n", "p99 < 300ms, no loss")
    assert all("coalesce" in each.policy for each in found.best)
    with pytest.raises(GoalUnreachable, match="loss"):
        advise(traffic, "1ms + 2ms*n", "p99 < 300ms, no loss", policies=["unique"])


def test_a_goal_that_only_small_batches_reach_is_reached() -> None:
    found = advise("poisson(900, duration=8s)", "exp(1ms)*n", "p99 < 60ms", best=1)
    assert found.best[0].policy.startswith("chunk(")


def test_bounds_down_to_one_are_tried() -> None:
    found = advise("poisson(3000, duration=2s)", "exp(1ms)*n", "p99 < 7ms, loss < 80%", best=1)
    assert "bounded(" in found.best[0].policy or "expire(" in found.best[0].policy


def test_the_winners_are_run_with_seeds_that_the_search_has_not_used() -> None:
    seeds: list[int] = []

    class Noted:
        def chunks(self, seed: int) -> Any:
            seeds.append(seed)
            return parse_traffic("poisson(500, duration=1s)").chunks(seed)

    found = advise(Noted(), "2ms + 10us*n", "p99 < 20ms, no loss", best=1)
    assert (found.best[0].held, found.best[0].held_out) == (5, 5)
    assert "held with 5 of 5 seeds" in found.best[0].why()
    searched, held_out = (
        {each for each in seeds if each < 100},
        {each for each in seeds if each > 99},
    )
    assert len(searched) == 3
    assert len(held_out) == 5


def test_compositions_are_searched_and_drawn() -> None:
    found = advise(
        "poisson(1500, duration=600ms)", "1ms*n", "goodput(30ms) > 40%", best=1, synthesise=True
    )
    assert found.tried > 150
    assert found.best[0].picture().startswith("push --> ")
    assert found.best[0].picture().endswith(" --> batch --> job")
    policy_of(found.best[0].policy)


def test_urgent_messages_want_to_be_first() -> None:
    found = advise(
        "poisson(950, duration=5s, priorities=uniform(10))", "1ms*n",
        "p99(priority>=9) < 20ms, no loss, no replacement",
    )  # fmt: skip
    assert all("priority" in each.policy for each in found.best)
    assert found.best[0].policy.startswith("chunk(priority, ")
    assert "Chunk(Priority(key=priority)" in found.best[0].code()


def test_an_expensive_call_wants_large_batches() -> None:
    found = advise("poisson(2000, duration=5s)", "20ms + 10us*n", "p99 < 200ms, no loss")
    best = found.best[0]
    assert best.policy.startswith(("linger(", "adaptive(", "throttle("))
    assert best.result.batch_mean > 200
    assert best.result.busy < 0.25
    assert found.plain is not None
    assert found.plain.busy > 0.9


def test_a_bound_is_found_where_loss_is_allowed() -> None:
    found = advise("poisson(1500, duration=3s)", "1ms*n", "p99 < 100ms, loss < 50%, no replacement")
    assert found.best[0].policy.startswith(("bounded(", "expire(", "deadline("))


# --- advice: around it ---------------------------------------------------------------------------


def test_an_impossible_goal_names_the_closest_one() -> None:
    with pytest.raises(
        GoalUnreachable, match=r"none of .* policies meets 'p99 < 1ms, no loss'"
    ) as e:
        advise("poisson(2000, duration=2s)", "20ms + 10us*n", "p99 < 1ms, no loss")
    closest = e.value.closest
    assert f"reachable: --goal '{closest}'" in str(e.value)
    assert closest.endswith(", no loss")
    assert advise("poisson(2000, duration=2s)", "20ms + 10us*n", closest).best


@pytest.mark.parametrize(
    "text",
    [*BUILT_INS, "linger(unique, 20ms)", "chunk(priority(key=at), 50)", "unique(key=2)",
     "bounded(chunk(queue, 10, weight=size), 100, drop_oldest)", "linger(queue, 5ms, size=3)"],
)  # fmt: skip
def test_the_code_to_paste_runs(text: str, result: Result) -> None:
    goals = parse_goals("p99 < 1h")
    advice = Advice(goals, [module.Candidate(text, result, goals)], None, 1)
    space: dict[str, Any] = {}
    exec(advice.code(), space)  # noqa: S102 - what we tell people to paste must run as it is
    with space["worker"] as worker:
        assert isinstance(worker, af.WorkerRef)
        worker.push_block((1, 2, 3.0, 4.0))


class Mine(Queue):
    """A custom behaviour."""


def test_the_code_imports_behaviours_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "mine", NamedBehaviour(Mine, Mine, (), 0, "mine"))
    code = program("chunk(mine, 5)")
    assert f"from {Mine.__module__} import Mine\n" in code
    assert "from actorflow.behaviours import Chunk\n" in code
    assert code.endswith("worker = af.spawn(job, behaviour=Chunk(Mine(), 5))")


def test_the_same_seed_gives_the_same_advice() -> None:
    one, two = (
        advise("poisson(1000, duration=1s)", "5ms + 10us*n", "p99 < 60ms", seed=2) for _ in range(2)
    )
    assert [each.policy for each in one.best] == [each.policy for each in two.best]


def test_own_policies_are_tried_instead() -> None:
    found = advise(
        "poisson(2000, duration=2s)", "5ms", "p99 < 60ms", policies=["stack", "queue"], best=1
    )
    assert found.tried == 2
    assert [each.policy for each in found.best] == ["queue"]


def test_candidates_fit_the_goals_and_the_traffic() -> None:
    sample: Any = [(number % 5, number % 3, 1.0, number / 1000) for number in range(1_000)]
    kept = candidates(parse_goals("p99 < 50ms, no loss, no replacement"), sample)
    assert not [each for each in kept if "unique" in each or "bounded" in each or "expire" in each]
    lossy = candidates(parse_goals("p99(high) < 50ms, loss < 1%, fairness > 0.5, p50 < 1s"), sample)
    for word in ("unique", "coalesce", "priority", "fair", "stack", "bounded", "expire"):
        assert any(word in each for each in lossy)
    for text in {*kept, *lossy}:
        policy_of(text)


def test_ctrl_c_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def interrupted(*args: Any, **options: Any) -> Result:
        nonlocal count
        count += 1
        if count == 20:
            raise KeyboardInterrupt
        return simulate(*args, **options)

    monkeypatch.setattr(module, "simulate", interrupted)
    found = advise("poisson(2000, duration=4s)", "5ms + 10us*n", "p99 < 60ms, no loss")
    assert not found.complete
    assert found.best
    count = 19
    with pytest.raises(KeyboardInterrupt):
        advise("poisson(2000, duration=4s)", "5ms + 10us*n", "p99 < 60ms, no loss")


def test_the_busiest_stretch_is_looked_at() -> None:
    traffic = "bursty(20000, on=0.5s, off=4s, quiet_rate=100, duration=9s)"
    chunks = parse_traffic(traffic).chunks(0)
    [short, long], total = module._busiest([2_000, 6_000], chunks)
    assert (len(short), len(long)) == (2_000, 6_000)
    assert total > 20_000
    assert short[0][3] == 0
    assert short[-1][3] < 0.2


def test_nothing_to_reach_is_refused() -> None:
    with pytest.raises(af.BadOption, match="needs a goal"):
        advise("poisson(5)", "1ms", ())
