"""The finer points of the core procedures from ``all?`` to ``move``.

What they give, what they fail with, and which nodes they enter, as flor 1.6.5 does it.
"""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import FlowDriver


def launch(text: str, **options: Any) -> FlowDriver:
    return FlowDriver(parse(text), **options).drive()


def entered(driver: FlowDriver) -> list[str]:
    """Return ``nid head`` of each node that was entered, in order."""
    return [
        f"{seen.message['nid']} {seen.message['tree'][0]}"
        for seen in driver.seen
        if seen.message["point"] == "execute"
    ]


def message(driver: FlowDriver, point: str, nid: str | None) -> dict[str, Any]:
    """Return the last message of a kind to a node."""
    return [
        seen.message
        for seen in driver.seen
        if seen.message["point"] == point and seen.message["nid"] == nid
    ][-1]


def variables(driver: FlowDriver) -> dict[str, Any]:
    return driver.state.nodes["0"].vars or {}


RESULTS: list[tuple[str, Any]] = [
    # all?, any?
    ("all? [ 4 5 ]\n", True),
    ("all? [ 4 null ]\n", False),
    ("all? []\n", True),
    ("all? { a: 1, b: false }\n", False),
    ("all? {}\n", True),
    ("sequence\n  [ 1 false ]\n  all? _\n", False),
    ("all? [] (def x \\ false)\n", True),
    ("all? { a: 3, b: 4 } (def k v \\ v > 3)\n", False),
    ("any? []\n", False),
    ("any? [ null false ]\n", False),
    ("any? { a: null }\n", True),
    ("sequence\n  [ 7 ]\n  any? _\n", True),
    ("any? [ null ] (def x \\ true)\n", False),
    ("any? { a: 3 } (def k v i l \\ i == 0 and l == 1)\n", True),
    # and, or
    ("and _\n", True),
    ("or _\n", False),
    ("and 1 2\n", 2),
    ("or null 'b' 'c'\n", "b"),
    ("and true tag: 'x'\n", "x"),
    # apply, define
    ("sequence\n  define twice n\n    * n (yield _)\n  twice 6\n    7\n", 42),
    ("sequence\n  define f n\n    + n (yield n)\n  f 5\n    def j\n      * 3 j\n", 20),
    ("sequence\n  define f\n    yield 4\n  f\n    fun n \\ n + 1\n", 5),
    ("sequence\n  define 'add' (a, b, c: 3)\n    + a b c\n  add 1 2\n", 6),
    ("sequence\n  define sub(a, b)\n    a - b\n  sub 9 4\n", 5),
    ("sequence\n  define f a b c\n    [ a b c ]\n  f b: 2 1 3\n", [1, 2, None]),
    ("sequence\n  define f a\n    [ a x ]\n  f 1 x: 2\n", [1, 2]),
    ("sequence\n  define f f.n g\n    + f.n g\n  f 2 3\n", 5),
    # arithmetic
    ("+ '' 1 true [ 1 'b' ] { c: null } null\n", '1true[1, "b"]{"c"=>nil}'),
    ("sequence\n  [ 'a' 2 null ]\n  + join: '-'\n", "a-2-"),
    ("+ [ 1 2 3 ] join: 10\n", 26),
    ("/ 6 '1.5kg'\n", 4),
    ("sequence\n  5\n  + _\n", 5),
    ("sequence\n  null\n  * _\n", 1),
    ("+ 1.5 1\n", 2.5),
    # types
    ("array? (def x \\ x)\n", True),
    ("sequence\n  []\n  list? _\n", True),
    ("dict? {}\n", True),
    ("pair? [ 1 ]\n", False),
    ("float? 2.0\n", True),
    ("sequence\n  true\n  boolean? tag: 'x'\n", True),
    # break, move where there is nothing to leave or steer
    ("sequence\n  3\n  break 4\n", 3),
    ("sequence\n  3\n  continue 4 ref: 'nowhere'\n", 3),
    ("sequence\n  move to: 'nowhere'\n  5\n", 5),
    # case
    ("sequence\n  'before'\n  case _\n", "before"),
    ("sequence\n  'before'\n  case 6\n", "before"),
    ("case 6 a: 'b'\n  6;; 'six'\n", "six"),
    ("sequence\n  2\n  case\n    [ 1 2 ];; 'low'\n    else;; 'high'\n", "low"),
    ("case 1.0\n  [ 0 1 ];; matched\n", 1),
    ("sequence\n  8\n  case (+ 4 4)\n    7;; 'a'\n    [ f.ret ];; 'b'\n", "b"),
    ("case 'ovomolzin'\n  r/^ovo(.+)$/;; \"$(match.1)\"\n", "molzin"),
    # comparing
    ("= 1\n", True),
    ("< _\n", True),
    ("= 1 2 1\n", True),
    ("> 1 3 2\n", True),
    ("> 3 2 4\n", False),
    ("!= null false\n", True),
    # collect and others without a block
    ("collect [ 1 2 ]\n", [1, 2]),
    ("sequence\n  { a: 1 }\n  map _\n", {"a": 1}),
    ("detect { a: 1, b: 2 }\n  val == 2\n", ["b", 2]),
    ("find [] (def x \\ true)\n", None),
    # cond
    ("sequence\n  9\n  cond _\n", 9),
    ("cond tag: 'x'\n  false ;; 1\n  true ;; 2\n", 2),
    # loops
    ("cursor start: 'b'\n  push f.l 'a'\n  push f.l 'b'\n  f.l\n", ["b"]),
    ("cursor initial: 'b'\n  push f.l 'a'\n  push f.l 'b'\n  f.l\n", ["b"]),
    ("loop _\n", None),
    ("sequence\n  4\n  until false\n", 4),
    ("sequence\n  4\n  while true\n", 4),
    # del
    ("sequence\n  set f.l [ 1 2 ]\n  del f.l[0]\n  f.l\n", [2]),
    ("sequence\n  del f.l f.m\n", 4),
    ("delf f.nope.deep\n", None),
    ("sequence\n  set a [ 1 2 3 ]\n  del a.1\n  a\n", [1, 3]),
    ("sequence\n  6\n  del 'm'\n", None),
    # do-return
    ("sequence\n  set a (do-return 8 9)\n  a _\n", 8),
    # empty?, flatten, includes?, keys, length
    ("empty? null\n", True),
    ("empty? { a: 1 }\n", False),
    ("sequence\n  ''\n  empty? _\n", True),
    ("flatten [ 1 [ 2 [ 3 ] ] ] 1\n", [1, 2, [3]]),
    ("sequence\n  [ 1 [ 2 [ 3 ] ] ]\n  flatten 0\n", [1, [2, [3]]]),
    ("includes? 'b' { b: 1 }\n", True),
    ("includes? { '1': 1 } 1\n", False),
    ("includes? [] []\n", False),
    ("sequence\n  [ 5 ]\n  includes? 5\n", True),
    ("keys [ 'a' 'b' ]\n", [0, 1]),
    ("values [ 'a' 'b' ]\n", ["a", "b"]),
    ("sequence\n  { c: 3 }\n  keys _\n", ["c"]),
    ("length 'ab' [ 1 2 3 ]\n", 3),
    ("sequence\n  { a: 1 }\n  size tag: 'x'\n", 1),
    # index
    ("index [ 7 8 9 ] (-2)\n", 8),
    ("index [ 7 8 ] at: 5\n", ""),
    ("sequence\n  'abc'\n  index 1\n", "b"),
    # inject, reduce
    ("inject [ '0' 1 'b' ]\n  res + elt\n", "01b"),
    ("reduce 4 { a: 1, b: 2 } (def r k v i \\ + r v i)\n", 8),
    ("reduce [ 1 2 ] v.+ null\n", 3),
    ("reduce [] (def r x \\ 1)\n", None),
    # match
    ("match 3\n  3;; 'three'\n", "three"),
    ("sequence\n  'x'\n  match 3\n    4;; 'four'\n", "x"),
    # matchr
    ("matchr 'stUff' r/s(tu)(f*)/i\n", ["stUff", "tU", "ff"]),
    ("sequence\n  r/blue/\n  matchr 'blue moon'\n", ["blue"]),
    ("match? 'abc' 'abc'\n", False),
    ("pmatch 'strogonoff' r/^str(?:.{0,3})(.*)$/\n", "noff"),
    ("pmatch 'ab' r/a(x)?/\n", "a"),
    # max, min
    ("max { a: 1, b: 3 }\n", 3),
    ("sequence\n  [ 3 1 ]\n  min tag: 'x'\n", 1),
    ("max []\n", None),
    ("max [ [ 1 2 ] [ 1 3 ] ]\n", [1, 3]),
    ("max [ 1 3 'two' ] lax: true\n", 3),
    ("min [ 1 3 'two' ] loose: true\n", "two"),
    ("max [ 1 10 2 ] lax: true\n", 2),
    # merge
    ("sequence\n  [ 0 1 2 3 4 ]\n  merge [ 0 1 2 3 ] [ 0 'un' 2 ]\n", [0, "un", 2, 3]),
    ("sequence\n  [ 0 1 2 ]\n  merge [ 'x' ]\n", ["x", 1, 2]),
    ("sequence\n  [ 0 ]\n  merge { a: 1 } { a: 'one' }\n", {"a": "one"}),
    ("sequence\n  { a: 1 }\n  merge _\n", {"a": 1}),
    ("merge [ 1 ] { b: 1 } [ 2 3 ] strict: false\n", [2, 3]),
    # a line of its own
    ("sequence\n  3\n  _\n", 3),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS, ids=lambda value: repr(value)[:60])
