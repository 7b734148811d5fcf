"""A flow text cannot stop the process: what it asks for too much of is an error of the flow."""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.errors import BadPayload, FlowError, LimitExceeded
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.state import ExecutionState, FlowStatus
from actorflow.flows.language.checks import EmptyFlow, check_text, check_tree
from actorflow.flows.language.parser import FlowSyntaxError, parse
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.service.library import Library
from actorflow.flows.service.payload_check import check_payload
from tests.flows.driving import run


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# -- texts and trees -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\n", "# nothing\n", "  // a\n\n# b", "\t\n", ";"])
def test_an_empty_flow_is_refused(text: str) -> None:
    with pytest.raises(EmptyFlow, match="the flow is empty") as caught:
        check_text(text, file="a.flo")
    assert isinstance(caught.value, FlowSyntaxError)
    assert caught.value.file == "a.flo"


def test_a_flow_of_one_word_is_not_empty() -> None:
    assert check_text("# a\nsequence") == ["sequence", [], 2]
    assert check_text("1") == ["_num", 1, 1]


def test_a_long_text_is_refused() -> None:
    with pytest.raises(LimitExceeded, match=r"11 characters, and may have 10"):
        check_text("sequence\n 1", limits=Limits(text=10))


def test_deep_lines_are_refused_however_they_are_nested() -> None:
    most = LIMITS.tree_depth
    check_text("\n".join(" " * depth + "sequence" for depth in range(most)))
    for text in (
        "\n".join(" " * depth + "sequence" for depth in range(most + 1)),
        " \\ ".join(["sequence"] * 5_000),
        "(a " * (most - 1) + "b" + ")" * (most - 1),
    ):
        with pytest.raises(LimitExceeded, match=f"deeper than {most} levels"):
            check_text(text)


def test_a_tree_is_checked_like_a_text() -> None:
    tree = parse("sequence\n  trace 'a'")
    assert check_tree(tree) is tree
    with pytest.raises(LimitExceeded, match="deeper than 2 levels"):
        check_tree(tree, limits=Limits(tree_depth=2))
    strays: list[Any] = [7, "sequence", ["sequence", [7], 1], ["a"], None, {}]
    for stray in strays:
        with pytest.raises(FlowError, match="a flow is its text, or a tree"):
            check_tree(stray)


@pytest.mark.parametrize(
    "part",
    [
        ["_att", [], 1],
        ["_att", 5, 1],
        ["_ref", [], 1],
        ["_head", [["i", [], 1], ["_num", 1, 1]], 1],
        ["_head", [["i", [], 1], ["_num", 1, 1], ["__head", [], 1]], 1],
        ["sequence", "abc", 1],
        ["_dqs", {"a": 1}, 1],
        [["_att", [], 1], [], 1],
        [["sequence", [], 1], [], 1],
    ],
)
def test_a_tree_that_no_text_is_read_into_is_refused(part: Any) -> None:
    for tree in (part, ["sequence", [["set", [part], 1]], 1]):
        with pytest.raises(FlowError, match="cannot be in a flow: no text gives"):
            check_tree(tree)
    nested: Any = ["a", [], 1]
    for _ in range(100_000):
        nested = [nested, [], 1]
    with pytest.raises(FlowError, match="cannot be in a flow"):
        check_tree(nested)


# -- payloads from outside -----------------------------------------------------------------------


def test_a_large_payload_is_refused() -> None:
    with pytest.raises(BadPayload, match=f"may have {LIMITS.payload:,}"):
        check_payload({"text": "x" * LIMITS.payload})


def test_a_deep_payload_is_refused() -> None:
    check_payload({"a": nested(LIMITS.depth - 1)})
    for levels in (LIMITS.depth, 400):
        with pytest.raises(BadPayload, match=f"deeper than {LIMITS.depth} levels"):
            check_payload({"a": nested(levels)})


# -- values --------------------------------------------------------------------------------------

SMALL = Limits(elements=100, characters=1_000, depth=20, nodes=60, tree_depth=30)


