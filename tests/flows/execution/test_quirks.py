"""Where flows do better than the engine they are modelled on; each of these was wrong there."""

from __future__ import annotations

import pytest

from actorflow.flows.execution.codec import encode
from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.testing.flow_driver import FlowDriver
from tests.flows.driving import drive, shown


def launch(text: str, **options: object) -> FlowDriver:
    return FlowDriver(parse(text), **options).drive()  # type: ignore[arg-type]


def test_the_same_task_returned_twice_in_one_run_does_not_fork_the_flow() -> None:
    driver = launch(
        "sequence\n  task 'alice' 'a'\n  'x'\n  task 'bob' 'b'\n",
        taskers={"alice": "hold", "bob": "hold"},
    )
    driver.give_back("0_0")
    driver.put("return", nid="0_0", tasker="alice", payload={"ret": "dup"})
    driver.drive()
    assert [(task["nid"], task["taskname"]) for task in driver.held] == [("0_2", "b")]
    assert driver.held[0]["attl"] == ["bob", "b"]


def test_cmap_keeps_the_order_beyond_nine() -> None:
    driver = launch("cmap (range 25)\n  def x \\ * x 2\n")
    assert driver.payload == {"ret": [2 * i for i in range(25)]}


def test_an_interpolated_string_can_be_set() -> None:
    driver = launch('sequence\n  set name \'Ann\'\n  set f.s "hi $(name)"\n  set t "v $(name)"\n')
    assert driver.payload == {"ret": None, "s": "hi Ann"}
    assert driver.state.nodes["0"].vars == {"name": "Ann", "t": "v Ann"}


def test_a_failure_inside_dollars_leaves_no_node_behind() -> None:
    driver = launch("push f.l \"or $(nada||'none')\"\n", payload={"l": []})
    assert driver.payload == {"l": ["or none"], "ret": None}
    assert list(driver.state.nodes) == ["0"]
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.failures() == []


def test_a_failure_that_was_handled_leaves_no_node_behind() -> None:
    driver = launch("sequence\n  on error\n    push f.l err.msg\n  nosuch 1\n", payload={"l": []})
    assert driver.payload is not None
    assert driver.payload["l"] == ['don\'t know how to apply "nosuch"']
    assert driver.status() is FlowStatus.TERMINATED
    assert list(driver.state.nodes) == ["0"]


def test_cancelling_the_root_takes_nodes_without_a_procedure_along() -> None:
    driver = launch("sequence\n  1\n  nosuchthing 2\n  3\n")
    assert driver.status() is FlowStatus.FAILED
    driver.cancel("0")
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert list(driver.state.nodes) == ["0"]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("aside", ["every '1h'", "on 'x'", "flank", "sequence flank"])
def test_nobody_waits_for_the_end_of_what_goes_on_aside(aside: str, kill: bool) -> None:  # noqa: FBT001
    driver = launch(f"sequence\n  {aside}\n    stall _\n  nosuchthing 2\n")
    assert driver.status() is FlowStatus.FAILED
    driver.cancel(kill=kill)
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize("aside", ["every '1h'", "on 'x'", "flank", "sequence flank"])
def test_a_handler_does_not_wait_for_what_goes_on_aside(aside: str) -> None:
    driver = launch(
        "sequence on_error: (def msg err \\ trace err.kla)\n"
        f"  {aside}\n"
        "    stall _\n"
        "  nosuchthing 2\n"
    )
    assert driver.traces == ["UnknownProcedure"]
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.timers == {}


ASIDE = [
    "sequence\n  part\n    stall _\n  1\n",
    "sequence\n  part\n    fail 'x'\n  1\n",
    "sequence\n  part\n    sequence\n      nosuchthing 2\n      trace 'never'\n  1\n",
    "sequence\n  part vars: { a: 1 }\n    define f \\ a\n    stall _\n  1\n",
    "part\n  stall _\n  trace 'never'\n",
]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("flow", ASIDE)
def test_a_cancel_from_outside_ends_what_goes_on_without_the_root(
    flow: str,
    kill: bool,  # noqa: FBT001
) -> None:
    driver = launch(flow)
    assert driver.status() is not FlowStatus.TERMINATED
    driver.cancel(kill=kill)
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.traces == []


