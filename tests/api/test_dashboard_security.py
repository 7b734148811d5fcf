"""What strangers send to the dashboard, and what they leave in a store for others to look at."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import actorflow as af
from actorflow.api.pages.actions import ACTIONS
from actorflow.api.pages.app import PAGES, store_app
from actorflow.api.pages.links import link
from actorflow.api.pages.security import COOKIE, TokenAccess
from actorflow.api.verbs.table import Verbs
from tests.api.browser import Browser, until
from tests.api.chromium import chromium
from tests.api.ledger import PATIENCE, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NASTY = (
    "<script>hacked=1</script>\"><img src=x onerror=hacked=1>' onfocus='hacked=1' autofocus='"
    "</textarea></pre><!--{{ 7 * 7 }}{% raw %}\\u003cscript>javascript:hacked=1"
)
TOKEN = "token-7"  # noqa: S105 - a test


@af.task(name=NASTY)
def charge(order: str) -> str:
    """Do nothing <script>hacked=1</script>."""
    if order == "declined":
        raise ValueError(NASTY)
    return NASTY


@af.task(name=f"ask {NASTY}")
def ask(order: str) -> bool:
    """Ask <script>hacked=1</script>."""
    return af.HOLD


class NastyOrder(af.Workflow[str]):
    def __init__(self, order: str) -> None:
        self.order = order
        self.text = NASTY

    def handle(self) -> str:
        self.tag(note=NASTY)
        self.execute(charge(self.order))
        self.execute(ask(NASTY))
        return NASTY


def job(_rows: Any, _state: Any) -> Any:
    raise ValueError(NASTY)


pytestmark = pytest.mark.usefixtures("only_own_workers")


@pytest.fixture
def engine() -> Iterator[af.Engine]:
    """Yield an engine with nasty texts wherever users can put one."""
    tree = af.Supervisor([af.Worker(NASTY, job, state=0, on_failure="isolate")], name=NASTY)
    with af.Engine(":memory:") as engine, tree.start() as started:
        engine.register(Ledger())
        engine.workflows.register(NastyOrder)
        engine.tasker(f"clerk {NASTY}", lambda _task: af.HOLD)
        for order in (NASTY, "declined"):
            handle = engine.start(NastyOrder(order), id=order)
            handle.send(NASTY, field=NASTY)
        engine.start("ledger", {"note": NASTY}, id=f"ledger {NASTY}")
        books = engine.worker(f"books {NASTY}", job)
        engine.every(NASTY, "0 3 * * *", books, NASTY)
        books.push(NASTY)
        text = f"sequence\n  task {quoted(f'clerk {NASTY}')} {quoted(NASTY)}\n"
        engine.launch(text, payload={NASTY: NASTY}, id="main-u0-f")
        plan = af.Plan()
        plan.job(job, NASTY, None, name=NASTY)
        engine.plans.start(plan, id="plan")
        started.worker(NASTY).push(NASTY)
        verbs = Verbs(engine)
        for id in ("declined", "plan"):  # noqa: A001
            assert verbs.wait(id, timeout=PATIENCE)["status"] == "stuck"
        until(lambda: len(verbs.tasks()["tasks"]) == 2 and verbs.dead()["dead"])
        yield engine


def quoted(text: str) -> str:
    """Return a text as a string of the flow language."""
    inside = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{inside}'"


def paths(engine: af.Engine) -> list[str]:
    """Return all pages, with each execution and each worker."""
    verbs = Verbs(engine)
    plain = [name for name in PAGES if name not in ("attention", "execution", "worker", "bulk")]
    executions = [each["id"] for each in verbs.executions()["executions"]]
    return [
        "",
        *plain,
        *(link(name, text=NASTY, kind=NASTY, status="", note=NASTY) for name in plain),
        link("bulk", action="cancel", text=NASTY),
        *(link("execution", id=each) for each in (*executions, f"no {NASTY}")),
        *(link("worker", name=each) for each in (*verbs.workers()["workers"], NASTY)),
    ]


class Elements(HTMLParser):
    """Collects what scripts could hide in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.odd: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("img", "iframe", "object", "embed", "base", "style"):
            self.odd.append(tag)
        if tag == "script" and not str(found.get("src", "")).startswith("static/"):
            self.odd.append(tag)
        self.odd += [name for name in found if name.startswith("on") or name == "style"]
        targets = (found[name] or "" for name in ("href", "src", "action") if name in found)
        self.odd += [each for each in targets if ":" in each.partition("?")[0]]


