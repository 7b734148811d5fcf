"""The programs in examples/workflows: each is killed in the middle and run again."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples/workflows"
LONGEST = 60
"""Lines of a program that a newcomer reads."""

PRINTS = {
    "agent_with_tools": "It has 21 degrees in Rome, and it is 10:40 in Rome.",
    "batch_iterator": "4 pages, total 190",
    "batched_calls": "sum: 780",
    "dsl_interpreter": "fetch (resize | scan label) store",
    "encrypted": "40 paid with a card that ends in 1234",
    "expense_approval": "train to Rome paid",
    "fan_out": "65 words",
    "first_answer": "answer of Rome, which is number 1",
    "food_delivery": "pizza with olives and basil delivered",
    "hello": "Hello, world!",
    "hello_cancellation": "cancelled: gpu-1 given back",
    "human_in_the_loop": "read mails to tidy up: done, delete spam: done",
    "lobby": "ann against cid against dan",
    "money_transfer": "+40 to bob; InvalidAccount, +40 to ann",
    "mutex": "lent to ann, bob, cid",
    "nightly": "counted 7, 7, 7",
    "polling": "sales of May: 40 pages, asked 4 times",
    "progress": "35 files copied",
    "queue_consumer": "1 hello, 2 how are you, 3 bye",
    "reminders": "ann: I come",
    "retries": "Rome: sunny, NoSuchCity",
    "shopping_cart": "ann: 6 things; bob: 1 things",
    "sliding_window": "sum of squares: 285",
    "subscription": "ann has stayed, and pays 12 now",
    "trip_booking": "no flight left: car to Rome cancelled, hotel to Rome cancelled",
    "updatable_timer": "a clock sold for 30",
    "versions": "o-1 paid (not checked), o-2 paid (o-2 is fine)",
}
"""The last line that each of them prints, whatever has happened to it before."""

POINTS = (
    "run.fetch",
    "run.after",
    "commit.before",
    "commit.inside",
    "commit.after",
    "dispatch.before",
)


def run(name: str, store: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / f"{name}.py"), str(store)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def run_until(name: str, store: Path, failpoint: str) -> bool:
    """Run a program that is killed at a point; return whether it was, before it was done."""
    done = run(name, store, failpoint)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    if done.returncode == 0:
        assert done.stdout.splitlines()[-1] == PRINTS[name], done.stderr
    return done.returncode != 0


def check_end(name: str, store: Path, *kills: str) -> None:
    done = run(name, store)
    assert done.returncode == 0, f"after {kills}: {done.stderr}"
    assert done.stdout.splitlines()[-1] == PRINTS[name], f"after {kills}: {done.stderr}"


def test_each_is_short_and_explained() -> None:
    found = sorted(FOLDER.glob("*.py"))
    assert [path.stem for path in found] == sorted(PRINTS)
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in found:
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) < LONGEST, f"{path.name} is too long"
        assert path.name in index, f"README.md does not name {path.name}"


@pytest.mark.parametrize("name", PRINTS)
def test_killed_in_the_middle_it_ends_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    dice = random.Random(f"{name} is killed")
    point, count = dice.choice(POINTS), dice.randint(1, 9)
    # A program with fewer steps is killed earlier.
    while not run_until(name, tmp_path / f"{count}.db", f"{point}:{count}"):
        assert count > 1, f"{name} never comes to {point}"
        count //= 2
    check_end(name, tmp_path / f"{count}.db", f"{point}:{count}")


@pytest.mark.parametrize(("name", "unit"), [("subscription", "MONTH"), ("reminders", "DAY")])
def test_time_that_passes_before_the_program_goes_on_changes_nothing(
    name: str, unit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(FOLDER / f"{name}.py"))
    example["main"].__globals__[unit] = 0.0
    example["main"]()
    assert capsys.readouterr().out.splitlines()[-1] == PRINTS[name]


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PRINTS)
def test_killed_at_every_point(name: str, tmp_path: Path) -> None:
    for point in POINTS:
        count = 1
        while run_until(name, store := tmp_path / f"{point}-{count}.db", f"{point}:{count}"):
            check_end(name, store, f"{point}:{count}")
            count += 1


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PRINTS)
def test_killed_again_and_again(name: str, tmp_path: Path) -> None:
    dice = random.Random(f"{name} is killed often")
    for round_ in range(20):
        store, kills = tmp_path / f"{round_}.db", []
        for _ in range(2):  # a task is given up when the process has ended three times under it
            kills.append(f"{dice.choice(POINTS)}:{dice.randint(1, 6)}")
            if not run_until(name, store, kills[-1]):
                break
        check_end(name, store, *kills)