def test_ret(text: str, expected: Any) -> None:
    driver = launch(text, payload={"l": [], "m": 4})
    assert [seen.message["error"] for seen in driver.seen if "error" in seen.message] == []
    assert driver.status() is FlowStatus.TERMINATED
    assert (driver.payload or {}).get("ret") == expected
    assert type((driver.payload or {}).get("ret")) is type(expected)


FAILURES = [
    ("filter [ 1 ]\n", 'function not given to "filter"'),
    ("filter 1 (def x \\ x)\n", 'collection not given to "filter"'),
    ("any? 1\n", 'collection not given to "any?"'),
    ("sequence\n  3\n  map _\n", 'collection not given to "map"'),
    ("define f a.b c\n  1\n", 'cannot accept "a.b" as parameter'),
    ("cursor\n  move to: 'final'\n", 'move target "final" not found'),
    ("cursor\n  move to: 3\n", "move target 3 is not a string"),
    (
        "cursor\n  move to: sequence\n",
        'move target ["_proc", {"proc"=>"sequence"}, -1] is not a string',
    ),
    ("cursor\n  move _\n", "move target nil is not a string"),
    ("cursor start: 'x'\n  1\n", 'move target "x" not found'),
    ("empty? 3\n", "argument is not an array, an object, a string or null"),
    ("flatten 3\n", "missing collection"),
    ("includes? [ 1 ]\n", "missing element"),
    ("keys _\n", "no argument given"),
    ("values 3\n", "received argument of class Integer, no values"),
    ("length [ 1 ] 2\n", "found no argument that has a length"),
    ("max 3\n", "found no argument that can max"),
    ("merge _\n", "found no array or object to merge"),
    ("merge { a: 1 } null\n", "found a non-object item (null item)"),
    ("merge [ 1 ] { a: 1 }\n", "found a non-array item (object item)"),
    ("matchr _\n", "'matchr' needs 1 or 2 arguments"),
    ("index 3\n", "cannot slice instance of NilClass"),
    ("sequence\n  fail [ 1 'b' ]\n", '[1, "b"]'),
    ("sequence\n  fail _\n", "error"),
    ("sequence\n  'mine'\n  fail _\n", "mine"),
]