@pytest.mark.parametrize("kill", [False, True])
def test_what_a_schedule_has_begun_can_be_cancelled_when_the_schedule_is_gone(
    kill: bool,  # noqa: FBT001
) -> None:
    driver = launch("sequence\n  every '1s'\n    sequence\n      nosuchthing 2\n  stall _\n")
    driver.fire_timers()
    driver.cancel()
    driver.drive()
    assert driver.status() is FlowStatus.FAILED
    driver.cancel(kill=kill)
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("body", ["nosuchthing 1", "stall _"])
def test_what_a_trap_for_everything_has_begun_can_be_cancelled(
    body: str,
    kill: bool,  # noqa: FBT001
) -> None:
    driver = launch(f"sequence\n  trap\n    def msg\n      {body}\n  stall _\n")
    driver.cancel()
    driver.drive()
    assert driver.status() is not FlowStatus.TERMINATED
    driver.cancel(kill=kill)
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.traps == []


def test_a_kill_ends_what_does_not_answer_a_cancel() -> None:
    driver = launch("sequence\n  part\n    task 'bob' 'x'\n  1\n", taskers={"bob": "stubborn"})
    driver.cancel()
    driver.drive()
    assert driver.status() is FlowStatus.ACTIVE
    driver.cancel(kill=True)
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED


def test_a_macro_that_fails_goes_with_its_parent() -> None:
    driver = launch("sequence\n  sequence\n    cron to: 'x'\n")
    assert driver.status() is FlowStatus.FAILED
    driver.cancel()
    driver.drive()
    assert driver.status() is FlowStatus.TERMINATED
    assert list(driver.state.nodes) == ["0"]


def test_an_abort_lets_nothing_begin_behind_a_node_without_a_procedure() -> None:
    driver = launch(
        "concurrence\n"
        "  sequence\n"
        "    sequence\n"
        "      nosuchthing 1\n"
        "      trace 'never'\n"
        "  sequence\n"
        "    _skip 9\n"
        "    abort _\n"
    )
    assert driver.status() is FlowStatus.TERMINATED
    assert "0_0_0_1" not in [seen.message["nid"] for seen in driver.seen]


@pytest.mark.parametrize("kill", [False, True])
def test_a_node_without_a_procedure_can_be_cancelled(kill: bool) -> None:  # noqa: FBT001
    driver = launch("sequence\n  nosuchthing 2\n  3\n")
    driver.cancel("0_0", kill=kill)
    driver.drive()
    assert driver.payload == {"ret": 3}
    assert driver.status() is FlowStatus.TERMINATED


def test_a_node_without_a_procedure_can_be_applied_again() -> None:
    driver = launch("sequence\n  nosuchthing 2\n  3\n")
    driver.re_apply("0_0", parse("push f.l 'repaired'\n"), {"l": []})
    driver.drive()
    assert driver.payload == {"l": ["repaired"], "ret": 3}
    assert driver.status() is FlowStatus.TERMINATED


def test_remaining_branches_are_waited_for_when_asked() -> None:
    driver = launch(
        "sequence\n"
        "  concurrence expect: 1 rem: 'wait'\n"
        "    task 'alice' 'a'\n"
        "    task 'bob' 'b'\n"
        "  'after'\n",
        taskers={"alice": "hold", "bob": "hold"},
    )
    driver.give_back("0_0_2", changes={"who": "alice"})
    driver.drive()
    assert [task["tasker"] for task in driver.held] == ["bob"]
    assert driver.status() is FlowStatus.ACTIVE
    assert "detask" not in [seen.message["point"] for seen in driver.seen]
    driver.give_back("0_0_3", changes={"who": "bob"})
    driver.drive()
    assert driver.payload == {"ret": "after", "who": "alice"}
    assert driver.status() is FlowStatus.TERMINATED


def test_map_in_a_loop_keeps_nodes_and_state_flat() -> None:
    text = (
        "sequence\n"
        "  set i 0\n"
        "  loop\n"
        "    set i (+ i 1)\n"
        "    map [ 1 ] (def x \\ x)\n"
        "    break _ if i == 1500\n"
    )
    driver = FlowDriver(parse(text), keep=False)
    nodes, sizes = [], []
    while driver.inbox:
        outcome = driver.run_once()
        if outcome.state.counters["runs"] % 50 == 0:
            nodes.append(len(outcome.state.nodes))
            sizes.append(len(encode(outcome.state)))
    assert driver.status() is FlowStatus.TERMINATED
    assert driver.state.nodes["0"].vars == {"i": 1_500}
    assert len(nodes) > 10
    assert max(nodes) < 64
    assert max(sizes[2:]) < 2 * max(sizes[:2])


