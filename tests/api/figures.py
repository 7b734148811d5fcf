"""Draw the figures of docs/dashboard.md: each page in a wide light window and on a dark phone.

python -m tests.api.figures [FOLDER]
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

import actorflow as af
from actorflow.api.cli.demo import DemoOrder, demo_workers, furnish
from actorflow.api.pages.links import link
from actorflow.api.verbs.table import Verbs
from tests.api.browser import Browser, until
from tests.api.chromium import DESKTOP, PHONE, Scheme, Window, chromium

FOLDER = Path(__file__).parents[2] / "docs/figures"
SECONDS = 12.0  # of load, for the charts
COLOURS = 64
HEIGHT = 600  # pixels of a figure
GAP = 16
GROUND = (128, 136, 146)

PAGES = {
    "attention": "",
    "overview": "overview",
    "executions": "executions",
    "workflow": "execution?id=order-open",
    "flow": "execution?id=main-u0-demo.flow",
    "plan": "execution?id=plan-scores",
    "tasks": "tasks",
    "dead-letters": "dead",
    "workers": "workers",
    "worker": link("worker", name="newest per key"),
    "what-if": link("what-if", name="queue", wait=20),
    "supervision": "tree",
    "schedules": "schedules",
    "audit": "audit",
}


def main(folder: Path = FOLDER) -> None:
    """Write all figures."""
    with (
        tempfile.TemporaryDirectory() as profile,
        af.Engine(":memory:") as engine,
        furnish(engine),
        demo_workers(),
        Browser.of(af.web_app(engine, lambda _request: "write")) as server,
        chromium(Path(profile)) as browser,
        browser.window(server.base) as window,
    ):
        prepare(engine, window)
        for name, path in PAGES.items():
            picture = beside(
                shot(window, path, DESKTOP, "light"), shot(window, path, PHONE, "dark")
            )
            target = folder / f"dashboard-{name}.png"
            picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
            sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes\n")


def prepare(engine: af.Engine, window: Window) -> None:
    """Let something happen, so that there is something to see."""
    for number in range(1, 40):
        order = engine.start(DemoOrder(f"order-{number}"), id=f"order-{number}")
        if number % 3:
            order.send("paid")
    verbs = Verbs(engine)
    verbs.cancel("order-3")
    until(lambda: engine.execution("plan-scores").status == "done")
    verbs.batches("queue")  # recorded from now on, for the page about other policies
    window.open("overview")
    time.sleep(SECONDS)


def shot(window: Window, path: str, size: tuple[int, int], scheme: Scheme) -> Image.Image:
    """Return a picture of a page."""
    window.look(size, scheme)
    window.open(path)
    window.do(lambda page: page.wait_for_timeout(300))
    data = window.do(lambda page: page.screenshot())
    found = Image.open(io.BytesIO(data)).convert("RGB")
    return found.resize(
        (round(found.width * HEIGHT / found.height), HEIGHT), Image.Resampling.LANCZOS
    )


def beside(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two pictures beside each other."""
    both = Image.new("RGB", (left.width + GAP + right.width, HEIGHT), GROUND)
    both.paste(left, (0, 0))
    both.paste(right, (left.width + GAP, 0))
    return both


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