def test_nasty_texts_are_only_texts(engine: af.Engine) -> None:
    with Browser.of(af.web_app(engine, lambda _request: "write")) as browser:
        for path in paths(engine):
            answer = browser.get(f"/{path}")
            assert answer.status in (200, 404, 422), path
            assert "<script>hacked" not in answer.text, path
            assert Elements(answer.text).odd == [], path
        event = browser.first_event("/" + link("live/executions", text="ledger"))
        assert "ledger &lt;script&gt;" in event.text
        assert Elements(event.text).odd == []


def test_nasty_texts_run_nothing_in_a_browser(engine: af.Engine, tmp_path: Path) -> None:
    with (
        chromium(tmp_path / "profile") as browser,
        Browser.of(af.web_app(engine, lambda _request: "write")) as server,
        browser.window(server.base) as window,
    ):
        for path in ("", "executions", "dead", "tasks", "tree", link("execution", id=NASTY)):
            window.open(path)
            assert window.do(lambda page: page.evaluate("typeof hacked")) == "undefined"


@pytest.mark.parametrize(
    "path",
    [
        "static/../app.py",
        "static/%2e%2e/app.py",
        "static/%2e%2e%2f%2e%2e%2fverbs/table.py",
        "static//etc/passwd",
        "static/..%5capp.py",
        "static/%00",
        "live/..%2fstatic",
        "live/bulk",
        "templates/base.html",
        "openapi.json",
        "docs",
    ],
)
def test_only_pages_and_static_files_are_served(path: str) -> None:
    with (
        af.Engine(":memory:") as engine,
        Browser.of(af.web_app(engine, lambda _request: "write")) as browser,
    ):
        answer = browser.get(f"/{path}")
        assert answer.status in (400, 403, 404, 405), answer
        assert "from __future__" not in answer.text


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Browser]:
    with (
        af.Engine(tmp_path / "s.db") as engine,
        Browser.of(store_app(lambda **_: closed(engine), token=TOKEN, write=True)) as browser,
    ):
        engine.register(Ledger())
        engine.start("ledger", id="a")
        yield browser
        assert engine.execution("a").status == "active"


class closed:  # noqa: N801 - used as a function
    """The verbs of an engine, as a context manager."""

    def __init__(self, engine: af.Engine) -> None:
        self._verbs = Verbs(engine)

    def __enter__(self) -> Verbs:
        return self._verbs

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("cookie", ["", "token-8", "TOKEN-7", "\xe9", "token-7token-7", "token"])
def test_nothing_is_shown_or_done_without_the_token(guarded: Browser, cookie: str) -> None:
    guarded.cookies[COOKIE] = cookie
    for name in PAGES:
        answer = guarded.get("/" if name == "attention" else f"/{name}")
        assert answer.status == 403, name
        assert "ledger" not in answer.text
    assert guarded.first_event("/live/executions").status == 403
    for name in ACTIONS:
        assert guarded.post(f"/{name}", {"id": "a", "token": "token-7"}).status == 403, name


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://evil.example"},
    ],
)
def test_the_token_alone_does_not_let_other_sites_act(
    guarded: Browser, headers: dict[str, str]
) -> None:
    guarded.cookies[COOKIE] = "token-7"
    for name in ACTIONS:
        assert guarded.post(f"/{name}", {"id": "a"}, headers=headers).status == 403, name


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return first == second

    monkeypatch.setattr("actorflow.api.pages.security.secrets.compare_digest", compare)
    access = TokenAccess("token-7", write=True)
    assert access.knows("token-7")
    assert not access.knows("t\udce9")
    assert compared == [(b"token-7", b"token-7"), (b"t?", b"token-7")]


def test_a_wrong_token_in_a_link_does_not_replace_the_cookie(guarded: Browser) -> None:
    guarded.cookies[COOKIE] = "token-7"
    answer = guarded.get("/?token=wrong")
    assert "set-cookie" not in answer.headers
    assert guarded.get("/").status == 200


def test_large_requests_are_refused(guarded: Browser) -> None:
    guarded.cookies[COOKIE] = "token-7"
    assert guarded.post("/send", {"id": "a", "body": "x" * 2**21}).status == 403
    assert guarded.get("/executions?text=" + quote("x" * 5_000)).status == 403
    many = "&".join(f"letter={number}" for number in range(20_000))
    assert guarded.post("/retry", {"id": many}).status < 500


def test_answers_forbid_frames_foreign_scripts_and_caching(guarded: Browser) -> None:
    for path in ("/", "/static/htmx.min.js", "/nowhere", "/live/executions"):
        headers = guarded.first_event(path).headers
        found = {name.lower(): value for name, value in headers.items()}
        assert "frame-ancestors 'none'" in found["content-security-policy"], path
        assert found["x-content-type-options"] == "nosniff"
        assert found["cache-control"] == "no-store"
