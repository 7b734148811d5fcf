"""Whatever a flow is made of, and whatever happens to it, its state stays sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.state import FlowStatus
from actorflow.testing.flow_driver import FlowDriver

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Tree = list[Any]


def node(head: str, *children: Tree) -> Tree:
    return [head, list(children), 1]


def att(*parts: Tree) -> Tree:
    return ["_att", list(parts), 1]


def word(name: str) -> Tree:
    return [name, [], 1]


def string(text: str) -> Tree:
    return ["_sqs", text, 1]


NOTHING = att(word("_"))
LEAVES = st.one_of(
    st.integers(-5, 5).map(lambda n: ["_num", n, 1]),
    st.sampled_from(
        [
            string("a"),
            ["_nul", None, 1],
            word("nosuch"),
            node("nosuch", NOTHING),
            node("stall", NOTHING),
            node("task", att(string("alice")), att(string("do"))),
            node("task", att(string("bob")), att(string("do"))),
            node("task", att(string("nobody"))),
            node("fail", att(string("on purpose"))),
            node("push", att(["_ref", [string("f"), string("l")], 1]), att(["_num", 1, 1])),
            node("signal", att(string("go"))),
            node("sleep", att(string("1s"))),
            node("abort", NOTHING),
            node("cancel", att(word("ref"), string("t"))),
            node("break", NOTHING),
            node("set", att(word("x")), att(["_num", 2, 1])),
            ["_dqs", [["_dol", [["_dmute", [word("nosuch")], 1]], 1], string("x")], 1],
        ]
    ),
)


def branches(children: SearchStrategy[Tree]) -> SearchStrategy[Tree]:
    some = st.lists(children, min_size=1, max_size=3)
    handler = node("def", att(word("msg")), string("handled"))
    return st.one_of(
        some.map(lambda kids: node("sequence", *kids)),
        some.map(lambda kids: node("sequence", att(word("tag"), string("t")), *kids)),
        some.map(lambda kids: node("sequence", att(word("on_error"), handler), *kids)),
        some.map(lambda kids: node("sequence", att(word("on_cancel"), handler), *kids)),
        some.map(lambda kids: node("sequence", att(word("timeout"), string("2s")), *kids)),
        some.map(lambda kids: node("sequence", att(word("flank")), *kids)),
        some.map(lambda kids: node("concurrence", *kids)),
        some.map(lambda kids: node("concurrence", att(word("expect"), ["_num", 1, 1]), *kids)),
        some.map(lambda kids: node("cursor", *kids)),
        some.map(lambda kids: node("part", *kids)),
        some.map(lambda kids: node("noret", *kids)),
        children.map(lambda kid: node("map", node("_arr", word("x"), kid), node("def", kid))),
        some.map(lambda kids: node("trap", att(word("tag"), string("t")), node("def", *kids))),
        some.map(lambda kids: node("on", att(string("go")), *kids)),
    )


FLOWS = st.recursive(LEAVES, branches, max_leaves=8)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["cancel", "kill", "re_apply", "wrap", "add"]), st.integers(0, 20)
        ),
        st.tuples(st.sampled_from(["return", "twice", "timers", "signal"]), st.integers(0, 3)),
    ),
    max_size=6,
)


def happen(driver: FlowDriver, event: tuple[str, int]) -> None:
    what, number = event
    nids = list(driver.state.nodes)
    nid = nids[number % len(nids)] if nids else "0"
    if what in ("cancel", "kill"):
        driver.cancel(nid, kill=what == "kill")
    elif what == "re_apply":
        driver.re_apply(nid, ["_num", 7, 1], {"l": []})
    elif what == "wrap":
        known = driver.state.nodes[nid].tree if nid in driver.state.nodes else None
        driver.re_apply(nid, node("concurrence", known or string("b"), node("stall", NOTHING)))
    elif what == "add":
        driver.put("add", nid=nid, tnid=f"0_{number % 4}", trees=[string("added")])
    elif what == "signal":
        driver.signal("go")
    elif what == "timers":
        driver.fire_timers()
    elif driver.held:
        task = driver.held[number % len(driver.held)]
        driver.give_back(task["nid"])
        if what == "twice":
            driver.put("return", nid=task["nid"], tasker=task["tasker"], payload={"l": []})


@given(FLOWS, EVENTS)
def test_the_state_stays_sound_whatever_happens(flow: Tree, events: list[tuple[str, int]]) -> None:
    driver = FlowDriver(
        node("sequence", flow),
        payload={"l": []},
        variables={"x": 1},
        taskers={"alice": "hold", "bob": "stamp"},
    )
    driver.drive(limit=200)
    for event in events:
        happen(driver, event)
        driver.drive(limit=200)
        driver.state.check()
        assert encode(decode(encode(driver.state))) == encode(driver.state)
    errors = [seen.message.get("error") or {} for seen in driver.seen]
    assert not {error.get("kla") for error in errors} & {"IndexError", "KeyError", "TypeError"}
    numbers = [seen.message["m"] for seen in driver.seen]
    assert numbers == list(range(1, len(numbers) + 1))
    ends = [seen for seen in driver.seen if seen.message["point"] == "terminated"]
    assert len(ends) <= 1


@given(FLOWS)
def test_a_cancelled_execution_ends_with_nothing_left(flow: Tree) -> None:
    driver = FlowDriver(
        node("sequence", flow),
        payload={"l": []},
        variables={"x": 1},
        taskers={"alice": "hold", "bob": "stamp"},
    )
    driver.drive(limit=200)
    for _ in range(3):
        for nid in list(driver.state.nodes):
            driver.cancel(nid, kill=True)
        driver.drive(limit=200)
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.timers == {}
    assert driver.state.traps == []
    assert all(one.state == "ended" for one in driver.state.nodes.values())