def failure(text: str, limits: Limits = LIMITS, **payload: Any) -> str:
    """Run a flow; return the class and the text of its failure, or nothing."""
    state, inbox = ExecutionState("x"), [launch_message("x", parse(text), payload=payload)]
    for _ in range(200):
        outcome = run(state, inbox, now=0.0, limits=limits)
        state, inbox = decode(encode(outcome.state)), outcome.leftover
        if state.failures() or not inbox:
            break
    failures = state.failures()
    if not failures or failures[0].failure is None:
        return ""
    error = failures[0].failure["error"]
    return f"{error['kla']}: {error['msg']}"


def doubled(first: str, step: str, times: int) -> str:
    return "sequence\n  " + first + f"\n  {step}" * times


@pytest.mark.parametrize(
    ("flow", "asked"),
    [
        ("range 100000000", "100,000,000 elements"),
        ("range 0 -100000000", "100,000,000 elements"),
        ("range 0 1 by: 0.00000001", "100,000,000 elements"),
        ("set f.l[1000000000] 1", "1,000,000,001 elements"),
        ("set f.o.l[250000] 1", "250,001 elements"),
        ("slice 'abc' from: -1000000000 to: 2", "1,000,000,003 elements"),
        ("split f.t ''", "more than 250,000 elements"),
        ("split f.t ' '", "more than 250,000 elements"),
        ("split f.t 'b'", "more than 250,000 elements"),
        ("split f.t", "more than 250,000 elements"),
    ],
)
def test_what_is_too_large_is_an_error_that_names_the_limit(flow: str, asked: str) -> None:
    found = failure(flow, l=[1], o={"l": []}, t="a b" * 260_000)
    assert found.startswith("LimitExceeded: ")
    assert asked in found


@pytest.mark.parametrize(
    ("flow", "asked"),
    [
        (doubled("set a 'x'", "set a (a + a)", 40), "131,072 characters"),
        (doubled("set a 'x'", 'set a "$(a)$(a)"', 40), "131,072 characters"),
        (doubled("set a 'x'", "set a (+ a a join: 'yy')", 40), "characters"),
        (doubled("set a [ 1 ]", "set a (a + a)", 40), "8,192 elements"),
        (doubled("set a [ 1 ]", "set a [ a a ]", 40), "elements"),
        (doubled("set a [ 1 ]", "set a { b: a, c: a }", 40), "elements"),
        (doubled("set a [ 'x' ]", "set a [ a[0] + a[0] ]", 40), "characters"),
        (doubled("set f.a [ 1 ]", "push f.a f.a", 40), "elements"),
        (doubled("set f.a { b: 1 }", "set f.a.b [ f.a f.a ]", 40), "elements"),
        (doubled("set a { b: 1 }", "set a.b [ a a ]", 40), "elements"),
        (doubled("set a [ 1 ]", "set a ([ a ] + [ a ])", 40), "elements"),
        (doubled("set a 1", "set a [ a ]", 300), "deeper than 200 levels"),
        (doubled("set f.a [ 1 ]", "set f.a.0 { b: f.a }", 150), "deeper than 200 levels"),
        (doubled("set f.a [ ]", "set f.a [ f.a ] \n  push f.a.0 1", 250), "deeper than 200 levels"),
        ("split f.t r/b/", "more than 5,000 elements"),
    ],
)
def test_what_doubles_is_an_error_before_it_is_too_large(flow: str, asked: str) -> None:
    found = failure(flow, Limits(elements=5_000, characters=100_000), t="ab" * 5_001)
    assert found.startswith("LimitExceeded: ")
    assert asked in found


@pytest.mark.parametrize(
    "flow",
    [
        "range 250000",
        "range 0 1000 by: 0.5",
        'length "$(f.t)$(f.t)"',
        "f.l[-1000000000000:1000000000000]",
        "f.l[1000000000000:-1000000000000:-1]",
        "set f.l[0:-1] 0",
        "del f.l[0:-1]",
        "set f.l[0;0;1;1] 7",
    ],
)
def test_what_is_within_the_limits_is_no_error(flow: str) -> None:
    assert failure(flow, l=list(range(250_000)), t="a" * 5_000_000) == ""


