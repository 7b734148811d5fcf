"""The core procedures from noeval to while, patterns included: what they give, refuse and emit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from actorflow.flows.execution.codec import encode
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.execution.rewrites import replaced
from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import FlowDriver
from tests.flows.driving import run


def launch(text: str, payload: dict[str, Any] | None = None, **options: Any) -> FlowDriver:
    return FlowDriver(parse(text), payload=payload, **options).drive()


def steps(driver: FlowDriver) -> str:
    """Return what happened where: e for execute, r for receive, x for cancel, F for a failure."""
    letters = {"execute": "e", "receive": "r", "cancel": "x", "failed": "F"}
    messages = [seen.message for seen in driver.seen]
    return " ".join(
        f"{letters[message['point']]}{message.get('nid') or '-'}"
        for message in messages
        if message["point"] in letters
    )


# -- what they give --------------------------------------------------------------------------

RESULTS: list[tuple[str, Any]] = [
    # doing nothing
    ("sequence\n  4\n  noeval\n    5\n", 4),
    ("sequence\n  4\n  _ 5 6\n", 4),
    ("sequence\n  4\n  noret\n    5\n", 4),
    ("sequence\n  not _\n", True),
    ("not 0\n", False),
    ("not true null\n", True),
    # tags
    ("sequence 'stage'\n  t.stage\n", ["0"]),
    ("sequence tag: 'a' 'b'\n  t.b\n", None),
    ("begin 'a' 'b'\n  t.b\n", None),
    # set
    ("sequence\n  8\n  set a\n  a\n", 8),
    ("sequence\n  set a b [ 1 2 3 ]\n  [ a b ]\n", [1, 2]),
    ("sequence\n  set a b___ c [ 1 2 3 4 ]\n  [ a b c ]\n", [1, [2, 3], 4]),
    ("sequence\n  set a__2 b [ 1 2 3 4 ]\n  [ a b ]\n", [[1, 2], 3]),
    ("sequence\n  set a__9 b [ 1 2 ]\n  [ a b ]\n", [[1, 2], None]),
    ("sequence\n  set __2 b [ 1 2 3 4 ]\n  b\n", 3),
    ("sequence\n  set a b { k: 1, l: 2 }\n  [ a b ]\n", [["k", 1], ["l", 2]]),
    ("sequence\n  set a _ b [ 1 2 3 ]\n  [ a b ]\n", [1, 2]),
    ('sequence\n  set n 2\n  set "a__$(n)" b [ 1 2 3 ]\n  [ a b ]\n', [[1, 2], 3]),
    ("sequence\n  set 'f.a' 3\n  f.a\n", 3),
    ("sequence\n  set a 1 2\n  a\n", 2),
    ("sequence\n  set a\n    1\n    2\n  a\n", 2),
    ("sequence\n  1\n  set f.ret 2\n", 2),
    ("sequence\n  1\n  setr a 2\n", 2),
    ("sequence\n  1\n  set a 2\n", 1),
    ("sequence\n  9\n  set 1 2\n", 9),
    # push
    ("sequence\n  set l []\n  push l 1 2\n  l\n", [2]),
    ("sequence\n  set f.l []\n  push 'f.l' 1\n  f.l\n", [1]),
    ("sequence\n  set f.l []\n  set k 'l'\n  push \"f.$(k)\" 1\n  f.l\n", [1]),
    ("sequence\n  set l [ [] ]\n  push l.0 1\n  l\n", [[1]]),
    ("sequence\n  3\n  set l []\n  push l\n  l\n", [3]),
    # twig
    ("twig\n  upcase 'a'\n", ["upcase", [["_att", [["_sqs", "a", 2]], 2]], 2]),
    ("sequence\n  twig f.t\n    1\n    2\n  f.t\n", ["_num", 2, 4]),
    # range, reverse
    ("range 4\n", [0, 1, 2, 3]),
    ("range _\n", []),
    ("range 2 8 3\n", [2, 5]),
    ("range (-3)\n", [0, -1, -2]),
    ("range from: 5 to: 1 by: -2\n", [5, 3]),
    ("range 9 inc: 4\n", [0, 4, 8]),
    ("range 'a' 2.9\n", [0, 1]),
    ("range from: 3\n", []),
    ("reverse 'abc'\n", "cba"),
    ("sequence\n  [ 1 2 ]\n  reverse _\n", [2, 1]),
    # slice
    ("slice [ 1 2 3 4 ] 1 (-1)\n", [2, 3, 4]),
    ("slice 'abcdef' 1 count: 2\n", "bc"),
    ("slice [ 0 1 2 3 4 ] 0 4 step: 2\n", [0, 2, 4]),
    ("slice [ 1 2 ] 5 6\n", ""),
    ("slice [ 1 2 ] to: 0\n", [1]),
    ("sequence\n  'abcd'\n  slice 1 2\n", "bc"),
    # sort
    ("sort [ 2 10 1 ]\n", [1, 2, 10]),
    ("sort [ 10 9 1.5 ]\n", [1.5, 10, 9]),
    ("sort [ 'b' 1 'a' 2 ]\n", [1, 2, "a", "b"]),
    ("sort [ [ 2 1 ] [ 1 9 ] [ 1 ] ]\n", [[1], [1, 9], [2, 1]]),
    ("sort [ { n: 2 } { n: 1 } ]\n", [{"n": 1}, {"n": 2}]),
    ("sort []\n", []),
    ("sort [ 5 ] (def a b \\ a < b)\n", [5]),
    ("sort [ 3 1 2 ] (def a b \\ a > b)\n", [3, 2, 1]),
    ("sort (def a b \\ - a b) [ 4 4 1 3 4 2 1 ]\n", [1, 1, 2, 3, 4, 4, 4]),
    ("sort memo: false [ 2 1 2 1 ] (def a b \\ a < b)\n", [1, 1, 2, 2]),
    ("sort tag: 't' [ 2 1 ] (def a b \\ a < b)\n", [1, 2]),
    ("sort { x: 2, y: 1 } (def a b \\ a.1 < b.1)\n", {"y": 1, "x": 2}),
    ("sort_by [ 1 'a' 2 ] (def e \\ e)\n", [1, 2, "a"]),
    # reduce, select
    ("reduce [ 1 2 3 ] 10 (def r e \\ r + e)\n", 16),
    ("reduce [ 1 2 3 ] null (def r e \\ r + e)\n", 6),
    ("reject { a: 1, b: 2 }\n  val == 1\n", {"b": 2}),
    # strings
    ("upcase [ 1 'a' [ 'b' { c: 'd' } ] ]\n", [1, "A", ["B", {"c": "D"}]]),
    ("sequence\n  'ab'\n  upcase null\n", "AB"),
    ("upcase 7\n", 7),
    ("downcase 'ABC DEF' cap: true\n", "Abc def"),
    ("snakecase 'aNewOrder-x y'\n", "a_new_order-x y"),
    ("camelcase 'a_new-order__x'\n", "aNew-order_x"),
    ("trim ' a b '\n", "a b"),
    ("split 'a b'\n", ["a", "b"]),
    ("split ' a b'\n", ["", "a", "b"]),
    ("split ' a b' ' '\n", ["a", "b"]),
    ("split 'a,b,,' ','\n", ["a", "b"]),
    ("split ',a' ','\n", ["", "a"]),
    ("split r/[,;]/ 'a,b;c'\n", ["a", "b", "c"]),
    ("split 'a1b' (/(\\d)/)\n", ["a", "1", "b"]),
    ("split 'abc' ''\n", ["a", "b", "c"]),
    ("sequence\n  'a,b'\n  split (/,/)\n", ["a", "b"]),
    ("match? null r/a/\n", False),
    ("sequence\n  (/b./)\n  pmatch 'abc'\n", "bc"),
    ("pmatch 'abc' r/b(x)?/\n", "b"),
    # types
    ("type-of (def x \\ x)\n", "array"),
    ("type null\n", "null"),
    ("to-array null\n", []),
    ("to-array 'ab'\n", ["ab"]),
    ("to-object [ 'a' 1 'b' 2 ]\n", {"a": 1, "b": 2}),
    ("to-object [ [ 'a' 1 ] [ 'b' 2 ] ]\n", {"a": 1, "b": 2}),
    # chance
    ("shuffle [ 4 ]\n", [4]),
    ("sample [ 4 ]\n", 4),
    ("sample [] \n", None),
    ("shuffle [ 4 5 ] count: 0\n", []),
    # functions
    ("sequence\n  define f\n    return 1\n    2\n  f _\n", 1),
    ("map [ 1 2 ]\n  def x\n    return 0 if x == 1\n    x\n", [0, 2]),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS, ids=lambda value: repr(value)[:60])
def test_ret(text: str, expected: Any) -> None:
    driver = launch(text)
    assert driver.status() is FlowStatus.TERMINATED, driver.seen[-1].message
    assert driver.payload is not None
    assert driver.payload.get("ret") == expected
    assert type(driver.payload.get("ret")) is type(expected)


MATCHES: list[tuple[Any, str, Any]] = [
    ([1, 2], "[ 1 x ]; x", 2),
    ([1, 2], "[ 1 ]; 0", "else"),
    ([1, 2], "[ x ]; 0", "else"),
    ([], "[]; 'none'", "none"),
    ([1], "[]; 'none'", "else"),
    ([1, 2, 3, 4], "[ 1 x___ 4 ]; x", [2, 3]),
    ([1, 4], "[ 1 x___ 4 ]; x", []),
    ([1], "[ a b___ c ]; 0", "else"),
    ([1, 2, 3], "[ x__2 _ ]; x", [1, 2]),
    ([1, 2, 3], "[ x__9 ]; x", [1, 2, 3]),
    ([1, 2, 3], "[ ___ 3 ]; 'ends'", "ends"),
    ([1, [2, {"k": 3}]], "[ 1 [ y { k: x } ] ]; [ x y ]", [3, 2]),
    ([None, False], "[ null (or true false) ]; 1", 1),
    ("a", "[ x ]; x", "else"),
    ("a", "{ a: x }; x", "else"),
    ({"a": 1, "b": 2}, "{ b: x }; x", 2),
    ({"a": 1, "b": 2}, "{ b: x } only; x", "else"),
    ({"b": 2}, "{ b: x } only; x", 2),
    ({"a": {"b": 1}}, "{ a.b: 1 }; 'deep'", "deep"),
    ({"a": {"b": 1}}, "{ a.b: x }; x", 1),
    ({"type": "t"}, "{ type: x }; x", "t"),
    ({"K": 1}, "{ key: x }; x", 1),
    ({"key": 1}, "{ key: x } quote: 'keys'; x", 1),
    (3, "(or 1 2 3); 'small'", "small"),
    (3, "(or _ 3); 'small'", "else"),
    (False, "(or 1 false); 'no'", "no"),
    ([5], "(or [ 4 ] [ x ]); x", 5),
    (5, "(guard x (x > 4)); x", 5),
    (3, "(guard x (x > 4)); x", "else"),
    ([3, 4], "(bind x [ a b ] (a < b)); [ x a ]", [[3, 4], 3]),
    (12, "(guard x (or! (x < 3) (x > 9))); x", 12),
    ("abc", "(/^a(.+)$/); [ match matched ]", [["abc", "bc"], "abc"]),
    ("abc", "r/B/i; matched", "abc"),
    ("abc", "(bind w (/b./)); [ w w__match w__matched ]", ["abc", ["bc"], "abc"]),
    (7, "(/7/); 0", "else"),
    ([1, 2], "[ 1 2 ] !; 'same'", "same"),
    (3, "(1 + 2); 'sum'", "sum"),
    (3, "_; 'any'", "any"),
]


@pytest.mark.parametrize(("value", "branch", "expected"), MATCHES, ids=lambda one: repr(one)[:40])
def test_match(value: Any, branch: str, expected: Any) -> None:
    text = f"sequence\n  set key 'K'\n  match f.value\n    {branch}\n    else; 'else'\n"
    driver = launch(text, {"value": value})
    assert driver.status() is FlowStatus.TERMINATED, driver.seen[-1].message
    assert driver.payload == {"value": value, "ret": expected}


def test_a_pattern_that_does_not_fit_is_passed_over_although_ret_is_the_value() -> None:
    text = "sequence\n  f.value\n  match\n    [ a b ]; 'two'\n    { k: x }; x\n"
    assert launch(text, {"value": {"k": 3}}).payload == {"value": {"k": 3}, "ret": 3}


@pytest.mark.parametrize("guard", ["guard", "(guard)"])
def test_a_guard_that_names_nothing_fits_nothing(guard: str) -> None:
    assert launch(f"match [ 1 2 ]\n  [ x {guard} ];; x\n  else;; 'no'\n").payload == {"ret": "no"}


def test_a_branch_sees_the_ret_of_the_entry() -> None:
    text = "sequence\n  'before'\n  match [ 1 ]\n    [ 2 ]; 0\n    [ x ]; f.ret\n"
    assert launch(text).payload == {"ret": "before"}


@pytest.mark.parametrize("head", ["_func", "_proc", "_tasker"])
def test_data_that_looks_like_a_function_is_data(head: str) -> None:
    like = [head, "x", 1]
    driver = launch("sequence\n  f.x\n  set f.y f.x\n  map [ 1 ] (def e \\ f.x)\n", {"x": like})
    assert driver.payload == {"x": like, "y": like, "ret": [like]}


# -- what they refuse ------------------------------------------------------------------------

FAILURES = [
    ("push nowhere 1\n", "cannot push to given target (NilClass)", "push"),
    ("sequence\n  set o { k: 1 }\n  push o 1\n", "cannot push to given target (Hash)", "push"),
    ("range 1 5 0\n", "range step is 0", "range"),
    ("reverse 1\n", "found no argument that could be reversed", "reverse"),
    ("reverse [ 1 ] 2\n", "found no argument that could be reversed", "reverse"),
    ("slice 1 2\n", "cannot slice instance of NilClass", "slice"),
    ("slice { a: 1 } 0 1\n", "cannot slice instance of Hash", "slice"),
    ("slice [ 1 ]\n", "slice needs an end, or count:", "slice"),
    ("slice 'ab' count: 'x'\n", "slice needs an integer as count:, not x", "slice"),
    ("slice 'ab' from: [ 1 ] to: 1\n", "slice needs an integer as from:, not [1]", "slice"),
    ("slice 'ab' 0 1 step: 'x'\n", "slice needs an integer as step:, not x", "slice"),
    ("trap point: 'signal' count: 'x'\n  def msg \\ 1\n", "count: must be a number, not x", "trap"),
    (
        "trap point: 'signal' count: [ 1 ]\n  def msg \\ 1\n",
        "count: must be a number, not [1]",
        "trap",
    ),
    ("define\n  1\n", 'define needs a name, as in "define sum a b"', "define"),
    ("f.l['a':1]\n", 'cannot slice with "a": it is not a number', "_ref"),
    ("f.l[0,'a']\n", 'cannot slice with "a": it is not a number', "_ref"),
    ("sort_by [ 1 ]\n", 'function not given to "sort_by"', "sort_by"),
    ("select 1\n  true\n", 'collection not given to "filter"', "filter"),
    ("split 1\n", "found no string to split", "split"),
    ("match? _\n", "'match?' needs 1 or 2 arguments", "match?"),
    ("rand 'a'\n", "'rand' expects an integer or a float", "rand"),
    ("shuffle 1\n", "no array to shuffle", "shuffle"),
    ("to-object 1\n", "to-object wants an array (or an object)", "to-object"),
    ("to-object [ 1 2 3 ]\n", "to-object expects array with even length", "to-object"),
    ("sequence\n  return 1\n", '"return" outside of function', "return"),
    ("match 1\n  x; x\n", 'cannot find "x"', "x"),
]


@pytest.mark.parametrize(("text", "words", "where"), FAILURES, ids=lambda one: repr(one)[:40])
def test_failure(text: str, words: str, where: str) -> None:
    driver = launch(text, {"l": [1]})
    assert driver.status() is FlowStatus.FAILED
    error = driver.seen[-1].message["error"]
    assert (error["msg"], error["prc"]) == (words, where)


@pytest.mark.parametrize(
    "text",
    [
        "set a b 'xy'\n",
        "set a___ b c [ 1 ]\n",
        "slice [ 1 2 ] 1\n",
        "sort 1\n",
        "sort [ [ 1 'a' ] [ 1 2 ] ]\n",
        "downcase [ 'A' ] cap: true\n",
        "rand 3 3\n",
        "to-object [ [ 1 2 3 ] [ 4 5 6 ] ]\n",
    ],
)
def test_what_cannot_be_done_fails(text: str) -> None:
    assert launch(text).status() is FlowStatus.FAILED


# -- what they emit --------------------------------------------------------------------------

STEPS = [
    ("noeval\n  1\n", "e0 r-"),
    ("stall\n  1\n", "e0"),
    ("set 'a' 1\n", "e0 e0_0 r0 e0_1 r0 r-"),
    ("set a 1\n", "e0 e0_0 e0_0_0 r0_0 r0 e0_1 r0 r-"),
    ("rand 3\n", "e0 e0_0 e0_0_0 r0_0 r0 r-"),
    ("match 1\n  [ x ]; 2\n  else; 3\n", "e0 e0_0 r0 e0_1 r0 e0_4 r0 r-"),
    (
        "match f.l\n  [ x y ]; 2\n",
        "e0 e0_0 e0_0_0 r0_0 e0_0_1 r0_0 r0 e0_1 r0_1 r0_1 r0 e0_2 r0 r-",
    ),
    (
        "sort [ 2 1 ] (def a b \\ false)\n",
        "e0 e0_0 r0 e0_1 r0 e0_1-1 e0_1_2-1 r0_1-1 r0 r-",
    ),
]


@pytest.mark.parametrize(("text", "expected"), STEPS, ids=lambda one: repr(one)[:40])
def test_steps(text: str, expected: str) -> None:
    assert steps(launch(text, {"l": [1, 2]})) == expected


def test_set_gives_each_child_the_ret_of_the_entry() -> None:
    driver = launch("sequence\n  9\n  set a tag: 't' f.ret\n  a\n")
    rets = [
        seen.message["payload"]["ret"]
        for seen in driver.seen
        if seen.message["point"] == "receive" and seen.message.get("nid") == "0_1"
    ]
    assert rets == [9, 9, 9]
    assert driver.payload == {"ret": 9}


def test_a_guard_shows_its_test_what_is_bound() -> None:
    driver = launch("match 7\n  (guard x (x > 6)); x\n")
    bound = [seen.message["vars"] for seen in driver.seen if seen.message.get("vars")]
    assert bound == [{"x": 7}, {"x": 7}]


def test_sort_asks_about_two_elements_once() -> None:
    text = "sort [ 1 2 1 2 1 2 ]%s (def a b \\ a < b)\n"
    asked = [
        sum(seen.message.get("cnid") == "0" for seen in launch(text % memo).seen)
        for memo in ("", " memo: false")
    ]
    assert asked[0] < asked[1]


def test_a_sort_goes_on_where_it_was_after_every_run() -> None:
    text = "sort [ 5 3 9 1 7 3 8 ] (def a b \\ a < b)\n"
    driver = launch(text, max_messages=5)
    assert driver.payload == {"ret": [1, 3, 3, 5, 7, 8, 9]}


def test_timestamps_tell_the_time_of_the_run() -> None:
    assert launch("timestamp _\n").payload == {"ret": "2020-09-13T12:26:40Z"}
    local = launch("ltimestamp _\n").payload
    assert local is not None
    assert len(local["ret"]) == len("2020-09-13T12:26:40")


@pytest.mark.parametrize(
    ("bounds", "low", "high"), [("3", 0, 3), ("2 4", 2, 4), ("1.5", 0, 1.5), ("1 2.0", 1, 2)]
)
def test_rand_keeps_to_its_bounds(bounds: str, low: float, high: float) -> None:
    driver = launch(f"map (range 20) (def i \\ rand {bounds})\n")
    assert driver.payload is not None
    numbers = driver.payload["ret"]
    assert all(low <= number < high for number in numbers)
    assert len(set(numbers)) > 1


# -- handlers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handlers", "caught"),
    [
        (["class: 'FlorError'", ""], "0"),
        (["class: 'RuntimeError'", ""], "1"),
        (["class: 'not good'", ""], "1"),
        (["'FlorError'", ""], "0"),
        (["'not good'", ""], "0"),
        (["r/good/", ""], "0"),
        (["", "r/good/"], "0"),
        (["", ""], "1"),
        (["'bad' r/good/", ""], "1"),
    ],
)
def test_the_first_handler_that_fits_takes_an_error(handlers: list[str], caught: str) -> None:
    lines = [f"  on_error {one} (def msg err \\ '{i}')\n" for i, one in enumerate(handlers)]
    driver = launch(f"sequence\n{''.join(lines)}  fail 'not good'\n")
    assert driver.payload == {"ret": caught}


def test_on_error_without_a_function_changes_nothing() -> None:
    driver = launch("sequence\n  on_error 1\n  fail 'x'\n")
    assert driver.status() is FlowStatus.FAILED


def test_a_cancel_of_what_has_ended_shows_the_payload_of_the_entry() -> None:
    driver = launch("sequence\n  1\n", {"k": 2})
    driver.cancel("0")
    driver.drive()
    assert driver.seen[-1].message["payload"] == {"k": 2}
    assert driver.seen[-1].emitted == []


# -- what trees keep -------------------------------------------------------------------------


def test_an_object_is_plain_from_its_second_evaluation_on() -> None:
    driver = launch("map [ 1 2 3 ]\n  def x \\ { a: 1 }\n")
    assert driver.payload == {"ret": [{"a": 1}] * 3}
    assert steps(driver).count("e0_1_1_0-") == 1


def test_a_loop_finds_plain_objects_in_its_second_pass() -> None:
    text = "sequence\n  set i 0\n  until i == 3\n    push f.l { k: 'v' }\n    set i (+ i 1)\n"
    driver = launch(text, {"l": []})
    assert driver.payload == {"l": [{"k": "v"}] * 3, "ret": None}
    assert steps(driver).count("e0_1_1_1_0") == 1


def test_a_function_shows_what_its_calls_made_of_it() -> None:
    driver = launch("sequence\n  define f x\n    match x\n      [ 1 y ]; y\n  f [ 1 2 ]\n")
    function = (driver.state.nodes["0"].vars or {})["f"]
    assert function[1]["tree"][1][2][1][1][0] == "_pat_arr"


def test_the_tree_that_was_launched_is_left_alone() -> None:
    text = "sequence\n  define f x\n    { a: 1 }\n  f 1\n  loop\n    { b: 2 }\n    break _\n"
    tree = parse(text)
    FlowDriver(tree).drive()
    assert tree == parse(text)


def test_a_run_leaves_the_trees_of_its_state_alone() -> None:
    state = FlowDriver(parse("sequence\n  define f x\n    { a: 1 }\n  stall _\n")).drive().state
    known = encode(state)
    call = launch_message("EXID", parse("f 1\n"))
    again = {**call, "nid": "0_2", "from": "0"}
    run(state, [again], now=0.0, rng=random.Random(0))
    assert encode(state) == known


def test_replacing_copies_only_the_way_to_the_part() -> None:
    part: list[Any] = ["x", [], 1]
    beside: list[Any] = ["y", [["z", [], 1]], 1]
    tree: list[Any] = ["a", [beside, ["b", [part], 1]], 1]
    changed = replaced(tree, part, ["_sqs", "x", 1])
    assert changed == ["a", [beside, ["b", [["_sqs", "x", 1]], 1]], 1]
    assert changed[1][0] is beside
    assert tree[1][1][1][0] is part
    assert replaced(tree, ["x", [], 1], part) is tree
