"""Branches, traps, signals, timers, tasks and cancels: each rule as flor's own specs have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.flows.execution.state import FlowStatus
from actorflow.flows.language.parser import parse
from actorflow.flows.procedures.control.branches import read_rule
from actorflow.flows.service.library import Library
from tests.flows.driving import drive, shown

if TYPE_CHECKING:
    from actorflow.testing.flow_driver import FlowDriver


def variables(driver: FlowDriver) -> dict[str, Any]:
    return driver.state.nodes["0"].vars or {}


def errors(driver: FlowDriver) -> list[str]:
    return [seen.message["error"]["msg"] for seen in driver.seen if "error" in seen.message]


# -- branches --------------------------------------------------------------------------------

RETS: list[tuple[str, Any]] = [
    # branches with functions that judge and merge
    ("concurrence on_receive: (def \\ (length replies) >= branch_count)\n  2\n  5\n", 2),
    (
        (
            "define r reply, from, replies, count, over\n"
            "  set reply.ret (reply.ret * 10)\n"
            "  { done: ((length replies) == 2), payload: reply }\n"
            "concurrence on_receive: r\n  2\n  5\n"
        ),
        20,
    ),
    ("concurrence on_merge: (def rets \\ rets | values _ | max _)\n  4\n  9\n  2\n", 9),
    ("concurrence\n  on_merge (def rs \\ rs | values _ | min _)\n  4\n  9\n  2\n", 2),
    ("concurrence\n  on_merge\n    rets | values _ | max _\n  4\n  9\n", 9),
    ("concurrence merger: (def \\ { done: true, payload: { ret: 'mine' } })\n  4\n  9\n", "mine"),
    ("concurrence merge: 'last'\n  sequence\n    _skip 3\n    'slow'\n  'quick'\n", "slow"),
    ("concurrence merge: 'south'\n  sequence\n    _skip 3\n    'slow'\n  'quick'\n", "quick"),
    ("concurrence merge: { order: 'last', merger: 'override' }\n  'a'\n  'b'\n", "b"),
    ("concurrence\n  merge { a: 1 } { b: 2 }\n", {"a": 1, "b": 2}),
    ("concurrence _\n", None),
    # all at once
    ("cmap [ 7 8 ]\n  def x i l \\ [ x i l ]\n", [[7, 0, 2], [8, 1, 2]]),
    ('cmap { a: 1, b: 2 }\n  def k v i \\ "$(k)$(v)$(i)"\n', ["a10", "b21"]),
    ("[ 5 6 ]\ncmap (def x \\ x + 1)\n", [6, 7]),
    ("[ 5 6 ]\ncmap _\n", [5, 6]),
    ("cmap [ 5 6 ]\n  'neither'\n  def x \\ x + 1\n  true\n", [6, 7]),
    ("cmap []\n  def x \\ x\n", []),
    ("cmap [ 5 6 7 ] expect: 2\n  def x \\ x + 1\n", [6, 7]),
    ("set f.l [ 3 4 ]\nccollect f.l\n  elt * 2\n", [6, 8]),
    ("c-for-each [ 3 4 ]\n  def x \\ x * 2\n", [3, 4]),
    ("c-each { a: 1 }\n  val * 2\n", {"a": 1}),
    ("ceach [ 3 4 ]\n", [3, 4]),
    # aside
    ("sequence\n  part\n    'aside'\n", "0_0"),
    ("sequence\n  flank\n    'aside'\n", "0_0"),
]


@pytest.mark.parametrize(("text", "expected"), RETS, ids=lambda value: repr(value)[:60])
def test_ret(text: str, expected: Any) -> None:
    driver = drive(text)
    assert errors(driver) == []
    assert (driver.payload or {}).get("ret") == expected


FAILURES: list[tuple[str, str]] = [
    ("1\ncmap\n  def x \\ x\n", 'collection not given to "cmap"'),
    ("sleep _\n", "missing a sleep time duration"),
    ("schedule '1h'\n", "missing a function to call when the scheduler triggers"),
    ("schedule vars: {}\n  def msg \\ 1\n", "missing a schedule"),
    ("sequence\n  on count: 1\n", 'signal name not found in ["on", [["_att", [["count", [], 2]'),
    ("graft 'nothing'\n", 'no subtree "nothing" found (domain "")'),
    ("task _\n", "not found"),
]


@pytest.mark.parametrize(("text", "words"), FAILURES, ids=lambda value: repr(value)[:60])
def test_failure(text: str, words: str) -> None:
    driver = drive(text)
    assert driver.status() is FlowStatus.FAILED
    assert words in errors(driver)[0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, ("first", "deep", "ret")),
        ("lo", ("last", "override", "ret")),
        ("tail-ignore", ("south", "ignore", "ret")),
        ("head_plain", ("north", "mix", "ret")),
        ("whatever", ("first", "deep", "ret")),
        ("bottom stack", ("south", "stack", "ret")),
        ("stack:results", ("first", "stack", "results")),
        ("stack:all-of-them", ("north", "override", "all-of-them")),
    ],
)
def test_merge_rules(rule: Any, expected: tuple[str, str, str]) -> None:
    assert read_rule(rule) == expected


def test_a_receiver_is_asked_about_replies_that_come_too_late_as_well() -> None:
    driver = drive(
        "set l []\ndefine r reply from replies count over\n  push l over\n  true\n"
        "concurrence on_receive: r\n  1\n  2\n"
    )
    assert variables(driver)["l"] == [False, True]


def test_a_concurrence_waits_for_more_replies_than_it_has_branches() -> None:
    driver = drive("concurrence expect: 3\n  1\n  2\n")
    assert driver.status() is FlowStatus.ACTIVE
    driver.add_branch("0_3", parse("3\n"))
    driver.drive()
    assert driver.payload == {"ret": 1}


def test_a_cancelled_concurrence_replies_once_with_what_its_branches_had() -> None:
    driver = drive(
        "sequence\n  concurrence\n    task 'ann' 'a'\n    task 'bob' 'b'\n  f.done\n",
        ("return", "0_0_0", {"done": "a"}),
        ("cancel", "0_0"),
        taskers={"ann": "hold", "bob": "hold"},
    )
    assert driver.payload == {"done": "a", "ret": "a"}


def test_a_cancelled_concurrence_does_not_wait_for_a_branch_that_never_was() -> None:
    driver = drive(
        "sequence\n  concurrence\n    stall _\n    nosuch 1\n  'on'\n", ("cancel", "0_0")
    )
    assert driver.payload == {"ret": "on"}


def test_the_last_of_several_failures_reaches_the_handler_of_a_concurrence() -> None:
    driver = drive(
        "concurrence on_error: (def err \\ push f.l err.msg)\n  fail 'a'\n  fail 'b'\n",
        payload={"l": []},
    )
    assert driver.payload is not None
    assert driver.payload["l"] == ["b"]


def test_a_concurrent_map_owns_no_variables() -> None:
    driver = drive("sequence\n  cmap [ 1 2 ]\n    def x \\ task 'ann' x\n", taskers={"ann": "hold"})
    assert driver.state.nodes["0_0"].vars is None
    assert driver.state.nodes["0_0_1-1"].cnid == "0"


def test_paths_name_what_a_concurrent_iteration_is_given() -> None:
    driver = drive('set l []\nceach { a: 1, b: 2 } f.k v.n\n  push l "$(f.k)$(n)$(idx)"\n')
    assert variables(driver)["l"] == ["a10", "b21"]


def test_elements_added_to_a_concurrent_iterator_start_at_once() -> None:
    driver = drive(
        "c-for-each [ 'a' ]\n  def x \\ task 'ann' x\n",
        ("add_iteration", "0", "b", "c"),
        ("return",),
        ("return",),
        ("return",),
        taskers={"ann": "hold"},
        payload={"kept": 1},
    )
    assert [task["taskname"] for task in driver.outcomes[1].tasks] == ["b", "c"]
    assert driver.payload is not None
    assert (driver.payload["ret"], driver.payload["kept"]) == (["a", "b", "c"], 1)


# -- cancelling ------------------------------------------------------------------------------


def test_abort_cancels_what_nobody_waits_for() -> None:
    driver = drive(
        "part cancellable: true\n  stall _\npart\n  stall _\nconcurrence\n  stall _\n  abort _\n"
    )
    assert shown(driver, "cancel") == [
        "cancel 0 9",
        "cancel 0_1 9",
        "cancel 0_0 0",
        "cancel 0_2 0",
        "cancel 0_1_0 0_1",
        "cancel 0_0_1 0_0",
        "cancel 0_2_0 0_2",
        "cancel 0_2_1 0_2",
    ]
    assert driver.status() is FlowStatus.TERMINATED


@pytest.mark.parametrize(("word", "traces"), [("abort", ["b", "a"]), ("kabort", [])])
def test_kabort_asks_no_handler(word: str, traces: list[str]) -> None:
    driver = drive(
        "part cancellable: true on_cancel: (def \\ trace 'a')\n  stall _\n"
        "part on_cancel: (def \\ trace 'b')\n  stall _\n"
        f"{word} _\n"
    )
    assert (driver.traces, driver.status()) == (traces, FlowStatus.TERMINATED)


def test_cancel_reaches_ended_and_closed_nodes_by_their_tag_but_changes_nothing() -> None:
    driver = drive(
        "sequence\n  sequence tag: 'x' vars: {}\n    set f (def \\ 1)\n  cancel 'x'\n  'on'\n"
    )
    assert "cancel 0_0 0_1" in shown(driver, "cancel")
    assert driver.payload == {"ret": "on"}


def test_a_kill_from_the_flow_carries_its_payload() -> None:
    driver = drive(
        "sequence\n  concurrence expect: 1\n    stall tag: 'x'\n    sequence\n      _skip 9\n"
        "      set f.by 'me'\n      kill 'x'\n      stall _\n  f.by\n"
    )
    assert driver.payload is not None
    assert driver.payload["ret"] == "me"


ASIDE: list[tuple[str, list[str]]] = [
    ("part\n  _skip 4\n  trace 'a'\ntrace 'b'\n", ["b", "a"]),
    ("flank\n  _skip 9\n  trace 'a'\ntrace 'b'\n", ["b"]),
    ("part can: true\n  _skip 9\n  trace 'a'\ntrace 'b'\n", ["b"]),
    (
        "concurrence expect: 1\n  part r: false\n    _skip 4\n    trace 'a'\n  trace 'b'\n",
        ["b", "a"],
    ),
    ("sequence\n  part\n    _skip 9\n    trace 'a'\n  cancel '0_0'\ntrace 'b'\n", ["b", "a"]),
    ("sequence\n  part\n    _skip 9\n    trace 'a'\n  cancel f.ret\ntrace 'b'\n", ["b"]),
]


@pytest.mark.parametrize(("text", "traces"), ASIDE, ids=lambda value: repr(value)[:60])
def test_what_goes_on_aside(text: str, traces: list[str]) -> None:
    driver = drive(text)
    assert (driver.traces, driver.status()) == (traces, FlowStatus.TERMINATED)


def test_a_part_at_the_root_says_at_once_that_it_has_ended() -> None:
    driver = drive("part\n  stall _\n")
    assert shown(driver, "receive", "terminated") == [
        "receive None 0",
        "receive 0_0 0_0_0",
        "terminated None 0",
    ]
    assert driver.status() is FlowStatus.ACTIVE


def test_a_timeout_without_handler_goes_to_the_handler_of_cancels() -> None:
    driver = drive(
        "sequence\n  stall timeout: '1s' on_cancel: (def msg \\ trace msg.flavour)\n",
        ("timers",),
    )
    assert (driver.traces, driver.status()) == (["timeout"], FlowStatus.TERMINATED)


# -- tasks -----------------------------------------------------------------------------------


def test_a_task_given_back_late_goes_on_with_the_cause_of_its_cancel() -> None:
    driver = drive(
        "sequence\n  task 'ann' 'a'\n  'after'\n",
        ("cancel", "0_0"),
        ("return",),
        taskers={"ann": "stubborn"},
    )
    received = [seen.message for seen in driver.seen if seen.message["nid"] == "0_0"][-1]
    assert (received["point"], received.get("from")) == ("receive", None)
    assert [cause["cause"] for cause in received["cause"]] == ["cancel"]
    assert driver.payload == {"ret": "after"}


def test_where_somebody_routes_any_word_is_a_tasker() -> None:
    driver = drive(
        "sequence\n  bravo 'x' due: 1\n  nobody 'y'\n",
        ("return",),
        taskers={"tasker": "route", "nato": "hold"},
    )
    tasks = [seen.message for seen in driver.seen if seen.message["point"] == "task"]
    assert [(task["tasker"], task.get("routed")) for task in tasks] == [
        ("bravo", None),
        ("nato", True),
        ("nobody", None),
        ("nobody", False),
    ]
    assert tasks[0]["attd"] == {"due": 1}
    assert errors(driver) == ['don\'t know how to apply "nobody"']


# -- traps and signals -----------------------------------------------------------------------

TRAPPED: list[tuple[str, list[str]]] = [
    (
        "trap 'terminated'\n  def msg \\ trace \"end of $(msg.from)\"\ntrace 'a'\n",
        ["a", "end of 0"],
    ),
    (
        "trap point: 'receive'\n  def msg \\ trace \"$(msg.nid)<$(msg.from)\"\nsequence\n  1\n",
        ["0_1<0_1_0", "0<0_1", "<0"],
    ),
    (
        (
            "trap heap: [ 'sequence' 'noret' ] point: 'execute'\n  def msg \\ trace msg.nid\n"
            "sequence\n  noret _\n"
        ),
        ["0_1", "0_1_0"],
    ),
    (
        (
            "trap heat: [ r/^f\\d$/ 'g' ] point: 'execute'\n  def msg \\ trace msg.tree.0\n"
            "define f1 \\ 1\ndefine g \\ 2\nf1 _\ng _\n_skip 9\n"
        ),
        ["f1", "g"],
    ),
    (
        (
            "trap point: 'left, entered'\n  def msg \\ trace \"$(msg.point) $(msg.nid)\"\n"
            "sequence tag: 'x'\n  1\n_skip 9\n"
        ),
        ["entered 0_1", "left 0_1"],
    ),
    (
        (
            "trap tags: r/^x-/\n  def msg \\ trace msg.tags.0\n"
            "sequence tag: 'x-1'\nsequence tag: 'y'\nsequence tag: 'x-2'\n_skip 9\n"
        ),
        ["x-1", "x-2"],
    ),
    (
        (
            "trap signal: [ 'a' r/^b/ ]\n  def msg \\ trace sig\n"
            "signal 'bc'\nsignal 'c'\nsignal 'a'\n_skip 9\n"
        ),
        ["bc", "a"],
    ),
    (
        (
            "trap signal: 's' payload: { k: 'given' }\n"
            '  def msg \\ trace "$(f.k) $(msg.payload.k)"\n'
            "set f.k 'sent'\nsignal 's'\n_skip 9\n"
        ),
        ["given sent"],
    ),
    (
        (
            "on 's' payload: 'trap'\n  trace \"$(f.k) $(msg.payload.k)\"\n"
            "set f.k 'sent'\nsignal 's'\n_skip 12\n"
        ),
        [" sent"],
    ),
    ("on [ 'r' 's' ]\n  trace sig\nsignal 's'\nsignal name: 'r'\n_skip 9\n", ["s", "r"]),
    # the message is shown as it was left
    (
        (
            "trap point: 'execute' heat: '_sqs'\n  def msg \\ trace msg.payload.ret\n"
            "sequence\n  'x'\n_skip 9\n"
        ),
        ["x"],
    ),
    # near the parent of the trap only
    (
        (
            "concurrence\n  sequence\n    trap tag: 't'\n      def msg \\ trace msg.nid\n"
            "    stall tag: 't'\n  sequence\n    _skip 20\n    sequence tag: 't'\n"
        ),
        ["0_0_1"],
    ),
    # a node that is gone is near to the root only
    (
        (
            "sequence\n  sequence\n    trap point: 'left'\n      def msg \\ trace msg.nid\n"
            "    sequence tag: 't'\n    _skip 9\n"
        ),
        [],
    ),
    # the cancel of a trap is not its own doing
    (
        "sequence\n  trap point: 'cancel' range: 'execution'\n    def msg \\ trace msg.nid\n  1\n",
        ["0_0"],
    ),
    # a trap of a node that ended is still there while its function may need that node
    (
        (
            "sequence\n  sequence\n    trap tag: 't' range: 'execution'\n"
            "      def msg \\ trace 'sprung'\n  sequence tag: 't'\n  _skip 9\n"
        ),
        ["sprung"],
    ),
]


@pytest.mark.parametrize(("text", "traces"), TRAPPED, ids=lambda value: repr(value)[:60])
def test_traps(text: str, traces: list[str]) -> None:
    driver = drive(text)
    assert errors(driver) == []
    assert driver.traces == traces


def test_a_trap_keeps_its_place_while_it_counts() -> None:
    driver = drive(
        "trap signal: 's' count: 3\n  def msg \\ trace 'a'\n"
        "trap signal: 's'\n  def msg \\ trace 'b'\n"
        "signal 's'\nsignal 's'\n_skip 20\n"
    )
    assert driver.traces == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    "text", ["trap tag: 't'\n  def msg \\ 1\n", "schedule in: '1h'\n  def msg \\ 1\n"]
)
def test_a_watcher_at_the_root_replies_to_nobody_and_stays(text: str) -> None:
    driver = drive(text)
    assert shown(driver, "receive", "terminated")[-1:] == ["receive None 0"]
    assert driver.status() is FlowStatus.ACTIVE
    driver.cancel()
    assert driver.drive().status() is FlowStatus.TERMINATED
    assert (driver.state.traps, driver.state.timers) == ([], {})


def test_a_signal_without_a_name_is_none() -> None:
    driver = drive("signal _\n'on'\n")
    assert shown(driver, "signal") == []
    assert driver.payload == {"ret": "on"}


# -- time ------------------------------------------------------------------------------------

TIMES: list[tuple[str, int, list[str]]] = [
    ("schedule in: '1s'\n  def msg \\ trace msg\nstall _\n", 3, ["null"]),
    ("schedule '1s'\n  def msg \\ trace 'x'\nstall _\n", 3, ["x"]),
    ("schedule every: '1s'\n  def msg \\ trace 'x'\nstall _\n", 3, ["x", "x", "x"]),
    ("every '1s'\n  trace 'x'\nstall _\n", 3, ["x", "x", "x"]),
    ("cron '* * * * * *'\n  trace 'x'\nstall _\n", 2, ["x", "x"]),
    ("sleep for: 1\ntrace 'x'\n", 1, ["x"]),
    ("sleep '1s' timeout: '2s'\ntrace 'x'\n", 2, ["x"]),
]


@pytest.mark.parametrize(("text", "rounds", "traces"), TIMES, ids=lambda value: repr(value)[:60])
def test_timers(text: str, rounds: int, traces: list[str]) -> None:
    driver = drive(text, ("timers", rounds))
    assert driver.traces == traces


def test_a_timer_has_the_kind_that_its_text_tells() -> None:
    driver = drive(
        "every 'day at noon'\n  1\nevery '1h'\n  2\n"
        "schedule at: '2030-01-01'\n  def \\ 3\nstall _\n"
    )
    timers = driver.state.timers.values()
    assert [(timer.type, timer.string, timer.repeats) for timer in timers] == [
        ("cron", "every day at noon", True),
        ("in", "1h", True),
        ("at", "2030-01-01", False),
    ]


# -- the rest --------------------------------------------------------------------------------


def test_each_argument_and_child_of_a_trace_is_one() -> None:
    driver = drive("'kept'\ntrace 'a' 1 tag: 't'\n  [ 'b' ]\n")
    assert driver.traces == ["a", "1", '["b"]']
    assert driver.payload == {"ret": "kept"}


def test_echo_is_for_the_log_only() -> None:
    driver = drive("'kept'\necho 'a'\n")
    assert (driver.traces, driver.payload) == ([], {"ret": "kept"})
    assert driver.outcomes[0].echoes == [{"nid": "0_1", "text": "a"}]


def test_a_graft_takes_root() -> None:
    driver = drive(
        "until f.n == 2\n  graft twig: 'plus'\n",
        payload={"n": 0},
        loader=Library(subflows={"plus": parse("set f.n (f.n + 1)\n")}),
    )
    assert driver.payload is not None
    assert driver.payload["n"] == 2
    heads = [seen.message["tree"][0] for seen in driver.seen if seen.message["point"] == "execute"]
    assert heads.count("graft") == 1
