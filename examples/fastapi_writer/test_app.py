"""The service under real requests, and stopped by SIGTERM while it serves them."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    database = tmp_path / "events.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"],
        cwd=HERE,
        env={**os.environ, "EVENTS": str(database), "PYTHONPATH": str(HERE.parents[1])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if running := re.search(r"running on (http://\S+)", line):
                yield process, running[1], database
                break
        else:
            pytest.fail(f"uvicorn ended with {process.wait()}")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def post(url: str, number: int) -> int:
    body = json.dumps({"user": f"user {number % 7}", "action": f"click {number}"}).encode()
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/events", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return int(answer.status)


def stored(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [action for (action,) in connection.execute("SELECT action FROM events")]


def test_concurrent_writes_share_transactions_and_survive_sigterm(
    service: tuple[subprocess.Popen[str], str, Path],
) -> None:
    process, url, database = service
    with ThreadPoolExecutor(16) as clients:
        statuses = list(clients.map(lambda number: post(url, number), range(200)))
    assert statuses == [201] * 200
    with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:  # noqa: S310
        health = json.load(answer)
    assert health["processed"] == 200
    assert health["batches"] <= 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)
    assert sorted(stored(database)) == sorted(f"click {number}" for number in range(200))
