"""What each procedure gives; how they get there is held by the golden flows."""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.execution.messages.traps import looks_elsewhere, trigger_from_elsewhere
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.flows.procedures.registry import NameTaken, procedure, unregister
from actorflow.flows.procedures.simple import Simple, simple
from actorflow.flows.service.library import Library
from actorflow.testing.flow_driver import FlowDriver


def launch(text: str, **options: Any) -> FlowDriver:
    return FlowDriver(parse(text), **options).drive()


RESULTS: list[tuple[str, Any]] = [
    # sequences and values
    ("sequence\n  1\n  2\n", 2),
    ("sequence ret: 5\n  1\n", 5),
    ("sequence\n  7\n  noret\n    8\n", 7),
    ("sequence\n  7\n  noeval 8\n", 7),
    ("{ a: 1, 'b': [ 1 { c: 2 } ] }\n", {"a": 1, "b": [1, {"c": 2}]}),
    ("[]\n", []),
    ("{}\n", {}),
    ("\"a$(''||'b')c\"\n", "abc"),
    ("\"a$(f.x||'b')c\"\n", "ac"),
    ("\"$('abc'|upcase _)\"\n", "ABC"),
    ("sequence\n  set a [ 1 2 3 4 5 ]\n  a[1:3]\n", [2, 3, 4]),
    ("sequence\n  set a [ 1 2 3 4 5 ]\n  a[1,2]\n", [2, 3]),
    ("sequence\n  set a [ 1 2 3 4 5 ]\n  a[-1]\n", 5),
    ("sequence\n  set a { b: { c: 3 } }\n  a.b.c\n", 3),
    ("sequence\n  set a { b: { c: 3 } }\n  a.b.d\n", None),
    # assignments
    ("sequence\n  set a b___ c\n    [ 0 1 2 3 ]\n  [ a b c ]\n", [0, [1, 2], 3]),
    ("sequence\n  set d e__2 f\n    [ 4 5 6 7 8 ]\n  [ d e f ]\n", [4, [5, 6], 7]),
    ("sequence\n  set __2 g h\n    [ 9 10 11 12 13 ]\n  [ g h ]\n", [11, 12]),
    ("sequence\n  11\n  set f.ret 12\n", 12),
    ("sequence\n  set a { b: 1 }\n  del a.b\n  a\n", {}),
    ("sequence\n  set _\n  3\n", 3),
    # conditions
    ("sequence\n  7\n  cond\n    false ;; 1\n", 7),
    ("sequence\n  7\n  cond\n    false ;; 1\n    else\n", 7),
    ("sequence\n  7\n  cond\n    true\n", 7),
    ("cond\n  false\n    1\n  else\n    2\n    3\n", 3),
    ("unless false\n  1\n", 1),
    ("ife true 1 2\n", 1),
    ("case 6\n  [ 0 1 2 ];; 'low'\n  6;; 'high'\n  else;; 'over'\n", "high"),
    ("case 3\n  [ 0 1 ]\n    'a'\n  3\n    'b'\n    'c'\n  else\n    'd'\n", "c"),
    ("case 9\n  [ 0 1 ]\n    'a'\n  else\n    'd'\n", "d"),
    # patterns
    ("match 5\n  5;; 'five'\n  else;; 'x'\n", "five"),
    ("match 7\n  0;; 'zero'\n  _;; 'caught'\n", "caught"),
    ("match [ 1 2 3 ]\n  [ a ___ ];; a\n", 1),
    ("match [ 1 2 3 ]\n  [ 1 _ ];; 'two'\n  [ 1 rest___ ];; rest\n", [2, 3]),
    ("match [ 1 2 3 4 5 ]\n  [ a__2 __3 ];; a\n", [1, 2]),
    ("match { a: 1 }\n  { a: (guard x (x > 0)) };; x\n", 1),
    ("match { a: 1 }\n  { a: (guard x (x > 1)) };; x\n  else;; 'no'\n", "no"),
    ("match [ 1 4 ]\n  [ 1 (bind y (or 2 3)) ];; y\n  [ 1 (bind x (or 4 5)) ];; x\n", 4),
    ("match { p: { name: 'E' } }\n  { p.name: 'E' };; 'deep'\n", "deep"),
    ("match { a: 1, b: 2 }\n  { a: 1 } only;; 'only'\n  else;; 'more'\n", "more"),
    ("match 'abc'\n  r/b(.)/;; match.1\n", "c"),
    ("match 3\n  (or 2 3);; 'yes'\n  else;; 'no'\n", "yes"),
    # loops
    ("while false\n  1\n", None),
    ("until true\n  1\n", None),
    ("sequence\n  set i 0\n  until i == 3\n    set i (+ i 1)\n    + i 10\n", 13),
    # functions
    ("apply (def x y: 3 \\ + x y) 4\n", 7),
    ("sequence\n  define f a b:2 c:(3 + b)\n    + a (2 * b) (3 * c)\n  f 2 1\n", 16),
    ("sequence\n  define f a b:2 c:(3 + b)\n    + a (2 * b) (3 * c)\n  f b: 4 a: 1\n", 30),
    ('sequence\n  define "sum0" a b\n    + a b\n  sum0 1 2\n', 3),
    ("sequence\n  set n 'su'\n  define \"$(n)m1\" a b\n    + a b\n  sum1 3 4\n", 7),
    ("sequence\n  define f\n    return 'b' if true\n    'a'\n  f _\n", "b"),
    ("sequence\n  define f x\n    args\n  f 1 2\n", [1, 2]),
    ("sequence\n  define f x\n    argd\n  f 1 y: 2\n", {"y": 2}),
    ("sequence\n  define twice x\n    + (yield x) (yield x)\n  twice 3\n    + args.0 1\n", 8),
    (
        (
            "sequence\n  define make-withdraw bal\n    def amt\n      setr bal (- bal amt)\n"
            "  set w0 (make-withdraw 100)\n  set w1 (make-withdraw 100)\n"
            "  [ (w0 77) (w0 13) (w1 17) (w0 12) ]\n"
        ),
        [23, 10, 83, -2],
    ),
    ("sequence\n  def x y \\ (+ x y)\n  f.ret 6 2\n", 8),
    ("sequence\n  define f\n    arguments\n  f 1 d: 'four'\n", [[None, 1], ["d", "four"]]),
    # heads
    ("3 tags: 'xyz'\n", 3),
    ("3 ret: 4\n", 4),
    ("sequence\n  set a 1\n  a 2\n", 1),
    ("sequence\n  set a { b: sequence }\n  a.b\n    1\n    2\n", 2),
    ("sequence\n  set a 'sequ'\n  \"$(a)ence\"\n    1\n    2\n", "sequence"),
    # iterators
    ("map { a: 1, b: 2 } (def k v \\ + v 1)\n", [2, 3]),
    ("map [ 'a' 'b' ] upcase\n", ["A", "B"]),
    ("find [ 1 2 3 ] (def x \\ x > 1)\n", 2),
    ("find { a: 'A', b: 'B' } (def k v \\ v == 'B')\n", ["b", "B"]),
    ("any? [ 1 2 3 ] (def x \\ x > 2)\n", True),
    ("all? [ 1 2 3 ] (def x \\ x > 2)\n", False),
    ("detect [ 1 2 3 ]\n  elt == 2\n", 2),
    ("sort_by [ { n: 3 } { n: 1 } ] (def e \\ e.n)\n", [{"n": 1}, {"n": 3}]),
    ("reduce [ 1 2 3 ] (def r x \\ + r x) 10\n", 16),
    ("inject [ 1 2 3 ]\n  + res elt\n", 6),
    ("c-for-each [ 1 2 ] (def x \\ + x 1)\n", [1, 2]),
    ("ccollect [ 1 2 ]\n  elt + 1\n", [2, 3]),
    ("map [] (def x \\ x)\n", []),
    ("cmap [] (def x \\ x)\n", []),
    # arithmetic and comparison
    ("sequence\n  [ 2 4 6 8 ]\n  + _\n", 20),
    ("+ _\n", 0),
    ("* _\n", 1),
    ("/ 1 2\n", 0.5),
    ("- 3 4 5\n", -6),
    ("8 / 4 * 2\n", 4),
    ("1 - 2 + 3\n", 2),
    ("+ [ 'a' 'b' ] join: ', '\n", "a, b"),
    ("1 <> 2\n", True),
    ("and true false\n", False),
    ("or false 3\n", 3),
    ("not 1\n", False),
    # strings
    ("downcase 'NADA' 'HELLO'\n", "hello"),
    ("upcase { a: 'a' }\n", {"a": "A"}),
    ("trim ' a '\n", "a"),
    ("snakecase 'blueMoonRising'\n", "blue_moon_rising"),
    ("camelcase 'blue_moon'\n", "blueMoon"),
    ("split 'ab cd'\n", ["ab", "cd"]),
    ("split 'ab|cd' '|'\n", ["ab", "cd"]),
    ("sequence\n  'ab,cd'\n  split r/,/\n", ["ab", "cd"]),
    ("pmatch 'abc' r/b(.)/\n", "c"),
    ("matchr 'alpha' r/bravo/\n", []),
    ("match? 'alpha' 'alp'\n", True),
    # collections and types
    ("keys { a: 1 }\n", ["a"]),
    ("values { a: 1 }\n", [1]),
    ("merge { a: 0 b: 1 } { b: 'B' }\n", {"a": 0, "b": "B"}),
    ("merge [ 0 1 2 3 ] [ 'a' 'b' 'c' ]\n", ["a", "b", "c", 3]),
    ("sequence\n  { a: 0 }\n  merge { b: 1 }\n", {"a": 0, "b": 1}),
    ("merge { a: 0 } 'nada' { c: 2 } lax: true\n", {"a": 0, "c": 2}),
    ("flatten [ 1 [ 2 [ 3 ] ] ]\n", [1, 2, 3]),
    ("includes? [ [ 0 ] ] [ 0 ]\n", True),
    ("includes? 'c' { a: 'A' }\n", False),
    ("empty? []\n", True),
    ("range 9 1 (-2)\n", [9, 7, 5, 3]),
    ("range (-4)\n", [0, -1, -2, -3]),
    ("range from: 9 to: 1 by: -2\n", [9, 7, 5, 3]),
    ("sort [ 3 1 2 ]\n", [1, 2, 3]),
    ("max [ 1 5 2 ]\n", 5),
    ("min [ 3 1 2 ]\n", 1),
    ("to-array { a: 1 }\n", [["a", 1]]),
    ("to-array 123\n", [123]),
    ("to-object [ 'a' 'A' 'b' 'B' ]\n", {"a": "A", "b": "B"}),
    ("sequence\n  [ 'a' 'b' 'c' 'd' ]\n  slice 1 (-1)\n", ["b", "c", "d"]),
    ("slice 1 count: 2 [ 'a' 'b' 'c' 'd' ]\n", ["b", "c"]),
    ("slice 'abcd' from: 1 to: 2\n", "bc"),
    ("sequence\n  [ 'a' 'b' 'c' ]\n  index [ 1 14 ]\n", ["b", None]),
    ("sequence\n  { a: 'A', g: 'G' }\n  index 'g'\n", "G"),
    ("type-of 0.1\n", "number"),
    ("type-of null\n", "null"),
    ("array? []\n", True),
    ("string? 1\n", False),
    ("reverse [ 1 2 ]\n", [2, 1]),
    ("length 'four'\n", 4),
    # concurrence
    ("concurrence\n  1\n  2\n", 1),
    ("concurrence merge: 'last'\n  1\n  2\n", 2),
    ("concurrence merger: 'bottom'\n  1\n  2\n", 2),
    ("concurrence merge: 'top mix'\n  1\n  2\n", 1),
    ("concurrence on_merge: (def rets replies \\ length replies)\n  1\n  2\n", 2),
    ("concurrence\n  on_receive\n    >= (length replies) 1\n  1\n  2\n", 1),
    ("concurrence _\n", None),
    # aside
    ("sequence\n  part\n    1\n", "0_0"),
    ("concurrence expect: 1\n  part r: false\n    _skip 4\n  'b'\n", "b"),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS, ids=lambda value: repr(value)[:60])
