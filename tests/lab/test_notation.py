"""The notation: what it reads, and how it says what it cannot read."""

from __future__ import annotations

import pytest

from actorflow.behaviours import Chunk, Queue, Unique
from actorflow.lab.models.notation import BadNotation, BareWord, NamedCall, Product, Sum, parse
from actorflow.lab.models.policies import BUILT_INS, KINDS, parse_policies, policy_of
from actorflow.lab.models.programs import expression
from actorflow.lab.models.service import ServiceFailure, parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.trace import Trace
from actorflow.lab.models.traffic import (
    Bursty,
    Constant,
    Diurnal,
    Fixed,
    Poisson,
    Ramp,
    RateStep,
    Uniform,
    Zipf,
)
from actorflow.runtime.errors import ActorflowError, BadBehaviour, BadOption


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7ms", 0.007),
        ("10us", 0.00001),
        ("1.5s", 1.5),
        (".5", 0.5),
        ("2min", 120),
        ("1h", 3600),
        ("2k", 2000),
        ("1M", 1_000_000),
        ("5%", 0.05),
        ("1_000", 1000),
        ("-3", -3),
        ("1e3", 1000.0),
        ("queue", BareWord("queue")),
        ("'a b'", "a b"),
        ("2ms + 10us*n", Sum((0.002, Product((0.00001, BareWord("n")))))),
        ("f(1, a=b)", NamedCall("f", (1,), {"a": BareWord("b")})),
    ],
)
def test_terms(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "at"),
    [("f(", 2), ("f(1", 3), ("2ms +", 5), ("a b", 2), ("f(a=1, 2)", 7), ("?", 0), ("", 0),
     ("f(a=1, a=2)", 7), ("3 ! 4", 2)],
)  # fmt: skip
def test_a_mistake_is_shown_with_its_place(text: str, at: int) -> None:
    with pytest.raises(BadNotation) as caught:
        parse(text)
    assert str(caught.value).endswith(f"  {text}\n  {' ' * at}^")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant(100, duration=2s)", Constant(100, duration=2)),
        (
            "poisson(5000, duration=60s, keys=zipf(1000, 1.1), priorities=uniform(10))",
            Poisson(5000, duration=60, keys=Zipf(1000, 1.1), priorities=Uniform(10)),
        ),
        ("bursty(20k, on=1s, off=4s)", Bursty(20_000, on=1, off=4)),
        ("step(500, 20000, at=5s, sizes=100)", RateStep(500, 20_000, at=5, sizes=Fixed(100))),
        ("ramp(0, 100, 10s)", Ramp(0, 100, duration=10)),
        ("diurnal(1, 9, period=1h, duration=1h, keys=7)",
         Diurnal(1, 9, period=3600, duration=3600, keys=Uniform(7))),
    ],
)  # fmt: skip
def test_traffic_from_text(text: str, expected: object) -> None:
    assert parse_traffic(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("poison(5)", "did you mean 'poisson'"),
        ("poisson(5, duraton=1s)", "did you mean 'duration'"),
        ("poisson()", r"needs more: poisson\(rate"),
        ("poisson(5, 1s, 2, 3, 4, 5)", "too many arguments"),
        ("poisson(5, rate=6)", "given twice"),
        ("poisson(0)", "rate=0 must be a positive number"),
        ("poisson(fast)", "rate is a number, not 'fast'"),
        ("poisson(5, keys=zip(3))", "did you mean 'zipf'"),
        ("poisson(5, keys=uniform(0))", "whole number, 1 or more"),
        ("poisson(5, keys=2.5)", "whole number, 1 or more"),
        ("poisson(5, duration=60)", "duration 60 has no unit of time; write 60ms or 60s"),
        ("bursty(5, on=1, off=1s)", "on 1 has no unit of time"),
        ("poisson(5ms)", "rate is not a time, so it cannot be 5ms; drop the unit"),
        ("poisson(5, keys=7s)", "keys is not a time"),
        ("5", "expected an arrival model"),
    ],
)
def test_bad_traffic_says_what_is_known(text: str, complaint: str) -> None:
    with pytest.raises(BadNotation, match=complaint):
        parse_traffic(text)


def test_a_trace_that_is_missing_says_how_to_make_one() -> None:
    with pytest.raises(BadOption, match=r"record one with af.record"):
        parse_traffic("nowhere.jsonl")
    with pytest.raises(BadOption, match="speed=0"):
        Trace(__file__, speed=0)


def test_traffic_in_python_is_checked_too() -> None:
    with pytest.raises(BadOption, match="must be a distribution"):
        Poisson(5, keys=7)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="duration=-1"):
        Constant(5, duration=-1)


@pytest.mark.parametrize("text", BUILT_INS)
def test_every_built_in_is_a_policy_and_code(text: str) -> None:
    made = policy_of(text)
    assert made.make() is not made.make()
    assert expression(text)


