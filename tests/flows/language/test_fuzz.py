"""Hostile texts: the parser gives a tree or a syntax error, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.language.parser import parse
from actorflow.flows.language.source import FlowSyntaxError
from tests.flows.flow_texts import flow_texts, noise

ROOT = Path(__file__).parent.parent.parent.parent
SECONDS = 120


def check(text: str) -> None:
    with suppress(FlowSyntaxError):
        assert isinstance(parse(text)[0], str | list)


@pytest.mark.soak
@given(flow_texts() | st.text() | noise)
def test_any_text_gives_a_tree_or_a_syntax_error(text: str) -> None:
    check(text)


def fuzz() -> None:
    """Run atheris for a while. In a process of its own: it never returns."""
    atheris = importlib.import_module("atheris")  # not on every machine

    def one(data: bytes) -> None:
        check(data.decode("utf-8", errors="surrogateescape"))

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={SECONDS}"], one)
    atheris.Fuzz()


@pytest.mark.soak
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed here"
)
def test_atheris_finds_nothing(tmp_path: Path) -> None:
    code = "from tests.flows.language.test_fuzz import fuzz; fuzz()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