@pytest.mark.parametrize(("text", "words"), FAILURES, ids=lambda value: repr(value)[:60])
def test_failure(text: str, words: str) -> None:
    driver = launch(text)
    assert driver.status() is FlowStatus.FAILED
    assert driver.seen[-1].message["error"]["msg"] == words


@pytest.mark.parametrize(
    "text", ["max [ false 1 ]\n", "min [ 1 'a' ]\n", "del a\n", "del f.nope\n", "< true true\n"]
)
def test_what_cannot_be_done_fails(text: str) -> None:
    assert launch(text).status() is FlowStatus.FAILED


ENTERED = [
    ("length _\n", ["0 length", "0_0 _"]),
    ("+ _\n", ["0 +", "0_0 _"]),
    ("and false true\n", ["0 and", "0_0 _att", "0_0_0 _boo"]),
    ("define 'f' a\n  a\n", ["0 define", "0_0 _att", "0_0_0 _sqs"]),
    ("cond _\n", ["0 cond", "0_0 _att"]),
    ("until false\n", ["0 until", "0_0 _boo"]),
    ("map [ 1 ]\n", ["0 map", "0_0 _arr"]),
    ("collect [ 1 ]\n", ["0 collect", "0 map", "0_0 _arr"]),
    ("do-return 3\n", ["0 do-return", "0 sequence", "0_0 def"]),
    ("del 'a'\n", ["0 del", "0_0 _sqs"]),
    ("case 1\n  2;; 3\n  else;; 4\n", ["0 case", "0_0 _num", "0_1 _num", "0_4 _num"]),
    ("sequence\n  _\n", ["0 sequence", "0_0 _"]),
]


