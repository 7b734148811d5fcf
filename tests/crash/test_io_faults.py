"""Disks that fail at any call: the answers to callers agree with the contents of the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CALLS = 76  # that the messages of a case make, about
KINDS = [
    "1:EIO:kill", "1:ENOSPC:torn", "3:EDQUOT:torn-close", "6:EIO:ask", "2:EIO:repeat",
    "1:EIO:close", "ever:ENOSPC:kill", "1:ENOSPC:repeat", "3:EIO:torn",
]  # fmt: skip


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler, or no LD_PRELOAD")
    library = tmp_path_factory.mktemp("shim") / "io_faults.so"
    source = str(HERE / "io_faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def sample() -> list[str]:
    kinds = cycle(KINDS)
    return [f"{call}:{next(kinds)}" for call in range(1, CALLS + 1, 2)]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(sample(), id="some"),
        pytest.param(
            [f"{call}:{kind}" for call in range(1, CALLS + 1) for kind in KINDS],
            id="all", marks=pytest.mark.soak,
        ),
    ],
)  # fmt: skip
def test_answers_are_true_whichever_call_fails(
    shim: Path, tmp_path: Path, cases: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "io_faults.py"), str(tmp_path), str(shim), *cases],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(cases), done.stderr
    assert [(case, wrong) for case, _, wrong in found if wrong] == []
    words = Counter(word for _, each, _ in found for word in each["said"].values())
    assert set(words) >= {"stored", "not stored", "unknown"}, words
