"""The dashboard: pages, actions, rights, and what keeps strangers out."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import anyio
import pytest
from fastapi import FastAPI

import actorflow as af
from actorflow.api.cli.connect import reach
from actorflow.api.pages import app as pages
from actorflow.api.pages.actions import ACTIONS
from actorflow.api.pages.app import PAGES as ALL_PAGES
from actorflow.api.pages.app import store_app
from actorflow.api.pages.content.samples import Samples
from actorflow.api.pages.security import COOKIE
from actorflow.engine.errors import ExecutionEnded
from tests.api.browser import Browser, until
from tests.api.ledger import PATIENCE, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "secret-7"  # noqa: S105 - a test
NASTY = "<script>alert(1)</script>\"'&"
OF_SOMETHING = ("attention", "bulk", "execution", "report", "worker", "what-if")
PAGES = (
    *(f"/{name}" for name in ALL_PAGES if name not in OF_SOMETHING),
    "/",
    "/bulk?action=cancel&text=%3Cscript%3Ealert(1)%3C/script%3E",
    "/executions?kind=%3Cscript%3Ealert(1)%3C/script%3E&note=%3Cscript%3Ealert(1)%3C/script%3E",
    "/execution?id=order-1",
)


@pytest.fixture
def engine() -> Iterator[af.Engine]:
    with af.Engine(":memory:") as engine:
        engine.register(Ledger())
        engine.start("ledger", id="order-1")
        engine.send("order-1", {"milk": NASTY})
        yield engine


@pytest.fixture
def browser(engine: af.Engine) -> Iterator[Browser]:
    with Browser.of(af.web_app(engine, lambda _request: "write")) as browser:
        yield browser


class Parts(HTMLParser):
    """Collects the links, scripts and inline code of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [str(found[name]) for name in ("href", "src", "action") if name in found]
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style") and data.strip():
            self.inline.append(data)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_self_contained_and_escaped(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status == 200
    assert "<script>alert" not in answer.text
    page = Parts(answer.text)
    assert page.inline == []
    assert all(not link.startswith(("/", "http", "//")) for link in page.links), page.links
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_an_execution_shows_its_state_and_waiting_messages(browser: Browser) -> None:
    text = browser.get("/execution?id=order-1").text
    assert "order-1" in text
    assert "ledger" in text


def test_an_unknown_execution_is_named(browser: Browser) -> None:
    answer = browser.get("/execution", id=NASTY)
    assert answer.status == 404
    assert "&lt;script&gt;" in answer.text


def test_the_search_field_leads_to_the_execution(browser: Browser) -> None:
    answer = browser.get("/executions", id="order-1")
    assert answer.status == 303
    assert answer.headers["location"] == "execution?id=order-1"


def test_lists_can_be_filtered(browser: Browser) -> None:
    rows = re.findall(r'href="execution\?id=([^"]+)"', browser.get("/executions").text)
    assert rows == ["order-1"]
    for query in ("status=done", "kind=other", "tag=a%3Db"):
        assert "There are no executions here" in browser.get(f"/executions?{query}").text
    assert browser.get("/executions?status=odd").status == 422


def test_a_message_is_sent_and_an_execution_ended(engine: af.Engine, browser: Browser) -> None:
    answer = browser.post("/send", {"id": "order-1", "body": '{"end": 7}'})
    assert answer.status == 303
    assert answer.headers["location"] == "execution?id=order-1&note=sent"
    assert engine.result("order-1", PATIENCE) == 7
    assert browser.post("/send", {"id": "order-1", "body": "1"}).status == 409
    engine.start("ledger", id="order-2")
    assert browser.post("/cancel", {"id": "order-2"}).status == 303
    with pytest.raises(ExecutionEnded):
        engine.send("order-2", 1)


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/send", {"id": "order-1", "body": "{broken"}),
        ("/send", {"body": "1"}),
        ("/purge", {"letter": "seven"}),
        ("/cancel", {"id": "order-7"}),
    ],
)
def test_a_form_that_makes_no_sense_is_explained(
    browser: Browser, path: str, form: dict[str, Any]
) -> None:
    answer = browser.post(path, form)
    assert 400 <= answer.status < 500
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("rights", ["none", "read", None])
def test_nothing_changes_without_the_right_to_write(
    engine: af.Engine, rights: Literal["none", "read"] | None
) -> None:
    may_read = rights == "read"
    with Browser.of(af.web_app(engine, lambda _request: rights)) as browser:
        for name in ACTIONS:
            answer = browser.post(f"/{name}", {"id": "order-1", "task": "t", "letter": "1"})
            assert answer.status == 403, name
        assert browser.first_event("/live/executions").status == (200 if may_read else 403)
        assert "Actions" not in browser.get("/execution?id=order-1").text
        assert browser.get("/").status == (200 if may_read else 403)
    assert engine.execution("order-1").status == "active"


async def late(_request: Any) -> str:
    return "write"


@pytest.mark.parametrize("access", [late, "write"])
def test_access_is_a_function_that_returns_at_once(engine: af.Engine, access: Any) -> None:
    with pytest.raises(af.BadOption, match="must be a function without async"):
        af.web_app(engine, access)


