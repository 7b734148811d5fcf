"""The service under real requests, and a month in virtual time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.testing import WorkflowHarness
from examples.approval.app import Approval, Decision, Expense, pay, remind

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TRAIN = Expense(by="ann", what="train", amount=120)


@contextmanager
def service(store: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"],
        cwd=HERE,
        env={**os.environ, "EXPENSES": str(store), "PYTHONPATH": str(HERE.parents[1])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if running := re.search(r"running on (http://\S+)", line):
                yield f"{running[1]}/expenses"
                break
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def put(url: str, body: Any) -> int:
    data, header = json.dumps(body).encode(), {"Content-Type": "application/json"}
    made = urllib.request.Request(url, data, header, method="PUT")  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(made, timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def outcome(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own server
        return str(json.load(answer)["e-1"]["outcome"])


def test_an_expense_waits_for_its_decision_while_the_service_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "expenses.db"
    with service(store) as url:
        for _ in range(2):  # the second one changes nothing
            assert put(f"{url}/e-1", TRAIN.model_dump()) == 201
    with service(store) as url:
        assert outcome(url) == "waiting"
        decision = {"by": "bob", "approved": True}
        assert put(f"{url}/e-2/decision", decision) == 404
        assert put(f"{url}/e-1/decision", {"by": "bob"}) == 422
        assert put(f"{url}/e-1/decision", decision) == 202
        while outcome(url) == "waiting":
            time.sleep(0.02)
        assert outcome(url) == "paid 120 to ann"
        assert put(f"{url}/e-1/decision", decision) == 409


def test_nobody_approves_his_own_expenses() -> None:
    with WorkflowHarness(Approval(TRAIN)) as approval:
        approval.send(Decision(by="ann", approved=True))
        assert approval.result == "declined: nobody approves his own expenses"


def test_the_boss_is_reminded_for_a_month() -> None:
    with WorkflowHarness(Approval(TRAIN), stubs={remind: None, pay: "paid"}) as approval:
        for _ in range(29):
            approval.advance(days=1)
        assert approval.properties["reminders"] == 29
        approval.advance(days=1)
        assert approval.result == "forgotten"