def test_a_range_that_does_not_get_on_ends() -> None:
    assert "too small" in failure("range f.a f.b by: f.c", a=2**60, b=2**60 + 2**10, c=0.01)


@pytest.mark.parametrize(
    "flow",
    [
        "range f.a f.b",
        "range 0 f.b by: f.b",
        "set f.big 1\ntwig f.x \\ 1",
        "set 'f.l.99999999999999999999999999' 1",
        "sequence\n  set f.o { }\n  set 'f.o.99999999999999999999999999' 1\n  f.o",
        "f.a * f.a",
        "f.a + 1",
        "18446744073709551615.0 + 1",
        "_skip '99999999999999999999999999'",
        "trap tag: 'x' count: f.a (def msg \\ 1)",
    ],
)
def test_whole_numbers_always_fit_what_is_stored(flow: str) -> None:
    failure(flow, a=1e20, b=1e20 + 1e5, l=[])  # it stores each state


@pytest.mark.parametrize(
    "flow", ["sample [ 1 ] -1", "sample [ 1 ] count: 'a'", "set 'a' '' [ 1 2 ]", "_skip f.t"]
)
def test_what_makes_no_sense_is_an_error_of_the_flow(flow: str) -> None:
    assert failure(flow, t="9" * 5_000).startswith("FlowError: ")


def test_a_limit_can_be_handled() -> None:
    state = ExecutionState("x")
    flow = "sequence on_error: (def msg err \\ err.kla)\n  range 1000000000"
    outcome = run(state, [launch_message("x", parse(flow))], now=0.0)
    assert outcome.payload == {"ret": "LimitExceeded"}


# -- nodes and trees -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flow",
    [
        "define f \\ f _\nf _",
        "define f\n  concurrence\n    f _\n    f _\nf _",
        "cmap (range 61) (def x \\ stall _)",
        "concurrence\n" + "  stall _\n" * 61,
        "cmap (range 9) (def x \\ cmap (range 9) (def y \\ stall _))",
    ],
)
def test_an_execution_has_only_so_many_nodes(flow: str) -> None:
    found = failure(flow, SMALL)
    assert found.startswith("LimitExceeded: the execution would have")
    assert "nodes at once, and may have 60" in found


def test_what_failed_for_want_of_room_can_be_cancelled() -> None:
    tree = parse("define f \\ f _\nf _")
    outcome = run(
        ExecutionState("x"), [launch_message("x", tree)], now=0.0, limits=SMALL, max_messages=999
    )
    assert outcome.status == FlowStatus.FAILED
    cancel = {"point": "cancel", "nid": "0", "exid": "x"}
    ended = run(outcome.state, [cancel], now=0.0, limits=SMALL, max_messages=999)
    assert ended.status == FlowStatus.TERMINATED
    assert len(ended.state.nodes) == 1


def test_a_subflow_that_grafts_itself_ends() -> None:
    loader = Library().with_subflow("", "again", parse("sequence\n  graft 'again'"))
    outcome = run(
        ExecutionState("x"),
        [launch_message("x", parse("graft 'again'"))],
        now=0.0,
        limits=SMALL,
        loader=loader,
        max_messages=9_999,
    )
    (failed,) = outcome.state.failures()
    assert failed.failure is not None
    assert "deeper than 30 levels" in failed.failure["error"]["msg"]
    decode(encode(outcome.state))


def test_an_execution_that_has_grown_too_large_starts_no_new_nodes() -> None:
    """It grows by little with each message; the stored size is compared at each run."""
    flow = "set f.l []\nloop\n  push f.l 'a text of thirty characters...'"
    limits = Limits(state=20_000)
    found = failure(flow, limits)
    assert found.startswith("LimitExceeded: the execution is stored in 2")
    assert "bytes, and may have 20,000: it starts no new nodes" in found