def test_ret(text: str, expected: Any) -> None:
    driver = launch(text)
    failures = [seen.message["error"] for seen in driver.seen if seen.message["point"] == "failed"]
    assert failures == []
    assert driver.payload is not None
    assert driver.payload.get("ret") == expected
    assert type(driver.payload.get("ret")) is type(expected)
    assert driver.status() is FlowStatus.TERMINATED


FAILURES = [
    ("+ 1 'a'\n", "cannot compute + with String"),
    ("/ 1 0\n", "divided by 0"),
    ("% 1\n", "modulo % requires at least 2 arguments"),
    ("1 < 'a'\n", "cannot compare Integer and String with <"),
    ("upcase 3 cap: true\n", "cannot capitalize Integer"),
    ("includes? 1\n", "missing collection"),
    ("includes? []\n", "missing element"),
    ("split 1\n", "found no string to split"),
    ("merge 0\n", "found no array or object to merge"),
    ("merge {} []\n", "found a non-object"),
    ("a.0\n", 'variable "a" not found'),
    ("sequence\n  set h {}\n  h.a.0\n", 'variable "a" not found at "h"'),
    ("sequence\n  set a []\n  a.k\n", 'no key "k" for Array at "a"'),
    ("sequence vars: [ 'a' 'b.c' ]\n  1\n", "vars: is limited to 1st level"),
    ("return 1\n", '"return" outside of function'),
    ("graft 'nope'\n", 'no subtree "nope" found (domain "")'),
    ("set f.h.i.j 7\n", "couldn't set field h.i.j"),
    ("set a.b 7\n", "couldn't set var a.b"),
    ("set dv.a 7\n", 'cannot set domain variable "a": it belongs to the domain, not to a flow'),
    ("cursor\n  move to: 'final'\n", 'move target "final" not found'),
    ("map 3 (def x \\ x)\n", 'collection not given to "map"'),
    ("sleep 'later'\n", 'cannot read duration "later"'),
    ("matchr 'a' r/(/\n", "invalid regular expression"),
]


