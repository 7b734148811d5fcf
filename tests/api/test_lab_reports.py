"""The pages about reports of the lab: the files of one folder, and no others."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.pages.app import store_app
from actorflow.api.pages.content import reports
from actorflow.api.pages.security import COOKIE
from actorflow.api.verbs.table import Verbs
from actorflow.lab.models.policies import policy_of
from actorflow.lab.outputs import as_json
from actorflow.lab.run.simulate import simulate
from tests.api.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NASTY = "<script>alert(1)</script>"
SECRET = "not for you"  # noqa: S105 - a test


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.html").write_text(SECRET)
    made = tmp_path / "reports"
    (made / "deeper").mkdir(parents=True)
    (made / "deeper" / "inner.html").write_text(SECRET)
    (made / "notes.txt").write_text(SECRET)
    (made / ".hidden.json").write_text(SECRET)
    (made / "folder.html").mkdir()
    os.mkfifo(made / "pipe.html")
    (made / "link.html").symlink_to(tmp_path / "outside.html")
    (made / "page.html").write_text(f"<h1>Policies</h1>{NASTY}")
    (made / "nasty<b>.json").write_text(json.dumps({NASTY: NASTY, "results": [{NASTY: NASTY}]}))
    return made


@pytest.fixture
def engine() -> Iterator[af.Engine]:
    with af.Engine(":memory:") as engine:
        yield engine


def serving(engine: af.Engine, folder: Path | None, **options: Any) -> Any:
    verbs = Verbs(engine)
    return Browser.of(store_app(lambda **_: nullcontext(verbs), reports=folder, **options))


def test_the_reports_of_a_folder_are_listed(engine: af.Engine, folder: Path) -> None:
    os.utime(folder / "page.html", (1.0, 1.0))
    with serving(engine, folder) as browser:
        text = browser.get("/reports").text
    assert text.index("nasty&lt;b&gt;.json") < text.index("page.html")
    for other in (
        "inner.html",
        "notes",
        "hidden.json",
        "link.html",
        "pipe",
        "folder.html",
        "outside",
    ):
        assert other not in text


def test_without_a_folder_the_page_says_how_to_name_one(engine: af.Engine) -> None:
    with serving(engine, None) as browser:
        assert "--reports DIR" in browser.get("/reports").text
        assert browser.get("/report", name="page.html").status == 404
        assert browser.get("/report-file", name="page.html").status == 404


def test_json_is_shown_as_tables(engine: af.Engine, folder: Path) -> None:
    results = [
        simulate("poisson(500, duration=1s)", "1ms", policy_of(each))
        for each in ("queue", "linger(queue, 20ms)")
    ]
    (folder / "lab.json").write_text(as_json(results, {"traffic": "poisson(500)"}))
    with serving(engine, folder) as browser:
        text = browser.get("/report", name="lab.json").text
        nasty = browser.get("/report", name="nasty<b>.json").text
    assert "poisson(500)" in text
    assert "linger(queue, 20ms)" in text
    assert "<h2>results</h2>" in text
    assert "latency p99" in text
    assert "depth_series" not in text
    assert "&lt;script&gt;" in nasty
    assert "<script>alert" not in nasty


@pytest.mark.parametrize(
    "content", ["", "{", "7", "[]", "null", "[" * 100_000, "9" * 5_000, '{"a": [1, {"b": [{}]}]}']
)
def test_what_is_not_a_report_does_no_harm(engine: af.Engine, folder: Path, content: str) -> None:
    (folder / "odd.json").write_text(content)
    with serving(engine, folder) as browser:
        assert browser.get("/report", name="odd.json").status == 200


def test_html_can_run_nothing(engine: af.Engine, folder: Path) -> None:
    with serving(engine, folder) as browser:
        page = browser.get("/report", name="page.html").text
        answer = browser.get("/report-file", name="page.html")
    assert 'src="report-file?name=page.html" sandbox ' in page
    assert "Policies" not in page
    assert "<h1>Policies</h1>" in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.endswith("; sandbox")
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    [
        "../outside.html",
        "deeper/inner.html",
        "./page.html",
        "link.html",
        "pipe.html",
        "folder.html",
        "notes.txt",
        ".hidden.json",
        "page.html\0",
        "page.html/",
        "",
        "..",
        "%2e%2e/outside.html",
        "..\\outside.html",
        "x" * 3_000 + ".html",
    ],
)
@pytest.mark.parametrize("path", ["/report", "/report-file"])
def test_no_other_file_can_be_read(engine: af.Engine, folder: Path, path: str, name: str) -> None:
    absolute = folder.parent / "outside.html"
    with serving(engine, folder) as browser:
        for given in (name, str(absolute)):
            answer = browser.get(path, name=given)
            assert answer.status == 404
            assert SECRET not in answer.text


def test_json_is_no_page_of_its_own(engine: af.Engine, folder: Path) -> None:
    with serving(engine, folder) as browser:
        assert browser.get("/report-file", name="nasty<b>.json").status == 404


def test_reports_need_the_right_to_read(engine: af.Engine, folder: Path) -> None:
    with serving(engine, folder, token="token-7") as browser:  # noqa: S106 - a test
        for path in ("/reports", "/report?name=page.html", "/report-file?name=page.html"):
            assert browser.get(path).status == 403
            browser.cookies[COOKIE] = "token-7"
            assert browser.get(path).status == 200
            browser.cookies.clear()


def test_a_large_file_is_refused(
    engine: af.Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_LONGEST", 10)
    with serving(engine, folder) as browser:
        answer = browser.get("/report-file", name="page.html")
    assert answer.status == 404
    assert "at most 10 are shown" in answer.text


def test_a_folder_that_vanishes_is_named(engine: af.Engine, tmp_path: Path) -> None:
    with serving(engine, tmp_path / "gone") as browser:
        answer = browser.get("/reports")
    assert "cannot be read" in answer.text


def test_a_file_that_became_a_link_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"name": "link.html", "kind": "HTML", "size": 1, "at": 0.0}
    monkeypatch.setattr(reports, "_found", lambda _folder: {"link.html": row})
    with pytest.raises(reports.UnknownReport, match="cannot be read"):
        reports.read_report(folder, "link.html")