@pytest.mark.parametrize(("text", "nodes"), ENTERED, ids=lambda value: repr(value)[:60])
def test_nodes_entered(text: str, nodes: list[str]) -> None:
    driver = launch(text, payload={"ret": [1]} if "length" in text else {})
    assert driver.status() is FlowStatus.TERMINATED
    assert entered(driver) == nodes


def test_a_block_is_one_node_and_an_argument_called_yield() -> None:
    driver = launch("sequence\n  define f a\n    1\n  f 2\n    3\n    4\n  f\n    fun x \\ x\n")
    assert entered(driver)[2:7] == [
        "0_1 f",
        "0_1_0 _att",
        "0_1_0_0 _num",
        "0_1_1 def",
        "0_0-1 _apply",
    ]
    assert [key for key, _ in message(driver, "execute", "0_0-1")["arguments"]] == [None, "yield"]
    assert entered(driver)[8:11] == ["0_2 f", "0_2_0 fun", "0_0-2 _apply"]


def test_a_procedure_that_is_applied_closes_over_the_root() -> None:
    text = "sequence vars: { a: 1 }\n  sequence vars: { b: 2 }\n    reduce [ 1 2 ] v.+\n"
    driver = launch(text)
    assert message(driver, "execute", "0_1_1_0_1-1")["cnid"] == "0"


def test_only_patterns_bind_variables_for_a_branch() -> None:
    driver = launch("match [ 1 ]\n  2;; 3\n  [ 1 ];; 4\n")
    assert message(driver, "execute", "0_4")["vars"] == {}
    driver = launch("match 2\n  2;; 3\n")
    assert "vars" not in message(driver, "execute", "0_2")


def test_what_is_met_shows_the_ret_of_the_entry() -> None:
    driver = launch("sequence\n  7\n  cond\n    false;; 1\n  8\n")
    assert message(driver, "receive", "0_1")["payload"] == {"ret": 7}


def test_only_one_string_of_a_sequence_becomes_a_tag() -> None:
    driver = launch("sequence 'a' 'b'\n  1\n")
    tags = [seen.message["tags"] for seen in driver.seen if seen.message["point"] == "entered"]
    assert tags == [["a"]]


def test_a_cursor_takes_strings_as_tags() -> None:
    driver = launch("cursor [ 'a' 'b' ] 'c'\n  1\n")
    tags = [seen.message["tags"] for seen in driver.seen if seen.message["point"] == "entered"]
    assert tags == [["a", "b"]]


def test_a_loop_has_only_its_own_variables() -> None:
    driver = launch("case 1\n  1\n  cursor\n    matched\n")
    assert driver.status() is FlowStatus.FAILED
    assert driver.seen[-1].message["error"]["msg"] == 'cannot find "matched"'


MOVES = [
    ("push f.l 'x' tag: 'c'", "a tag"),
    ("push f.l 'c'", "a string that is given"),
    ("'c'", "a string"),
    ("c _", "a name"),
]


@pytest.mark.parametrize(("line", "what"), MOVES, ids=lambda value: value)
def test_move_finds(line: str, what: str) -> None:
    text = f"define c\n  2\ncursor\n  move to: 'c'\n  push f.l 'no'\n  {line}\n  push f.l 'end'\n"
    driver = launch(text, payload={"l": []})
    assert driver.status() is FlowStatus.TERMINATED, what
    assert "0_1_1" not in [seen.message["nid"] for seen in driver.seen]
    assert (driver.payload or {})["l"][-1] == "end"


def test_move_finds_a_place_that_is_marked() -> None:
    text = "cursor\n  move to: here\n  push f.l 1\n  _ here\n  push f.l 2\n"
    assert (launch(text, payload={"l": []}).payload or {})["l"] == [2]