@pytest.mark.parametrize(("text", "words"), FAILURES, ids=lambda value: repr(value)[:60])
def test_failure(text: str, words: str) -> None:
    driver = launch(text)
    assert driver.status() is FlowStatus.FAILED
    assert words in driver.seen[-1].message["error"]["msg"]


def test_a_handler_that_fails_is_not_called_again() -> None:
    driver = launch("sequence on_error: (def err \\ nosuch 1)\n  fail 'x'\n")
    assert driver.status() is FlowStatus.FAILED
    assert len(driver.seen) < 40


def test_errors_are_caught_by_class_text_or_expression() -> None:
    for criterion, caught in (
        ("class: 'UnknownProcedure'", True),
        ("class: 'FlowError'", True),
        ("class: 'KeyError'", False),
        ("r/nosuch/", True),
        ("'other text'", False),
    ):
        driver = launch(f"sequence\n  on_error {criterion} (def err \\ 'caught')\n  nosuch 1\n")
        assert (driver.payload == {"ret": "caught"}) is caught, criterion


def test_variables_can_be_cut_off() -> None:
    text = "sequence\n  set a 1\n  set b 2\n  sequence vars: [ '-' 'b' ]\n    a\n    b\n"
    driver = launch(text)
    assert driver.status() is FlowStatus.FAILED
    assert driver.seen[-1].message["error"]["msg"] == 'cannot find "b"'