def test_without_the_extra_the_dashboard_names_it(
    engine: af.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "actorflow.api.pages.app", None)
    with pytest.raises(ImportError, match=r"the dashboard needs .*: pip install .*\[web\]"):
        af.web_app(engine)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_form_of_another_site_is_refused(
    engine: af.Engine, browser: Browser, headers: dict[str, str]
) -> None:
    answer = browser.post("/cancel", {"id": "order-1"}, headers=headers)
    assert answer.status == 403
    assert engine.execution("order-1").status == "active"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with af.Engine(tmp_path / "orders.db"):
        pass

    def open_store(*, change: bool) -> Any:
        return reach(str(tmp_path / "orders.db"), to_change=change)

    return open_store


def test_without_a_token_only_this_machine_may_read(store: Any) -> None:
    with Browser.of(store_app(store)) as browser:
        assert browser.get("/").status == 200
        assert browser.get("/", {"Host": "evil.example"}).status == 403
        assert browser.post("/cancel", {"id": "a"}).status == 403


def test_the_token_moves_from_the_link_into_a_strict_cookie(store: Any) -> None:
    with Browser.of(store_app(store, token=TOKEN, write=True)) as browser:
        assert browser.get("/").status == 403
        assert browser.get("/?token=wrong").status == 403
        answer = browser.get(f"/?token={TOKEN}")
        assert answer.status == 303
        assert "token" not in answer.headers["location"]
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}={TOKEN}")
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert browser.get("/").status == 200


@pytest.mark.parametrize("path", ["../app.py", "%2e%2e/app.py", "/etc/passwd"])
def test_static_files_stay_in_their_folder(browser: Browser, path: str) -> None:
    assert browser.get(f"/static/{path}").status in (403, 404)


def test_the_dashboard_can_be_mounted(engine: af.Engine) -> None:
    site = FastAPI()
    site.mount("/actorflow", af.web_app(engine))
    with Browser.of(site) as browser:
        assert "order-1" in browser.get("/actorflow/executions").text
        assert browser.get("/actorflow/static/style.css").status == 200


def test_updates_take_a_small_share_of_a_processor(
    engine: af.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, slept = 0.001, []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(
        pages._Pages, "_timed_fragment", lambda *_: (f"after {len(slept)} pauses", cost)
    )
    shown = pages._Pages(None, None)  # type: ignore[arg-type] # that it does not use
    updates = shown._updates(None, "workers")  # type: ignore[arg-type]

    async def follow() -> None:
        nonlocal cost
        for cost in (0.001, 0.05, 60.0):  # noqa: B007 - the fragment has it
            assert await anext(updates) == f"data: after {len(slept)} pauses\n\n"

    asyncio.run(follow())
    assert slept[0] == 1.0
    assert slept[1] == pytest.approx(2.5)


def test_a_thousand_workers_are_kept_for_minutes_in_little_room() -> None:
    clock = iter(range(10_000))
    samples = Samples(lambda: float(next(clock)))
    for _ in range(150):
        sample = samples.take(ManyWorkers())
        assert sample.workers["w-7"]["reasons"] == {"idle": 1}
    found = samples.series(lambda each: float(len(each.workers["w-7"])))
    assert (len(found["at"]), set(found["values"])) == (100, {4.0})


class ManyWorkers:
    """The verbs that samples need, of an engine with a thousand workers."""

    row: ClassVar[dict[str, Any]] = {
        "held": 1, "accepted": 2, "processed": 1, "batches": 1, "reasons": {"idle": 1},
    }  # fmt: skip

    def health(self) -> dict[str, Any]:
        """Run."""
        return {"live": True}

    def stats(self) -> dict[str, Any]:
        """Count nothing."""
        return {}

    def workers(self) -> dict[str, Any]:
        """Return a thousand workers."""
        return {"workers": {f"w-{number}": self.row for number in range(1_000)}, "trees": []}


def test_a_large_form_is_refused(browser: Browser) -> None:
    answer = browser.post("/send", {"id": "order-1", "body": json.dumps("x" * 2**21)})
    assert answer.status == 403


class Parcel(af.Workflow[str]):
    """A workflow whose code has a version."""

    version: str = "2"

    def handle(self) -> str:
        return "sent"


class NextParcel(af.Workflow[str]):
    """The same workflow in the next deployment."""

    __qualname__ = "Parcel"
    version: str = f"3 {NASTY}"

    def handle(self) -> str:
        return "sent"


def test_the_members_of_a_cluster_show_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    store = "memory://dashboard-versions"
    with af.Engine(store) as first, Browser.of(af.web_app(first)) as browser:
        first.workflows.register(Parcel)
        first.resume()
        until(lambda: f"<td>{af.__version__}</td>" in browser.get("/cluster").text)
        until(lambda: "Parcel@2" in browser.get("/cluster").text)
        assert 'role="alert"' not in browser.get("/cluster").text
        monkeypatch.setattr(af, "__version__", f"9.9 {NASTY}")
        with af.Engine(store) as second:
            second.workflows.register(NextParcel)
            second.resume()
            until(lambda: "2 versions of actorflow" in browser.get("/cluster").text)
            until(lambda: "has different code in different members" in browser.get("/cluster").text)
            text = browser.get("/cluster").text
    assert "9.9 &lt;script&gt;" in text
    assert "2, 3 &lt;script&gt;" in text
    assert "<script>alert" not in text