def test_a_timer_does_not_repeat_without_pause() -> None:
    for string in ("0s", "0.000001s", "50ms"):
        assert f'"{string}" is too often' in failure(f"every '{string}' \\ trace 'a'")
    assert failure("every '0.1s' \\ trace 'a'") == ""


@pytest.mark.parametrize("string", ["9" * 400, "1000001y", "9" * 400 + "s"])
def test_a_duration_has_an_end(string: str) -> None:
    assert "longer than 1,000 years" in failure(f"sleep '{string}'")


# -- loops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", ["loop\n  1", "until false\n  1", "define f \\ f _\nf _"])
def test_a_loop_without_end_leaves_when_its_budget_is_used_up(flow: str) -> None:
    """Other executions go on while one loops: each run of it ends by itself."""
    looping = ExecutionState("x"), [launch_message("x", parse(flow))]
    other = ExecutionState("y"), [launch_message("y", parse("sequence\n" + "  1\n" * 50))]
    rounds = 0
    while not other[0].terminated:
        budget = iter([True] * 20 + [False])
        one = run(*looping, now=0.0, keep_going=lambda ticks=budget: next(ticks))
        assert len(one.messages) == 21
        assert one.leftover
        looping = one.state, one.leftover
        ticks = iter([True] * 20 + [False])
        two = run(*other, now=0.0, keep_going=lambda ticks=ticks: next(ticks))
        other = two.state, two.leftover
        rounds += 1
    assert rounds == 5
    cancel = {"point": "cancel", "nid": "0"}
    ended = run(looping[0], [*looping[1], cancel], now=0.0, max_messages=9_999)
    assert ended.state.terminated


# -- what only looks like a function ---------------------------------------------------------------

FORGED: tuple[dict[str, Any], ...] = (
    {},
    {"nid": "0"},
    {"nid": None, "tree": None, "cnid": None},
    {"nid": "zz", "tree": ["def", [["_num", 1, 1]], 1], "cnid": "0"},
    {"nid": "0_0", "tree": ["def", [["_num", 1, 1]], 1], "cnid": 5},
    {"nid": "0_0", "tree": ["def", [["_att", [], 1]], 1], "cnid": "0"},
    {"nid": "0_0", "tree": ["def", [[["_num", 1, 1], [], 1]], 1], "cnid": "0"},
)


@pytest.mark.parametrize("data", FORGED)
@pytest.mark.parametrize(
    "flow",
    [
        "apply f.x 1",
        "f.x 1",
        "map [ 1 ] f.x",
        "cmap [ 1 ] f.x",
        "sort [ 1 2 ] f.x",
        "sequence on_error: f.x \\ fail 'y'",
        "sequence on_cancel: f.x \\ 1",
        "sequence children_on_cancel: f.x \\ 1",
        "sequence\n  on_cancel f.x\n  1",
        "trap tag: 'a' f.x",
        "schedule in: '1s' f.x",
    ],
)
def test_what_is_no_function_is_not_applied(flow: str, data: Any) -> None:
    assert failure(flow, x=["_func", data, 1]).startswith("FlowError: ")


@pytest.mark.parametrize("name", [None, 7, [1], "nosuch"])
@pytest.mark.parametrize("flow", ["apply f.x 1", "f.x 1", "map [ 1 ] f.x", "reduce [ 1 2 ] f.x"])
def test_what_is_no_procedure_is_not_applied(flow: str, name: Any) -> None:
    kind = failure(flow, x=["_proc", {"proc": name}, 1]).partition(":")[0]
    assert kind in ("FlowError", "UnknownProcedure")


@pytest.mark.parametrize("wanted", ["[ 1 ]", "{ a: 1 }", "5"])
def test_a_class_that_no_error_can_have_is_passed_over(wanted: str) -> None:
    flow = (
        "sequence on_error: (def err \\ 1)\n"
        f"  sequence\n    on_error class: {wanted} (def err \\ fail 'y')\n    fail 'x'"
    )
    assert failure(flow) == ""
