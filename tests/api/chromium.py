"""Debian's Chromium for tests: one window at a time, and what it complains about."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError, expect, sync_playwright  # noqa: A004 - its own

from tests.api.ledger import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import ConsoleMessage, Page, Request

T = TypeVar("T")

MISSING = "Chromium is not installed; on Debian: apt-get install chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
DESKTOP, PHONE = (1280, 800), (390, 844)
SERIOUS = ("serious", "critical")

Scheme = Literal["light", "dark"]


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Start Chromium with an empty profile for a block."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with ThreadPoolExecutor(1, thread_name_prefix="chromium") as thread:
        running = thread.submit(Chromium, thread, profile, found).result()
        try:
            yield running
        finally:
            thread.submit(running.close).result()


class Chromium:
    """A browser in a thread of its own: Playwright's event loop would disturb what tests do."""

    def __init__(self, thread: ThreadPoolExecutor, profile: Path, program: str) -> None:
        self.thread = thread
        self._playwright = sync_playwright().start()
        self.context = self._playwright.chromium.launch_persistent_context(
            profile, executable_path=program, headless=True, args=list(FLAGS)
        )

    def close(self) -> None:
        """End the browser; in its thread."""
        self.context.close()
        self._playwright.stop()

    @contextmanager
    def window(self, base: str) -> Iterator[Window]:
        """Open a window on a dashboard for a block; what it complains about is an error."""
        window = self.thread.submit(Window, self, base).result()
        try:
            yield window
            assert window.problems == []
        finally:
            window.do(lambda page: page.close())


class Window:
    """A window on one dashboard; collects forbidden events. `do` runs in its thread."""

    def __init__(self, browser: Chromium, base: str) -> None:
        self._thread = browser.thread
        self._page = page = browser.context.new_page()
        page.set_default_timeout(1_000 * PATIENCE)
        self.base = base
        self.problems: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.base).netloc:
            self.problems.append(f"a request left the dashboard: {request.url}")

    def do(self, what: Callable[[Page], T]) -> T:
        """Do something with the page, and return its result."""
        return self._thread.submit(what, self._page).result(2 * PATIENCE)

    def look(self, size: tuple[int, int], scheme: Scheme) -> None:
        """Choose the size of the window and the colours that its user prefers."""
        width, height = size
        self.do(lambda page: page.set_viewport_size({"width": width, "height": height}))
        self.do(lambda page: page.emulate_media(color_scheme=scheme))

    def open(self, path: str) -> None:
        """Open a page."""
        answer = self.do(lambda page: page.goto(self.base + path))
        assert answer is not None
        assert answer.status == 200, path

    def follow(self, name: str) -> None:
        """Click a link."""
        self.do(lambda page: page.get_by_role("link", name=name).click())

    def press(self, name: str, within: str = "main") -> None:
        """Press a button, and wait for the next page."""

        def press(page: Page) -> None:
            button = page.locator(within).get_by_role("button", name=name, exact=True).first
            with page.expect_navigation():
                button.click()

        self.do(press)

    def shows(self, text: str, within: str = "main") -> None:
        """Wait until a text can be seen."""

        def wait(page: Page) -> None:
            try:
                page.locator(within).get_by_text(text).first.wait_for()
            except TimeoutError:
                seen = page.locator("main").inner_text()
                raise AssertionError(f"no {text!r} in {within}, but {seen}") from None

        self.do(wait)

    def is_titled(self, title: str) -> None:
        """Wait until the page has a title."""
        self.do(lambda page: expect(page).to_have_title(title))

    def excess(self) -> int:
        """Return how many pixels the page is wider than the window."""
        script = "document.documentElement.scrollWidth - innerWidth"
        found: int = self.do(lambda page: page.evaluate(script))
        return found

    def note(self) -> str:
        """Return what the page says about the last action."""
        text = self.do(lambda page: page.locator("main").inner_text())
        found = self.do(lambda page: page.get_by_role("status").all_inner_texts())
        assert found, text
        return found[0]

    def barriers(self) -> list[str]:
        """Return what axe-core finds that keeps people out."""
        found: dict[str, Any] = self.do(Axe().run).response
        return [
            f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
        ]