def test_a_move_that_fails_begins_no_pass() -> None:
    driver = launch("cursor\n  move to: 'nowhere'\n")
    assert "subs" not in driver.state.counters


def test_a_cursor_is_moved_by_its_tag() -> None:
    text = (
        "set l []\n"
        "concurrence\n"
        "  cursor tag: 'x'\n"
        "    push l 'a'\n"
        "    stall _\n"
        "    push l 'b'\n"
        "  sequence\n"
        "    push l 0\n"
        "    move 'x' to: 'b'\n"
        "    push l 1\n"
    )
    assert variables(launch(text))["l"] == [0, "a", 1, "b"]


def test_only_the_first_node_with_a_tag_is_left() -> None:
    text = (
        "concurrence\n"
        "  cursor tag: 'x'\n"
        "    stall _\n"
        "  cursor tag: 'x'\n"
        "    stall _\n"
        "  sequence\n"
        "    _skip 4\n"
        "    break ref: 'x'\n"
    )
    driver = launch(text)
    targets = [
        seen.message["nid"]
        for seen in driver.seen
        if seen.message["point"] == "cancel" and seen.message.get("flavour") == "break"
    ]
    assert targets == ["0_0"]


@pytest.mark.parametrize("first", ["break 0", "continue 0"])
def test_a_break_ends_a_loop_that_is_being_left(first: str) -> None:
    depth = "".join(f"{' ' * (4 + 2 * level)}sequence\n" for level in range(16))
    text = (
        "concurrence merge: 'top'\n"
        "  cursor tag: 'x'\n"
        f"{depth}{' ' * 36}stall _\n"
        "  sequence\n"
        "    _skip 20\n"
        f"    {first} ref: 'x'\n"
        "    break 1 ref: 'x'\n"
    )
    driver = launch(text)
    assert driver.status() is FlowStatus.TERMINATED
    replies = [
        seen.message["payload"]["ret"]
        for seen in driver.seen
        if seen.message["point"] == "receive" and seen.message.get("from") == "0_1"
    ]
    assert replies == [1]


def test_a_loop_goes_on_with_what_its_last_child_leaves() -> None:
    text = (
        "sequence\n"
        "  concurrence\n"
        "    cursor tag: 'x'\n"
        "      break _ if f.seen\n"
        "      sequence on_cancel: (def msg \\ set f.seen true)\n"
        "        stall _\n"
        "    sequence\n"
        "      _skip 20\n"
        "      continue ref: 'x'\n"
    )
    driver = launch(text)
    assert driver.status() is FlowStatus.TERMINATED
    assert (driver.payload or {})["seen"] is True


def test_a_cancel_does_not_wait_for_what_goes_on_aside() -> None:
    driver = launch("sequence\n  sequence flank\n    sequence\n      stall _\n  stall _\n")
    driver.cancel()
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert list(driver.state.nodes) == ["0"]


def test_a_cancel_that_ends_an_error_handler_is_handled_too() -> None:
    text = (
        "sequence\n"
        "  sequence on_error: (def \\ stall _) on_cancel: (def \\ push f.l 'cancelled')\n"
        "    fail 'x'\n"
        "  push f.l 'after'\n"
    )
    driver = launch(text, payload={"l": []})
    driver.cancel("0_0")
    driver.drive()
    assert (driver.payload or {})["l"] == ["cancelled", "after"]


def test_a_macro_is_entered_again_as_it_was() -> None:
    driver = launch("sequence on_error: (do-return 1)\n  2\n")
    again = message(driver, "execute", "0_0_1")
    assert (again["rewritten"], again["accept_symbol"]) == (True, False)


def test_a_sequence_grows_at_its_end() -> None:
    driver = launch(
        "sequence\n  task 'a'\n  push f.l 1\n", payload={"l": []}, taskers={"a": "hold"}
    )
    driver.add_branch("0_2", parse("push f.l 2\n"))
    driver.drive()
    driver.give_back()
    driver.drive()
    assert (driver.payload or {})["l"] == [1, 2]


def test_only_iterators_take_elements() -> None:
    driver = launch("sequence\n  task 'a'\n", taskers={"a": "hold"})
    driver.add_iteration("0", [1])
    driver.drive()
    error = driver.seen[-1].message["error"]
    assert error["msg"] == "procedure does not accept add-iteration"
