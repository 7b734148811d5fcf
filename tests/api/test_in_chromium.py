"""Every page and every action of the dashboard in a real browser, with live data."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.api.cli.demo import DemoOrder, DemoRefund, furnish
from actorflow.api.pages.app import store_app
from actorflow.api.pages.links import link
from actorflow.api.verbs.table import Verbs
from actorflow.behaviours import Fair
from actorflow.lab.models.policies import policy_of
from actorflow.lab.outputs import as_json
from actorflow.lab.report.html import as_html
from actorflow.lab.run.simulate import simulate
from tests.api.browser import Browser, until
from tests.api.chromium import DESKTOP, PHONE, Chromium, Scheme, Window, chromium
from tests.api.ledger import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

PAGES = {
    "attention": "",
    "overview": "overview",
    "executions": "executions",
    "bulk": "bulk?action=cancel&status=active",
    "workflow": "execution?id=order-open",
    "failed workflow": "execution?id=order-declined",
    "flow": "execution?id=main-u0-demo.flow",
    "plan": "execution?id=plan-scores",
    "worker execution": "execution?id=books",
    "tasks": "tasks",
    "dead": "dead",
    "workers": "workers",
    "tree": "tree",
    "schedules": "schedules",
    "cluster": "cluster",
    "reports": "reports",
    "audit": "audit",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def engine() -> Iterator[af.Engine]:
    with af.Engine(":memory:") as engine, furnish(engine):
        wait_for_the_demo(engine)
        yield engine


def wait_for_the_demo(engine: af.Engine) -> None:
    verbs = Verbs(engine)
    assert verbs.wait("plan-scores", timeout=PATIENCE)["status"] == "done"
    assert verbs.wait("order-declined", timeout=PATIENCE)["status"] == "stuck"
    until(lambda: len(verbs.tasks()["tasks"]) == 2)
    until(lambda: verbs.execution("order-open")["view"]["waits"])
    until(lambda: verbs.worker_letters(shipping(engine))["count"])
    until(lambda: verbs.dead()["dead"])


def shipping(engine: af.Engine) -> str:
    names: list[str] = list(Verbs(engine).workers()["workers"])
    return next(each for each in names if each.startswith("shipping "))


@pytest.fixture
def server(engine: af.Engine) -> Iterator[Browser]:
    with Browser.of(af.web_app(engine, lambda _request: "write")) as server:
        yield server


@pytest.fixture
def window(browser: Chromium, server: Browser) -> Iterator[Window]:
    with browser.window(server.base) as window:
        yield window


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_page_can_be_read_by_everybody(
    engine: af.Engine, window: Window, size: tuple[int, int], scheme: Scheme
) -> None:
    window.look(size, scheme)
    found = {}
    named = {each: link(each, name=shipping(engine)) for each in ("worker", "what-if")}
    pages = {**PAGES, **named}
    for name, path in pages.items():
        window.open(path)
        found[name] = window.barriers()
        wide = window.excess()
        assert wide <= 0, f"{name} is {wide} pixels too wide"
    assert not any(found.values()), found


def test_the_members_of_a_cluster_can_be_read(
    browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "memory://members-in-chromium"
    with (
        af.Engine(store) as first,
        Browser.of(af.web_app(first)) as server,
        browser.window(server.base) as window,
    ):
        first.workflows.register(DemoOrder)
        first.resume()
        monkeypatch.setattr(af, "__version__", "0.0.9")
        with af.Engine(store) as second:
            second.resume()
            window.look(PHONE, "dark")
            window.open("cluster")
            window.shows("The members run 2 versions")
            window.shows("DemoOrder@")
            assert window.barriers() == []
            assert window.excess() <= 0


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_reports_of_the_lab_are_shown(
    engine: af.Engine, browser: Chromium, tmp_path: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    results = [simulate("poisson(500, duration=1s)", "1ms", policy_of("queue"))]
    (tmp_path / "one.json").write_text(as_json(results, {"traffic": "poisson " + "x" * 200}))
    (tmp_path / f"{'long-' * 40}.html").write_text(as_html([], {"traffic": "poisson"}))
    app = store_app(lambda **_: nullcontext(Verbs(engine)), reports=tmp_path)
    with Browser.of(app) as server, browser.window(server.base) as window:
        window.look(size, scheme)
        for opened, shown in ("one.json", "queue"), (f"{'long-' * 40}.html", "All reports"):
            window.open("reports")
            assert window.barriers() == []
            assert window.excess() <= 0
            window.follow(opened)
            window.shows(shown)
            assert window.barriers() == []
            assert window.excess() <= 0
        window.do(
            lambda page: page.frame_locator("iframe").get_by_text("Policies compared").wait_for()
        )


def test_a_barrier_would_be_found(window: Window) -> None:
    window.open("cluster")
    image = "Object.assign(new Image(), {src: 'static/icon.svg'})"
    window.do(lambda page: page.evaluate(f"document.querySelector('main').append({image})"))
    assert any(each.startswith("image-alt") for each in window.barriers())


def test_a_page_updates_itself(engine: af.Engine, window: Window) -> None:
    window.open("executions?text=newcomer")
    window.shows("There are no executions here.")
    engine.start(DemoOrder("newcomer"), id="newcomer-1")
    window.shows("newcomer-1")


def test_a_filter_is_saved_used_and_forgotten(window: Window) -> None:
    window.open("executions")
    assert not window.do(lambda page: page.locator("#save-filter").is_visible())
    window.open("executions?status=stuck&text=%3Cb%3Edeclined&after=x")
    window.do(lambda page: page.get_by_role("button", name="Save this filter").click())
    window.open("executions")
    window.do(lambda page: page.get_by_role("link", name="status stuck, text <b>declined").click())
    window.do(lambda page: page.wait_for_url("**/executions?status=stuck&text=%3Cb%3Edeclined"))
    assert window.barriers() == []
    window.do(lambda page: page.get_by_role("button", name="Forget the filter").click())
    window.open("executions")
    assert window.do(lambda page: page.locator("#saved-filters li").count()) == 0


def test_charts_and_graphs_are_drawn(window: Window) -> None:
    window.open("overview")
    window.do(lambda page: page.locator(".plot canvas").first.wait_for())
    window.open("execution?id=plan-scores")
    window.do(lambda page: page.locator(".graph g.job").first.wait_for())
    jobs = window.do(lambda page: page.locator(".graph g.job text").all_text_contents())
    assert sorted(jobs) == ["best", "fit-10", "fit-40", "fit-90", "load"]


def test_keys_and_the_palette_lead_everywhere(window: Window) -> None:
    def press(key: str) -> Callable[[Page], None]:
        def do(page: Page) -> None:
            with page.expect_navigation():
                page.keyboard.press(key)

        return do

    window.open("")
    window.do(press("w"))
    window.is_titled("Workers - actorflow")
    window.do(lambda page: page.keyboard.press("Control+k"))
    window.do(lambda page: page.keyboard.type("sched"))
    window.do(press("Enter"))
    window.is_titled("Schedules - actorflow")
    window.do(lambda page: page.keyboard.press("Control+k"))
    window.do(lambda page: page.keyboard.type("order-open"))
    window.do(press("Enter"))
    window.is_titled("order-open - actorflow")
    window.do(lambda page: page.keyboard.press("/"))
    window.do(lambda page: page.keyboard.type("plan-scores"))
    window.do(press("Enter"))
    window.is_titled("plan-scores - actorflow")


def test_a_form_of_a_task_is_made_of_its_type(engine: af.Engine, window: Window) -> None:
    engine.start(DemoRefund("order-8"), id="refund-8")
    card = "[id='task-refund-8/0/1.0']"
    window.open("tasks")
    window.shows("Decide whether the customer gets the money back.", card)
    window.do(lambda page: page.locator(card).get_by_label("approved").select_option("yes"))
    window.do(lambda page: page.locator(card).get_by_label("amount").fill("12"))
    window.do(lambda page: page.locator(card).get_by_label("priority").select_option("high"))
    window.press("Return", card)
    assert window.note() == "answered"
    assert engine.result("refund-8", PATIENCE) == "refunded"


def test_a_task_is_failed(engine: af.Engine, window: Window) -> None:
    engine.start(DemoRefund("order-7"), id="refund-7")
    card = "[id='task-refund-7/0/1.0']"
    window.open("tasks")
    window.do(lambda page: page.locator(card).get_by_label("Reason").fill("no such order"))
    window.press("Fail", card)
    assert window.note() == "failed"
    assert "no such order" in Verbs(engine).wait("refund-7", timeout=PATIENCE)["error"]["message"]


def test_a_workflow_is_sent_an_event_paused_and_resumed(engine: af.Engine, window: Window) -> None:
    order = engine.start(DemoOrder("order-40"), id="order-40")
    window.open("execution?id=order-40")
    window.press("Pause")
    window.shows("pause", "#live dl")
    window.do(lambda page: page.get_by_label("Event or signal").fill("paid"))
    window.do(lambda page: page.get_by_label("Message (JSON)").fill('{"amount": 4}'))
    window.press("Send")
    assert window.note() == "sent"
    assert engine.execution("order-40").status == "active"
    window.press("Resume")
    assert order.result(timeout=PATIENCE) == "8 paid"
    window.shows("done", "h1")


def test_a_workflow_is_rewound_and_forked(engine: af.Engine, window: Window) -> None:
    order = engine.start(DemoOrder("order-41"), id="order-41")
    order.send("paid")
    assert order.result(timeout=PATIENCE) == "8 paid"
    window.open("execution?id=order-41")
    window.do(lambda page: page.get_by_label("Before step").select_option("0/1.0"))
    window.do(lambda page: page.get_by_label("Id of a fork").fill("order-41-again"))
    window.press("Fork from there")
    window.shows("order-41-again", "h1")
    assert engine.execution("order-41-again").status == "active"
    window.open("execution?id=order-open")
    window.do(lambda page: page.get_by_label("Before step").select_option("0/0.0"))
    window.press("Rewind to there")
    assert window.note() == "rewound to before step 0/0.0"


def test_a_failed_step_is_retried(window: Window) -> None:
    window.open("execution?id=order-declined")
    window.press("Retry")
    assert window.note() == "step 0/0.0 will be tried again"


@pytest.mark.parametrize(
    ("button", "status"), [("Cancel this execution", "cancelled"), ("Kill it", "cancelled")]
)
def test_an_execution_is_ended(engine: af.Engine, window: Window, button: str, status: str) -> None:
    id = f"order-{len(button)}-to-end"  # noqa: A001
    engine.start(DemoOrder(id), id=id)
    window.open(f"execution?id={id}")
    window.press(button)
    window.shows(status, "h1")
    assert engine.execution(id).status == status


def test_an_event_is_discarded_and_an_execution_deleted(engine: af.Engine, window: Window) -> None:
    order = engine.start(DemoOrder("order-43"), id="order-43")
    order.send("address", city="Rome")
    window.open("execution?id=order-43")
    window.shows("Kept for a later wait")
    window.press("Discard")
    assert window.note() == "discarded: no wait gets it any more"
    until(lambda: not order.query().kept_events)
    window.press("Kill it")
    window.press("Delete it, with its children and history")
    assert window.note() == "order-43 was deleted"
    assert not any(each.id == "order-43" for each in engine.executions())


def test_many_executions_are_counted_before_they_are_cancelled(
    engine: af.Engine, window: Window
) -> None:
    for number in range(1, 4):
        engine.start(DemoOrder(f"bulk-{number}"), id=f"bulk-{number}")
    window.open("executions?text=bulk-&status=active")
    window.do(lambda page: page.get_by_text("Do something with all of these").click())
    window.press("Count them first")
    window.shows("Cancel 3 executions?")
    window.press("Cancel them")
    assert window.note() == "cancel: 3 done, 0 refused"
    assert {engine.execution(f"bulk-{number}").status for number in range(1, 4)} == {"cancelled"}
    window.open("audit")
    window.shows("bulk")


def test_a_schedule_is_triggered_suspended_resumed_and_deleted(
    engine: af.Engine, window: Window
) -> None:
    engine.every("weekly", "0 4 * * 1", engine.worker("weeks", add, state=0), 1)
    row = "tr:has-text('weekly')"
    window.open("schedules")
    for button, note in [
        ("Trigger now", "weekly was triggered"),
        ("Suspend", "weekly is suspended"),
        ("Resume", "weekly goes on"),
        ("Delete", "weekly was deleted"),
    ]:
        window.press(button, row)
        assert window.note() == note
    assert "weekly" not in [each.name for each in engine.schedules]


def test_a_worker_is_paused_and_its_dead_letters_retried(engine: af.Engine, window: Window) -> None:
    name = shipping(engine)
    window.open(link("worker", name=name))
    window.press("Pause this worker")
    window.shows("paused", "h1")
    window.press("Resume this worker")
    window.shows("idle", "h1")
    window.press("Retry all")
    until(lambda: Verbs(engine).worker_letters(name)["count"] == 1)
    window.open(link("worker", name=name))
    window.press("Delete")
    assert Verbs(engine).worker_letters(name)["count"] == 0


def test_another_policy_is_simulated_for_a_worker(window: Window) -> None:
    with af.spawn(lambda _rows, _state: None, name="simulated") as worker:
        window.open("worker?name=simulated")
        window.shows("No batch since this page is open.")
        for row in range(40):
            worker.push_block(row)
        window.open("worker?name=simulated")
        window.shows("gaps are idle time")
        window.do(lambda page: page.get_by_role("link", name="What if it had").click())
        window.is_titled("What if: simulated - actorflow")
        window.do(lambda page: page.get_by_role("slider").fill("50"))
        window.shows("50 ms")
        window.press("Simulate")
        window.shows("linger(queue, 50ms)")
        assert window.barriers() == []


def test_the_largest_keys_of_a_worker_can_be_read(window: Window) -> None:
    window.look(PHONE, "dark")
    with af.spawn(lambda _rows, _state: None, name="keyed", behaviour=Fair(key=0)) as worker:
        worker.pause()
        worker.push_many([(f"customer {'x' * 200} {row % 30}", row) for row in range(100)])
        window.open("worker?name=keyed")
        window.shows("Messages by key")
        window.shows("of 30 keys")
        assert window.barriers() == []
        assert window.excess() <= 0
        worker.resume()


def test_dead_letters_are_retried_and_deleted(engine: af.Engine, window: Window) -> None:
    window.open("")
    window.press("Retry 1 message")
    assert window.note() == "1 messages will be tried again"
    until(lambda: len(Verbs(engine).dead()["dead"]) == 1)
    window.open("dead")
    window.press("Delete", "article >> nth=-1")
    assert window.note() == "1 dead letters deleted"
    window.shows("There are no dead letters.")


def add(rows: list[int], total: int) -> int:
    return total + sum(rows)