def test_all_holds_every_behaviour_that_text_can_name() -> None:
    policies = parse_policies(["all", "queue"])
    assert len(policies) == len(BUILT_INS)
    assert all(any(name in str(each) for each in policies) for name in KINDS)


def test_a_grid_multiplies() -> None:
    names = [str(each) for each in parse_policies(["linger(chunk(queue, {10, 20}), {1ms,2ms})"])]
    assert names == [
        "linger(chunk(queue, 10), 1ms)", "linger(chunk(queue, 10), 2ms)",
        "linger(chunk(queue, 20), 1ms)", "linger(chunk(queue, 20), 2ms)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("quue", "did you mean 'queue'"),
        ("linger(queue)", r"wait is missing: linger\(inner, wait, size\)"),
        ("chunk(queue, 10, wieght=size)", "did you mean 'weight'"),
        ("unique(key=colour)", "a message has no field 'colour'"),
        ("chunk(10, queue)", "is not a policy"),
        ("chunk(queue, linger(queue, 1s))", "size is not a behaviour"),
        ("bounded(queue, 10, drop_odlest)", "did you mean 'drop_oldest'"),
        ("bounded(priority, 10, drop_oldest)", "keeps no order of arrival"),
        ("chunk(queue, 0)", "whole number, 1 or more"),
        ("linger(queue, 20)", "wait 20 has no unit of time; write 20ms or 20s"),
        ("chunk(queue, 20ms)", "size is not a time, so it cannot be 20ms"),
        ("unique(key=9)", "a message has no field 9"),
        ("queue(1)", "too many arguments"),
    ],
)
def test_bad_policies_say_what_is_known(text: str, complaint: str) -> None:
    with pytest.raises((BadNotation, BadBehaviour), match=complaint):
        policy_of(text)


def test_policies_from_python() -> None:
    assert str(policy_of(Queue)) == "Queue()"
    assert str(policy_of(lambda: Chunk(Unique(key=0), 5))) == "Chunk(Unique(key=0), 5)"
    assert str(policy_of(Queue, "mine")) == "mine"
    assert policy_of(ready := policy_of("queue")) is ready
    with pytest.raises(BadOption, match="give the lab a factory"):
        policy_of(Queue())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("queue", "Queue()"),
        ("priority(key=size)", "Priority(key=size)"),
        ("unique(key=2)", "Unique(key=size)"),
        ("throttle(queue, 1234567.5s)", "Throttle(Queue(), 1234567.5)"),
        ("coalesce", "Coalesce(key=key, merge=merge)"),
        ("chunk(fair, 1k, weight=size)", "Chunk(Fair(key=key), 1000, weight=size)"),
        ("adaptive(queue, target=50ms)", "Adaptive(Queue(), 0.05)"),
        ("linger(table_unique, 1ms, 10)", "Linger(TableUnique(key=key), 0.001, size=10)"),
    ],
)
def test_policies_as_code(text: str, code: str) -> None:
    assert expression(text) == code


class NeverLucky:
    """Draws that make a model easy to foresee."""

    def random(self) -> float:
        return 0.5

    def gauss(self, mu: float, sigma: float) -> float:
        return mu


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2ms", 0.002),
        ("2ms + 10us*n", 0.00203),
        ("uniform(1ms, 3ms)", 0.002),
        ("lognormal(2ms, 0.5)", 0.002),
        ("1ms*size", 0.006),
        ("exp(1s)", 0.6931471805599453),
        ("2*1ms*n", 0.006),
        ("0", 0.0),
        ("1ms + fail(1%)", 0.001),
    ],
)
def test_service_times(text: str, seconds: float) -> None:
    batch = [("k", 0, 2.0, 0.0)] * 3
    assert parse_service(text).seconds(batch, NeverLucky()) == pytest.approx(seconds)  # type: ignore[arg-type]


def test_a_service_may_fail() -> None:
    with pytest.raises(ServiceFailure) as caught:
        parse_service("1ms + fail(60%)").seconds([1], NeverLucky())  # type: ignore[arg-type]
    assert caught.value.seconds == 0.001


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2ms + m", "'m' is not part of a service time"),
        ("lognormal(2ms)", "lognormal takes 2 numbers"),
        ("fail(2)", "must be a share below 1"),
        ("-2ms", "must be a duration"),
        ("expp(2ms)", "did you mean 'exp'"),
        ("lognormal(0, 1)", "median must be positive"),
        ("2", "2 has no unit of time; write for example 2ms"),
        ("2ms + 10*n", r"10\*n has no unit of time; write for example 10ms\*n"),
        ("2ms + n", r"n has no unit of time; write for example 10ms\*n"),
        ("2ms*3ms", "multiplies two times"),
        ("exp(2)", "exp's argument 2 has no unit of time"),
        ("lognormal(2ms, 1ms)", "lognormal's argument is not a time"),
    ],
)
def test_bad_services_say_what_is_known(text: str, complaint: str) -> None:
    with pytest.raises(ActorflowError, match=complaint):
        parse_service(text)