def test_domain_variables_and_subflows() -> None:
    loader = Library({"a.x": 1, "a.b.x": 2, "y": 3}, {"a.sub": parse("+ x y\n")})
    driver = launch("sequence\n  graft 'sub'\n", domain="a.b", loader=loader)
    assert driver.payload == {"ret": 5}


def test_exe_and_node_paths() -> None:
    driver = launch("[ exe.domain node.nid ]\n", domain="org.acme")
    assert driver.payload == {"ret": ["org.acme", "0_1"]}


def test_traps_by_heap_see_execute_and_receive_but_not_what_they_cause_themselves() -> None:
    text = (
        "sequence\n"
        "  trap heap: 'sequence'\n"
        '    def msg \\ trace "$(msg.point)-$(msg.nid)-$(msg.from)"\n'
        "  sequence\n"
        "    noret _\n"
    )
    driver = launch(text)
    assert driver.traces == ["execute-0_1-0", "receive-0_1-0_1_0", "receive-0-0_1"]


def test_a_trap_for_the_end_still_springs() -> None:
    text = (
        "sequence\n  trap 'terminated'\n    def msg \\ trace \"end $(msg.from)\"\n  trace 'here'\n"
    )
    driver = launch(text)
    assert driver.traces == ["here", "end 0"]
    assert driver.status() is FlowStatus.TERMINATED


def test_a_trap_springs_as_often_as_it_may() -> None:
    text = (
        "sequence\n"
        "  trap tag: 'b' count: 2\n"
        "    def msg \\ trace 'A'\n"
        "  sequence tag: 'b'\n"
        "  sequence tag: 'b'\n"
        "  sequence tag: 'b'\n"
        "  _skip 20\n"
    )
    driver = launch(text)
    assert driver.traces == ["A", "A"]
    assert driver.state.traps == []