def test_functions_made_in_a_loop_do_not_pile_up() -> None:
    text = (
        "sequence\n"
        "  set i 0\n"
        "  loop\n"
        "    set i (+ i 1)\n"
        "    set g (def x \\ + x i)\n"
        "    break (g 1) if i == 2000\n"
    )
    driver = FlowDriver(parse(text), keep=False).drive()
    assert driver.payload == {"ret": 2001}
    assert all(len(node.closures or ()) <= 512 for node in driver.state.nodes.values())


def test_causes_do_not_grow_with_every_continue() -> None:
    text = (
        "sequence\n"
        "  set i 0\n"
        "  cursor\n"
        "    set i (+ i 1)\n"
        "    continue _ if i < 300\n"
        "    task 'alice' 'a'\n"
    )
    driver = FlowDriver(parse(text), taskers={"alice": "hold"}).drive()
    assert len(driver.held[0]["cause"]) <= 64
    assert driver.held[0]["cause"][0]["m"] > driver.held[0]["cause"][-1]["m"]


def test_a_closure_that_is_still_in_use_is_kept_however_many_others_go() -> None:
    text = (
        "sequence\n"
        "  define make n\n"
        "    def x \\ + x n\n"
        "  set add (make 5)\n"
        "  set i 0\n"
        "  loop\n"
        "    set i (+ i 1)\n"
        "    map [ 1 ] (def x \\ x)\n"
        "    break _ if i == 200\n"
        "  add 2\n"
    )
    driver = FlowDriver(parse(text), keep=False).drive()
    assert driver.payload == {"ret": 7}


def test_numbers_and_booleans_are_never_equal() -> None:
    assert launch("1 == true\n").payload == {"ret": False}


@pytest.mark.parametrize("options", ["", " expect: 1", " expect: 1 rem: 'wait'"])
@pytest.mark.parametrize("branches", ["stall _\n  stall _", "1\n  stall _"])
def test_a_merge_that_fails_does_not_keep_a_concurrence_from_being_cancelled(
    options: str, branches: str
) -> None:
    text = f"concurrence{options} merge: {{ order: 'nope' }}\n  {branches}"
    driver = drive(text, ("cancel",))
    assert driver.state.status is FlowStatus.TERMINATED
    assert shown(driver, "terminated") == ["terminated None 0"]
    (error,) = [each.message["error"] for each in driver.seen if "error" in each.message]
    assert "cannot merge by" in error["msg"]


def test_a_handler_replaces_the_reply_of_a_concurrence_whose_merge_fails_as_it_is_cancelled() -> (
    None
):
    text = "concurrence on_cancel: (def msg \\ 7) merge: { order: 'nope' }\n  stall _\n  stall _"
    driver = drive(text, ("cancel",))
    assert driver.state.status is FlowStatus.TERMINATED
    assert driver.state.payload == {"ret": 7}


@pytest.mark.parametrize("body", ["fail 'again'", "nosuch _"])
@pytest.mark.parametrize("child", ["nosuch _", "sequence \\ fail 'no'"])
def test_a_handler_for_children_that_fails_does_not_handle_itself(body: str, child: str) -> None:
    driver = FlowDriver(
        parse(
            "sequence on_error: (def err \\ 'outer')\n"
            f"  sequence children_on_error: (def err \\ {body})\n"
            f"    {child}\n"
        )
    ).drive(limit=3)
    assert driver.payload == {"ret": "outer"}


@pytest.mark.parametrize("kind", ["error", "cancel", "timeout"])
def test_a_handler_for_children_that_is_no_function_is_left_out(kind: str) -> None:
    driver = drive(
        f"sequence\n  sequence children_on_{kind}: 'x'\n    sequence\n      fail 'no'\n  'end'\n",
        ("cancel", "0_0"),
    )
    assert driver.payload == {"ret": "end"}
    assert not any("unhandled" in seen.message for seen in driver.seen)


@pytest.mark.parametrize("function", ["on_merge: (def rets", "on_receive: (def reply"])
def test_a_second_cancel_ends_a_function_that_a_cancelled_concurrence_applies(
    function: str,
) -> None:
    driver = drive(
        f"sequence\n  concurrence {function} \\ task 'alice' 'judge')\n    stall _\n  'end'\n",
        ("cancel", "0_0"),
        taskers={"alice": "hold"},
    )
    assert [task["taskname"] for task in driver.held] == ["judge"]
    driver.cancel("0_0")
    driver.drive()
    assert driver.payload == {"ret": "end"}
    assert driver.status() is FlowStatus.TERMINATED
