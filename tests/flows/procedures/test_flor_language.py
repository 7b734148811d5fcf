"""What words, paths, strings, collections and attributes mean: as the flows of flor 1.6.5 have it.

Each row was compared, message by message, with what that engine does.
"""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import FlowDriver

PAYLOAD = {
    "a": {"b": [1, 2, {"c": "d"}], "n": None, "1": "one"},
    "l": [10, 20, 30, 40, 50],
    "s": "text",
    "x": 3,
    "t": True,
    "z": False,
    "ret": "r0",
}
VARIABLES = {
    "va": 1,
    "vo": {"k": [1, 2], "m": {"n": "deep"}},
    "vs": "str",
    "vl": [1, 2, 3],
    "vn": None,
    "k": "k",
}


def launch(text: str, **options: Any) -> FlowDriver:
    options = {"payload": PAYLOAD, "variables": VARIABLES, "domain": "dom", **options}
    return FlowDriver(parse(text), **options).drive()


def rets(driver: FlowDriver) -> list[tuple[str, str | None, Any]]:
    """Return point, nid and ret of each message."""
    messages = [seen.message for seen in driver.seen]
    return [(one["point"], one.get("nid"), one["payload"].get("ret")) for one in messages]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("f.a.b.0", 1),
        ("f.a.b[-1].c", "d"),
        ("f.a.b[2]['c']", "d"),
        ("f.a.1", "one"),
        ("f.a.n", None),
        ("f.a.n.q", None),
        ("f.a.zz.yy", None),
        ("f.l.first", 10),
        ("f.l.Last", 50),
        ("f.l[9]", None),
        ("f.l[1:3]", [20, 30, 40]),
        ("f.l[1,2]", [20, 30]),
        ("f.l[1 2]", [20, 30]),
        ("f.l[-2:-1]", [40, 50]),
        ("f.l[3:9]", [40, 50]),
        ("f.l[8:9]", None),
        ("f.l[0;2]", [10, 30]),
        ("f.l[0;-1;1:2]", [10, 50, 20, 30]),
        ("f.l[0;0;1]", [10, 20]),
        ("f.l[0;9]", [10]),
        ("f.l[va]", 20),
        ("f.l[va:2]", [20, 30]),
        ("f.a.b[0:2].c", ["d"]),
        ('f["a"].b.0', 1),
        ("fld.x", 3),
        ("field.x", 3),
        ("v.va", 1),
        ("var.vo.m", {"n": "deep"}),
        ("variable.va", 1),
        ("vo.k[1]", 2),
        ("vo[k]", [1, 2]),
        ('vo["$(k)"]', [1, 2]),
        ("vo[(+ 'm')].n", "deep"),
        ("vo.q", None),
        ("vo['k';'m']", [[1, 2], {"n": "deep"}]),
        ("gv.vo.k", [1, 2]),
        ("lv.va", 1),
        ("t.nobody", None),
        ("exe.domain", "dom"),
        ("node.nid", "0"),
        ("node.heat0", "_ref"),
        ("node.parent", None),
        ("sequence tag: 'x'\n  t.x", ["0"]),
        ("sequence\n  sequence tag: 'y'\n    node.parent", "0_0"),
        ("sequence\n  [ 1 2 ]\n  f.ret", "r0"),
    ],
)
def test_paths(path: str, expected: Any) -> None:
    driver = launch(path)
    assert driver.payload is not None
    assert driver.payload["ret"] == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("f.l.foo", 'no key "foo" for Array at "l"'),
        ("f.s.foo", 'found no collection at "s" for key "foo"'),
        ("f.s.0", 'found no collection at "s" for key 0'),
        ("f.x.y", 'found no collection at "x" for key "y"'),
        ("nobody", 'cannot find "nobody"'),
        ("nobody 1", 'don\'t know how to apply "nobody"'),
        ("nobody.x", 'variable "nobody" not found'),
        ("v.nobody", 'variable "nobody" not found'),
        ("gv.nobody", 'variable "nobody" not found'),
        ("dv.va", 'variable "va" not found'),
        ("vo.q.r", 'variable "q" not found at "vo"'),
        ("vo.k.foo", 'no key "foo" for Array at "vo.k"'),
        ("vn.x", 'variable "vn" not found'),
        ("node.nobody", 'found nothing at "nobody"'),
        ("exe.nobody", 'found nothing at "nobody"'),
        ("nobody.x 1", 'don\'t know how to apply "nobody.x"'),
        ("f.nobody 1", 'don\'t know how to apply "f.nobody"'),
        ("sequence vars: [ 'va' ]\n  vs", 'cannot find "vs"'),
        ("sequence vars: []\n  va", 'cannot find "va"'),
        ("sequence vars: 'foo'\n  va", 'vars: doesn\'t know how to deal with "foo"'),
        ("sequence vars: null\n  va", "vars: doesn't know how to deal with nil"),
        ("sequence vars: [ 'a.b' ]\n  1", 'vars: is limited to 1st level, "a.b" doesn\'t comply'),
        ("sequence disable\n  1", 'cannot find "disable"'),
        ('set "f.$(k).0" 1', "couldn't set field k.0"),
    ],
)
def test_what_leads_nowhere_fails(path: str, message: str) -> None:
    failure = launch(path).seen[-1].message
    assert (failure["point"], failure["error"]["msg"]) == ("failed", message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ va f.x [ 1 ] {} [] ]", [1, 3, [1], {}, []]),
        (
            "{ va: va, 'b': 2, \"c$(va)\": 3, (+ 'd' 'e'): 4, f.s: 5, 6: 7 }",
            {"va": 1, "b": 2, "c1": 3, "de": 4, "text": 5, "6": 7},
        ),
        ("{ _: 1, _num: 2 }", {"_": 1, "_num": 2}),
        ("{ a: { b: { c: va } } }", {"a": {"b": {"c": 1}}}),
        ("[ va 2 ] tag: 'x'", [1, 2]),
        ("{ a: 1 } tag: 'x'", {"a": 1}),
        ("[] tag: 'x'", []),
        ('"a$(f.s)b"', "atextb"),
        ('"$(f.x)$(f.t)$(f.a.n)$(vs)"', "3truestr"),
        ('"$(f.l) $(vo)"', '[10,20,30,40,50] {"k":[1,2],"m":{"n":"deep"}}'),
        ('"$(nobody)"', ""),
        ("\"$(nobody||'d')\"", "d"),
        ("\"$(nobody || nobody.else || 'e')\"", "e"),
        ("\"$(f.nobody||'d')\"", ""),
        ("\"$(f.z||'d')\"", "d"),
        ('"$(f.s|upcase _)"', "TEXT"),
        ('"$(f.s | upcase _ | downcase _)"', "text"),
        ("\"$(nobody | upcase _ || 'z')\"", "z"),
        ('"$(\n  f.s\n    | upcase _\n)"', "TEXT"),
        ('"$("in $(va)")"', "in 1"),
        ("\"$(fail 'x')-\"", "-"),
        ('"$(f.s if f.t)"', "text"),
        ('"$([ 1 va ])"', "[1,1]"),
        ('"$(r/a/i)"', '["_rxs","/a/i",1]'),
        ("'no $(va)'", "no $(va)"),
        ('sequence\n  12\n  "$(f.ret)"', "12"),
        ("/abc/", ["_rxs", "/abc/", 1]),
        ("r/a$(vs)b/i", ["_rxs", "/astrb/i", 1]),
        ("/abc/im", ["_rxs", "/abc/im", 1]),
        ("/a/$('i')m", ["_rxs", "/a/im", 1]),
        (r"/a\/b\d/", ["_rxs", r"/a/b\d/", 1]),
        ("/a$(f.l)b/", ["_rxs", "/a1020304050b/", 1]),
        ("/a$(nobody)b/", ["_rxs", "/ab/", 1]),
        ("/a/ tag: 'x'", "/a/"),
        ("sequence\n  set r (/ab+/i)\n  [ r v.r ]", ["/ab+/i", ["_rxs", "/ab+/i", 2]]),
    ],
)
def test_collections_strings_and_regexes(text: str, expected: Any) -> None:
    driver = launch(text)
    assert driver.payload is not None
    assert driver.payload["ret"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(def x \\ + x 1) 2", 3),
        ("va 2", 1),
        ("vo.k 1", [1, 2]),
        ("'sequence' 1", "sequence"),
        ("'sequence'\n  push f.l 1", "sequence"),
        (
            (
                "sequence\n  set inc (def x \\ + x 1)\n  set o { f: inc, g: [ inc ] }\n"
                "  [ (o.f 1) (o.g.0 2) (v.inc 3) (o.g[0] 4) ]"
            ),
            [2, 3, 4, 5],
        ),
        ("sequence\n  def x y \\ + x y\n  f.ret 6 2", 8),
        ("sequence\n  set p push\n  p f.l 7\n  f.l.last", 7),
        (
            'sequence\n  define "f$(va)" x y: 2\n    [ x y args argd ]\n  f1 3 z: 4',
            [3, 4, [3, 4], {"z": 4}],
        ),
        ("_skip 3", "r0"),
        ("_skip 'a'", "r0"),
        ("_err 1", 1),
        ("noeval 1", "r0"),
        ("_dmute", ["_proc", {"proc": "_dmute"}, -1]),
        ("sequence\n  set f.l.last 7\n  set f.l[0:1] 8\n  set f.l[2;3] 9\n  f.l", [8, 8, 9, 9, 7]),
        ('sequence\n  set f.k []\n  set "f.$(k).0" 1\n  f.k', [1]),
    ],
)
def test_calls_and_assignments(text: str, expected: Any) -> None:
    driver = launch(text)
    assert driver.payload is not None
    assert driver.payload["ret"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 ret: 4", 4),
        ("sequence ret: f.x\n  1", 3),
        ("1 + 2 tag: 'x'", 3),
        ('sequence vars: { a: va, "b$(va)": 2 }\n  [ a b1 ]', [1, 2]),
        ("sequence vars: 'copy'\n  set va 2\n  va", 2),
        (
            "sequence\n  sequence vars: [ 'va' ]\n    set va 7\n    set nu 3\n  [ va nu ]",
            [7, 3],
        ),
        ("sequence vars: [ '-' 'va' ]\n  \"$(va)$(vs)\"", "str"),
        ("sequence vars: [ '!' (/^v[as]$/) ]\n  \"$(va)$(vs)$(k)\"", "k"),
        ("sequence on_error: (def err \\ 1) on_error: (def err \\ 2)\n  nobody", 2),
        ("sequence\n  on_error (def err \\ 5)\n  on_error (def err \\ 6)\n  fail 'x'", 6),
        (
            "sequence on_error: (def msg err \\ [ err.msg msg.nid ])\n  nobody 1",
            ['don\'t know how to apply "nobody"', "0_1"],
        ),
        ("sequence on_error: null\n  1", 1),
        ("sequence on_error: 3\n  1", 1),
        ("sequence\n  on_error class: 'KeyError' (def err \\ 'missing')\n  nobody.x", "missing"),
        (
            (
                "sequence on_error: (def err \\ 8)\n"
                "  sequence on_error: (def err \\ fail 'again')\n    fail 'x'\n  9"
            ),
            8,
        ),
        (
            (
                "sequence children_on_error: (def err \\ push f.l 'c')\n"
                "  sequence\n    fail 'x'\n  nobody\n  f.l"
            ),
            [10, 20, 30, 40, 50, "c", "c"],
        ),
        (
            (
                "sequence\n  set f.q 1 off\n  set f.q 2 off: true\n  set f.q 3 off: false\n"
                "  set f.q 4 disabled\n  set f.q 5 disable: true\n  f.q"
            ),
            3,
        ),
    ],
)
def test_attributes(text: str, expected: Any) -> None:
    driver = launch(text)
    assert driver.payload is not None
    assert driver.payload["ret"] == expected


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("tag: 'x'", [["x"]]),
        ("tag: push", [["push"]]),
        ('tag: "x$(va)"', [["x1"]]),
        ("tags: [ 'a' 'a' ] tag: 'a'", [["a", "a"], ["a"]]),
        ("tags: []", []),
        ("tag: null", []),
        ("'x' 'y'", [["x"]]),
        ("tag: 'z' 'y'", [["z"]]),
        ("'y' tag: 'z'", [["y"], ["z"]]),
        ("1 2", []),
    ],
)
def test_tags_that_are_entered(text: str, tags: list[list[str]]) -> None:
    driver = launch(f"sequence {text}\n  1")
    messages = [seen.message for seen in driver.seen]
    assert [one["tags"] for one in messages if one["point"] == "entered"] == tags


