"""The documentation site: it builds without warnings, and its pages need no other host."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from actorflow.runtime.errors import ActorflowError

ROOT = Path(__file__).parent.parent
LOADED = re.compile(
    r"""<(?:script|img|iframe|link(?=[^>]*rel="?(?:stylesheet|preload|icon|modulepreload)))\b[^>]*"""
    r"""(?:src|href)=["']?(https?:)?//"""
)
"""A tag that makes a browser load something from a named host."""


@pytest.mark.timeout(300)
def test_the_site_builds_strictly_and_loads_nothing_from_other_hosts() -> None:
    done = subprocess.run(
        ["make", "docs", "TOOLS="],  # noqa: S607 - any make; TOOLS: nothing is installed
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((ROOT / "build" / "site").rglob("*.html"))
    assert len(pages) > 30
    loading = [page.name for page in pages if LOADED.search(page.read_text(encoding="utf-8"))]
    assert loading == []
    reference = (ROOT / "build" / "site" / "docs" / "reference" / "api.html").read_text("utf-8")
    assert 'id="actorflow.spawn"' in reference


def test_troubleshooting_names_errors_and_log_events_that_exist() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    for module in ("runtime", "engine", "plans", "workflows", "flows"):
        import_module(f"actorflow.{module}.errors")
    known = {each.__name__ for each in subclasses(ActorflowError)}
    named = {name for symptom in symptoms for name in re.findall(r"`([A-Z][A-Za-z]+)`", symptom)}
    assert named - known == set()
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "actorflow").rglob("*.py"))
    events = [event for symptom in symptoms for event in re.findall(r"log: `([^`]+)`", symptom)]
    assert [event for event in events if event not in code] == []
    assert len(named) > 20
    assert len(events) >= 4


def subclasses(base: type) -> set[type]:
    below: set[type] = set(base.__subclasses__())
    return below.union(*(subclasses(each) for each in below))
