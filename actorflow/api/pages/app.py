"""The application of the dashboard. Needs the extra `web`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import anyio
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles

from actorflow.api.errors import REPORTED, status_of
from actorflow.api.http.guards import BodyLimit, FramingGuard
from actorflow.api.pages.actions import ACTIONS, Form, MissingField
from actorflow.api.pages.content import attention, execution, lists, reports, workers
from actorflow.api.pages.content.page_request import PageRequest
from actorflow.api.pages.content.samples import Samples
from actorflow.api.pages.content.text import FILTERS
from actorflow.api.pages.links import link
from actorflow.api.pages.security import (
    COOKIE,
    FRAMED,
    HeadersGuard,
    Rights,
    TokenAccess,
    same_site,
)
from actorflow.engine.errors import UnknownExecution
from actorflow.runtime.errors import UnknownWorker, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    Reach = Callable[..., AbstractContextManager[Any]]
    Access = Callable[[Request], Any]

__all__ = ["create_pages", "store_app"]

_HERE = Path(__file__).parent
_LONGEST_FORM = 1 << 20
_LONGEST_QUERY = 4_000
_NO_RIGHTS = "open the link that the command printed, or ask the owner of this engine for the token"
_NOT_FOUND = (UnknownExecution, UnknownWorker, reports.UnknownReport)

_EVERY = 1.0  # seconds between two updates of a page
_SHARE = 0.02  # of a processor that the updates of a page take, at most
_LASTS = 10.0  # seconds until a stream of updates ends, and the page opens the next one

NAVIGATION = (
    (".", "attention", "Attention", "a"),
    ("overview", "overview", "Overview", "o"),
    ("executions", "executions", "Executions", "e"),
    ("tasks", "tasks", "Tasks", "t"),
    ("dead", "dead", "Dead letters", "d"),
    ("workers", "workers", "Workers", "w"),
    ("tree", "tree", "Supervision", "s"),
    ("schedules", "schedules", "Schedules", "c"),
    ("cluster", "cluster", "Cluster", "m"),
    ("reports", "reports", "Lab reports", "r"),
    ("audit", "audit", "Audit log", "l"),
)
"""The path, name, title and key of each page in the bar at the top."""

PAGES: dict[str, Callable[[PageRequest], dict[str, Any]]] = {
    "attention": attention.attention,
    "overview": attention.overview,
    "executions": lists.executions,
    "bulk": lists.bulk,
    "execution": execution.execution,
    "tasks": lists.tasks,
    "dead": lists.dead,
    "workers": workers.workers,
    "worker": workers.worker,
    "what-if": workers.what_if,
    "tree": workers.tree,
    "schedules": lists.schedules,
    "cluster": lists.cluster,
    "reports": reports.reports,
    "report": reports.report,
    "audit": lists.audit,
}
"""The pages by name; each builds the data for the template of that name."""

_STILL = ("bulk", "report", "what-if")
"""Pages that do not update themselves."""


def store_app(
    reach: Reach, *, token: str | None = None, write: bool = False, reports: Path | None = None
) -> FastAPI:
    """Return the dashboard of a store, or of the live engine on it.

    Args:
        reach: `reach(change=True)` is a context manager with the verbs.
        token: required of each request; `None` for reading on this machine.
        write: whether the token grants acting.
        reports: a folder with reports of the lab.

    """
    return create_pages(reach, TokenAccess(token, write=write), reports)


def create_pages(reach: Reach, access: Access, folder: Path | None = None) -> FastAPI:
    """Return the application: pages with GET, actions with POST, and updates as a stream."""
    app = FastAPI(title="actorflow dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    pages = _Pages(reach, access, folder)
    for name in PAGES:
        path = "/" if name == "attention" else f"/{name}"
        app.add_api_route(path, pages.shown(name), response_class=HTMLResponse)
    for name, act in ACTIONS.items():
        app.add_api_route(
            f"/{name}", pages.done(act), methods=["POST"], response_class=HTMLResponse
        )
    app.add_api_route("/report-file", pages.report_file, response_class=Response)
    app.add_api_route("/live/{name}", pages.live, response_class=StreamingResponse)
    app.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")
    for kind in REPORTED:
        app.add_exception_handler(kind, pages.problem)
    app.add_middleware(BodyLimit)
    app.add_middleware(FramingGuard)
    app.add_middleware(HeadersGuard)
    return app


class _Pages:
    """What all pages share: the way to the engine, the rights and the templates."""

    def __init__(self, reach: Reach, access: Access, folder: Path | None = None) -> None:
        self._reach = reach
        self._access = access
        self._folder = folder
        self._samples = Samples()
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.globals |= {"link": link, "navigation": NAVIGATION}
        self._templates.globals["m"] = self._templates.get_template("macros.html").module

    def _rights(self, request: Request) -> Rights:
        return Rights(self._access(request))

    def _built(self, request: Request, name: str) -> dict[str, Any]:
        """Return what the template of a page needs."""
        query = dict(request.query_params)
        with self._reach(change=False) as verbs:
            data = PAGES[name](PageRequest(verbs, query, self._samples, self._folder))
        return self._frame(request, name) | data

    def _frame(self, request: Request, name: str) -> dict[str, Any]:
        """Return what every template needs."""
        query = [each for each in request.query_params.multi_items() if each[0] != "note"]
        updates = name in PAGES and name not in _STILL
        return {
            "page": name,
            "may_act": self._rights(request) is Rights.WRITE,
            "note": request.query_params.get("note", "")[:300],
            "live": f"live/{name}?{urlencode(query)}" if updates else "",
        }

    # Pages.

    def shown(self, name: str) -> Callable[[Request], Response]:
        """Return the route of a page."""

        def show(request: Request) -> Response:
            if not self._rights(request):
                return self._refused(request, _NO_RIGHTS)
            if len(request.url.query) > _LONGEST_QUERY:
                return self._refused(request, f"a query has at most {_LONGEST_QUERY:,} characters")
            given = request.query_params.get("token")
            if given is not None:
                return self._remember(request, given)
            if name == "executions" and request.query_params.get("id"):
                target = link("execution", id=request.query_params["id"])
                return RedirectResponse(target, 303)
            text = self._templates.get_template(f"{name}.html").render(self._built(request, name))
            return HTMLResponse(text)

        return show

    def report_file(self, request: Request) -> Response:
        """Return a report of the lab that is HTML, for a frame: it can run and load nothing."""
        if not self._rights(request):
            return self._refused(request, _NO_RIGHTS)
        name = request.query_params.get("name", "")
        if not name.endswith(".html"):
            return self._problem(request, 404, "Not found", f"{name!r:.80} is not an HTML file")
        content = reports.read_report(self._folder, name)
        return Response(content, headers=FRAMED, media_type="text/html; charset=utf-8")

    def _remember(self, request: Request, token: str) -> Response:
        """Move the token from the link into a cookie, so that it stays out of the history."""
        answer = RedirectResponse(".", 303)
        if not isinstance(self._access, TokenAccess) or self._access.knows(token):
            answer.set_cookie(
                COOKIE,
                token,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
                path=request.scope.get("root_path") or "/",
            )
        return answer

    # Updates.

    def live(self, request: Request, name: str) -> Response:
        """Return the stream of what changes on a page, as long as somebody looks."""
        if not self._rights(request):
            return self._refused(request, _NO_RIGHTS)
        if name not in PAGES or name in _STILL:
            return self._problem(request, 404, "Not found", f"there is no page {name!r:.80}")
        return StreamingResponse(self._updates(request, name), media_type="text/event-stream")

    async def _updates(self, request: Request, name: str) -> AsyncIterator[str]:
        sent: str | None = None
        deadline = time.monotonic() + _LASTS
        while time.monotonic() < deadline:
            text, took = await run_in_threadpool(self._timed_fragment, request, name)
            if text != sent:
                sent = text
                lines = "".join(f"data: {line}\n" for line in text.split("\n"))
                yield f"{lines}\n"
            pause = max(_EVERY, took / _SHARE)
            await anyio.sleep(min(pause, max(0.0, deadline - time.monotonic())))

    def _timed_fragment(self, request: Request, name: str) -> tuple[str, float]:
        """Return the part of a page that changes, and the processor time that it took."""
        began = time.thread_time()
        text = self._fragment(request, name)
        return text, time.thread_time() - began

    def _fragment(self, request: Request, name: str) -> str:
        """Return the part of a page that changes."""
        try:
            data = self._built(request, name)
        except REPORTED as error:
            template, data = "problem.html", self._frame(request, "problem")
            data |= {"title": type(error).__name__, "text": text_of(error)}
        else:
            template = f"{name}.html"
        found = self._templates.get_template(template)
        return "".join(found.blocks["live"](found.new_context(data))).replace("\r", "")

    # Actions.

    def done(self, act: Callable[[Any, Form], tuple[str, str]]) -> Any:
        """Return the route of an action."""

        async def do(request: Request) -> Response:
            if self._rights(request) is not Rights.WRITE:
                return self._refused(request, "this dashboard is read-only: start it with --write")
            if not same_site(request):
                return self._refused(request, "the request comes from a page of another site")
            body = await request.body()
            if len(body) > _LONGEST_FORM:
                return self._refused(request, f"a form has at most {_LONGEST_FORM:,} bytes")
            pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)

            def run() -> tuple[str, str]:
                with self._reach(change=True) as verbs:
                    return act(verbs, Form(pairs))

            try:
                path, note = await run_in_threadpool(run)
            except MissingField as error:
                return self._problem(request, 422, "Incomplete form", str(error))
            joint = "&" if "?" in path else "?"
            return RedirectResponse(f"{path}{joint}{urlencode({'note': note})}", 303)

        return do

    # Errors.

    def _refused(self, request: Request, why: str) -> Response:
        return self._problem(request, 403, "Not allowed", why)

    async def problem(self, request: Request, error: Exception) -> Response:
        """Return the page that an error becomes."""
        status = 404 if isinstance(error, _NOT_FOUND) else status_of(error)
        return self._problem(request, status, type(error).__name__, text_of(error))

    def _problem(self, request: Request, status: int, title: str, text: str) -> Response:
        data = self._frame(request, "problem") | {"title": title, "text": text}
        return HTMLResponse(self._templates.get_template("problem.html").render(data), status)