def test_plain_elements_are_not_evaluated_even_after_attributes() -> None:
    driver = launch("[ 1 2 ] tag: 'x'", payload={})
    points = [(seen.message["point"], seen.message.get("nid")) for seen in driver.seen[6:]]
    assert points == [
        ("entered", "0"),
        ("receive", "0"),
        ("receive", None),
        ("left", "0"),
        ("terminated", None),
    ]


def test_the_parts_of_a_regex_start_with_the_ret_of_the_entry() -> None:
    assert rets(launch("/ab/i"))[5:8] == [
        ("receive", "0_0", None),
        ("receive", "0", "r0"),
        ("execute", "0_1", "ab"),
    ]


def test_a_failure_inside_dollars_answers_from_behind_the_children() -> None:
    driver = launch('"$(vs | nobody)"')
    answers = [seen.message["from"] for seen in driver.seen if seen.message["point"] == "receive"]
    assert "0_0_0_1001" in answers


def test_the_ret_attribute_counts_from_where_it_stands() -> None:
    driver = launch("sequence ret: 7\n  f.x\n  f.ret")
    assert rets(driver)[6:8] == [("receive", "0", 7), ("execute", "0_1", 7)]
    assert driver.payload is not None
    assert driver.payload["ret"] == 7


def test_a_failure_keeps_the_run_of_the_message_that_failed_and_no_cause() -> None:
    driver = launch("nobody")
    assert driver.seen[-1].message["er"] is None
    driver = launch("sequence\n  1\n  nobody", max_messages=4)
    failure = driver.seen[-1].message
    assert (failure["m"], failure["er"], failure["pr"]) == (5, 1, 2)
    driver = launch("sequence on_cancel: (def msg \\ nobody)\n  stall _")
    driver.cancel()
    driver.drive()
    failure = driver.seen[-1].message
    assert failure["point"] == "failed"
    assert "cause" not in failure


def test_a_timeout_may_be_a_number_of_seconds() -> None:
    driver = launch("sequence timeout: 60\n  stall _")
    schedule = next(seen.message for seen in driver.seen if seen.message["point"] == "schedule")
    assert schedule["string"] == 60
    assert [timer.at - driver.now for timer in driver.state.timers.values()] == [60.0]
    assert driver.fire_timers(within=61) == 1
    assert driver.payload is not None