def test_a_trap_at_the_root_waits_until_it_is_cancelled() -> None:
    driver = launch("trap tag: 'x' (def msg \\ 1)\n")
    assert driver.status() is FlowStatus.ACTIVE
    assert driver.state.traps[0]["bnid"] == "0"
    driver.cancel()
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.traps == []


@pytest.mark.parametrize(
    ("wide", "domain", "sprung"),
    [
        ("domain", "org.acme", True),
        ("domain", "org.acme.sales", False),
        ("subdomain", "org.acme.sales", True),
        ("subdomain", "org.other", False),
        ("execution", "org.acme", False),
    ],
)
def test_traps_can_watch_other_executions(wide: str, domain: str, sprung: bool) -> None:  # noqa: FBT001
    text = (
        "sequence\n"
        f"  trap signal: 'go' range: '{wide}' count: 1\n"
        '    def msg \\ trace "$(sig) from $(msg.exid)"\n'
        "  stall _\n"
    )
    driver = launch(text, domain="org.acme")
    signal = {"point": "signal", "exid": "another", "name": "go", "payload": {}, "m": 7}
    (trap,) = driver.state.traps
    trigger = trigger_from_elsewhere("EXID", "org.acme", trap, signal, domain)
    assert (trigger is not None and looks_elsewhere(trap)) is sprung
    driver.inbox += [trigger, trigger] if trigger is not None and sprung else []
    driver.drive()
    assert driver.traces == (["go from another"] if sprung else [])


def test_a_schedule_fires_again_and_again() -> None:
    driver = launch("sequence\n  every '2s'\n    trace 'tick'\n  stall _\n")
    driver.fire_timers(count=3)
    assert driver.traces == ["tick", "tick", "tick"]
    assert next(iter(driver.state.timers.values())).count == 3
    driver.cancel()
    driver.drive()
    assert driver.state.timers == {}
    assert driver.status() is FlowStatus.TERMINATED


def test_a_sleep_that_is_cancelled_forgets_its_timer() -> None:
    driver = launch("sequence\n  sleep '1h'\n  'after'\n")
    driver.cancel("0_0")
    outcome = driver.run_once()
    assert driver.payload == {"ret": "after"}
    assert len(outcome.cancelled_timers) == 1


def test_cancel_takes_nids_first_and_tags_then() -> None:
    text = (
        "concurrence\n"
        "  stall tag: 'a'\n"
        "  stall _\n"
        "  sequence\n"
        "    _skip 5\n"
        "    cancel [ 'a' '0_1' ]\n"
    )
    driver = launch(text)
    cancels = [seen.message["nid"] for seen in driver.seen if seen.message["point"] == "cancel"]
    assert cancels == ["0_1", "0_0"]
    assert driver.status() is FlowStatus.TERMINATED


def test_users_can_add_procedures() -> None:
    @procedure("shout")
    class Shout(Procedure):
        __slots__ = ()

        def receive_last(self) -> list[dict[str, Any]]:
            return self.reply(ret=str(self.payload.get("ret")).upper())

    @simple("double")
    def double(call: Simple) -> int:
        return 2 * int(call.argument())

    try:
        assert launch("shout\n  'hello'\n").payload == {"ret": "HELLO"}
        assert launch("double 21\n").payload == {"ret": 42}
        with pytest.raises(NameTaken, match="'shout' is"):
            procedure("shout")(type("Another", (Procedure,), {}))
    finally:
        unregister("shout")
        unregister("double")
    assert launch("shout 1\n").state.status is FlowStatus.FAILED


def test_a_refused_task_fails_its_node() -> None:
    driver = launch(
        "sequence on_error: (def err \\ err.msg)\n  task 'x'\n", taskers={"x": "refuse"}
    )
    assert driver.payload == {"ret": "refused by x"}


def test_a_stubborn_tasker_keeps_its_node_until_it_answers() -> None:
    driver = launch("sequence\n  task 'x'\n  'after'\n", taskers={"x": "stubborn"})
    driver.cancel("0_0")
    driver.drive()
    assert driver.state.nodes["0_0"].state == "closed"
    driver.give_back("0_0")
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
